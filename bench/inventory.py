"""`penstock get gpu` over a thousand nodes of eight GPUs, and what so many nodes cost a server that reaches none of them.

A thousand Docker hosts cannot stand here. Registered are addresses of this machine where nobody listens, with declared
GPUs: what is asked, shown and tried again and again is the same.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import process, server
from bench.table import Line, show
from tests.running import RunningServer

NODES, GPUS = 1000, 8
PRODUCTS = ("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
IN_ONE_FILE = 250
ROUNDS = 15
IDLE_SECONDS = 30
PENSTOCK = str(Path(sys.executable).parent / "penstock")


def lines() -> list[Line]:
    with _registered() as served:
        idle, size = _burden(served.process.pid)
        table = _wall(["get", "gpu"], served)
        as_json = _wall(["get", "gpu", "-o", "json"], served)
        nodes = _wall(["get", "node"], served)
    where = f"{NODES:,} nodes × {GPUS} GPUs"
    note = f"all of it, as typed: {NODES * GPUS:,} lines"
    return [
        Line(f"get gpu, {where}", table, "ms", "≤ 300 ms", table <= 300, note=note),
        Line("get gpu -o json", as_json, "ms", "-", None),
        Line("get node", nodes, "ms", "-", None),
        Line(f"{NODES:,} hosts away, idle CPU", idle, "%", "-", None, note=f"of one CPU, over {IDLE_SECONDS} s"),
        Line(f"{NODES:,} hosts away, memory", size, "MB", "-", None),
    ]


@contextmanager
def _registered() -> Iterator[RunningServer]:
    with server.running(engine="docker") as served:
        for first in range(0, NODES, IN_ONE_FILE):
            documents = served.place / "nodes.yaml"
            documents.write_text("---\n".join(map(_node, range(first, first + IN_ONE_FILE))))
            line = [PENSTOCK, "apply", "-f", str(documents)]
            subprocess.run(line, env=served.environ, stdout=subprocess.DEVNULL, check=True)
        yield served


def _node(number: int) -> str:
    product = PRODUCTS[number % len(PRODUCTS)]
    gpu = f"{{product_name: {product}, memory: 80Gi}}"
    about = f"metadata: {{name: node-{number:04}, group: pwm.resource}}"
    allow = "[CPUWorkload, GPUWorkload]"
    spec = f"spec: {{address: 'tcp://127.0.0.1:9', allow: {allow}, gpus: [{', '.join([gpu] * GPUS)}]}}"
    return f"apiVersion: v1\nkind: Node\n{about}\n{spec}\n"


def _burden(pid: int) -> tuple[float, float]:
    """Per cent of one CPU, and megabytes, once it has done what it has to do at first."""
    process.wait_until_idle(pid)
    before = process.cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    return (process.cpu_seconds(pid) - before) / IDLE_SECONDS * 100, process.resident(pid)[0]


def _wall(words: list[str], served: RunningServer) -> float:
    """Milliseconds; the first two fill caches."""
    runs = [process.run([PENSTOCK, *words], served.environ) for _ in range(ROUNDS + 2)]
    return statistics.median(wall for wall, _ in runs[2:])


if __name__ == "__main__":
    print(show(lines()))
