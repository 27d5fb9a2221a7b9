"""Document 002's manifests, as a person applies them, and what must then be seen; each engine's tests inherit this.

Only what a machine without a network and without such GPUs cannot have is replaced: the images, and the two downloads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import RunningServer

IMAGE = "rockylinux:8"

S1 = """
apiVersion: v1
kind: Pod
metadata:
  name: s1-ada
spec:
  containers:
  - name: mypod
    image: {image}
    resources:
      limits:
        memory: 8Gi
        cpu: 100m
        ephemeral-storage: 10Gi
      requests:
        memory: {request}
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
    emptyDir: {{}}
  - name: ramdisk1
    emptyDir:
      medium: Memory
"""

PVC = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: vol-ada
spec:
  storageClassName: rook-cephfs
  accessModes:
  - ReadWriteMany
  resources:
    requests:
      storage: 1Gi
"""

SWEEP = """
apiVersion: batch/v1
kind: Job
metadata:
  name: lammps-nvidia-gpu1-ada
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
            {volume}
      containers:
      - name: test
        image: {image}
        command: ["/bin/bash", "-c"]
        args:
        - >-
            cd /mnt/mylogs;
            mkdir R$JOB_COMPLETION_INDEX;
            cd R$JOB_COMPLETION_INDEX;
            echo 'echo binsize 2.8' > run_lammps.sh;
            chmod a+x run_lammps.sh;
            result=$(awk "BEGIN {{print 1.2+0.8*$JOB_COMPLETION_INDEX}}");
            echo "Binsize=$result";
            sed -i "s/2.8/$result/g" run_lammps.sh;
            ls /mnt/mylogs;
            export PATH=/usr/local/lammps/sm86/bin:$PATH ;
            export LD_LIBRARY_PATH=/usr/local/lammps/sm86/lib:$LD_LIBRARY_PATH ;
            ./run_lammps.sh > log$JOB_COMPLETION_INDEX;
        volumeMounts:
            - name: mydata
              mountPath: /mnt/mylogs
        resources:
          limits:
            memory: {memory}
            cpu: "{cpus}"
            nvidia.com/gpu: "1"
            ephemeral-storage: 10Gi
          requests:
            memory: {memory}
            cpu: "{cpus}"
            nvidia.com/gpu: "1"
            ephemeral-storage: 10Gi
      restartPolicy: Never
"""
BINS = {0: "1.2", 1: "2", 2: "2.8", 3: "3.6"}


class Document002:
    image = IMAGE
    request, memory, cpus = "4Gi", "16Gi", "4"
    """What a small cluster cannot have is asked for in smaller amounts."""

    @pytest.fixture
    def server(self) -> RunningServer:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _person(self, server: RunningServer, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.environ = server.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        claim = "persistentVolumeClaim:\n              claimName: vol-ada"
        amounts = {"image": self.image, "memory": self.memory, "cpus": self.cpus}
        (tmp_path / "s1.yaml").write_text(S1.format(image=self.image, request=self.request))
        (tmp_path / "pvc.yaml").write_text(PVC)
        (tmp_path / "storage-example3.yaml").write_text(SWEEP.format(volume=claim, **amounts))
        (tmp_path / "empty.yaml").write_text(SWEEP.format(volume="emptyDir: {}", **amounts))

    def pastes(self, script: str, code: int = 0, stdin: str = "") -> str:
        done = subprocess.run(
            ["bash", "-c", script], input=stdin, capture_output=True, text=True, env=self.environ, cwd=self.folder,
            timeout=110,
        )  # fmt: skip
        assert done.returncode == code, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def running(self, name: str) -> None:
        """Once it has started; the document says to wait for that."""
        self.pastes(f"until penstock jobs list --name {name} --status running -o name | grep -q .; do :; done")

    # -- ephemeral storage ---------------------------------------------------------------------------------------

    def test_the_pod_with_a_scratch_disk_and_a_ramdisk(self) -> None:
        assert "Pod s1-ada" in self.pastes("penstock apply -f s1.yaml")
        self.running("s1-ada")
        shown = self.pastes("penstock exec s1-ada -- df -k / /mnt/myscratch /tmp /mytmp /dev/shm")
        sizes = {
            line.split()[-1]: int(line.split()[1])
            for line in shown.splitlines()[1:]
            if line.startswith(("/", "t", "s", "o"))
        }
        assert sizes["/dev/shm"] == 64 * 1024
        assert sizes["/mytmp"] > sizes["/dev/shm"]
        assert "tmpfs" in self.pastes("penstock exec s1-ada -- sh -c 'grep \" /mytmp \" /proc/mounts'")
        self.pastes("penstock exec s1-ada -- sh -c 'echo here > /mnt/myscratch/file && cat /mnt/myscratch/file'")
        assert "deleted" in self.pastes("penstock delete -f s1.yaml --force")

    # -- persistent storage --------------------------------------------------------------------------------------

    def test_the_sweep_writes_into_the_claim_and_the_next_of_its_name_finds_it(self) -> None:
        assert "PersistentVolumeClaim vol-ada" in self.pastes("penstock apply -f pvc.yaml")
        assert "not changed" in self.pastes("penstock apply -f pvc.yaml")
        self.bound()
        self.pastes("penstock apply -f storage-example3.yaml")
        self.pastes("penstock jobs wait lammps-nvidia-gpu1-ada")
        said = self.pastes("penstock logs lammps-nvidia-gpu1-ada --no-follow")
        for index, size in BINS.items():
            assert f"index-{index} | Binsize={size}" in said
        for index, size in BINS.items():
            kept = self.pastes(f"penstock volumes shell vol-ada -- cat R{index}/log{index}")
            assert f"binsize {size}" in kept
        self.pastes("penstock delete -f storage-example3.yaml --force")
        self.pastes("penstock apply -f storage-example3.yaml")
        self.pastes("penstock jobs wait lammps-nvidia-gpu1-ada")
        again = self.pastes("penstock logs lammps-nvidia-gpu1-ada --no-follow --index 0")
        assert "cannot create directory 'R0'" in again.replace("‘", "'").replace("’", "'")
        self.pastes("penstock delete -f storage-example3.yaml --force")
        self.pastes("penstock delete -f pvc.yaml --force")

    def bound(self) -> None:
        self.pastes("until penstock volumes list --name vol-ada --status Bound -o name | grep -q .; do :; done")

    def test_on_a_scratch_disk_the_next_of_its_name_finds_nothing(self) -> None:
        for _ in range(2):
            self.pastes("penstock apply -f empty.yaml")
            self.pastes("penstock jobs wait lammps-nvidia-gpu1-ada")
            said = self.pastes("penstock logs lammps-nvidia-gpu1-ada --no-follow --index 1")
            assert "cannot create" not in said
            assert said.split() == ["Binsize=2", "R1"]
            self.pastes("penstock delete -f empty.yaml --force")
