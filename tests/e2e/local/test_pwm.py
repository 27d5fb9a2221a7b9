"""PWM on the embedded engine.

The GPU comes from a fake of NVIDIA's management library, the NFS storage is a directory of its name, the node is this
machine, and there are no images, so that a workload names its program.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import pwm
from tests.e2e.pwm import Document003, Person
from tests.running import RunningServer, start_server


class TestEmbedded(Document003):
    first_test = f"{pwm.FIRST_TEST}  config: {{cmd: sleep 1000}}\n"
    node = platform.node()

    @pytest.fixture
    def server(self, place: Path, compiled_fake: Callable[[str, str], Path]) -> Iterator[RunningServer]:
        (place / "zfs").mkdir(mode=0o711)
        library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
        environ = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": "Quadro RTX 6000"}
        settings = {"storage_classes": f"pwmzfs01={place / 'zfs'}", "gpu_lock_dir": str(place / "locks")}
        server = start_server(place, **settings, environ=environ)
        yield server
        server.end()

    def test_its_gpu_is_shown(self, researcher: Person) -> None:
        [gpu] = researcher.rows("pwmcli get gpu")
        assert gpu[0] == "GPU"
        assert "Quadro RTX 6000" in " ".join(gpu)
        assert gpu[-1] == "now"

    def test_a_workload_without_a_program_is_refused(self, researcher: Person) -> None:
        researcher.writes("example.yaml", pwm.FIRST_TEST)
        assert "spec.config.cmd: is missing" in researcher.pastes("pwmcli apply -f example.yaml", code=2)
        assert researcher.rows("pwmcli get wk") == []

    def test_a_home_and_a_dataset(  # type: ignore[override]
        self, server: RunningServer, admin: Person, researcher: Person
    ) -> None:
        super().test_a_home_and_a_dataset(admin, researcher)
        mount = ["Storage", "pwmzfs01", "nfs", "192.168.186.65:/pwmzfs01/share_01"]
        assert mount in researcher.rows("pwmcli get storage")
        assert (server.place / "zfs/yourUserName/home/note").read_text() == "mine\n"
        assert (server.place / "zfs/pwm.resource/datasets/hmdb_ucf").is_dir()
