"""GPUs are given to one job at a time on the whole machine, and to no other."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture
def devices() -> Iterator[None]:
    """Device files as the driver makes them; behind them is /dev/null."""
    paths = [Path("/dev/nvidia90"), Path("/dev/nvidia91")]
    for path in paths:
        path.unlink(missing_ok=True)
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    yield
    for path in paths:
        path.unlink()


@pytest.mark.usefixtures("devices")
def test_two_servers_on_one_machine_never_share_a_gpu(place: Path, compiled_fake: Callable[[str, str], Path]) -> None:
    library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
    surroundings = os.environ | {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": "NVIDIA A10,NVIDIA H100 80GB"}
    command = [sys.executable, "-m", "tests.engines.contract.gpus", str(place)]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    second = "GPU-00000000-0000-0000-0000-000000000001"
    found = json.loads(done.stdout)
    real = {path.name for path in Path("/dev").glob("nvidia*")} - {"nvidia90", "nvidia91"}
    assert [line for line in found.pop("log").splitlines() if line not in real] == [second, "nvidia91", "up"]
    assert found == {
        "products": ["NVIDIA A10", "NVIDIA H100 80GB"],
        "taken": [[False, False], [False, True]],
        "busy": [second],
        "adopted": [False, False],
        "afterwards": "EXITED",
        "none": "[]\n",
    }
