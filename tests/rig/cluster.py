"""`Rig`: a Kubernetes that is up, and what tests and people do with it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.rig import cgroups, images, kueue, network, node, places, registry, storage, system, versions
from tests.rig.api import Api
from tests.rig.control import Control
from tests.rig.cpus import made_up_cpus, make_up_cpus
from tests.rig.places import Addresses, RigError
from tests.rig.processes import Processes, run, wait_for

_COMMANDS = {
    "busybox": "busybox-static",
    "containerd": "containerd",
    "ip": "iproute2",
    "iptables": "iptables",
    "mount": "mount",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "runc": "runc",
    "sysctl": "procps",
}


@functools.cache
def fault() -> str | None:
    """Why no rig can be brought up here."""
    what = "a Kubernetes for tests needs"
    if os.geteuid() != 0:
        return f"{what} root"
    if not shutil.which("dpkg-query"):
        return f"{what} Debian or Ubuntu, whose packages its images are made of"
    packages = [package for command, package in _COMMANDS.items() if not shutil.which(command)]
    if not (node.PLUGINS / "bridge").exists():
        packages.append("containernetworking-plugins")
    if packages:
        return f"{what}: apt-get install -y {' '.join(sorted(packages))}"
    tried = subprocess.run(["unshare", "--fork", "--pid", "--mount", "--net", "true"], capture_output=True, text=True)
    if tried.returncode:
        return f"{what} namespaces, which cannot be made here: {tried.stderr.strip()}"
    if read_only := cgroups.read_only():
        return f"{what} cgroups, which cannot be made here: {read_only} is read-only"
    return None


class Rig:
    def __init__(self, name: str, addresses: Addresses, nodes: int, programs: Path) -> None:
        self.name = name
        self.addresses = addresses
        self.directory = places.home(name)
        self.processes = Processes(self.directory)
        self.control = Control(self.directory, programs, addresses, self.processes)
        self.nodes = [node.Node(self.control, number) for number in range(1, nodes + 1)]
        self.programs = programs

    # Up and down

    @classmethod
    def up(
        cls,
        name: str = places.DEFAULT_NAME,
        nodes: int | None = None,
        *,
        cpus: int | None = None,
        temporary: bool = False,
    ) -> Rig:
        """The rig of this name: the one that is up, or one brought up now. A temporary one is ended by the tests.

        Its nodes show so many CPUs, each of them; the machine's number unless told otherwise.
        """
        if said := fault():
            raise RigError(said)
        programs, standard = versions.build_all(), system.standard()
        with places.locked(name):
            if there := cls.find(name):
                there._expect(nodes, cpus, programs)
                there._heal()
                if not temporary:
                    there._temporary.unlink(missing_ok=True)
                return there
            clear(name)
            rig = cls(name, places.claim(name), nodes or 2, programs)
            if temporary:
                rig._temporary.touch()
            try:
                rig._begin(standard, cpus)
            except BaseException:
                rig.processes.end()  # The directory, with the logs, stays until the next up or down.
                raise
        return rig

    @classmethod
    def find(cls, name: str = places.DEFAULT_NAME) -> Rig | None:
        """The rig of this name, if it is up."""
        directory = places.home(name)
        try:
            is_up = json.loads((directory / "up").read_text())
        except (FileNotFoundError, ValueError):
            return None
        if Processes(directory).holder is None:
            return None
        return cls(name, Addresses(is_up["slot"]), is_up["nodes"], Path(is_up["programs"]))

    @staticmethod
    def down(name: str = places.DEFAULT_NAME) -> None:
        """End the rig of this name, or what a crash left of it. None there: nothing to do."""
        with places.locked(name):
            clear(name)
            places.forget(name)

    @property
    def _temporary(self) -> Path:
        return self.directory / "temporary"

    @property
    def _registry(self) -> Path:
        return self.directory / "registry"

    def _expect(self, nodes: int | None, cpus: int | None, programs: Path) -> None:
        """Nobody's cluster is ended because somebody else wants another."""
        if nodes not in (None, len(self.nodes)):
            raise RigError(f"{self.name} is up with {len(self.nodes)} nodes; end it first, or choose another --name")
        if cpus not in (None, made_up_cpus(self.directory)):
            raise RigError(f"{self.name} is up with another number of CPUs; end it first, or choose another --name")
        if programs != self.programs:
            raise RigError(f"{self.name} is up with older programs ({self.programs}); end it first: make rig-down")

    def _begin(self, standard: dict[str, Path], cpus: int | None) -> None:
        (self.directory / "resolv.conf").write_text(f"nameserver {self.addresses.control}\n")
        for image_name, image in standard.items():
            images.publish(self._registry, image, image_name)
        if cpus:
            make_up_cpus(self.directory, cpus)
        cgroups.make(self.name, *(each.name for each in self.nodes))
        self.processes.begin()
        network.connect(self.processes, self.addresses, len(self.nodes))
        with ThreadPoolExecutor() as pool:
            list(
                pool.map(lambda start: start(), [self._begin_control, *(each.start_containerd for each in self.nodes)])
            )
            list(pool.map(lambda each: each.wait_for_containerd(), self.nodes))
        for each in self.nodes:
            each.start_kubelet()
            each.start_proxy()
        self.apply(*storage.objects())
        storage.start(self.control)
        self._wait()
        state = {"slot": self.addresses.slot, "nodes": len(self.nodes), "programs": str(self.programs)}
        (self.directory / "up").write_text(json.dumps(state))

    def _begin_control(self) -> None:
        server = Path(registry.__file__)
        address = (self.addresses.control, str(registry.PORT))
        self.processes.start("registry", sys.executable, "-I", server, self._registry, *address)
        self.control.start_etcd()
        self.control.certify()
        self.control.start_apiserver()
        for each in self.nodes:
            each.certify()
        self.control.wait_for_apiserver()
        self.control.start_controllers()
        self.control.start_dns()

    def _wait(self) -> None:
        wait_for("all nodes to be ready", self._nodes_ready)
        wait_for("the default account", lambda: self.api.get("serviceaccount", "default", "default"))
        self.control.wait_for_dns()

    def _nodes_ready(self) -> bool:
        self.processes.check()
        ours = [item for item in self.api.items("nodes") if item["metadata"]["name"] in self.node_names]
        return len(ours) == len(self.nodes) and all(_is_ready(item) for item in ours)

    def _heal(self) -> None:
        """What a test killed or stopped and did not start again."""
        for component in self.processes.running:
            self.processes.signal(component, signal.SIGCONT)
        for component in self.processes.ended:
            self.processes.start(component)
        for each in self.nodes:
            network.mend(self.processes, each.name)
        self.control.wait_for_apiserver()
        self._wait()

    # For tests

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator of the cluster."""
        return self.directory / "admin.kubeconfig"

    @functools.cached_property
    def api(self) -> Api:
        return Api(self.control.certificates.server, self.control.certificates.client_context("admin"))

    @property
    def node_names(self) -> list[str]:
        return [each.name for each in self.nodes]

    @property
    def components(self) -> list[str]:
        """What `stop`, `start`, `pause` and `resume` take: etcd, apiserver, kubelet-1, …"""
        return sorted({*self.processes.running, *self.processes.ended})

    def kubectl(self, *arguments: str | Path, text: str | None = None, check: bool = True) -> str:
        """What kubectl prints; its error as RigError unless told otherwise."""
        return run(self.programs / "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments, text=text, check=check)

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        found = self.api.get(kind, name, namespace)
        if found is None:
            raise RigError(f"there is no {kind} {name} in {namespace}")
        return found

    def apply(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            self.api.apply(each)

    def make_namespace(self, name: str, **labels: str) -> None:
        """A namespace in which pods can be made, and start: none is, or does, before these are there."""
        metadata = {"name": name, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        for kind, made in (("serviceaccount", "default"), ("configmap", "kube-root-ca.crt")):
            wait_for(f"the {kind} {made} of {name}", lambda kind=kind, made=made: self.api.get(kind, made, name))

    def delete_namespace(self, name: str) -> None:
        """With all that is in it, which takes a while."""
        self.api.delete("namespace", name)

    def token(self, account: str, namespace: str = "default", duration: str = "1h") -> str:
        return self.kubectl("create", "token", account, "-n", namespace, f"--duration={duration}").strip()

    def kubeconfig_for(self, account: str, namespace: str, path: Path, duration: str = "1h") -> Path:
        """A kubeconfig that has only the rights of a service account."""
        token = self.token(account, namespace, duration)
        return self.control.certificates.write_kubeconfig(path, {"token": token}, namespace)

    def evict(self, pod: str, namespace: str) -> str:
        """Ask for a pod to leave its node, as `kubectl drain` does; what the cluster says where it may not yet."""
        metadata = {"name": pod, "namespace": namespace}
        text = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        return self.kubectl("create", "--raw", path, "-f", "-", text=text)

    def patch_gpus(self, node_name: str, product: str | None, count: int) -> None:
        """Let a node say it has GPUs, as NVIDIA's device plugin and feature discovery would; 0 takes them away."""
        label = f"nvidia.com/gpu.product={product}" if product else "nvidia.com/gpu.product-"
        self.kubectl("label", "node", node_name, label, "--overwrite")
        quantity = {"nvidia.com/gpu": str(count) if count else None}
        patch = json.dumps({"status": {"capacity": quantity, "allocatable": quantity}})
        self.kubectl("patch", "node", node_name, "--subresource=status", "--type=merge", "-p", patch)

    def load_image(self, image: Path, *names: str) -> None:
        """Let nodes pull an image by these full names (docker.io/library/python:3.13-slim, …).

        The image is a directory made by `images.write`, or an archive as `docker save` writes it.
        """
        if image.is_file():
            image = images.unpack(image, self.directory / "images" / f"{image.name}-{image.stat().st_mtime_ns}")
        for name in names:
            images.publish(self._registry, image, name)
            for each in self.nodes:
                each.ctr("images", "rm", name, check=False)  # What it pulled by that name before.

    def name_test_image(self, *names: str) -> None:
        """Let the test image (Debian's bash, coreutils and Python) stand for others that documents name."""
        self.load_image(system.standard()[system.TEST], *names)

    def stop(self, component: str) -> None:
        """Kill a component, as a crash would."""
        self.processes.stop(component)

    def start(self, component: str) -> None:
        self.processes.start(component)

    def pause(self, component: str) -> None:
        """Let a component stand still: connections stay open, and nobody answers."""
        self.processes.signal(component, signal.SIGSTOP)

    def resume(self, component: str) -> None:
        self.processes.signal(component, signal.SIGCONT)

    def cut(self, node_name: str) -> None:
        """Pull a node's cable: its pods run on, and nobody hears of them."""
        network.cut(self.processes, node_name)

    def mend(self, node_name: str) -> None:
        network.mend(self.processes, node_name)

    def requests(self, user_agent: str, after: int = 0) -> list[dict[str, Any]]:
        """What a client whose name begins so asked of the API server, from `request_mark()` on."""
        with self.control.audit_log.open("rb") as log:
            log.seek(after)
            events = [json.loads(line) for line in log if line.endswith(b"\n")]
        return [event for event in events if event.get("userAgent", "").startswith(user_agent)]

    def request_mark(self) -> int:
        return self.control.audit_log.stat().st_size

    def kueue(self) -> None:
        """Kueue, installed in this cluster for good; see `kueue.start`."""
        kueue.start(self)


def clear(name: str) -> None:
    """What there is of the rig of this name, running or left. To be called with it locked."""
    directory = places.home(name)
    Processes(directory).end()
    if addresses := places.claimed(name):
        network.disconnect(addresses)
    cgroups.remove(name)
    places.release(name)


def _is_ready(item: dict[str, Any]) -> bool:
    conditions = {condition["type"]: condition["status"] for condition in item["status"].get("conditions", ())}
    taints = {taint["key"] for taint in item["spec"].get("taints", ())}
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints
