"""The manifests of the storage tutorial as they are, several in one text, and texts that are none."""

from __future__ import annotations

import json
import sys
from subprocess import run

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.dialects.documents import TaskDocument, read_documents
from penstock.dialects.manifest.container import AMOUNTS, CONTAINER, RESOURCES
from penstock.dialects.manifest.job import JOB, SERVICE
from penstock.dialects.manifest.metadata import METADATA
from penstock.dialects.manifest.pod import AFFINITY
from penstock.dialects.manifest.pod import POD as POD_SHAPE
from penstock.dialects.manifest.read import ManifestVolume, ManifestWorkload, NewClaim
from penstock.dialects.manifest.volumes import EMPTY_DIR, MOUNT, PVC, VOLUME
from penstock.dialects.yaml import FILE_LIMIT, SIZE_LIMIT
from penstock.domain.volumes import AccessMode
from penstock.domain.workloads import UNLIMITED, Array, Medium, Mount, Requests, Resources, Scratch, Spec
from penstock.errors import Invalid
from tests.dialects.manifests import CLAIM, POD, SMALL_JOB, SMALL_POD, SWEEP, problems_of, spec_of, task_of
from tests.dialects.test_text import YAMLISH

GIB = 1024**3
SHARED_MEMORY = Scratch(path="/dev/shm", medium=Medium.memory, size_bytes=64 * 1024**2)


def test_a_pod_with_scratch_and_ramdisk_becomes_a_workload():
    assert spec_of(POD) == Spec(
        name="scratch-alice",
        resources=Resources(
            cpus_milli=100,
            memory_bytes=8 * GIB,
            disk_bytes=10 * GIB,
            requests=Requests(memory_bytes=4 * GIB, disk_bytes=GIB),
            image="rockylinux:8",
        ),
        scratch=(Scratch(path="/mnt/disk"), Scratch(path="/mnt/ram", medium=Medium.memory), SHARED_MEMORY),
        run=("sh", "-c", "sleep 1000"),
        stop_grace=30,
        restart=True,
        retries=UNLIMITED,
    )


def test_a_claim_becomes_a_volume_to_be_made():
    (document,) = read_documents(CLAIM, "pvc.yaml")
    assert isinstance(document, ManifestVolume)
    assert document.claim == NewClaim("results-alice", "1Gi", "rook-cephfs", (AccessMode.ReadWriteMany,))
    assert document.where == "pvc.yaml:4:9"
    assert document.place("storage_class") == ("pvc.yaml:6:21", "spec.storageClassName")


def test_an_indexed_job_becomes_an_array():
    spec = spec_of(SWEEP)
    assert spec == Spec(
        name="sweep-alice",
        array=Array(count=4),
        resources=Resources(
            cpus_milli=4000,
            memory_bytes=16 * GIB,
            disk_bytes=10 * GIB,
            gpus=1,
            gpu_products=("NVIDIA-A10",),
            image="example.com/solver:1",
        ),
        mounts=(Mount(path="/results", volume="results-alice"),),
        scratch=(SHARED_MEMORY,),
        run=(
            'cd /results; size=$(awk "BEGIN {print 1.2+0.8*$JOB_COMPLETION_INDEX}"); '
            "solve --size $size > log$JOB_COMPLETION_INDEX;"
        ),
        stop_grace=30,
        retries=6,
        requeue=6,
        ttl=180,
    )
    assert task_of(SWEEP).notices == ()


def test_what_is_wrong_beyond_the_text_is_said_at_the_manifests_own_fields():
    task = task_of(SWEEP)
    assert task.where("resources", "memory") == "m.yaml:39:21"
    assert task.field("resources", "memory") == "spec.template.spec.containers[0].resources.limits.memory"
    assert task.where("volumes", "/results") == "m.yaml:36:26"
    assert task.field("volumes", "/results") == "spec.template.spec.containers[0].volumeMounts[0].mountPath"
    assert task.where("resources", "accelerators") == "m.yaml:41:29"
    assert (task.where("after"), task.field("after")) == ("m.yaml:1:1", "Job")


# several documents


def test_several_documents_are_read_in_their_order():
    text = f"---\n{CLAIM}---\n# nothing here\n---\n{SWEEP}---\nname: train\nrun: python train.py\n---\n"
    volume, sweep, task = read_documents(text, "all.yaml")
    assert isinstance(volume, ManifestVolume)
    assert isinstance(sweep, ManifestWorkload)
    assert (sweep.kind, sweep.name) == ("Job", "sweep-alice")
    assert isinstance(task, TaskDocument)
    assert task.task.spec == Spec(name="train", run="python train.py")
    assert task.task.where("run") == "all.yaml:66:1"


def test_a_list_is_what_it_holds():
    items = "".join("- " + text.replace("\n", "\n  ").rstrip(" ") for text in (CLAIM, POD))
    volume, pod = read_documents(f'apiVersion: v1\nkind: List\nmetadata: {{resourceVersion: ""}}\nitems:\n{items}', "l")
    assert isinstance(volume, ManifestVolume)
    assert isinstance(pod, ManifestWorkload)
    assert pod.task.field("resources", "cpus") == "items[1].spec.containers[0].resources.limits.cpu"


def test_all_problems_of_all_documents_come_at_once():
    text = "\n---\n".join([CLAIM.replace("Many", "Few"), "nmae: x\nrun: a", SMALL_POD.replace("[echo]", "[]"), "- a"])
    assert problems_of(text) == [
        "m.yaml:8:5: spec.accessModes[0]: 'ReadWriteFew' is not an access mode "
        "(one of ReadWriteOnce, ReadWriteMany, ReadOnlyMany)",
        "m.yaml:14:1: nmae: is not a known key (did you mean 'name'?)",
        "m.yaml:23:5: spec.containers[0].command: names no program "
        "(for example 'command: [python, train.py]': the image's own program is not started)",
        "m.yaml:27:1: must be lines of 'key: value', not a list (a task is at least 'run: echo hello')",
    ]


def test_a_task_of_several_documents_that_says_nothing_to_run_is_found():
    (problem,) = problems_of(f"{SMALL_POD}---\nname: x\n")
    assert problem == "m.yaml:10:1: run: the commands to run are missing (for example 'run: python train.py')"


def test_two_of_one_name_are_refused():
    assert problems_of(f"{SMALL_POD}---\n{SMALL_JOB}---\n{CLAIM}---\n{CLAIM}") == [
        "m.yaml:12:18: metadata.name: a workload 'small' is in this file already",
        "m.yaml:36:9: metadata.name: a volume 'results-alice' is in this file already",
    ]
    assert len(read_documents("run: a\n---\nrun: b\n", "m.yaml")) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Pod\nspec: {}\n", "m.yaml:1:1: apiVersion: must be 'v1' for a Pod (write v1)"),
        ("apiVersion: v1\nmetadata: {}\n", "m.yaml:1:1: kind: is missing (the kinds are Workload, Node, G"),
        ("metadata: {}\nspec: {}\n", "m.yaml:1:1: kind: is missing (the kinds are Workload, Node, Gro"),
        (
            "apiVersion: apps/v1\nkind: Deployment\n",
            "m.yaml:2:7: kind: 'Deployment' is not a kind Penstock knows (a Pod is started again when it ends; the kin",
        ),
        ("apiVersion: v1\nkind: Widget\n", "m.yaml:2:7: kind: 'Widget' is not a kind Penstock knows (the kinds"),
        (
            SMALL_JOB.replace("batch/v1", "batch/v1beta1"),
            "m.yaml:1:13: apiVersion: must be 'batch/v1' for a Job (write batch/v1)",
        ),
        (
            SMALL_POD.replace("{name: small}", "{}"),
            "m.yaml:3:11: metadata.name: is missing (for example 'name: train')",
        ),
        (SMALL_POD.replace("{name: small}", "{name: }"), "m.yaml:3:11: metadata.name: is missing"),
        (SMALL_POD.replace("{name: small}", ""), "m.yaml:1:1: metadata: is missing"),
        (SMALL_POD.replace("{name: small}", "small"), "m.yaml:3:11: metadata: must be a mapping, not a single text"),
        (SMALL_POD.replace("spec:\n", "spce:\n"), "m.yaml:1:1: spec: is missing"),
        ("apiVersion: v1\nkind: List\nitems: [a]\n", "m.yaml:3:9: items[0]: must be a mapping"),
        ("apiVersion: v1\nkind: List\nitems: [{run: a}]\n", "m.yaml:3:9: items[0].kind: is missing (the kinds are"),
        ("apiVersion: v1\nkind: List\nitems: a\n", "m.yaml:3:8: items: must be a list, not a single text"),
        ("", "m.yaml: the file is empty"),
        ("---\n---\n", "m.yaml: the file is empty"),
    ],
)
def test_what_is_no_document_is_said_at_its_place(text, said):
    assert problems_of(text)[0].startswith(said)


def test_each_document_has_limits_of_its_own():
    assert len(read_documents("".join(f"name: j{number}\nrun: a\n---\n" for number in range(2000)), "m.yaml")) == 2000
    large = f"name: large\nrun: [{'a, ' * 900}]\n---\n"
    assert len(read_documents("".join(large.replace("large", f"l{number}") for number in range(40)), "m.yaml")) == 40
    assert "this document has more than 25,000 values" in problems_of(f"run: a\n---\nrun: [{'a, ' * 25_001}]\n")[0]
    assert problems_of(f"run: a\n---\nrun: {'x' * SIZE_LIMIT}\n")[0] == "m.yaml:2:1: this document is larger than 1 MiB"
    bomb = "a: &a [x, x, x, x]\nb: *a\nrun: a\n---\nrun: *a\n"
    assert "there is no '&a' before it" in problems_of(bomb)[2]


def test_a_file_has_limits_too_and_says_what_to_do():
    assert problems_of("# " + "x" * FILE_LIMIT) == ["m.yaml: is larger than 16 MiB (split it into several files)"]
    [said] = problems_of(f"run: [{'a, ' * 24_900}]\n---\n" * 42)
    assert said.endswith("has more than 1,000,000 values in all (split it into several files)")


@given(YAMLISH | YAMLISH.map(lambda text: SMALL_POD + text) | YAMLISH.map(lambda text: f"{SMALL_JOB}---\n{text}"))
def test_anything_is_documents_or_an_error_that_says_why(text):
    try:
        read_documents(text, "m.yaml")
    except Invalid as error:
        caught = error
    else:
        return
    assert caught.problems
    assert caught.body()["detail"].encode()


SHAPES = [METADATA, POD_SHAPE, CONTAINER, VOLUME, MOUNT, EMPTY_DIR, RESOURCES, AMOUNTS, AFFINITY, JOB, PVC, SERVICE]
KEYS = st.sampled_from(
    sorted({name for shape in SHAPES for name in shape.readers} | {name for shape in SHAPES for name in shape.refused})
) | st.text(max_size=3)
VALUES = st.none() | st.sampled_from(
    ["Pod", "Job", "PersistentVolumeClaim", "v1", "batch/v1", "8Gi", "a", "<u>", "Never"]
)
NODES = st.recursive(
    VALUES | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


@given(
    st.sampled_from([("v1", "Pod"), ("batch/v1", "Job"), ("v1", "PersistentVolumeClaim"), ("v1", "Service")]),
    st.dictionaries(KEYS, NODES, max_size=6),
)
def test_any_tree_of_fields_is_a_document_or_an_error_that_says_why(kind, spec):
    body = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": "a"}, "spec": spec}
    nested = body | {"spec": {"template": {"spec": spec}, "containers": [spec], "volumes": [spec], "affinity": spec}}
    for document in (body, nested):
        try:
            read_documents(json.dumps(document), "m.json")
        except Invalid as error:
            json.dumps(error.body()["problems"])


@given(st.sampled_from([POD, SWEEP, CLAIM, SMALL_JOB]), st.integers(0, 60), NODES)
def test_any_value_changed_in_a_right_manifest_is_a_document_or_an_error(text, number, value):
    body = yaml.safe_load(text)
    places = list(_places(body))
    inside, key = places[number % len(places)]
    inside[key] = value
    try:
        read_documents(json.dumps(body), "m.json")
    except Invalid as error:
        json.dumps(error.body()["problems"])


def _places(node):
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def test_submitting_a_task_does_not_load_what_reads_manifests():
    code = "import penstock.dialects.task, sys; sys.exit('penstock.dialects.manifest' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
