"""The storage tutorial's manifests, letter for letter, and what one who follows it must see on every engine.

What a machine without a network and without such GPUs lacks has stand-ins (tests/fakes): `wget`, which brings a
simulation that runs until it is told that it is enough, and `nvidia-smi`. A cluster has them in the images that the
document names, the embedded engine in the virtual environment that is active.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import RunningServer

STAND_INS = [Path(__file__).parents[1] / "fakes" / name for name in ("wget", "nvidia-smi")]

S1 = """\
apiVersion: v1
kind: Pod
metadata:
  name: s1-<username>
spec:
  containers:
  - name: mypod
    image: rockylinux:8
    resources:
      limits:
        memory: 8Gi
        cpu: 100m
        ephemeral-storage: 10Gi
      requests:
        memory: 4Gi
        cpu: 100m
        ephemeral-storage: 1Gi
    command: ["sh", "-c", "sleep 1000"]
    volumeMounts:
    - name: scratch1
      mountPath: /mnt/myscratch
    - name: ramdisk1
      mountPath: /mytmp
  volumes:
  - name: scratch1
    emptyDir: {}
  - name: ramdisk1
    emptyDir:
      medium: Memory
"""

PVC = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: vol-<username>
spec:
  storageClassName: rook-cephfs
  accessModes:
  - ReadWriteMany
  resources:
    requests:
      storage: 1Gi
"""

SWEEP = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: lammps-nvidia-gpu1-<username>
spec:
  completionMode: Indexed
  completions: 4
  parallelism: 4
  ttlSecondsAfterFinished: 180
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - key: nvidia.com/gpu.product
                operator: In
                values:
                - NVIDIA-A10
      volumes:
          - name: mydata
            persistentVolumeClaim:
              claimName: vol-<username>
      containers:
      - name: test
        image: nvcr.io/hpc/lammps:patch_4May2022
        command: ["/bin/bash", "-c"]
        args:
        - >-
            cd /mnt/mylogs;
            mkdir R$JOB_COMPLETION_INDEX;
            cd R$JOB_COMPLETION_INDEX;
            wget https://www.lammps.org/inputs/in.lj.txt;
            wget https://gitlab.com/NVHPC/ngc-examples/-/raw/master/lammps/single-node/run_lammps.sh;
            chmod a+x run_lammps.sh;
            result=$(awk "BEGIN {print 1.2+0.8*$JOB_COMPLETION_INDEX}");
            echo "Binsize=$result";
            sed -i "s/2.8/$result/g" run_lammps.sh;
            nvidia-smi;
            export PATH=/usr/local/lammps/sm86/bin:$PATH ;
            export LD_LIBRARY_PATH=/usr/local/lammps/sm86/lib:$LD_LIBRARY_PATH ;
            ./run_lammps.sh > log$JOB_COMPLETION_INDEX;
        volumeMounts:
            - name: mydata
              mountPath: /mnt/mylogs
        resources:
          limits:
            memory: 16Gi
            cpu: "4"
            nvidia.com/gpu: "1"
            ephemeral-storage: 10Gi
          requests:
            memory: 16Gi
            cpu: "4"
            nvidia.com/gpu: "1"
            ephemeral-storage: 10Gi
      restartPolicy: Never
"""

CLAIM = "persistentVolumeClaim:\n              claimName: vol-<username>"
FILES = {
    "s1.yaml": S1,
    "pvc.yaml": PVC,
    "storage-example3.yaml": SWEEP,
    "emptydir.yaml": SWEEP.replace(CLAIM, "emptyDir: {}"),
}
JOB = "lammps-nvidia-gpu1-ada"
BINS = {0: "1.2", 1: "2", 2: "2.8", 3: "3.6"}


@pytest.mark.timeout(600)
class Document002:
    claim_events: tuple[str, ...]
    """What happens to a claim, in order."""
    own_tmp: bool
    """Whether /tmp is a place of its own; to the document, it is a part of the image's file system."""

    @pytest.fixture
    def server(self) -> RunningServer:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _person(self, server: RunningServer, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.environ = server.environ | {"PATH": f"{Path(sys.executable).parent}:{server.environ['PATH']}"}
        for name, text in FILES.items():
            (tmp_path / name).write_text(text.replace("<username>", "ada"))

    def pastes(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=self.environ,
            cwd=self.folder, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def started(self, name: str) -> None:
        self.pastes(f"until penstock jobs list --name {name} --status running -o name | grep -q .; do sleep 1; done")

    def simulating(self) -> int:
        """The index that is the first to say that its simulation is about to begin."""
        following = ["penstock", "logs", JOB]
        with subprocess.Popen(following, stdout=subprocess.PIPE, text=True, env=self.environ) as logs:
            try:
                said = ""
                for line in logs.stdout or ():
                    said += line
                    if found := re.match(r"index-(\d) \| NVIDIA-SMI", line):
                        return int(found[1])
            finally:
                logs.terminate()
        raise AssertionError(f"the log of {JOB} ended: {said}")

    def looks(self, index: int) -> list[str]:
        """Names in /mnt/mylogs, as one who logged into an index sees them."""
        shown = self.pastes(f"penstock exec --index {index} {JOB} -- ls -l /mnt/mylogs")
        return sorted(line.split()[-1] for line in shown.splitlines() if not line.startswith("total"))

    def writes(self, index: int, name: str) -> None:
        self.pastes(f"penstock exec --index {index} {JOB} -- sh -c 'echo any content > /mnt/mylogs/{name}'")

    # -- ephemeral storage ---------------------------------------------------------------------------------------

    def test_the_pod_with_a_scratch_disk_and_a_ramdisk(self) -> None:
        assert "Pod s1-ada" in self.pastes("penstock apply -f s1.yaml")
        self.started("s1-ada")
        shown = self.pastes("penstock exec s1-ada -- df -H / /mnt/myscratch /tmp /mytmp /dev/shm")
        root, scratch, tmp, ramdisk, shm = (line.split() for line in shown.splitlines()[1:])
        assert [root[-1], scratch[-1], tmp[-1]] == ["/", "/mnt/myscratch", "/tmp" if self.own_tmp else "/"], shown
        assert root[0] != scratch[0], shown
        assert [ramdisk[0], ramdisk[1], ramdisk[-1]] == ["tmpfs", "8.6G", "/mytmp"], shown
        assert [shm[0], shm[1], shm[-1]] == ["tmpfs", "68M", "/dev/shm"], shown
        self.pastes("penstock exec s1-ada -- sh -c 'echo here > /mnt/myscratch/file && cat /mnt/myscratch/file'")
        assert "deleted" in self.pastes("penstock delete -f s1.yaml --force")

    # -- persistent storage --------------------------------------------------------------------------------------

    def test_the_sweep_writes_into_the_claim_and_the_next_of_its_name_finds_it(self) -> None:
        assert "PersistentVolumeClaim vol-ada" in self.pastes("penstock apply -f pvc.yaml")
        assert "not changed" in self.pastes("penstock apply -f pvc.yaml")
        self.bound()
        self.pastes("penstock apply -f storage-example3.yaml")
        first = self.simulating()
        assert f"R{first}" in self.looks(first)
        self.writes(first, "hello.txt")
        assert "deleted" in self.pastes("penstock delete -f storage-example3.yaml --force")
        self.pastes("penstock apply -f storage-example3.yaml")
        assert {f"R{first}", "hello.txt"} <= {*self.looks(self.simulating())}
        self.pastes("penstock volumes shell vol-ada -- touch enough")
        self.pastes(f"penstock jobs wait {JOB}")
        said = self.pastes(f"penstock logs {JOB} --no-follow")
        for index, size in BINS.items():
            assert f"index-{index} | Binsize={size}\n" in said
        assert re.search(rf"index-{first} \| mkdir: cannot create directory .R{first}.: File exists", said)
        self.pastes("penstock delete -f storage-example3.yaml --force")
        kept = self.pastes("penstock volumes shell vol-ada -- sh -c 'grep . R*/log* hello.txt'")
        logs = [f"R{index}/log{index}:binsize {size}" for index, size in BINS.items()]
        assert kept.splitlines() == [*logs, "hello.txt:any content"], kept
        self.pastes("penstock delete -f pvc.yaml --force")

    def bound(self) -> None:
        self.pastes("until penstock get volume vol-ada | grep -q Bound; do sleep 1; done")
        last = self.claim_events[-1]
        shown = self.pastes(
            f"until penstock describe volume vol-ada | grep -A99 Events: | grep -B99 {last}; do sleep 1; done"
        )
        happened = [word for line in shown.splitlines() for word in line.split() if word in self.claim_events]
        assert happened == list(self.claim_events), shown

    def test_on_a_scratch_disk_the_next_of_its_name_finds_nothing(self) -> None:
        for _ in range(2):
            self.pastes("penstock apply -f emptydir.yaml")
            index = self.simulating()
            assert self.looks(index) == [f"R{index}"]
            self.writes(index, "hello.txt")
            assert self.looks(index) == [f"R{index}", "hello.txt"]
            assert "deleted" in self.pastes("penstock delete -f emptydir.yaml --force")
