"""Document 002 on the embedded engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.document002 import Document002
from tests.running import RunningServer, start_server


class TestEmbedded(Document002):
    @pytest.fixture
    def server(self, place: Path, compiled_fake: Callable[[str, str], Path]) -> Iterator[RunningServer]:
        (place / "ceph").mkdir(mode=0o711)
        library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
        environ = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": ",".join(["NVIDIA A10"] * 4)}
        settings = {"cpus": "64", "memory": "256Gi", "storage_classes": f"rook-cephfs={place / 'ceph'}"}
        server = start_server(place, **settings, gpu_lock_dir=str(place / "locks"), environ=environ)
        yield server
        server.end()
