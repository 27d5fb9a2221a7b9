"""PWM on a real cluster, whose nodes say that they have GPUs, as NVIDIA's device plugin would.

The images that the document names are the one that tests have, and the storage is the disk of a node.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import pwm
from tests.e2e.pwm import Document003, Person
from tests.rig.cluster import Rig
from tests.running import RunningServer, start_server

IMAGES = ("docker.io/tensorflow/tensorflow:latest", "docker.io/library/ubuntu:latest")


@pytest.fixture(scope="module")
def cluster(own_rig: Rig) -> Rig:
    own_rig.patch_gpus("node-1", "Tesla-V100-SXM2-16GB", 2)
    own_rig.patch_gpus("node-2", "Quadro-RTX-6000", 1)
    own_rig.name_test_image(*IMAGES)
    return own_rig


class TestKubernetes(Document003):
    node = "node-1"
    storage = pwm.DISK.format(node=node)

    @pytest.fixture
    def namespace(self, cluster: Rig) -> Iterator[str]:
        name = f"pwm-{secrets.token_hex(4)}"
        cluster.make_namespace(name)
        yield name
        cluster.delete_namespace(name)

    @pytest.fixture
    def server(self, cluster: Rig, namespace: str, place: Path) -> Iterator[RunningServer]:
        settings = {
            "engine": "kubernetes",
            "kubernetes_config": str(cluster.kubeconfig),
            "kubernetes_namespace": namespace,
            "kubernetes_helper_image": "penstock-test:1",
            "stop_grace": "1s",
        }
        server = start_server(place, **settings)
        yield server
        server.end()

    def test_the_image_runs_as_it_is_where_its_gpu_is(self, cluster: Rig, namespace: str, researcher: Person) -> None:
        researcher.writes("example.yaml", pwm.FIRST_TEST)
        researcher.pastes("pwmcli apply -f example.yaml")
        researcher.waits_for("RUNNING")
        [pod] = json.loads(cluster.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
        [container] = pod["spec"]["containers"]
        assert container["image"] == "tensorflow/tensorflow"
        assert "command" not in container
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert pod["spec"]["nodeName"] == "node-2"
        assert researcher.pastes("pwmcli shell wk first-test", stdin="cat /proc/1/comm; exit\n") == "bash\n"
