"""`penstock jobs list` beside `kubectl get jobs`: as many objects, each against a server that runs already."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import process, server
from bench.table import Line

OBJECTS = 100
ROUNDS = 25
FAKE = "fake API server"
NO_KUBECTL = "kubectl: not installed"


def lines() -> list[Line]:
    penstock = [server.program(), "jobs", "list"]
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    with server.running(stored=OBJECTS) as served, kubectl_get("jobs", OBJECTS, served.place) as kubectl:
        for _ in range(ROUNDS + 2):
            ours.append(process.run(penstock, served.environ))
            if kubectl:
                theirs.append(process.run(kubectl, served.environ))
    wall, memory = _medians(ours)
    beside = _medians(theirs) if theirs else (None, None)
    beside_what = f"kubectl get jobs, {FAKE}" if theirs else NO_KUBECTL
    return [
        Line(
            f"jobs list, {OBJECTS} jobs, wall",
            wall,
            "ms",
            "≤ 1.5 × kubectl",
            wall <= 1.5 * beside[0] if beside[0] else None,
            beside[0],
            beside_what,
        ),
        Line("jobs list, memory", memory, "MB", "≤ 40 MB", memory <= 40, beside[1], beside_what),
    ]


def _medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    """Without the first two, which fill caches."""
    walls, sizes = zip(*runs[2:], strict=True)
    return statistics.median(walls), statistics.median(sizes)


@contextmanager
def kubectl_get(kind: str, count: int, place: Path) -> Iterator[list[str] | None]:
    """The line that lists so many, of a server that has nothing else; None where kubectl is not installed."""
    program = shutil.which("kubectl")
    if program is None:
        yield None
        return
    fake = subprocess.Popen(
        [sys.executable, "-m", "bench.fake_kubernetes", str(count)], stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert fake.stdout
    try:
        port = int(fake.stdout.readline())
        yield [program, "--server", f"http://127.0.0.1:{port}", "--cache-dir", str(place / "kube"), "get", kind]
    finally:
        fake.kill()
        fake.wait()
        fake.stdout.close()
