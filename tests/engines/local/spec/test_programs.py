"""Python and pip in a job whose caller has no virtual environment."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings
from tests.engines.launches import a_launch, a_volume, outcome, the_account
from tests.engines.wheels import wheel

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
SYSTEM_PYTHON = "/usr/bin/python3"


def system_python_has(module: str) -> bool:
    return subprocess.run([SYSTEM_PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="the system has no python3")
async def test_python_is_python3(engine: LocalEngine) -> None:
    _, log = await outcome(engine, a_launch("python -c 'import sys; print(sys.version_info.major)'"))
    assert log == "3\n"


@pytest.mark.skipif(not system_python_has("pip"), reason="the system's Python has no pip")
async def test_scripts_that_pip_installs_are_found(engine: LocalEngine, settings: Settings) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    wheel(settings.data_dir / "volumes" / volume.object_name)
    setup = "pip install -q --no-index --find-links /wheels added"
    _, log = await outcome(engine, a_launch("say-added", {"/wheels": volume}, setup=setup))
    assert log.splitlines()[-1] == "the job"


@pytest.mark.skipif(not system_python_has("ensurepip"), reason="the system's Python has no ensurepip")
async def test_where_python_has_no_pip_a_private_environment_lends_it(engine: LocalEngine, settings: Settings) -> None:
    wheels, nothing = a_volume("wheels"), a_volume("nothing")
    for volume in (wheels, nothing):
        await engine.create_volume(volume, the_account())
    wheel(settings.data_dir / "volumes" / wheels.object_name)
    launch = a_launch(
        "say-added",
        {"/wheels": wheels, "/usr/lib/python3/dist-packages": nothing},
        setup="! python3 -c 'import pip' 2>/dev/null\n/run/penstock/bin/pip install -q --no-index -f /wheels added",
    )
    _, log = await outcome(engine, launch)
    assert log.splitlines()[-1] == "the job"


@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="the system has no python3")
async def test_where_pip_cannot_be_had_it_says_what_to_install(engine: LocalEngine) -> None:
    nothing = a_volume("nothing")
    await engine.create_volume(nothing, the_account())
    library = Path(subprocess.check_output([SYSTEM_PYTHON, "-c", "import os; print(os.__file__)"], text=True).strip())
    mounts = {str(library.parent / "ensurepip"): nothing, "/usr/lib/python3/dist-packages": nothing}
    _, log = await outcome(engine, a_launch("/run/penstock/bin/pip install added; echo $?", mounts))
    assert log == "pip: Python on this machine has no pip. Fix: sudo apt-get install -y python3-pip\n127\n"
