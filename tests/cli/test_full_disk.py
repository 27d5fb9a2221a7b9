"""A job fills the disk of the server and goes on trying: what ends it works, nothing hangs, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Program, Result
from tests.disks import KINDS, free_on, small_disk
from tests.running import processes_naming, server_environ

FILL = "dd if=/dev/zero of={}/ballast oflag=append conv=notrunc bs=64k 2>/dev/null"
GREEDY = f"""
name: greedy
volumes: {{/data: hoard, /kept: "kept:ro"}}
resources: {{cpus: 1}}
run: "until [ -e /kept/go ]; do sleep 0.05; done; while :; do {FILL.format("/data")}; echo again; sleep 0.01; done"
"""
OTHER = f"""
name: other
volumes: {{/kept: "kept:ro"}}
resources: {{cpus: 1}}
run: "until [ -e /kept/go ]; do sleep 0.05; done; while :; do {FILL.format(".")}; sleep 0.01; done"
"""
FAILING = """
name: failing
resources: {cpus: 1}
run: "while echo x >> note; dd if=/dev/zero of=more oflag=append conv=notrunc bs=64k count=1 2>/dev/null; do sleep 0.01; done; exit 7"
"""  # noqa: E501
LATER = """
name: later
volumes: {/kept: kept}
resources: {cpus: 2}
run: echo ran >> /kept/ran
"""


@pytest.fixture(params=KINDS)
def disk(place: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with small_disk(place, request.param, 300) as mounted:
        yield mounted


@pytest.fixture
def penstock(place: Path, disk: Path) -> Iterator[Program]:
    program = Program(server_environ(place) | {"PENSTOCK_DATA_DIR": str(disk / "data"), "PENSTOCK_CPUS": "3"}, place)
    yield program
    program.end()
    program("jobs", "stop", "--all")
    program("jobs", "wait", *program("jobs", "list", "-o", "name").out.split())
    assert program("server", "stop").code == 0
    assert not processes_naming(place)


@pytest.fixture
def submitted(penstock: Program, place: Path) -> Callable[[str], Result]:
    def submit(text: str) -> Result:
        (place / "task.yaml").write_text(text)
        return penstock("jobs", "submit", "task.yaml", "--detach")

    return submit


def told(penstock: Program, name: str) -> dict[str, Any]:
    shown = penstock("jobs", "status", name, "-o", "json")
    assert shown.code == 0, shown.err
    return dict(json.loads(shown.out))


def well(done: Result) -> Result:
    assert done.code == 0, done.err
    return done


def test_a_full_disk_is_cleared_with_the_usual_commands_and_all_goes_on(
    penstock: Program, submitted: Callable[[str], Result], disk: Path
) -> None:
    for volume in ("hoard", "kept"):
        well(penstock("volumes", "create", volume, "1Gi", "--access-modes", "ReadWriteMany"))
    for text in (FAILING, GREEDY, OTHER, LATER):
        well(submitted(text))
    [kept] = (disk / "data" / "volumes").glob("kept-*")
    (kept / "go").touch()
    following = penstock.started("jobs", "logs", "greedy", "--follow")
    assert following.stdout
    heard = ""
    while "could not be kept" not in heard:
        heard += following.stdout.readline()
    assert "[penstock] the disk was full: output from here on could not be kept\n" in heard

    assert penstock("jobs", "wait", "failing").code != 0
    failed = told(penstock, "failing")
    assert (failed["state"], failed["exit_code"]) == ("CRASHED", 7)
    while free_on(disk):
        pass
    _says_what_is_the_matter(penstock, submitted)

    well(penstock("server", "stop"))
    well(penstock("server", "start"))
    well(penstock("jobs", "stop", "greedy"))
    assert told(penstock, "greedy")["state"] in ("REQUESTED_CANCEL", "STOPPED")
    penstock("jobs", "wait", "greedy")
    assert told(penstock, "greedy")["state"] == "STOPPED"
    following.wait(60)
    well(penstock("jobs", "delete", "greedy", "--force"))
    well(penstock("volumes", "delete", "hoard", "--force"))  # and the other job takes what becomes free
    assert "not found" in penstock("volumes", "get", "hoard").err

    well(penstock("jobs", "stop", "other"))
    penstock("jobs", "wait", "other")
    well(penstock("jobs", "wait", "later"))
    assert penstock("volumes", "shell", "kept", "--", "cat", "ran").out == "ran\n"
    well(submitted("run: 'true'\n"))
    assert told(penstock, "later")["attempt"] == 1


def _says_what_is_the_matter(penstock: Program, submitted: Callable[[str], Result]) -> None:
    refused = submitted("run: 'true'\n")
    assert refused.code in (1, 125)
    assert "The disk of the server is almost full (" in refused.err
    assert "it takes no new work (min_free)." in refused.err
    assert "penstock volumes delete" in refused.err
    assert "almost full" in penstock("volumes", "create", "more", "1Gi").err
    assert "almost full" in penstock("jobs", "retry", "failing").err
    examined = penstock("doctor", "-o", "json")
    assert examined.code == 1
    assert [check["ok"] for check in json.loads(examined.out)["checks"] if check["name"] == "disk"] == [False]
    header, *rows = penstock("volumes", "df").out.splitlines()
    assert "Disk free" in header
    row = next(row for row in rows if row.startswith("hoard"))
    assert row.split()[3] == row.split()[4]
