"""k8s-cli from top to bottom, each command as it stands there, under both names.

Only what a small machine without a network cannot have is replaced: the training programs are one-liners, the machine
offers more CPUs and memory than it has, and its GPUs come from a fake of NVIDIA's management library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running import RunningServer, start_server


class Person:
    """Someone with the document open and a terminal."""

    def __init__(self, server: RunningServer, program: str) -> None:
        self.server = server
        self.program = program
        self.folder = server.place / "work"
        self.folder.mkdir()
        self.environ = server.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def pastes(self, script: str, stdin: str = "", code: int = 0) -> str:
        """Both streams of the script, `k8s-cli` in it read as the program's name."""
        done = subprocess.run(
            ["bash", "-c", script.replace("k8s-cli", self.program)],
            input=stdin, capture_output=True, text=True, env=self.environ, cwd=self.folder, timeout=100,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def volume_id(self, name: str) -> str:
        return self.pastes(f"k8s-cli volumes get {name} -o name").strip()


@pytest.fixture(params=["k8s-cli", "penstock"])
def person(request: pytest.FixtureRequest, place: Path, compiled_fake: Callable[[str, str], Path]) -> Iterator[Person]:
    (place / "fast").mkdir(mode=0o711)
    library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
    environ = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": ",".join(["NVIDIA A10"] * 8)}
    settings = {"cpus": "64", "memory": "256Gi", "storage_classes": f"fast-ssd={place / 'fast'}"}
    server = start_server(place, **settings, gpu_lock_dir=str(place / "locks"), environ=environ)
    yield Person(server, request.param)
    server.end()


def test_the_whole_document(person: Person) -> None:
    quick_start(person)
    creation_options(person)
    example_1_training(person)
    example_2_several_nodes(person)
    example_3_pipeline(person)
    example_4_fast_storage(person)
    deletion(person)


def quick_start(person: Person) -> None:
    said = person.pastes("k8s-cli volumes create training-data 10Gi")
    volume_id = person.volume_id("training-data")
    assert len(volume_id) == 8
    assert f"Volume created successfully with ID: {volume_id}" in said
    listed = person.pastes("k8s-cli volumes list")
    assert listed.splitlines()[0].split("  ")[0] == "Volume ID"
    assert volume_id in listed
    assert "Bound" in listed
    assert "Total volumes: 1" in listed
    details = person.pastes("k8s-cli volumes list --details")
    assert f"training-data-{volume_id}" in details
    assert "ReadWriteOnce" in details
    assert "User" in person.pastes("k8s-cli volumes list --all-users")
    said = person.pastes(
        """
cat > task.yaml <<'EOF'
name: training-job
resources:
  cpus: "4"
  memory: "8Gi"

volumes:
  /data: training-data      # Mount volume at /data

run: |
  echo trained > /data/model; cat /data/model
EOF
k8s-cli jobs submit task.yaml
"""
    )
    assert "trained" in said
    said = person.pastes(f"k8s-cli volumes delete {volume_id}", stdin="n\n")
    assert "Cancelled" in said
    said = person.pastes(f"k8s-cli volumes delete {volume_id}", stdin="y\n")
    assert f"Volume {volume_id} deleted successfully" in said
    person.pastes("k8s-cli volumes create training-data 10Gi")
    person.pastes(f"k8s-cli volumes delete {person.volume_id('training-data')} --force")
    assert "No volumes found" in person.pastes("k8s-cli volumes list")


def creation_options(person: Person) -> None:
    person.pastes("k8s-cli volumes create fast-storage 20Gi --storage-class fast-ssd")
    person.pastes("k8s-cli volumes create shared-data 50Gi --access-modes ReadWriteMany")
    person.pastes('k8s-cli volumes create versatile-vol 10Gi --access-modes "ReadWriteOnce,ReadWriteMany"')
    details = person.pastes("k8s-cli volumes list --all-users --details")
    assert "fast-ssd" in details
    assert "ReadWriteOnce,ReadWriteMany" in details.replace(", ", ",")
    refused = person.pastes("k8s-cli volumes create slow 1Gi --storage-class slow-hdd", code=2)
    assert "there are: standard, fast-ssd" in refused


def example_1_training(person: Person) -> None:
    said = person.pastes(
        r"""
# Create volume for training data
k8s-cli volumes create ml-data 100Gi

# Create volume for model checkpoints
k8s-cli volumes create checkpoints 50Gi

# Submit training task
cat > train.yaml <<EOF
name: model-training
resources:
  cpus: "8"
  memory: "32Gi"
  accelerators: "2"
  image_id: "pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime"

volumes:
  /data: ml-data
  /checkpoints: checkpoints

envs:
  DATA_DIR: "/data"
  CHECKPOINT_DIR: "/checkpoints"

setup: |
  python3 -m pip --version > /dev/null || true

run: |
  echo data_dir \$DATA_DIR checkpoint_dir \$CHECKPOINT_DIR gpus \$GPUS_PER_NODE \
    --epochs 100
  echo weights > \$CHECKPOINT_DIR/last
EOF

k8s-cli jobs submit train.yaml
"""
    )
    assert "data_dir /data checkpoint_dir /checkpoints gpus 2 --epochs 100" in said
    assert "is not used by this engine" in said


def example_2_several_nodes(person: Person) -> None:
    said = person.pastes(
        r"""
# Create shared volume
k8s-cli volumes create shared-workspace 200Gi --access-modes ReadWriteMany

# Submit multi-node task
cat > distributed.yaml <<EOF
name: distributed-training
num_nodes: 4

resources:
  cpus: "8"
  memory: "16Gi"
  accelerators: "2"

volumes:
  /workspace: shared-workspace

run: |
  # All nodes can read/write to /workspace
  echo "Node \$NODE_RANK initialized" > /workspace/node-\$NODE_RANK.txt
  cat /workspace/node-\$NODE_RANK.txt
EOF

k8s-cli jobs submit distributed.yaml
"""
    )
    for rank in range(4):
        assert f"node-{rank} | Node {rank} initialized" in said


def example_3_pipeline(person: Person) -> None:
    said = person.pastes(
        """
# Create volumes
k8s-cli volumes create raw-data 50Gi
k8s-cli volumes create processed-data 100Gi
k8s-cli volumes create model-checkpoints 1Gi

# Step 1: Download data
cat > download.yaml <<EOF
name: download-data
volumes:
  /data: raw-data
run: |
  echo raw > /data/dataset
EOF
k8s-cli jobs submit download.yaml

# Step 2: Process data
cat > process.yaml <<EOF
name: process-data
volumes:
  /input: raw-data
  /output: processed-data
run: |
  tr a-z A-Z < /input/dataset > /output/dataset
EOF
k8s-cli jobs submit process.yaml

# Step 3: Train model
cat > train.yaml <<EOF
name: train-model
volumes:
  /data: processed-data
  /checkpoints: model-checkpoints
run: |
  cp /data/dataset /checkpoints/model; cat /checkpoints/model
EOF
k8s-cli jobs submit train.yaml
"""
    )
    assert "\nRAW\n" in said


def example_4_fast_storage(person: Person) -> None:
    said = person.pastes(
        """
k8s-cli volumes create fast-cache 20Gi --storage-class fast-ssd

cat > io-intensive.yaml <<EOF
name: io-task
resources:
  cpus: "16"
  memory: "64Gi"

volumes:
  /cache: fast-cache

run: |
  # Fast storage for temporary data
  echo cached > /cache/file; cat /cache/file
EOF

k8s-cli jobs submit io-intensive.yaml
"""
    )
    assert "cached" in said
    assert next((person.server.place / "fast").glob("fast-cache-*/file")).read_text() == "cached\n"


def deletion(person: Person) -> None:
    """The troubleshooting chapter: a volume in use, found by `jobs list`, freed by `jobs stop`."""
    person.pastes("printf 'name: holder\nvolumes: {/d: raw-data}\nrun: sleep 60\n' > hold.yaml")
    person.pastes("k8s-cli jobs submit hold.yaml --detach")
    refused = person.pastes(f"k8s-cli volumes delete {person.volume_id('raw-data')} --force", code=6)
    assert "in use by holder" in refused
    listed = person.pastes("k8s-cli jobs list")
    task_id = next(line.split()[0] for line in listed.splitlines() if " holder " in line)
    person.pastes(f"k8s-cli jobs stop {task_id}")
    person.pastes(f"k8s-cli jobs wait {task_id}", code=1)
    assert "stopped" in person.pastes(f"k8s-cli jobs status {task_id}")
    person.pastes(f"k8s-cli volumes delete {person.volume_id('raw-data')} --force")


def test_the_curl_line(place: Path) -> None:
    """`curl -H "X-User: myuser" http://localhost:8000/volumes/<volume-id>`, on a server that believes it."""
    server = start_server(place, auth="header")
    try:
        person = Person(server, "k8s-cli")
        assert "myuser" in person.pastes("k8s-cli auth login myuser && k8s-cli auth whoami")
        person.pastes("k8s-cli volumes create training-data 10Gi")
        volume_id = person.volume_id("training-data")
        status, volume = server.tcp("GET", f"/volumes/{volume_id}", headers={"X-User": "myuser", "Host": "localhost"})
        assert (status, volume["name"], volume["username"]) == (200, "training-data", "myuser")
    finally:
        server.end()
