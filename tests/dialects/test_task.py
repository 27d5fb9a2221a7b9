"""The task YAML as a whole, and the keys that hold one value each."""

from __future__ import annotations

import pytest

from penstock.dialects.task import keys, read, resources
from penstock.dialects.task.read import read_task
from penstock.domain.workloads import Mount, Resources, Spec
from tests.dialects.reading import notices_of, problems_of, resources_of, spec_of

TRAINING = """\
name: model-training
num_nodes: 4
workdir: ./code
resources:
  cpus: "8"
  memory: "32Gi"
  accelerators: "2"
  image_id: "pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime"

volumes:
  /data: ml-data
  /checkpoints/: checkpoints

envs:
  DATA_DIR: "/data"
  EPOCHS: 100

setup: |
  pip install transformers

run: |
  python train.py \\
    --data_dir $DATA_DIR

max_duration: 12h
"""


def test_a_whole_task_reads_into_what_it_says():
    task = read_task(TRAINING, "train.yaml")
    assert task.notices == ()
    assert task.spec == Spec(
        name="model-training",
        nodes=4,
        workdir="./code",
        resources=Resources(
            cpus_milli=8000,
            memory_bytes=32 * 1024**3,
            gpus=2,
            image="pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime",
        ),
        mounts=(Mount(path="/data", volume="ml-data"), Mount(path="/checkpoints", volume="checkpoints")),
        envs={"DATA_DIR": "/data", "EPOCHS": "100"},
        setup="pip install transformers\n",
        run="python train.py \\\n  --data_dir $DATA_DIR\n",
        max_duration=12 * 3600,
    )


def test_run_alone_is_a_task_and_null_is_not_said():
    assert spec_of("run: echo hello") == Spec(run="echo hello")
    assert spec_of("run: a\nname:\nnum_nodes: null\nresources: ~\nenvs:\nvolumes:\nsetup:\nworkdir:\n") == Spec(run="a")
    assert notices_of("run: a\nservice:\nresources: {use_spot: null}\nfile_mounts:\n") == ()


def test_all_problems_come_at_once_in_the_order_of_the_file():
    text = "nmae: x\nnum_nodes: 4.0\nresources:\n  memory: 16\n  gpu: A10\nenvs: {A: }\ncpus: 4\nvolumes: {/: x}\n"
    assert problems_of(text) == [
        "t.yaml: run: the commands to run are missing (for example 'run: python train.py')",
        "t.yaml:1:1: nmae: is not a known key (did you mean 'name'?)",
        "t.yaml:2:12: num_nodes: must be a whole number from 1 to 1,000, not '4.0' (write 4)",
        "t.yaml:4:11: resources.memory: '16' has no unit (write 16Gi)",
        "t.yaml:5:3: resources.gpu: is not a known key (did you mean 'accelerators'?)",
        't.yaml:6:11: envs.A: has no value (write A: "" or submit it with --env A=…)',
        "t.yaml:7:1: cpus: is not a known key (it belongs under 'resources')",
        "t.yaml:8:11: volumes./: '/' belongs to the system (a path of your own, such as /data or /mnt/data)",
    ]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("nme", "did you mean 'name'?"),
        ("num_node", "did you mean 'num_nodes'?"),
        ("env", "did you mean 'envs'?"),
        ("command", "did you mean 'run'?"),
        ("timeout", "did you mean 'max_duration'?"),
        ("memory", "it belongs under 'resources'"),
        ("image", "did you mean 'image_id' under 'resources'?"),
        (
            "xyzzy",
            "the keys here are name, num_nodes, array, after, queue, workdir, resources, selectors, labels, envs, se",
        ),
        ("depends_on", "did you mean 'after'?"),
        ("disk", "did you mean 'disk_size' under 'resources'?"),
        ("apiVersion", "a document with a 'kind' is taken by: penstock apply -f FILE"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_right_one(key, hint):
    (problem,) = problems_of(f"run: a\n{key}: 1")
    assert problem.startswith(f"t.yaml:2:1: {key}: is not a known key ({hint}")


def test_a_key_of_the_top_level_under_resources_is_sent_there():
    (problem,) = problems_of("run: a\nresources: {num_nodes: 2}")
    assert problem == "t.yaml:2:13: resources.num_nodes: is not a known key (it belongs at the top level)"


def test_the_keys_that_are_suggested_are_the_keys_that_are_read():
    assert set(keys.TOP_LEVEL) == set(read.READERS)
    assert set(keys.RESOURCES) == set(resources.READERS) - set(resources.SAME) - resources.BESIDE - {resources.MACHINE}


@pytest.mark.parametrize("key", sorted(keys.IGNORED))
def test_a_skypilot_key_that_cannot_apply_is_one_notice(key):
    assert notices_of(f"run: a\n{key}: {{a: [b]}}") == (f"{key}: has no effect on this engine",)


@pytest.mark.parametrize("key", sorted(keys.IGNORED_RESOURCES))
def test_a_skypilot_resource_that_cannot_apply_is_one_notice(key):
    (notice,) = notices_of(resources_of(**{key: "true"}))
    assert notice.startswith(f"resources.{key}: has no effect ")


def test_skypilots_ports_are_told_where_ours_are():
    assert notices_of(resources_of(ports="8888")) == (
        "resources.ports: has no effect here; 'ports' at the top level has",
    )


def test_file_mounts_are_refused_rather_than_dropped():
    (problem,) = problems_of("run: a\nfile_mounts: {/data: s3://bucket}")
    assert problem.startswith("t.yaml:2:1: file_mounts: is not supported yet, and a job without its data would be")
    assert spec_of("run: a\nfile_mounts: {}") == Spec(run="a")


# Scalars as they are written


def test_text_stays_as_it_was_written():
    text = (
        "name: no\nrun: true\nsetup: 08\nenvs: {A: no, B: 1e3, C: 0o17, D: 08, E: 1_000, F: 12:30:45, G: .inf, N: '~'}"
    )
    spec = spec_of(text)
    assert (spec.name, spec.run, spec.setup) == ("no", "true", "08")
    assert list(spec.envs.values()) == ["no", "1e3", "0o17", "08", "1_000", "12:30:45", ".inf", "~"]


@pytest.mark.parametrize("written", ["4", '"4"', "'4'", "!!int 4", "!!str 4"])
def test_a_number_may_be_quoted_or_not(written):
    assert spec_of(f"run: a\nnum_nodes: {written}").nodes == 4


@pytest.mark.parametrize(
    "written", ["0", "-1", "1001", "true", "2.5", "1e3", "0x4", "04", "four", "[4]", "4 nodes", "٤"]
)
def test_what_is_not_a_whole_number_of_nodes_is_refused(written):
    (problem,) = problems_of(f"run: a\nnum_nodes: {written}")
    assert problem.startswith("t.yaml:2:12: num_nodes: must be a ")


# name, workdir, scripts, duration


def test_the_name_of_the_command_line_replaces_the_one_in_the_file():
    assert spec_of("run: a\nname: NOT A NAME", name="right").name == "right"
    (problem,) = problems_of("run: a\nname: right", name="NOT A NAME")
    assert problem.startswith("--name: 'NOT A NAME' is not a name")


def test_a_name_of_a_megabyte_gives_a_short_error():
    (problem,) = problems_of("run: a\nname: " + "x" * 1_000_000)
    assert problem.startswith("t.yaml:2:7: name: 'xxx")
    assert len(problem) < 300


@pytest.mark.parametrize("name", ["../x", '"a\\0b"', "My Job", "''", "[a]", "a/b"])
def test_what_is_not_a_name_is_refused(name):
    (problem,) = problems_of(f"run: a\nname: {name}")
    assert problem.startswith("t.yaml:2:7: name: ")


@pytest.mark.parametrize("path", [".", "./code", "../shared", "code", "/data/code"])
def test_a_workdir_is_a_directory_here_or_in_the_job(path):
    assert spec_of(f"run: a\nworkdir: {path}").workdir == path


@pytest.mark.parametrize(
    "path",
    ["~/code", "https://x.example/r.git", "git@x.example:r.git", "{url: x}", '"a\\0b"', "''", '"a\\nb"', "x" * 5000],
)
def test_a_workdir_that_is_no_directory_is_refused(path):
    (problem,) = problems_of(f"run: a\nworkdir: {path}")
    assert problem.startswith("t.yaml:2:10: workdir: ")
    assert len(problem) < 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: ''", "t.yaml:1:6: run: is empty (for example 'run: python train.py')"),
        ("run: |\n   \n", "t.yaml:1:6: run: is empty (for example 'run: python train.py')"),
        ("run:", "t.yaml: run: the commands to run are missing (for example 'run: python train.py')"),
        ("name: a", "t.yaml: run: the commands to run are missing (for example 'run: python train.py')"),
        (
            "run: {a: b}",
            "t.yaml:1:6: run: must be a text, not a mapping (write 'run: |' and the commands below it, indented)",
        ),
        ('run: "a\\0b"', "t.yaml:1:6: run: has a NUL character in it"),
        ("run: " + "x" * 262_145, "t.yaml:1:6: run: is longer than 256 KiB (put the code in workdir or a volume)"),
        ('run: a\nsetup: "\\0"', "t.yaml:2:8: setup: has a NUL character in it"),
        ("run: a\nsetup: {a: b}", "t.yaml:2:8: setup: must be a text, not a mapping (write 'setup: |' and the comma"),
        ("run: a\nmax_duration: 3600", "t.yaml:2:15: max_duration: '3600' is not a duration (3600s, 3600m or 3600h)"),
        ("run: a\nmax_duration: 1:30", "t.yaml:2:15: max_duration: '1:30' is not a duration (for example 12h, 30m"),
        ("run: a\nmax_duration: [1h]", "t.yaml:2:15: max_duration: must be a text, not a list (for example 12h)"),
        ("run: a\nmax_duration: 30000d", "t.yaml:2:15: max_duration: '30000d' is longer than 2,147,483,647 seconds"),
        ("run: a\nresources: 4", "t.yaml:2:12: resources: must be lines of 'key: value', not a single text (for"),
    ],
)
def test_each_mistake_is_said_in_one_line(text, said):
    (problem,) = problems_of(text)
    assert problem.startswith(said)


def test_an_empty_setup_is_none():
    assert spec_of("run: a\nsetup: ''\nmax_duration: 1h30m") == Spec(run="a", max_duration=5400)
