"""`get gpu` over a thousand nodes of eight GPUs, and what so many nodes cost a server that reaches none of them.

A thousand Docker hosts cannot stand here. Registered are addresses of this machine where nobody listens, with declared
GPUs: what is asked for, shown, and tried again and again is the same.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import process, server
from bench.command import FAKE, NO_KUBECTL, kubectl_get
from bench.table import Line, show
from tests.running import RunningServer

NODES, GPUS = 1000, 8
IN_ONE_FILE = 250
PRODUCTS = ("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
ROUNDS = 15
IDLE_SECONDS = 30
COMMANDS = {
    "penstock get gpu": "a line for each product of a node",
    "pwmcli get gpu": f"a line for each of {NODES * GPUS:,} GPUs",
    "penstock get gpu -o json": "",
}


def lines() -> list[Line]:
    with _registered() as served, kubectl_get("nodes", NODES, served.place) as kubectl:
        idle, size = _burden(served.process.pid)
        walls = _walls(served, kubectl)
    theirs, of_what = walls.pop("kubectl", None), f"kubectl get nodes, {FAKE}" if kubectl else NO_KUBECTL
    away = f"{NODES:,} hosts that do not answer"
    return [
        *(
            Line(f"{words}, {NODES:,} nodes", wall, "ms", "≤ 300 ms", wall <= 300, theirs, of_what, COMMANDS[words])
            for words, wall in walls.items()
        ),
        Line(f"{away}: idle CPU", idle, "%", "-", None, note=f"of one CPU, over {IDLE_SECONDS} s"),
        Line(f"{away}: memory", size, "MB", "-", None),
    ]


@contextmanager
def _registered() -> Iterator[RunningServer]:
    with server.running(engine="docker") as served:
        documents = served.place / "nodes.yaml"
        for first in range(0, NODES, IN_ONE_FILE):
            documents.write_text("---\n".join(map(_node, range(first, first + IN_ONE_FILE))))
            line = [server.program(), "apply", "-f", str(documents)]
            subprocess.run(line, env=served.environ, stdout=subprocess.DEVNULL, check=True)
        yield served


def _node(number: int) -> str:
    gpu = f"{{product_name: {PRODUCTS[number % len(PRODUCTS)]}, memory: 80Gi}}"
    about = f"metadata: {{name: node-{number:04}, group: pwm.resource}}"
    allow = "allow: [CPUWorkload, GPUWorkload]"
    address = f"tcp://127.0.{number // 250}.{number % 250 + 1}:9"
    spec = f"spec: {{address: '{address}', {allow}, gpus: [{', '.join([gpu] * GPUS)}]}}"
    return f"apiVersion: v1\nkind: Node\n{about}\n{spec}\n"


def _burden(pid: int) -> tuple[float, float]:
    """Per cent of one CPU, and megabytes, once it has done what there is to do at first."""
    process.wait_until_idle(pid, most=0.2)
    before = process.cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    return (process.cpu_seconds(pid) - before) / IDLE_SECONDS * 100, process.resident(pid)[0]


def _walls(served: RunningServer, kubectl: list[str] | None) -> dict[str, float]:
    """Milliseconds, interleaved; the first two rounds fill caches."""
    named = {words: [server.program(words.split()[0]), *words.split()[1:]] for words in COMMANDS}
    named |= {"kubectl": kubectl} if kubectl else {}
    taken: dict[str, list[float]] = {name: [] for name in named}
    for _ in range(ROUNDS + 2):
        for name, line in named.items():
            taken[name].append(process.run(line, served.environ)[0])
    return {name: statistics.median(walls[2:]) for name, walls in taken.items()}


if __name__ == "__main__":
    print(show(lines()))
