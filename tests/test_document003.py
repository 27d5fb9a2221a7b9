"""Document 003 from top to bottom, each command and document as it stands there, on the embedded engine.

Only what this machine cannot have is replaced: the GPU comes from a fake of NVIDIA's management library, the NFS
storage is a directory of its name, the node is this machine, and there are no images, so that a workload names its
program.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import document003
from tests.running import RunningServer, start_server

STORAGE = """\
apiVersion: v1
kind: Storage
metadata: {name: pwmzfs01}
spec: {kind: nfs, nfs: {server: 192.168.186.65, path: /pwmzfs01/share_01}}
"""


class Person:
    """Someone with the document open and a terminal of their own."""

    def __init__(self, server: RunningServer, name: str, environ: dict[str, str]) -> None:
        self.folder = server.place / name
        self.folder.mkdir()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config"), "PATH": path}
        self.environ = {**environ, **home}

    def writes(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def pastes(self, script: str, stdin: str = "", code: int = 0) -> str:
        """Both streams of the script."""
        done = subprocess.run(
            ["bash", "-c", script],
            input=stdin, capture_output=True, text=True, env=self.environ, cwd=self.folder, timeout=100,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def rows(self, script: str) -> list[list[str]]:
        """The cells of a table, without its header and the line below."""
        return [line.split() for line in self.pastes(script).splitlines()[2:]]


@pytest.fixture
def server(place: Path, compiled_fake: Callable[[str, str], Path]) -> Iterator[RunningServer]:
    (place / "zfs").mkdir(mode=0o711)
    library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
    environ = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": "Quadro RTX 6000"}
    settings = {"storage_classes": f"pwmzfs01={place / 'zfs'}", "gpu_lock_dir": str(place / "locks")}
    server = start_server(place, **settings, environ=environ)
    yield server
    server.end()


@pytest.fixture
def admin(server: RunningServer) -> Person:
    admin = Person(server, "admin", server.environ)
    admin.pastes("penstock adm init")
    admin.writes("usefile", document003.USER_FILE)
    admin.writes("storage.yaml", STORAGE)
    admin.writes("dataset.yaml", document003.DATASET)
    return admin


@pytest.fixture
def researcher(server: RunningServer, admin: Person) -> Person:
    """With the sample user's rights and nothing else."""
    said = admin.pastes("pwmadm user apply -f usefile")
    assert said.splitlines() == ["Group yourUserName created", "User yourUserName created"]
    token = admin.pastes("pwmadm token create yourUserName 2>/dev/null").strip()
    kept = {key: value for key, value in server.environ.items() if not key.startswith("PENSTOCK_")}
    person = Person(server, "researcher", kept)
    said = person.pastes(f"pwmcli profile init prom --api-server {server.address} --token {token}")
    assert "yourUserName" in said
    assert "You are on *prom* profile" in person.pastes("pwmcli profile using")
    return person


def test_a_gpu_workload_from_apply_to_delete(researcher: Person) -> None:
    [gpu] = researcher.rows("pwmcli get gpu")
    assert gpu[0] == "GPU"
    assert "Quadro RTX 6000" in " ".join(gpu)
    assert gpu[-1] == "now"
    researcher.writes("example.yaml", document003.FIRST_TEST)
    refused = researcher.pastes("pwmcli apply -f example.yaml", code=1)
    assert "spec.config.cmd: is missing" in refused
    researcher.writes("example.yaml", f"{document003.FIRST_TEST}  config: {{cmd: sleep 1000}}\n")
    assert "Workload first-test" in researcher.pastes("pwmcli apply -f example.yaml")
    researcher.pastes("until pwmcli get wk | grep -q RUNNING; do sleep 0.2; done")
    header = researcher.pastes("pwmcli get wk").splitlines()[0].split()
    assert " ".join(header) == "kind name group gpu_type gpu_id gpu_usage node c_id locked status reason time"
    [[kind, name, group, *row]] = researcher.rows("pwmcli get wk")
    assert (kind, name, group) == ("Workload", "first-test", "yourUserName")
    assert " ".join(row).startswith("Quadro RTX 6000 GPU-")
    assert "true RUNNING null" in " ".join(row)
    assert "not changed" in researcher.pastes("pwmcli apply -f example.yaml")
    researcher.pastes("pwmcli stop -f example.yaml")
    researcher.pastes("until pwmcli get wk | grep -q STOPPED; do sleep 0.2; done")
    assert "deleted" in researcher.pastes("pwmcli delete -f example.yaml")
    assert researcher.rows("pwmcli get wk") == []


def test_a_cpu_workload_waits_for_someone_to_enter(researcher: Person) -> None:
    researcher.writes("cpu.yaml", document003.CPU_TEST)
    researcher.pastes("pwmcli apply -f cpu.yaml")
    researcher.pastes("until pwmcli get cpuw | grep -q RUNNING; do sleep 0.2; done")
    group = "-g yourUserName"
    assert researcher.pastes(f"pwmcli shell wk test-ubuntu-01 {group}", stdin="echo in; exit 4\n", code=4) == "in\n"
    assert "RUNNING" in researcher.pastes(f"pwmcli describe workload test-ubuntu-01 {group}")
    assert '"name": "test-ubuntu-01"' in researcher.pastes(f"pwmcli inspect wk test-ubuntu-01 {group}")
    assert "/bin/bash" in researcher.pastes(f"pwmcli top wk test-ubuntu-01 {group}")
    researcher.pastes(f"pwmcli logs wk test-ubuntu-01 {group}")
    researcher.pastes(f"pwmcli stop wk test-ubuntu-01 {group}")
    researcher.pastes("until pwmcli get wk | grep -q STOPPED; do sleep 0.2; done")
    researcher.pastes(f"pwmcli delete wk test-ubuntu-01 {group}")


def test_a_home_and_a_dataset(server: RunningServer, admin: Person, researcher: Person) -> None:
    storage, dataset = admin.pastes("cat dataset.yaml <(echo ---) storage.yaml | penstock apply -f -").splitlines()
    assert storage == "Storage pwmzfs01 created"
    assert dataset.startswith("Volume datasets-hmdb-uci (")
    assert ["Storage", "pwmzfs01", "nfs", "192.168.186.65:/pwmzfs01/share_01"] in researcher.rows("pwmcli get storage")
    assert researcher.rows("pwmcli get vol -g pwm.resource") == [
        ["Volume", "pwm.resource", "datasets-hmdb-uci", "pwmzfs01", "datasets/hmdb_ucf", "readonly"]
    ]
    told = document003.TENSORFLOW.replace("emcprom09", platform.node())
    told = told.replace("cmd: /bin/bash", "cmd: [bash, -c, 'echo mine > /home/note; touch /usr/datasets/no; ls /home']")
    researcher.writes("tensorflow.yaml", told)
    researcher.pastes("pwmcli apply -f tensorflow.yaml")
    researcher.pastes("until pwmcli get wk | grep -q EXITED; do sleep 0.2; done")
    log = researcher.pastes("pwmcli logs wk tensorflow-2")
    assert "Read-only file system" in log
    assert log.endswith("note\n")
    volumes = [row[:5] for row in researcher.rows("pwmcli get vol")]
    assert ["Volume", "yourUserName", "home", "pwmzfs01", "home"] in volumes
    [note] = (server.place / "zfs").rglob("note")
    assert note.read_text() == "mine\n"
