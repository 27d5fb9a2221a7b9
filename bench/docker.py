"""Submit to running on a real Docker host, beside `docker run -d` of the same image: both as typed, in turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from socket import AF_UNIX, socket
from urllib.parse import quote

from bench import server
from bench.table import Line, show
from penstock.engines.docker.names import Label
from tests.hosts import programs
from tests.hosts.host import Host
from tests.hosts.lot import BUSYBOX, Hosts
from tests.rig.processes import wait_for
from tests.running import RunningServer

ROUNDS = 15
SLEEP = ["sleep", "600"]
NODE = "apiVersion: v1\nkind: Node\nmetadata: {{name: here, group: pwm.resource}}\nspec: {{address: '{}'}}\n"


def lines() -> list[Line]:
    if said := programs.fault():
        return [Line("Docker", 0, "", "-", None, note=f"not measured: {said}")]
    name = f"bench-{os.getpid()}"
    try:
        with Hosts.used(name):
            [host] = Hosts.up(name, 1, temporary=True).hosts
            return _submits(host)
    finally:
        Hosts.down(name)


def _submits(host: Host) -> list[Line]:
    """A group has a network of its own, which costs Docker the same whoever asks for it: so the goal is beside a
    container that has one, too."""
    host.docker("network", "create", "bench")
    plain, networked, typed, asked = _rounds(host)
    goal, within = "≤ 1.1 × docker run --network", "docker run -d --network"
    cost = f"a network of its own costs docker run itself {networked - plain:.0f} ms"
    return [
        Line("submit to running, Docker", typed, "ms", goal, typed <= 1.1 * networked, networked, within),
        Line("the same, API alone", asked, "ms", "-", None),
        Line("the same, beside the usual bridge", typed, "ms", "-", None, plain, "docker run -d", cost),
    ]


def _rounds(host: Host) -> list[float]:
    """Milliseconds of each way, in turns: docker run -d, the same in a network, as typed, by the API."""
    with server.running(engine="docker", default_cpus="10m") as served:
        served.request("POST", "/v1/apply", {"text": NODE.format(host.unix)})
        wait_for("the host", lambda: served.request("GET", "/v1/nodes")[1]["items"][0]["ready"])
        ways = {
            "plain": lambda _: host.docker("run", "-d", BUSYBOX, *SLEEP),
            "in a network": lambda _: host.docker("run", "-d", "--network", "bench", BUSYBOX, *SLEEP),
            "typed": lambda name: _by_command(served, host, f"typed-{name}"),
            "asked": lambda name: _by_api(served, host, f"asked-{name}"),
        }
        took: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(ROUNDS + 2):
            for way, start in ways.items():
                began = time.perf_counter()
                start(number)
                took[way].append((time.perf_counter() - began) * 1000)
    return [statistics.median(each[2:]) for each in took.values()]


def _by_command(served: RunningServer, host: Host, name: str) -> None:
    task = served.place / "task.yaml"
    task.write_text(_task(name))
    line = [server.program(), "jobs", "submit", "-d", "-o", "name", str(task)]
    with _started(host, name):
        subprocess.run(line, env=served.environ, check=True, capture_output=True)


def _by_api(served: RunningServer, host: Host, name: str) -> None:
    with _started(host, name):
        served.submit(_task(name))


def _task(name: str) -> str:
    return f"name: {name}\nresources: {{image_id: '{BUSYBOX}'}}\nrun: {json.dumps(SLEEP)}\n"


@contextmanager
def _started(host: Host, name: str) -> Iterator[None]:
    """Ends when the engine itself tells that it has started: to ask for it again and again would take from the time of
    the engine on a small machine."""
    wanted = json.dumps({"type": ["container"], "event": ["start"], "label": [f"{Label.NAME}={name}"]})
    engine = HTTPConnection("localhost")
    engine.sock = socket(AF_UNIX)
    engine.sock.connect(str(host.socket))
    engine.request("GET", f"/events?filters={quote(wanted)}")
    told = engine.getresponse()
    yield
    told.readline()
    engine.close()


if __name__ == "__main__":
    print(show(lines()))
