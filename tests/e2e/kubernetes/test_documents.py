"""The documents on a real cluster: the same commands, and what a person then sees."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.tutorial import STAND_INS, Document002
from tests.rig import images, system
from tests.rig.cluster import Rig
from tests.rig.fixtures import brought_up
from tests.running import RunningServer, start_server

IMAGE_001 = "docker.io/pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime"
IMAGES_002 = ("docker.io/library/rockylinux:8", "nvcr.io/hpc/lammps:patch_4May2022")
MEMORY_002 = 17 * 2**30
"""What a node needs for an index of the storage tutorial's sweep, and for itself."""
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """With nodes for what the documents ask, and their images: the one that tests have, and stand-ins for 002's."""
    with brought_up(f"documents-{os.getpid()}", cpus=16) as rig:
        for node in rig.node_names:
            rig.patch_gpus(node, "NVIDIA-A10", 2)
        rig.name_test_image(IMAGE_001)
        image = tmp_path_factory.mktemp("images") / "document-002"
        rig.load_image(images.with_programs(image, system.standard()[system.TEST], *STAND_INS), *IMAGES_002)
        yield rig


@pytest.fixture
def server(cluster: Rig, place: Path) -> Iterator[RunningServer]:
    """A server with a namespace of its own."""
    namespace = f"docs-{secrets.token_hex(4)}"
    cluster.make_namespace(namespace)
    settings = {
        "engine": "kubernetes",
        "kubernetes_config": str(cluster.kubeconfig),
        "kubernetes_namespace": namespace,
        "kubernetes_image": "penstock-test:1",
        "kubernetes_helper_image": "penstock-test:1",
        "default_cpus": "50m",
    }
    server = start_server(place, **settings)
    yield server
    server.end()
    cluster.delete_namespace(namespace)


class TestDocument002(Document002):
    claim_events = ("CREATED", "Provisioning", "ProvisioningSucceeded")
    own_tmp = False

    @pytest.fixture
    def server(self, server: RunningServer) -> RunningServer:
        if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < MEMORY_002:
            pytest.skip("the storage tutorial asks for 16Gi of memory, more than there is here")
        return server


class Person:
    def __init__(self, server: RunningServer, folder: Path) -> None:
        self.folder = folder
        self.environ = server.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def pastes(self, script: str, code: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, env=self.environ, cwd=self.folder, timeout=110
        )
        assert done.returncode == code, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def submits(self, text: str, *more: str, code: int = 0) -> str:
        (self.folder / "task.yaml").write_text(text)
        return self.pastes(f"k8s-cli jobs submit task.yaml {' '.join(more)}", code)


@pytest.fixture
def person(server: RunningServer, tmp_path: Path) -> Person:
    return Person(server, tmp_path)


def test_document_001_example_1_training_with_gpus_and_two_volumes(person: Person) -> None:
    person.pastes("k8s-cli volumes create ml-data 100Mi; k8s-cli volumes create checkpoints 50Mi")
    said = person.submits(
        """
name: model-training
resources:
  cpus: "100m"
  memory: "128Mi"
  accelerators: "2"
  image_id: "pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime"
volumes:
  /data: ml-data
  /checkpoints: checkpoints
envs:
  DATA_DIR: "/data"
  CHECKPOINT_DIR: "/checkpoints"
setup: |
  python3 --version
run: |
  echo $DATA_DIR $CHECKPOINT_DIR $GPUS_PER_NODE
  echo weights > $CHECKPOINT_DIR/last; cat $CHECKPOINT_DIR/last
"""
    )
    assert "Python 3" in said
    assert "/data /checkpoints 2\nweights\n" in said
    assert "Bound" in person.pastes("k8s-cli volumes list --name checkpoints")


def test_document_001_example_2_four_nodes_on_two_kubelets_share_a_volume(person: Person) -> None:
    person.pastes("k8s-cli volumes create shared-workspace 200Mi --access-modes ReadWriteMany --storage-class shared")
    said = person.submits(
        """
name: distributed-training
num_nodes: 4
resources: {cpus: "50m", memory: "64Mi", accelerators: "1"}
volumes: {/workspace: shared-workspace}
run: |
  echo "Node $NODE_RANK initialized" > /workspace/node-$NODE_RANK.txt
  cat /workspace/node-$NODE_RANK.txt
  getent hosts $MASTER_ADDR > /dev/null && echo master found
"""
    )
    for rank in range(4):
        assert f"node-{rank} | Node {rank} initialized" in said
        assert f"node-{rank} | master found" in said


def test_document_001_example_3_steps_one_after_the_other(person: Person) -> None:
    person.pastes("k8s-cli volumes create raw 50Mi -s shared -a ReadWriteMany")
    (person.folder / "a.yaml").write_text("name: download\nvolumes: {/data: raw}\nrun: sleep 2; echo raw > /data/set\n")
    person.pastes("penstock jobs submit a.yaml --detach")
    said = person.submits("name: process\nvolumes: {/in: raw}\nrun: tr a-z A-Z < /in/set\n", "--after", "download")
    assert "\nRAW\n" in f"\n{said}"


def test_document_001_example_4_a_storage_class_and_one_that_is_not_there(person: Person) -> None:
    person.pastes("k8s-cli volumes create fast-cache 20Mi --storage-class expandable")
    assert "cached" in person.submits("volumes: {/cache: fast-cache}\nrun: echo cached > /cache/f; cat /cache/f\n")
    refused = person.pastes("k8s-cli volumes create slow 1Gi --storage-class slow-hdd", code=2)
    assert "'slow-hdd' is not a storage class" in refused
    assert "standard" in refused


def test_the_database_is_deleted_while_jobs_run(person: Person, server: RunningServer, place: Path) -> None:
    person.pastes("penstock volumes create kept 10Mi")
    person.submits("name: over\nrun: echo over\n")
    person.submits("name: long\nvolumes: {/kept: kept}\nrun: echo begun; sleep 600\n", "--detach")
    person.pastes("until penstock jobs list --name long --status running -o name | grep -q .; do :; done")
    server.kill()
    shutil.rmtree(place / "data")
    settings = {key.removeprefix("PENSTOCK_").lower(): value for key, value in server.environ.items()}
    kept = {key: value for key, value in settings.items() if key.startswith(("engine", "kubernetes", "default"))}
    again = start_server(place, **kept)
    try:
        listed = person.pastes("penstock jobs list -o wide")
        assert " over " in listed
        assert " long " in listed
        assert "kept" in person.pastes("penstock volumes list")
        assert "begun" in person.pastes("penstock jobs logs long --no-follow")
        person.pastes("penstock jobs stop long; penstock jobs wait long", code=1)
    finally:
        again.end()


def test_a_product_no_node_has_is_accepted_with_a_note_of_those_there_are(person: Person) -> None:
    said = person.submits("resources: {accelerators: H100:1}\nrun: true\n", "--detach")
    assert "No node has a GPU 'H100' now: it waits until one has. There are: NVIDIA-A10 (" in said
    shown = person.pastes("penstock get gpus")
    assert "NVIDIA-A10" in shown
