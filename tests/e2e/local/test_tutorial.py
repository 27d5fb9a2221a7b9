"""The storage tutorial on the embedded engine."""

from __future__ import annotations

import shutil
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.tutorial import STAND_INS, Document002
from tests.running import RunningServer, start_server


class TestEmbedded(Document002):
    claim_events = ("CREATED",)
    own_tmp = True

    @pytest.fixture
    def server(self, place: Path, compiled_fake: Callable[[str, str], Path]) -> Iterator[RunningServer]:
        (place / "ceph").mkdir(mode=0o711)
        library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
        environ = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": ",".join(["NVIDIA A10"] * 4)}
        settings = {"cpus": "64", "memory": "256Gi", "storage_classes": f"rook-cephfs={place / 'ceph'}"}
        server = start_server(place, **settings, gpu_lock_dir=str(place / "locks"), environ=environ)
        _activate(_environment(place / "venv"), server)
        yield server
        server.end()


def _environment(path: Path) -> Path:
    """A virtual environment with what this machine has not."""
    venv.create(path)
    for program in STAND_INS:
        shutil.copy(program, path / "bin")
    return path


def _activate(path: Path, server: RunningServer) -> None:
    server.environ |= {"VIRTUAL_ENV": str(path), "PATH": f"{path}/bin:{server.environ['PATH']}"}
