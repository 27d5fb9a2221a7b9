"""`Hosts`: Docker hosts that are up with their registries, and what tests and people do with them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.hosts import names, programs
from tests.hosts.host import Host
from tests.hosts.keys import Keys
from tests.hosts.registry import LOGIN, OPEN_PORT, PRIVATE_PORT, Registry
from tests.rig import cgroups, network, places, system
from tests.rig.cluster import Rig, clear
from tests.rig.places import Addresses, RigError
from tests.rig.processes import Processes

DEFAULT_NAME = "penstock"

BUSYBOX, TEST = "busybox:1", "penstock-test:1"
_IMAGES = {BUSYBOX: system.BUSYBOX, TEST: system.TEST}


class Hosts:
    def __init__(self, name: str, addresses: Addresses, number: int) -> None:
        self.name = name
        self.addresses = addresses
        self.directory = places.home(places.HOSTS + name)
        self.processes = Processes(self.directory)
        self.keys = Keys(self.directory)
        self.hosts = [Host(self.processes, addresses, each, self.keys) for each in range(1, number + 1)]
        self.registry = Registry(self.processes, addresses.control, OPEN_PORT)
        self.private_registry = Registry(self.processes, addresses.control, PRIVATE_PORT, LOGIN)

    # Up and down

    @classmethod
    def up(
        cls,
        name: str = DEFAULT_NAME,
        number: int | None = None,
        *,
        disk_mb: int | None = None,
        gpus: tuple[str, ...] = (),
        images: tuple[str, ...] = (BUSYBOX, TEST),
        config: Mapping[str, Any] | None = None,
        temporary: bool = False,
    ) -> Hosts:
        """The hosts of this name: those that are up, or some brought up now. Temporary ones are ended by the tests.

        `config` is more for the engines' daemon.json ({"live-restore": True}, …); a disk of `disk_mb` can be filled.
        `gpus` are products of GPUs that each seems to have: nothing computes on them, and what they do is said by
        `Host.gpu_does`.
        """
        if said := programs.fault():
            raise RigError(said)
        with places.locked(places.HOSTS + name):
            if there := cls.find(name):
                there._expect(number)
                there._heal()
                if not temporary:
                    there._temporary.unlink(missing_ok=True)
                return there
            clear(places.HOSTS + name)
            lot = cls(name, places.claim(places.HOSTS + name), number or 2)
            if temporary:
                lot._temporary.touch()
            try:
                lot._begin(images, dict(config or {}), disk_mb, gpus)
            except BaseException:
                lot.processes.end()  # The directory, with the logs, stays until the next up or down.
                raise
        return lot

    @classmethod
    def find(cls, name: str = DEFAULT_NAME) -> Hosts | None:
        """The hosts of this name, if they are up."""
        directory = places.home(places.HOSTS + name)
        try:
            is_up = json.loads((directory / "hosts").read_text())
        except (FileNotFoundError, ValueError):
            return None
        if Processes(directory).holder is None:
            return None
        return cls(name, Addresses(is_up["slot"]), is_up["hosts"])

    @staticmethod
    def down(name: str = DEFAULT_NAME) -> None:
        """End the hosts of this name, or what a crash left of them. None there: nothing to do."""
        Rig.down(places.HOSTS + name)

    @staticmethod
    def names() -> list[str]:
        """Of those that are up, or were and left something."""
        return [name.removeprefix(places.HOSTS) for name in places.names() if name.startswith(places.HOSTS)]

    @staticmethod
    def used(name: str) -> AbstractContextManager[None]:
        """Say that they are in use, for as long as the block and this process last."""
        return places.used(places.HOSTS + name)

    @property
    def _temporary(self) -> Path:
        return self.directory / "temporary"

    def _expect(self, number: int | None) -> None:
        """Nobody's hosts are ended because somebody else wants others."""
        if number not in (None, len(self.hosts)):
            raise RigError(f"{self.name} is up with {len(self.hosts)} hosts; end it first, or choose another --name")

    def _begin(
        self, images: tuple[str, ...], config: dict[str, Any], disk_mb: int | None, gpus: tuple[str, ...]
    ) -> None:
        (self.directory / "resolv.conf").write_text(f"nameserver {self.addresses.control}\n")
        self.keys.begin()
        for host in self.hosts:
            self.keys.add(host.name, host.address)
        cgroups.make(self.directory.name, *(host.name for host in self.hosts))
        self.processes.begin()
        network.connect(self.processes, self.addresses, 0)
        # A bridge without an address of its own takes that of a host, and another when that host is turned off.
        self.processes.run("ip", "link", "set", network.BRIDGE, "address", "02:00:00:00:00:01")
        self.processes.start("names", sys.executable, "-I", names.__file__, self.addresses.control)
        for registry in (self.registry, self.private_registry):
            registry.begin()
        config = {
            "insecure-registries": [self.registry.address, self.private_registry.address],
            "registry-mirrors": [f"http://{self.registry.address}"],
        } | config
        made = system.standard()
        wanted = {image: made[_IMAGES[image]] for image in images}

        def begin(host: Host) -> None:
            host.begin(config, wanted, disk_mb, gpus)

        with ThreadPoolExecutor() as pool:
            list(pool.map(begin, self.hosts))
        for registry in (self.registry, self.private_registry):
            registry.wait()
        (self.directory / "hosts").write_text(json.dumps({"slot": self.addresses.slot, "hosts": len(self.hosts)}))

    def _heal(self) -> None:
        for registry in (self.registry, self.private_registry):
            registry.heal()
        for host in self.hosts:
            host.heal()

    # For tests

    def push(self, image: Path | str, name: str, *, private: bool = False) -> str:
        """Let an image be pulled from a registry, and from nowhere else; its full name.

        The image is a directory made by `images.write`, or the name of one that the first host has. In the open
        registry, `library/python:3` is also what the hosts get when they pull `python:3`.
        """
        registry, host = self.private_registry if private else self.registry, self.hosts[0]
        full = f"{registry.address}/{name}"
        if isinstance(image, Path):
            host.load(image, full)
        else:
            host.docker("tag", image, full)
        if registry.login:
            user, password = registry.login
            host.docker("login", "--username", user, "--password", password, registry.address)
        try:
            host.docker("push", "--quiet", full)
        finally:
            if registry.login:
                host.docker("logout", registry.address)
            host.docker("rmi", full)
        return full
