"""`volumes` of a task."""

from __future__ import annotations

import pytest

from penstock.domain.workloads import Mount
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
    "name", ["../../etc", "..", "a/b", "A", "a..b", "-a", "", '"a\\0"', "a" * 254, "x" * 500_000, "{name: v}", "[v]"]
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
    assert problem.startswith("t.yaml:3:10: volumes./workdir: '/workdir' is where the code of a relative workdir is")
    assert spec_of("run: a\nworkdir: /workdir\nvolumes: {/workdir: v}").mounts[0].path == "/workdir"
