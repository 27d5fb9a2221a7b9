"""What doctor says of this engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.domain.workloads import Resources
from penstock.engines.local import LocalEngine
from penstock.engines.local.limits import Limits
from penstock.errors import Unavailable
from penstock.settings import Settings
from tests.engines.launching import a_launch
from tests.engines.machine import opened


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
async def test_doctor_tries_the_sandbox_and_names_what_it_saw(engine: LocalEngine, settings: Settings) -> None:
    checks = {check.name: check for check in await engine.checks()}
    assert list(checks) == ["sandbox", "limits", "gpus", "disk", "data_dir"]
    assert checks["sandbox"].ok
    assert checks["sandbox"].detail.startswith("bubblewrap works (")
    assert checks["limits"].ok == (await engine.nodes())[0].limits_enforced
    assert str(settings.data_dir) in checks["disk"].detail


async def test_without_bubblewrap_a_start_names_the_line_that_installs_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setenv("PATH", str(place))
    async with opened(settings) as engine:
        with pytest.raises(Unavailable, match="bubblewrap is not installed") as raised:
            await engine.start(a_launch("true"))
        assert raised.value.hint == "sudo apt-get install -y bubblewrap"
        sandbox = (await engine.checks())[0]
        assert (sandbox.ok, sandbox.required, sandbox.fix) == (False, True, raised.value.hint)


async def test_no_sandbox_is_a_choice_that_doctor_mentions(place: Path) -> None:
    async with opened(Settings(data_dir=place / "data", sandbox="none")) as engine:
        sandbox = (await engine.checks())[0]
        assert (sandbox.ok, sandbox.required) == (False, False)
        assert "see the whole machine" in sandbox.detail


def test_a_delegated_subtree_gets_version_2_files(place: Path) -> None:
    root = place / "penstock"
    root.mkdir()
    (root / "memory.swap.max").touch()
    limits = Limits(2, {"memory": root, "cpu": root})
    asked = Resources(cpus_milli=1500, memory_bytes=1 << 30)
    assert limits.groups("job-0", asked) == [
        {
            "path": str(root / "job-0"),
            "write": [
                ["memory.max", "1073741824"],
                ["memory.swap.max", "0"],
                ["memory.oom.group", "1"],
                ["cpu.max", "150000 100000"],
            ],
        }
    ]
    assert limits.memory_record("job-0", asked)["oom"] == str(root / "job-0" / "memory.events")
