"""GPUs that a host does not have: NVIDIA's container toolkit is a stand-in (`tests/fakes`), all the rest is real."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MEMORY_MB = 24_576
ENGINE = {"runtimes": {"nvidia": {"path": "runc"}}}
"""What the toolkit writes into the engine's configuration."""
_FAKES = Path(__file__).parents[1] / "fakes"


def uuid(host: str, number: int) -> str:
    return f"GPU-{host}-{number}"


def make(home: Path, products: Sequence[str]) -> None:
    """Of these products, which do nothing; none: as if NVIDIA's driver had not been loaded."""
    same = {"memory.total": MEMORY_MB, "memory.used": 0, "utilization.gpu": 0}
    _write(
        home,
        [{"index": i, "uuid": uuid(home.name, i), "name": product} | same for i, product in enumerate(products)],
    )


def change(home: Path, number: int, percent: int | str, memory_mb: int, processes: int = 0) -> None:
    """What one does now; nvidia-smi says `[N/A]` where a GPU does not tell its percent. Processes are those it counts:
    in a container some drivers show none."""
    there = json.loads(_table(home).read_text())
    there[number] |= {"utilization.gpu": percent, "memory.used": memory_mb, "processes": processes}
    _write(home, there)


def command(home: Path) -> tuple[str, ...]:
    """What the engine is started by where there are some: it looks for the toolkit's program in PATH."""
    if not _table(home).exists():
        return ()
    return ("env", f"PATH={_FAKES}:{os.environ['PATH']}", f"FAKE_GPUS={_table(home)}")


def _table(home: Path) -> Path:
    return home / "gpus"


def _write(home: Path, gpus: list[dict[str, Any]]) -> None:
    """At once: it may be read at any time."""
    new = home / "gpus.new"
    new.write_text(json.dumps(gpus))
    new.rename(_table(home))
