"""One node: containerd, kubelet and kube-proxy in a network namespace of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.rig import cgroups, network, registry, system
from tests.rig.control import Control
from tests.rig.holder import DEVICE_PLUGINS
from tests.rig.places import Addresses
from tests.rig.processes import run, wait_for

PLUGINS = Path("/usr/lib/cni")
OWN_NETWORK = "mount --make-private /proc && mount --bind /proc/$$/net /proc/1/net"
"""Kubelet counts what the network of a machine's first process moves; here that one is not on any node."""
OVERLAY = 0x794C7630
"""What `stat -f` calls a file system on which containerd's own overlays cannot lie."""


class Node:
    def __init__(self, control: Control, number: int) -> None:
        self.control = control
        self.number = number
        self.name = network.node_name(number)
        self.home = control.directory / self.name
        self.processes = control.processes

    @property
    def addresses(self) -> Addresses:
        return self.control.addresses

    @property
    def address(self) -> str:
        return self.addresses.node(self.number)

    @property
    def socket(self) -> Path:
        return self.home / "containerd.sock"

    @property
    def components(self) -> tuple[str, str, str]:
        return f"containerd-{self.number}", f"kubelet-{self.number}", f"proxy-{self.number}"

    def certify(self) -> None:
        subject = f"/O=system:nodes/CN=system:node:{self.name}"
        self.control.certificates.kubeconfig(self.name, subject, f"DNS:{self.name}", f"IP:{self.address}")

    def start_containerd(self) -> None:
        (self.home / "cni").mkdir(parents=True)
        (self.home / "cni/10-rig.conflist").write_text(json.dumps(self._cni()))
        hosts = self.home / "registries/_default"
        hosts.mkdir(parents=True)
        (hosts / "hosts.toml").write_text(
            f'server = "http://{self.addresses.control}:{registry.PORT}"\n'
            f'[host."http://{self.addresses.control}:{registry.PORT}"]\n  capabilities = ["pull", "resolve"]\n'
        )
        config = self.home / "containerd.toml"
        config.write_text(self._containerd())
        self.processes.start(self.components[0], "containerd", "-c", config, node=self.name)

    def wait_for_containerd(self) -> None:
        def answers() -> bool:
            self.processes.check(self.components[0])
            return bool(self.ctr("version", check=False))

        wait_for(f"containerd of {self.name}", answers)

    def start_kubelet(self) -> None:
        config = self.home / "kubelet.json"
        config.write_text(json.dumps(self._kubelet(), indent=1))
        plugins = self.home / "device-plugins"
        plugins.mkdir(exist_ok=True)
        own = f'mount --bind {plugins} {DEVICE_PLUGINS} && {OWN_NETWORK} && exec "$@"'
        self.processes.start(
            self.components[1],
            *("unshare", "--mount", "--propagation", "unchanged", "sh", "-c", own, "sh"),
            self.control.programs / "kubelet",
            f"--config={config}",
            f"--kubeconfig={self.control.directory / self.name}.kubeconfig",
            f"--hostname-override={self.name}",
            f"--root-dir={self.home / 'kubelet'}",
            f"--node-ip={self.address}",
            node=self.name,
        )

    def start_proxy(self) -> None:
        config = self.home / "proxy.json"
        config.write_text(json.dumps(self._proxy(), indent=1))
        program = self.control.programs / "kube-proxy"
        self.processes.start(self.components[2], program, f"--config={config}", node=self.name)

    def ctr(self, *arguments: str | Path, check: bool = True) -> str:
        """What containerd's own command line answers."""
        return run("ctr", "-a", self.socket, "-n", "k8s.io", *arguments, check=check)

    def _cni(self) -> dict[str, Any]:
        subnet = [[{"subnet": self.addresses.pods(self.number)}]]
        ipam = {
            "type": "host-local",
            "dataDir": str(self.home / "ipam"),
            "ranges": subnet,
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": ipam,
        }
        return {"cniVersion": "1.0.0", "name": "rig", "plugins": [bridge]}

    def _containerd(self) -> str:
        return f"""version = 2
root = "{self.home}/containerd"
state = "/run/{self.name}"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{system.PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stats_collect_period = 2
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{self._snapshotter()}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{self.home}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{self.home}/registries"
"""

    def _snapshotter(self) -> str:
        kind = int(run("stat", "-f", "-c", "%t", self.control.directory), 16)
        return "native" if kind == OVERLAY else "overlayfs"

    def _kubelet(self) -> dict[str, Any]:
        pki = self.control.certificates
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki.authority)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki.certificate(self.name)),
            "tlsPrivateKeyFile": str(pki.key(self.name)),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"{cgroups.root(self.control.directory.name)}/{self.name}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": ["pods"],
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "clusterDNS": [self.addresses.control],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "podLogsDir": str(self.home / "pods"),
            "volumePluginDir": str(self.home / "plugins"),
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "serializeImagePulls": False,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "kubeAPIQPS": 100,
            "kubeAPIBurst": 200,
            # What a test waits for comes sooner than where thousands of nodes report, and nothing is said twice.
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "1m",
            "containerLogMonitorInterval": "3s",
            "nodeLeaseDurationSeconds": 8,
            "syncFrequency": "5s",
            "fileCheckFrequency": "1s",
            "volumeStatsAggPeriod": "5s",
        }

    def _proxy(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clientConnection": {"kubeconfig": str(self.control.directory / "proxy.kubeconfig")},
            "hostnameOverride": self.name,
            "clusterCIDR": self.addresses.all_pods,
            # These are the machine's, not the network namespace's.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "iptables": {"minSyncPeriod": "0s"},
        }
