"""PWM's commands as it shows them, on the embedded engine with stand-ins for GPUs."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from penstock import __version__
from tests.cli.conftest import SECONDS, Program, Result
from tests.cli.test_exec import Open, open_terminal
from tests.running import RunningServer, start_server

__all__ = ["open_terminal"]

NODE = os.uname().nodename
GIB = 1 << 30
GPU_TASK = "name: {}\nresources: {{cpus: 1, accelerators: 'V100:1'}}\nrun: echo begun; sleep 600\n"
CPU_TASK = "name: {}\nresources: {{cpus: 1}}\nrun: echo begun; sleep 600\n"


@pytest.fixture(scope="module")
def server(_module_place: Path, compiled_fake: Callable[[str, str], Path]) -> Iterator[RunningServer]:
    library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
    busy = _module_place / "busy"
    busy.write_text(f"1 {14 * GIB} 87\n")
    environ = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_BUSY": str(busy)}
    environ["FAKE_NVML"] = "Tesla V100-SXM2-16GB,Quadro RTX 6000"
    running = start_server(
        _module_place, environ=environ, cpus="8", memory="8Gi", gpu_lock_dir=str(_module_place / "locks")
    )
    yield running
    running.end()


@pytest.fixture
def pwmcli(penstock: Program) -> Callable[..., Result]:
    return lambda *words, **more: penstock(*words, name="pwmcli", **more)


@pytest.fixture
def begun(server: RunningServer) -> Iterator[Callable[[str, str], str]]:
    """Starts a task and waits until it runs; all are stopped when the test is over."""
    ids: list[str] = []

    def begin(text: str, name: str) -> str:
        ids.append(server.submit(text.format(name))["id"])
        deadline = time.monotonic() + SECONDS
        while server.request("GET", f"/v1/workloads/{ids[-1]}")[1]["status"] != "running":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return ids[-1]

    yield begin
    for id_ in ids:
        server.request("POST", f"/v1/workloads/{id_}/stop")
    for id_ in ids:
        server.ended(id_)


def cells(text: str) -> list[list[str]]:
    return [re.split(r"  +", line) for line in text.splitlines()]


def steady(text: str) -> str:
    return re.sub(r"\b\d+:\d\d\b", "0:05", text)


# -- what there is ------------------------------------------------------------------------------------------------


def test_the_words_are_the_documents_and_no_others(pwmcli):
    shown = pwmcli("--help").out.partition("Commands:\n")[2]
    assert [line.split()[0] for line in shown.splitlines()] == [
        *("profile", "api-version", "get", "describe", "apply", "delete", "stop", "shell", "logs", "inspect", "top"),
    ]
    assert pwmcli("jobs", "list").code == 2


def test_versions(pwmcli):
    assert pwmcli("-v").out == pwmcli("--vers").out == f"pwmcli {__version__}\n"
    assert pwmcli("api-version").out == f"v1 (server {__version__})\n"


def test_gpus(penstock, pwmcli):
    shown = pwmcli("get", "gpu").out
    head, rule, *rows = cells(shown)
    assert head == ["kind", "name", "product_name", "minor_number", "fb_memory", "node", "lastSeen"]
    assert rule == ["-" * max(map(len, shown.splitlines()))]
    assert rows == [
        ["GPU", "GPU-00000-00000000", "Tesla V100-SXM2-16GB", "90", "0 MiB / 24576 MiB", NODE, "now"],
        ["GPU", "GPU-00000-00000001", "Quadro RTX 6000", "91", "14336 MiB / 24576 MiB", NODE, "now"],
    ]
    assert penstock("get", "GPU").out == shown
    assert penstock("get", "gpus").out.startswith("Node")
    assert cells(pwmcli("get", "gpu", "GPU-00000-00000001").out)[2:] == rows[1:]
    [whole] = json.loads(pwmcli("get", "gpu", "GPU-00000-00000001", "-j").out)
    assert (whole["uuid"], whole["node"]) == ("GPU-00000000-0000-0000-0000-000000000001", NODE)


def test_nodes_and_cpus(pwmcli):
    head, _, row = pwmcli("get", "node").out.splitlines()
    assert dict(zip(head.split(), row.replace("CPUWorkload,GPUWorkload", "both").split(), strict=False))["name"] == NODE
    assert row.endswith("now       READY")
    _, _, cpu = pwmcli("get", "cpus").out.splitlines()
    assert cpu.startswith(f"CPU   {NODE}")
    described = pwmcli("describe", "node", NODE).out
    assert re.search(r"^gpus: +2$", described, re.MULTILINE)
    assert re.search(rf"^version: +{re.escape(__version__)}$", described, re.MULTILINE)
    assert re.search(r"^status: +READY$", described, re.MULTILINE)


def test_what_there_is_not_is_said(pwmcli):
    for kind in ("gpu", "cpu", "node", "group", "user"):
        done = pwmcli("get", kind, "none-such")
        assert (done.code, done.out) == (3, "")
        assert "none-such not found" in done.err
        assert pwmcli("describe", kind, "none-such").code == 3


# -- workloads ----------------------------------------------------------------------------------------------------


def test_a_running_workload(pwmcli, penstock, begun):
    begun(GPU_TASK, "first-test")
    head, _, row = cells(steady(pwmcli("get", "wk", "first-test").out))
    assert " ".join(head) == "kind name group gpu_type gpu_id gpu_usage node c_id locked status reason time"
    me = json.loads(penstock("get", "job", "first-test", "-o", "json").out)["group"]
    assert row == [
        *("Workload", "first-test", me, "Tesla V100-SXM2-16GB", "GPU-00000-00000000", "0 MiB", NODE),
        *("-", "true", "RUNNING", "null", "0:05"),
    ]
    assert penstock("get", "wk", "first-test").out.startswith("kind ")
    assert penstock("get", "job", "first-test").out.startswith("Task ID ")


def test_of_an_array_it_is_said_how_many_run(pwmcli, begun):
    begun(CPU_TASK + "array: {{count: 2}}\n", "sweep")
    deadline = time.monotonic() + SECONDS
    while json.loads(pwmcli("get", "wk", "sweep", "-j").out)["array"]["running"] < 2:
        assert time.monotonic() < deadline
    assert cells(pwmcli("get", "wk", "sweep").out)[2][7] == "2 running"


def test_workloads_by_what_they_ask_for(pwmcli, begun):
    begun(GPU_TASK, "on-gpu")
    begun(CPU_TASK, "on-cpu")

    def names(kind: str) -> list[str]:
        return [row["name"] for row in json.loads(pwmcli("get", kind, "-j").out) if row["status"] == "running"]

    assert names("gpuw") == ["on-gpu"]
    assert names("cpuw") == ["on-cpu"]
    assert names("wk") == ["on-cpu", "on-gpu"]
    assert len(pwmcli("get", "cpuw", "--limit", "1").out.splitlines()) == 3
    assert pwmcli("get", "gpuw", "on-gpu").out.splitlines()[2].split()[1] == "on-gpu"
    for more in ([], ["-j"], ["-o", "yaml"]):
        done = pwmcli("get", "gpuw", "on-cpu", *more)
        assert (done.code, done.out) == (3, "")
        assert "Workload on-cpu asks for no GPUs" in done.err
        assert "Workload on-gpu asks for GPUs" in pwmcli("get", "cpuw", "on-gpu", *more).err


def test_one_workload_waits_and_says_so(pwmcli, begun, server):
    begun(GPU_TASK, "has-it")
    waiting = server.submit(GPU_TASK.format("waits"))
    shown = pwmcli("get", "wk", "waits").out.splitlines()[2]
    assert " false   QUEUED  NO_AVAILABLE_RESOURCES  " in shown
    assert "V100" in shown
    stopped = pwmcli("stop", "wk", "waits")
    assert stopped.out == f"Task {waiting['id']} (waits) is stopped\n"
    assert pwmcli("delete", "wk", "waits").out == f"Workload waits ({waiting['id']}) deleted\n"


def test_every_format_of_every_kind(pwmcli, begun):
    begun(CPU_TASK, "formatted")
    for kind in ("wk", "gpu", "cpu", "node", "group", "user", "vol"):
        items = json.loads(pwmcli("get", kind, "-o", "json").out)
        assert items == json.loads(pwmcli("get", kind, "-j").out)
        names = pwmcli("get", kind, "-o", "name").out.split()
        assert len(names) == len(items)
        assert pwmcli("get", kind, "-o", "wide").out.startswith("kind ")
        assert list(yaml.safe_load_all(pwmcli("get", kind, "-o", "yaml").out))


def test_a_volume(pwmcli, penstock):
    penstock("volumes", "create", "datasets", "1Gi")
    made = json.loads(penstock("volumes", "get", "datasets", "-o", "json").out)
    head, _, row = cells(pwmcli("get", "vol", "datasets").out)
    assert head == ["kind", "group", "name", "storage", "subPath", "policy"]
    assert row == ["Volume", made["group"], "datasets", made["storage_class"], made["object_name"], "rw"]
    assert "Volume ID:" in pwmcli("describe", "vol", "datasets").out
    assert pwmcli("delete", "vol", "datasets").out == f"Volume datasets ({made['id']}) deleted\n"


STORAGE = """
apiVersion: v1
kind: Storage
metadata: {name: pwmzfs01, group: pwm.resource}
spec:
  kind: nfs
  nfs: {server: 192.168.186.65, path: /pwmzfs01/share_01}
"""


def test_a_storage(pwmcli):
    assert pwmcli("apply", "-f", "-", stdin=STORAGE).out == "Storage pwmzfs01 created\n"
    head, _, *rows = cells(pwmcli("get", "storage").out)
    assert head == ["kind", "name", "type", "mount"]
    assert ["Storage", "pwmzfs01", "nfs", "192.168.186.65:/pwmzfs01/share_01"] in rows
    assert ["Storage", f"{NODE}-local", "local", NODE] in rows
    assert "group:  pwm.resource\n" in pwmcli("describe", "storage", "pwmzfs01").out
    assert pwmcli("stop", "-f", "-", stdin=STORAGE).out == "Storage pwmzfs01 not running\n"
    assert pwmcli("delete", "storage", "pwmzfs01").out == "Storage pwmzfs01 deleted\n"
    assert pwmcli("get", "storage", "pwmzfs01").code == 3


def test_the_group_is_asked_for(pwmcli, penstock, begun):
    begun(CPU_TASK, "grouped")
    mine = json.loads(penstock("auth", "whoami", "-o", "json").out)["group"]
    assert "grouped" in pwmcli("get", "wk", "-g", mine).out
    assert pwmcli("describe", "wk", "grouped", "-g", mine).code == 0
    refused = pwmcli("describe", "wk", "grouped", "-g", "no-such-group")
    assert refused.code == 3
    assert "not found" in refused.err


# -- watching -----------------------------------------------------------------------------------------------------


def test_watching_in_a_pipe_adds_a_line_for_each_change(penstock, begun, server):
    id_ = begun(CPU_TASK, "watched")
    watching = penstock.started("get", "wk", "watched", "-w", name="pwmcli")
    assert watching.stdout
    lines = [watching.stdout.readline() for _ in range(3)]
    assert lines[0].split()[:2] == ["kind", "name"]
    assert set(lines[1].strip()) == {"-"}
    assert "RUNNING" in lines[2]
    server.request("POST", f"/v1/workloads/{id_}/stop")
    seen = ""
    while "STOPPED" not in seen:
        seen = watching.stdout.readline()
        assert "watched" in seen


def test_rows_that_come_later_stand_below_the_header(penstock, begun, server):
    """The first rows are wider than those that change."""
    begun(CPU_TASK, "wide-watched-with-a-long-name")
    id_ = begun(CPU_TASK, "narrow-watched")
    watching = penstock.started("get", "wk", "-w", name="pwmcli")
    assert watching.stdout
    header, _ = watching.stdout.readline(), watching.stdout.readline()
    line = ""
    while "narrow-watched" not in line:
        line = watching.stdout.readline()
    server.request("POST", f"/v1/workloads/{id_}/stop")
    while "STOPPED" not in line:
        line = watching.stdout.readline()
    assert line[header.index("status") :].startswith("STOPPED"), f"{header}{line}"


def test_watching_at_a_terminal_draws_the_table_again(penstock, begun, server, open_terminal: Open):
    id_ = begun(GPU_TASK, "redrawn")
    terminal = open_terminal(penstock, "get", "wk", "redrawn", "-w", name="pwmcli", columns=200)
    terminal.until(r"\x1b\[H\x1b\[Jkind +name(.|\n)*redrawn .*RUNNING")
    terminal.until(r"\x1b\[H\x1b\[Jkind +name(.|\n)*redrawn .*RUNNING")  # by itself: the time goes on
    server.request("POST", f"/v1/workloads/{id_}/stop")
    terminal.until(r"\x1b\[H\x1b\[Jkind +name(.|\n)*redrawn .*STOPPED")
    terminal.type("\x03")
    assert terminal.ended() == 0


def test_watching_what_no_server_tells_of(penstock):
    watching = penstock.started("get", "gpu", "-w", "-o", "json", name="pwmcli")
    assert watching.stdout
    assert {json.loads(watching.stdout.readline())["name"][-1] for _ in range(2)} == {"0", "1"}


# -- files of several documents -----------------------------------------------------------------------------------

BATCH = "".join(f"---\nname: batch-{number}\nrun: sleep 600\n" for number in range(12))


def test_a_file_of_many_documents_is_applied_stopped_and_deleted(pwmcli, penstock):
    (penstock.folder / "example.yaml").write_text(BATCH)
    applied = pwmcli("apply", "-f", "example.yaml")
    assert applied.code == 0, applied.err
    assert [line.split()[1] for line in applied.out.splitlines()] == [f"batch-{number}" for number in range(12)]
    assert all(" created" in line for line in applied.out.splitlines())
    again = pwmcli("apply", "-f", "example.yaml")
    assert all(" not changed" in line for line in again.out.splitlines())
    stopped = pwmcli("stop", "-f", "example.yaml")
    assert stopped.code == 0
    assert len(stopped.out.splitlines()) == 12
    assert all(re.search(r"\) (is being )?stopped$", line) for line in stopped.out.splitlines())
    names = [f"batch-{number}" for number in range(12)]
    penstock("jobs", "wait", *names)
    assert all(line.endswith(" not running") for line in pwmcli("stop", "-f", "example.yaml").out.splitlines())
    deleted = pwmcli("delete", "-f", "example.yaml")
    assert deleted.code == 0
    assert all(line.endswith(" deleted") for line in deleted.out.splitlines())
    assert all(line.endswith(" not present") for line in pwmcli("stop", "-f", "example.yaml").out.splitlines())


def test_a_mistake_in_one_document_leaves_the_others_unmade(pwmcli, penstock):
    (penstock.folder / "wrong.yaml").write_text(BATCH.replace("batch-7", "Not A Name").replace("batch", "wrong"))
    refused = pwmcli("apply", "-f", "wrong.yaml")
    assert refused.code == 2
    assert "Not A Name" in refused.err
    assert pwmcli("get", "wk", "wrong-1").code == 3


@pytest.mark.parametrize("word", ["stop", "delete"])
def test_a_thing_or_a_file_is_named_not_both_and_not_neither(pwmcli, word):
    for words, said in (([], ""), (["wk", "x", "-f", "x.yaml"], ", not both")):
        refused = pwmcli(word, *words)
        assert refused.code == 2
        assert f", or a file with -f{said}." in refused.err


@pytest.mark.parametrize("word", ["apply", "stop", "delete"])
def test_of_several_files_none_is_left_out_in_silence(pwmcli, penstock, word):
    for name in ("a", "b"):
        (penstock.folder / f"{name}.yaml").write_text(f"name: {name}\nrun: 'true'\n")
    refused = pwmcli(word, "-f", "a.yaml", "-f", "b.yaml")
    assert (refused.code, refused.out) == (2, "")
    assert "one file at a time, and there are 2. Put them into one, with '---' between the documents" in refused.err
    assert f"or run 'pwmcli {word}' for each." in refused.err


def test_penstock_asks_before_it_deletes_and_pwmcli_does_not(pwmcli, penstock, server):
    for name in ("asked-for", "not-asked"):
        server.ended(server.submit(f"name: {name}\nrun: 'true'\n")["id"])
    assert penstock("delete", "wk", "asked-for", stdin="n\n").out == "Cancelled\n"
    assert penstock("delete", "wk", "asked-for").code == 2
    assert penstock("delete", "wk", "asked-for", "--force").code == 0
    assert pwmcli("delete", "wk", "not-asked").code == 0


def test_at_a_terminal_the_data_of_a_volume_is_asked_for(penstock, open_terminal: Open):
    penstock("volumes", "create", "precious", "1Gi")
    (penstock.folder / "pvc.yaml").write_text(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: precious}\n"
        "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
    )
    for words in (["delete", "vol", "precious"], ["delete", "-f", "pvc.yaml"]):
        terminal = open_terminal(penstock, *words, name="pwmcli")
        terminal.until(r"all (its|their) data\? \[y/N\]: ")
        terminal.type("n\n")
        assert terminal.ended() == 0
    assert penstock("volumes", "get", "precious").code == 0


# -- looking inside -----------------------------------------------------------------------------------------------


def test_logs_are_what_is_there_unless_they_are_followed(pwmcli, penstock, begun):
    begun(CPU_TASK, "speaks")
    deadline = time.monotonic() + SECONDS
    while not (said := pwmcli("logs", "wk", "speaks")).out:
        assert time.monotonic() < deadline
    assert (said.code, said.out) == (0, "begun\n")
    following = penstock.started("logs", "wk", "speaks", "-f", name="pwmcli")
    assert following.stdout
    assert following.stdout.readline() == "begun\n"
    assert following.poll() is None
    refused = pwmcli("logs", "vol", "speaks")
    assert refused.code == 2


def test_inspect_and_top(pwmcli, begun):
    id_ = begun(CPU_TASK, "looked-at")
    found = json.loads(pwmcli("inspect", "wk", "looked-at").out)
    assert (found["id"], found["engine"]) == (id_, "local")
    assert yaml.safe_load(pwmcli("inspect", "wk", "looked-at", "-o", "yaml").out)["id"] == id_
    shown = pwmcli("top", "wk", "looked-at")
    assert shown.out.startswith(f"looked-at ({id_}), node 0\nCPU ")
    assert re.search(r"^PID +User +CPU +Memory +Command$", shown.out, re.MULTILINE)
    assert "sleep 600" in shown.out
    assert json.loads(pwmcli("top", "wk", "looked-at", "-o", "json").out)["id"] == id_


def test_top_of_the_nodes(pwmcli):
    head, row = pwmcli("top", "node").out.splitlines()
    assert re.split(" {2,}", head) == [
        *("Node", "CPUs", "CPU", "Load", "Memory", "GPUs", "Disk r / w", "Network in / out")
    ]
    assert row.startswith(NODE)
    assert pwmcli("top", "node", NODE).out.splitlines()[1].startswith(NODE)
    assert pwmcli("top", "node", "none-such").code == 3


def test_top_at_a_terminal_goes_on(penstock, begun, open_terminal: Open):
    begun(CPU_TASK, "goes-on")
    terminal = open_terminal(penstock, "top", "wk", "goes-on", name="pwmcli")
    for _ in range(2):
        terminal.until(r"\x1b\[H\x1b\[Jgoes-on \(\w+\), node 0\r\n(.|\n)*sleep 600")
    terminal.type("\x03")
    assert terminal.ended() == 0
