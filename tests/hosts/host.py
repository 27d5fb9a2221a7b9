"""One Docker host: its engine, its ssh server, and what can befall it."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.disks import FILL
from tests.hosts import archives, files, gpus, programs, stock
from tests.hosts.keys import USER, Keys
from tests.rig import cgroups, network
from tests.rig.places import Addresses, RigError
from tests.rig.processes import Processes, run, wait_for
from tests.running import SocketConnection

TLS_PORT = 2376
_ROOT = Path(__file__).parents[2]
_BALLAST = "ballast"
_MADE = {
    "/containers/json?all=true": ("Id", "/containers/{}?force=true&v=true"),
    "/volumes": ("Name", "/volumes/{}"),
    "/networks?filters=" + quote('{"type":["custom"]}'): ("Id", "/networks/{}"),
}
"""How what tests make is listed, what it is called there, and where it is removed."""


class Inside(Processes):
    """Those of a host. Its first process has another number in here: its socket tells which it has on this machine."""

    @property
    def holder(self) -> int | None:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.directory / "holder.sock"))
            except OSError:
                return None
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        process: int = struct.unpack("3i", told)[0]
        return process


class Host:
    def __init__(self, outside: Processes, addresses: Addresses, number: int, keys: Keys) -> None:
        self.name = f"host-{number}"
        self.address = addresses.node(number)
        self._ethernet = f"02:00:00:00:01:{number:02x}"  # Its own at every start, or the others look for it in vain.
        self.home = outside.directory / self.name
        self.processes = Inside(self.home)
        self.keys = keys
        self._outside = outside
        self._addresses = addresses
        self._filler: subprocess.Popen[bytes] | None = None

    # Where it is reached

    @property
    def socket(self) -> Path:
        return self.home / "docker.sock"

    @property
    def unix(self) -> str:
        return f"unix://{self.socket}"

    @property
    def tcp(self) -> str:
        """With TLS; `keys.client` has what a client needs."""
        return f"tcp://{self.address}:{TLS_PORT}"

    @property
    def ssh(self) -> str:
        """What a client runs is `ssh -F CONFIG NAME docker system dial-stdio`, for each connection to the engine.

        CONFIG is `keys.config`, NAME that of the host or its address. Docker's command line is in PATH over there.
        """
        return f"ssh://{USER}@{self.address}"

    # Up

    def begin(
        self,
        config: dict[str, Any],
        images: Mapping[str, Path],
        disk_mb: int | None = None,
        products: Sequence[str] = (),
    ) -> None:
        """Make its files, turn it on for the first time, and let it have images by their names. `products` are GPUs
        that it seems to have."""
        files.make(self.home, resolver=self._addresses.control)
        if products:
            gpus.make(self.home, products)
            config = gpus.ENGINE | config
        if disk_mb:
            self._outside.run("mount", "-t", "tmpfs", "-o", f"size={disk_mb}m", "tmpfs", self.home / "data")
        cgroup = f"{cgroups.root(self._outside.directory.name)}/{self.name}"
        listens = [self.unix, "unix:///run/docker.sock", self.tcp]
        engine = files.engine(self.home, listens, cgroup) | self.keys.engine(self.name)
        self._write_config(engine | config)
        (self.home / "sshd_config").write_text(files.sshd(self.keys, self.name, self.address))
        has_them = not images or (not disk_mb and stock.lay(images, self.home / "data"))
        self.turn_on()
        if not has_them:
            for name, image in images.items():
                self.load(image, name)
            if not disk_mb:
                stock.keep(images, self.home / "data")

    def turn_on(self) -> None:
        """As it was when it was turned off, except for what ran."""
        self._outside.start(
            self.name,
            *("unshare", "--pid", "--mount", "--net", "--ipc", "--uts", "--fork", "--kill-child"),
            *("env", f"PYTHONPATH={_ROOT}", sys.executable, "-m", "tests.hosts.boot", self.home),
        )
        wait_for(f"the first process of {self.name}", self._has_first_process)
        self._connect()
        engine = (*gpus.command(self.home), programs.DOCKERD, "--config-file", self._config_file)
        self.processes.start("dockerd", *engine)
        self.processes.start("sshd", programs.SSHD, "-D", "-e", "-f", self.home / "sshd_config")
        self.wait()
        self._wait_for_ssh()

    def _has_first_process(self) -> bool:
        self._outside.check(self.name)
        return self.processes.holder is not None

    def _connect(self) -> None:
        """A cable from the bridge, which goes with the host: whoever made it knows the host by its number here."""
        inside, outside = str(self.processes.holder), str(self._outside.holder)
        there = [
            f"ip link delete {self.name} 2>/dev/null || true",
            "set -e",
            f"ip link add {self.name} type veth peer name eth0 address {self._ethernet} netns {inside}",
            f"ip link set {self.name} master {network.BRIDGE} up",
        ]
        here = [
            "set -e",
            "ip link set lo up",
            f"ip addr add {self.address}/24 dev eth0",
            "ip link set eth0 up",
            f"ip route add default via {self._addresses.control}",
        ]
        for process, lines in ((outside, there), (inside, here)):
            run("nsenter", f"--target={process}", "--net", "sh", "-c", "\n".join(lines))

    def wait(self) -> None:
        """Until its engine answers."""

        def answers() -> bool:
            self.processes.check("dockerd")
            return "Version" in self.ask("GET", "/version")

        wait_for(f"the engine of {self.name}", answers)

    def _wait_for_ssh(self) -> None:
        def listens() -> bool:
            self.processes.check("sshd")
            with socket.create_connection((self.address, 22), timeout=5):
                return True

        wait_for(f"the ssh server of {self.name}", listens)

    # Its configuration

    @property
    def _config_file(self) -> Path:
        return self.home / "daemon.json"

    def _write_config(self, config: dict[str, Any]) -> None:
        self._config_file.write_text(json.dumps(config, indent=1))

    def configure(self, **settings: Any) -> None:
        """Change the engine's configuration (live_restore=True, …). What it cannot take at once needs a restart."""
        config = json.loads(self._config_file.read_text())
        self._write_config(config | {name.replace("_", "-"): value for name, value in settings.items()})
        self.processes.signal("dockerd", signal.SIGHUP)

    # For tests

    def ask(self, method: str, path: str) -> Any:
        """What the engine answers, by its Unix socket: a program less to start than with `docker`."""
        connection = SocketConnection(self.socket)
        try:
            connection.request(method, path)
            return json.loads(connection.getresponse().read() or "null")
        except (HTTPException, ValueError) as error:
            raise RigError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()

    def docker(self, *arguments: str | Path, check: bool = True) -> str:
        """What Docker's command line prints; its error as RigError unless told otherwise."""
        return run(*self.command(*arguments), check=check)

    def jobs(self, *options: str) -> list[str]:
        """The containers of jobs, without those that help."""
        return self.docker("ps", "-q", "--filter", "label=penstock.dev/helper=", *options).split()

    def command(self, *arguments: str | Path) -> Sequence[str | Path]:
        """Docker's command line, for whoever starts it otherwise."""
        plain = ("env", "--ignore-environment", "PATH=/usr/bin:/bin")
        return (*plain, programs.DOCKER, "--config", self.keys.client, "--host", self.unix, *arguments)

    def load(self, image: Path, *names: str) -> None:
        """Let it have an image by these names. The image is a directory made by `images.write`."""
        with tempfile.NamedTemporaryFile(dir=self.home, suffix=".tar") as archive:
            archives.write(image, archive)
            archive.flush()
            self.docker("load", "--quiet", "--input", archive.name)
        for name in names:
            self.docker("tag", archives.identity(image), name)

    def gpu_does(self, number: int, percent: int | str, memory_mb: int, processes: int = 0) -> None:
        """What one of the GPUs that it seems to have does from now on; see `gpus` of `Hosts.up`."""
        gpus.change(self.home, number, percent, memory_mb, processes)

    def has_gpus(self, *products: str) -> None:
        """Others from now on, which do nothing; none: its driver is not loaded."""
        gpus.make(self.home, products)

    def clean(self) -> None:
        """Remove all that was made on it, but the images; also what somebody else is just removing."""
        for listed, (called, removed) in _MADE.items():

            def gone(listed: str = listed, called: str = called, removed: str = removed) -> bool:
                found = self.ask("GET", listed)
                there = (found.get("Volumes") or []) if isinstance(found, dict) else found
                for each in there:
                    self.ask("DELETE", removed.format(each[called]))
                return not there

            wait_for(f"the end of all that was made on {self.name}", gone)

    def restart(self) -> None:
        """The engine, as an upgrade does: asked to end, it takes its containers with it unless told otherwise."""
        self.processes.signal("dockerd", signal.SIGTERM)
        wait_for(f"the end of the engine of {self.name}", lambda: "dockerd" not in self.processes.running)
        self.start()

    def kill(self) -> None:
        """The engine, as a crash does. Its containers run on, and nobody looks after them."""
        self.processes.stop("dockerd")

    def start(self) -> None:
        """The engine, again."""
        self.processes.start("dockerd")
        self.wait()

    def pause(self) -> None:
        """Let the engine stand still: connections are taken, and nobody answers."""
        self.processes.signal("dockerd", signal.SIGSTOP)

    def resume(self) -> None:
        self.processes.signal("dockerd", signal.SIGCONT)

    def turn_off(self) -> None:
        """Pull its plug: the engine, the containers, the ssh server, all at once."""
        self.processes.end()
        wait_for(f"the end of {self.name}", lambda: self.name not in self._outside.running)
        cgroups.remove(f"{self._outside.directory.name}/{self.name}")
        cgroups.make(self._outside.directory.name, self.name)

    def reboot(self) -> None:
        self.turn_off()
        self.turn_on()

    def cut(self) -> None:
        """Pull its cable: its containers run on, and nobody reaches it but by its Unix socket."""
        network.cut(self._outside, self.name)

    def mend(self) -> None:
        network.mend(self._outside, self.name)

    def fill(self) -> None:
        """Leave no byte free on its disk, and take at once what its engine clears away later: see `disk_mb` of
        `Hosts.up`, without which the disk is this machine's."""
        data = self.home / "data"
        if not self._outside.run("findmnt", "--noheadings", data, check=False):
            raise RigError(f"{self.name} has no disk of its own to fill: bring it up with disk_mb")
        there = ["nsenter", f"--target={self._outside.holder}", "--mount"]
        self._filler = subprocess.Popen([*there, sys.executable, "-I", "-S", "-c", FILL, data / _BALLAST])
        full = ("df", "--output=avail", data)
        wait_for(f"a full disk of {self.name}", lambda: self._outside.run(*full).split()[-1] == "0")

    def empty(self) -> None:
        """Take away what filled its disk."""
        if self._filler:
            self._filler.kill()
            self._filler.wait()
            self._filler = None
        self._outside.run("rm", "--force", self.home / "data" / _BALLAST)

    def heal(self) -> None:
        """What a test killed, stopped or cut and did not mend."""
        if self.name not in self._outside.running:
            self.turn_on()
        self.mend()
        self.resume()
        for component in self.processes.ended:
            self.processes.start(component)
        self.wait()
        self._wait_for_ssh()
