"""The caller's virtual environment in a job, and what `pip install` in setup does to it: nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.domain.states import State
from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings
from tests.engines.launches import a_launch, a_volume, outcome, the_account
from tests.engines.wheels import wheel

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real environment with pip, a module and a script of its own."""
    path = tmp_path_factory.mktemp("caller") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(path)], check=True)
    site = next(path.glob("lib/python3*/site-packages"))
    (site / "callers.py").write_text("NAME = 'the caller'\n")
    script = path / "bin" / "show-added"
    script.write_text(f"#!{path}/bin/python\nimport added, callers\nprint(added.NAME, callers.NAME)\n")
    script.chmod(0o755)
    return path


async def test_pip_install_in_setup_works_beside_the_callers_packages_and_leaves_nothing(
    engine: LocalEngine, settings: Settings, venv: Path
) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    wheel(settings.data_dir / "volumes" / volume.object_name)
    before = sorted(str(path) for path in venv.rglob("*"))
    launch = a_launch(
        "python -c 'import added, callers; print(added.NAME, callers.NAME)'; show-added; which pip python",
        {"/wheels": volume},
        setup="pip install -q --no-index --find-links /wheels added",
        venv=venv,
    )
    report, log = await outcome(engine, launch)
    assert report.units[0].state is State.EXITED, log
    layer = f"/home/{the_account().user}/.penstock-venv/bin"
    assert log.splitlines()[-4:] == ["the job the caller"] * 2 + [f"{layer}/pip", f"{layer}/python"]
    assert (
        sorted(str(path) for path in venv.rglob("*") if "__pycache__" not in path.parts or str(path) in before)
        == before
    )


async def test_the_callers_environment_cannot_be_written(engine: LocalEngine, venv: Path) -> None:
    _, log = await outcome(engine, a_launch(f"touch {venv}/x", venv=venv))
    assert "Read-only file system" in log


async def test_an_environment_that_is_gone_is_said_and_the_job_runs(engine: LocalEngine, place: Path) -> None:
    report, log = await outcome(engine, a_launch("echo ran", venv=place / "no"))
    assert report.units[0].state is State.EXITED
    assert log == f"[penstock] the virtual environment {place / 'no'} cannot be used; the system's Python is\nran\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_an_interpreter_in_a_home_does_not_bring_the_home_along(engine: LocalEngine, place: Path) -> None:
    fake = place / "venv"
    (fake / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (fake / "pyvenv.cfg").write_text("home = /root/bin\n")
    _, log = await outcome(
        engine, a_launch("ls -A /root 2>/dev/null | grep -v -E '^(bin|lib|lib64)$'; echo end", venv=fake)
    )
    assert log == "end\n"
