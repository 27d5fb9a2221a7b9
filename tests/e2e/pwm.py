"""PWM's documents, letter for letter, and what one who follows it must see; each engine's tests inherit this.

A machine without NFS servers, GPUs and the document's own hosts has others in their place: each engine says which.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.running import RunningServer

FIRST_TEST = """\
---
apiVersion: v1
kind: Workload
metadata:
  name: first-test
spec:
  driver: pwm.docker
  selectors:
    gpu:
      product_name: Quadro RTX 6000
      count: 1
  image: 
    image: tensorflow/tensorflow
"""

CPU_TEST = """\
---
apiVersion: v1
kind: Workload
metadata:
  name: test-ubuntu-01
spec:
  driver: pwm.docker
  selectors:
    cpu:
      product_name: pwm.all
  image: 
    image: ubuntu
  config: 
    cmd: /bin/bash
    startMode: -itd
"""

DATASET = """\
---
apiVersion: v1
kind: Volume
metadata:
  name: datasets-hmdb-uci
  group: pwm.resource
spec:
  storage: pwmzfs01
  subPath: datasets/hmdb_ucf
  policy: readonly
"""

TENSORFLOW = """\
---
apiVersion: v1
kind: Workload
metadata:
  name: tensorflow-2
spec:
  driver: pwm.docker
  selectors:
    node:
      name: emcprom09
    cpu:
      product_name: pwm.all
  image: 
    image: ubuntu
  config: 
    cmd: /bin/bash
  volumes:
    - name: home # This is a user home
      storage: pwmzfs01 
      target: /home
    - group: pwm.resource # This is a dataset
      name: datasets-hmdb-uci
      target: /usr/datasets
"""

USER_FILE = """\
---
apiVersion: v1
kind: Group
metadata:
  name: yourUserName

---
apiVersion: v1
kind: User
metadata:
  name: yourUserName
spec:
  groups:
    - name: yourUserName
      policy:
        Workload: 
          - get
          - getOne
          - apply
          - delete
          - describe
          - shell
          - cancel
        Volume:
          - get
    - name: pwm.resource
      policy:
        Storage:
          - get
        CPU:
          - get
        GPU:
          - get
"""

ALIASES = {
    "Workload": "wk,workload,Workload",
    "GPU": "gpu,gpus,GPU",
    "CPU": "cpu,cpus,CPU",
    "Node": "node,nodes,Node",
    "Group": "group,groups,Group",
    "User": "user,users,User",
    "Volume": "vol,vols,Volume",
    "Storage": "storage,storages,Storage",
}

DOCUMENTS = (FIRST_TEST, CPU_TEST, DATASET, TENSORFLOW, USER_FILE)

STORAGE = """\
apiVersion: v1
kind: Storage
metadata: {name: pwmzfs01}
spec: {kind: nfs, nfs: {server: 192.168.186.65, path: /pwmzfs01/share_01}}
"""
"""Which the guide only shows, once it is there."""

DISK = """\
apiVersion: v1
kind: Storage
metadata: {{name: pwmzfs01}}
spec: {{kind: local, local: {{node: {node}}}}}
"""
"""The same name for the disk of a node, where no NFS can be had."""

PATIENCE = 90
WORKLOADS_HEADER = "kind name group gpu_type gpu_id gpu_usage node c_id locked status reason time"


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
        assert done.returncode == code, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def rows(self, script: str) -> list[list[str]]:
        """The cells of a table, without its header and the line below."""
        return [line.split() for line in self.pastes(script).splitlines()[2:]]

    def waits_for(self, state: str, what: str = "wk") -> None:
        """Looks again and again, as the document tells one to, until a workload is in this state."""
        end = time.monotonic() + PATIENCE
        while state not in (shown := self.pastes(f"pwmcli get {what} -o wide")).split():
            assert time.monotonic() < end, shown
            time.sleep(0.2)


def the_admin(server: RunningServer) -> Person:
    """Whoever runs the server, once people are written down."""
    admin = Person(server, "admin", server.environ)
    admin.pastes("penstock adm init")
    admin.writes("usefile", USER_FILE)
    admin.writes("dataset.yaml", DATASET)
    return admin


def the_researcher(server: RunningServer, admin: Person) -> Person:
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


class Document003:
    first_test = FIRST_TEST
    storage = STORAGE
    """What `pwmzfs01` is here."""
    node = "emcprom09"
    """What stands in that one's place."""

    @pytest.fixture
    def admin(self, server: RunningServer) -> Person:
        return the_admin(server)

    @pytest.fixture
    def researcher(self, server: RunningServer, admin: Person) -> Person:
        return the_researcher(server, admin)

    def test_a_gpu_workload_from_apply_to_delete(self, researcher: Person) -> None:
        researcher.writes("example.yaml", self.first_test)
        assert researcher.pastes("pwmcli apply -f example.yaml").startswith("Workload first-test (")
        researcher.waits_for("RUNNING", "gpuw")
        assert researcher.rows("pwmcli get cpuw") == []
        header, _, row = (" ".join(line.split()) for line in researcher.pastes("pwmcli get wk").splitlines())
        assert header == WORKLOADS_HEADER
        assert row.startswith("Workload first-test yourUserName Quadro RTX 6000 ")
        assert " true RUNNING null " in row
        assert "not changed" in researcher.pastes("pwmcli apply -f example.yaml")
        researcher.pastes("pwmcli stop -f example.yaml")
        researcher.waits_for("STOPPED")
        assert "deleted" in researcher.pastes("pwmcli delete -f example.yaml")
        assert researcher.rows("pwmcli get wk") == []

    def test_a_cpu_workload_waits_for_someone_to_enter(self, researcher: Person) -> None:
        researcher.writes("cpu.yaml", CPU_TEST)
        researcher.pastes("pwmcli apply -f cpu.yaml")
        researcher.waits_for("RUNNING", "cpuw")
        group = "-g yourUserName"
        said = researcher.pastes(f"pwmcli shell wk test-ubuntu-01 {group}", stdin="echo in; exit 4\n", code=4)
        assert said == "in\n"
        assert "RUNNING" in researcher.pastes(f"pwmcli describe workload test-ubuntu-01 {group}")
        assert '"name": "test-ubuntu-01"' in researcher.pastes(f"pwmcli inspect wk test-ubuntu-01 {group}")
        assert "/bin/bash" in researcher.pastes(f"pwmcli top wk test-ubuntu-01 {group}")
        researcher.pastes(f"pwmcli logs wk test-ubuntu-01 {group}")
        researcher.pastes(f"pwmcli stop wk test-ubuntu-01 {group}")
        researcher.waits_for("STOPPED")
        researcher.pastes(f"pwmcli delete wk test-ubuntu-01 {group}")
        assert researcher.rows("pwmcli get wk") == []

    def test_a_home_and_a_dataset(self, admin: Person, researcher: Person) -> None:
        admin.writes("storage.yaml", self.storage)
        storage, dataset = admin.pastes("cat dataset.yaml <(echo ---) storage.yaml | penstock apply -f -").splitlines()
        assert storage == "Storage pwmzfs01 created"
        assert dataset.startswith("Volume datasets-hmdb-uci (")
        assert researcher.rows("pwmcli get vol -g pwm.resource") == [
            ["Volume", "pwm.resource", "datasets-hmdb-uci", "pwmzfs01", "datasets/hmdb_ucf", "readonly"]
        ]
        researcher.writes("tensorflow.yaml", TENSORFLOW.replace("emcprom09", self.node))
        researcher.pastes("pwmcli apply -f tensorflow.yaml")
        researcher.waits_for("RUNNING")
        [row] = researcher.rows("pwmcli get wk")
        assert self.node in row
        inside = "echo mine > /home/note; touch /usr/datasets/no; cat /home/note; exit 0\n"
        said = researcher.pastes("pwmcli shell wk tensorflow-2", stdin=inside)
        assert "Read-only file system" in said
        assert "mine" in said.splitlines()
        assert ["Volume", "yourUserName", "home", "pwmzfs01", "home", "rw"] in researcher.rows("pwmcli get vol")
        researcher.pastes("pwmcli delete -f tensorflow.yaml")
        assert researcher.rows("pwmcli get wk") == []
