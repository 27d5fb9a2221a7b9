"""The pods of a stand-in for NVIDIA's dcgm-exporter (tests/fakes/dcgm-exporter), and what they say of GPUs."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from tests.rig.cluster import Rig

FAKE = Path(__file__).parent / "fakes" / "dcgm-exporter"
GPU_OPERATOR = {"app": "nvidia-dcgm-exporter"}
CHART = {"app.kubernetes.io/name": "dcgm-exporter"}


class Exporter:
    """On one node, as the DaemonSet would make it."""

    def __init__(self, rig: Rig, namespace: str, node: str, labels: dict[str, str]) -> None:
        self._rig, self._namespace, self._node = rig, namespace, node
        self.begin(labels)

    def begin(self, labels: dict[str, str]) -> None:
        self.name = f"nvidia-dcgm-exporter-{secrets.token_hex(3)}"
        container: dict[str, Any] = {"name": "exporter", "image": "busybox:1"}
        container["command"] = ["sh", "-c", FAKE.read_text()]
        container["readinessProbe"] = {"tcpSocket": {"port": 9400}, "periodSeconds": 1}
        spec = {"nodeName": self._node, "containers": [container], "terminationGracePeriodSeconds": 0}
        meta = {"name": self.name, "namespace": self._namespace, "labels": labels}
        self._rig.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        self._rig.kubectl("wait", "--for=condition=Ready", f"pod/{self.name}", "-n", self._namespace, "--timeout=90s")

    def says(self, *lines: str) -> None:
        """From now on, at once and whole."""
        write = "cat > /www/new && mv /www/new /www/metrics"
        text = "".join(f"{line}\n" for line in lines)
        self._does("sh", "-c", write, text=text)

    def stands_still(self) -> None:
        """It takes every call, and says nothing."""
        self._does("killall", "-STOP", "httpd")

    def _does(self, *command: str, text: str | None = None) -> None:
        self._rig.kubectl("exec", "-i", "-n", self._namespace, self.name, "--", *command, text=text)

    def end(self) -> None:
        self._rig.kubectl("delete", "pod", self.name, "-n", self._namespace, "--ignore-not-found")


def lines(pod: str, namespace: str, number: int, utilization: int | str, used_mib: int | str = 0) -> list[str]:
    """What it prints of one GPU that a pod has."""
    labels = (
        f'gpu="{number}",UUID="GPU-{number}",pci_bus_id="00000000:0{number}:00.0",device="nvidia{number}",'
        f'modelName="NVIDIA A10",Hostname="a-node",DCGM_FI_DRIVER_VERSION="580.65.06",'
        f'container="task",namespace="{namespace}",pod="{pod}"'
    )
    return [
        "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).",
        "# TYPE DCGM_FI_DEV_SM_CLOCK gauge",
        f"DCGM_FI_DEV_SM_CLOCK{{{labels}}} 1410",
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).",
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
        f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {utilization}",
        "# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).",
        "# TYPE DCGM_FI_DEV_FB_USED gauge",
        f"DCGM_FI_DEV_FB_USED{{{labels}}} {used_mib}",
    ]
