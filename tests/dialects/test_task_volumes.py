"""`volumes` of a task."""

from __future__ import annotations

import pytest

from penstock.domain.workloads import Medium, Mount, Scratch
from tests.dialects.reading import problems_of, spec_of


def test_volumes_may_be_nested_repeated_and_read_only():
    spec = spec_of("run: a\nvolumes: {/a: v, /a/b/: v, /c: w:ro, /d: pvc-1.example.com, /e: abcdefg2}")
    assert spec.mounts == (
        Mount(path="/a", volume="v"),
        Mount(path="/a/b", volume="v"),
        Mount(path="/c", volume="w", read_only=True),
        Mount(path="/d", volume="pvc-1.example.com"),
        Mount(path="/e", volume="abcdefg2"),
    )


@pytest.mark.parametrize("path", ["/", "/proc", "/usr", "/dev/sda", "/data/../etc", "data", "~/x", '"/a\\0"', "''"])
def test_a_mount_where_none_can_be_is_refused(path):
    (problem,) = problems_of(f"run: a\nvolumes: {{{path}: v}}")
    assert problem.startswith("t.yaml:2:11: volumes.")


def test_two_volumes_at_one_path_are_refused():
    (problem,) = problems_of("run: a\nvolumes:\n  /data: v\n  /data/: w\n")
    assert problem == "t.yaml:4:3: volumes./data/: '/data' has a volume already: 'v'"


@pytest.mark.parametrize(
    "name", ["../../etc", "..", "a/b", "A", "a..b", "-a", "", '"a\\0"', "a" * 254, "x" * 500_000, "{name: V}", "[v]"]
)
def test_what_cannot_be_a_volumes_name_is_refused_shortly(name):
    (problem,) = problems_of(f"run: a\nvolumes: {{/data: {name}}}")
    assert problem.startswith("t.yaml:2:")
    assert len(problem) < 300


def test_more_volumes_than_anyone_means_are_refused():
    mounts = ", ".join(f"/d{n}: v" for n in range(101))
    assert problems_of(f"run: a\nvolumes: {{{mounts}}}") == ["t.yaml:2:10: volumes: has 101 entries; 100 at most"]


def test_the_place_of_the_code_is_taken_only_when_code_is_sent():
    (problem,) = problems_of("run: a\nworkdir: .\nvolumes: {/workdir/: v}")
    assert problem.startswith("t.yaml:3:22: volumes./workdir: '/workdir' is where the code of a relative workdir is")
    assert spec_of("run: a\nworkdir: /workdir\nvolumes: {/workdir: v}").mounts[0].path == "/workdir"


# written out, and scratch


def test_a_volume_may_be_written_out_as_skypilot_does():
    spec = spec_of("run: a\nvolumes: {/a: {name: v}, /b: {name: w, read_only: true}, /c: {name: w, read_only: no}}")
    assert spec.mounts == (
        Mount(path="/a", volume="v"),
        Mount(path="/b", volume="w", read_only=True),
        Mount(path="/c", volume="w"),
    )


def test_a_mapping_without_a_name_is_scratch():
    spec = spec_of(
        "run: a\nvolumes:\n"
        "  /scratch: {size: 10Gi}\n"
        "  /plain: {medium: disk}\n"
        "  /ram: {size: 2Gi, medium: memory}\n"
        "  /dev/shm/: {medium: Memory}\n"
        "  /tmp: {size: 1.5Gi}\n"
    )
    assert spec.mounts == ()
    assert spec.scratch == (
        Scratch(path="/scratch", size_bytes=10 * 1024**3),
        Scratch(path="/plain"),
        Scratch(path="/ram", medium=Medium.memory, size_bytes=2 * 1024**3),
        Scratch(path="/dev/shm", medium=Medium.memory),
        Scratch(path="/tmp", size_bytes=3 * 512 * 1024**2),
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{}", "t.yaml:2:18: volumes./data: says neither a volume's name nor the size or medium of a scratch (for"),
        ("{size: 10}", "t.yaml:2:25: volumes./data.size: '10' has no unit (10Gi or 10Mi)"),
        ("{size: 0Gi}", "t.yaml:2:25: volumes./data.size: a size must be more than zero (for example 10Gi)"),
        ("{size: [1Gi]}", "t.yaml:2:25: volumes./data.size: must be a text, not a list (for example 10Gi)"),
        ("{medium: tape}", "t.yaml:2:27: volumes./data.medium: must be disk or memory, not 'tape'"),
        ("{name: v, size: 1Gi}", "t.yaml:2:28: volumes./data.size: is not a known key (the keys here are name, read_"),
        ("{size: 1Gi, read_only: true}", "t.yaml:2:30: volumes./data.read_only: is not a known key (the keys here"),
        ("{szie: 1Gi}", "t.yaml:2:19: volumes./data.szie: is not a known key (did you mean 'size'?)"),
        ("{name: v:ro}", "t.yaml:2:25: volumes./data.name: 'v:ro' is not a volume's name or id (say 'read_only: true'"),
        ("{name: v, read_only: 1}", "t.yaml:2:39: volumes./data.read_only: must be true or false, not '1'"),
    ],
)
def test_what_is_written_out_wrong_is_said_in_one_line(entry, said):
    (problem,) = problems_of(f"run: a\nvolumes: {{/data: {entry}}}")
    assert problem.startswith(said)


def test_two_things_at_one_path_are_refused():
    (problem,) = problems_of("run: a\nvolumes: {/a: {size: 1Gi}, /a/: v}")
    assert problem == "t.yaml:2:28: volumes./a/: '/a' has a scratch already"


def test_a_ramdisk_larger_than_the_memory_is_refused():
    text = (
        "run: a\nresources: {memory: 1Gi}\nvolumes: {/a: {size: 1Gi, medium: memory}, /b/: {size: 2Gi, medium: memory}}"
    )
    assert problems_of(text) == [
        "t.yaml:3:56: volumes./b.size: is more memory than 'resources.memory' allows: what is in it counts there "
        "(make it smaller, or the memory larger)"
    ]
    assert spec_of("run: a\nresources: {memory: 1Gi}\nvolumes: {/a: {size: 2Gi}}").scratch


def test_a_scratch_where_the_code_is_sent_to_is_refused():
    (problem,) = problems_of("run: a\nworkdir: .\nvolumes: {/workdir: {size: 1Gi}}")
    assert "'/workdir' is where the code of a relative workdir is" in problem
