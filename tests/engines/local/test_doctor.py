"""What doctor says of this engine."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from penstock.domain.workloads import Resources
from penstock.engines.local.cgroups import CgroupLimits
from penstock.engines.local.doctor import probe_sandbox
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Unavailable
from penstock.settings import Settings
from tests.engines.contract.nodes import opened
from tests.engines.launches import a_launch

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
async def test_doctor_tries_the_sandbox_and_names_what_it_saw(engine: LocalEngine, settings: Settings) -> None:
    checks = {check.name: check for check in await engine.checks()}
    assert list(checks) == ["sandbox", "limits", "gpus", "data_dir"]
    assert checks["sandbox"].ok
    assert checks["sandbox"].detail.startswith("bubblewrap works (")
    assert checks["limits"].ok == (await engine.nodes())[0].limits_enforced


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


@needs_root
async def test_no_sandbox_in_a_place_that_jobs_cannot_enter_is_refused_with_the_remedy(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    async with opened(Settings(data_dir=closed / "data", gpu_lock_dir=place / "locks", sandbox="none")) as engine:
        with pytest.raises(Unavailable, match="jobs run as 'nobody', which cannot enter") as raised:
            await engine.start(a_launch("true"))
        assert raised.value.hint == "set data_dir to a directory that this account can enter, such as /var/lib/penstock"
        sandbox = (await engine.checks())[0]
        assert (sandbox.ok, sandbox.required, sandbox.fix) == (False, True, raised.value.hint)


@needs_root
def test_the_remedy_for_namespaces_names_only_what_this_kernel_has(place: Path) -> None:
    """A bubblewrap that fails as it does where namespaces are forbidden."""
    (place / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    (place / "bwrap").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        with pytest.raises(Unavailable, match="No permissions to create new namespace") as raised:
            probe_sandbox(Settings(data_dir=place / "data"))
    assert raised.value.hint
    keys = re.findall(r"([a-z_.]+)=\d", raised.value.hint)
    assert all(Path("/proc/sys", *key.split(".")).exists() for key in keys)


async def test_an_engine_that_could_not_open_can_be_closed(place: Path) -> None:
    (place / "data").write_text("not a directory")
    engine = LocalEngine(Settings(data_dir=place / "data", gpu_lock_dir=place / "locks"))
    with pytest.raises(Unavailable):
        await engine.open()
    await engine.close()


def test_a_delegated_subtree_gets_version_2_files(place: Path) -> None:
    root = place / "penstock"
    root.mkdir()
    (root / "memory.swap.max").touch()
    limits = CgroupLimits(2, {"memory": root, "cpu": root, "pids": root})
    asked = Resources(cpus_milli=1500, memory_bytes=1 << 30)
    assert limits.groups("job-0", asked) == [
        {
            "path": str(root / "job-0"),
            "join": str(root / "job-0" / "cgroup.procs"),
            "write": [
                ["memory.max", "1073741824"],
                ["memory.swap.max", "0"],
                ["memory.oom.group", "1"],
                ["cpu.max", "150000 100000"],
            ],
        }
    ]
    assert limits.memory_record("job-0", asked)["oom"] == str(root / "job-0" / "memory.events")
