"""Kill supervisors in their first milliseconds, and look for what they leave."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time

from penstock.domain.users import Account
from penstock.engines.base import Launch, Presence
from penstock.engines.local import doctor, runs
from penstock.engines.local.cgroups import CgroupLimits
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.layout import Layout
from penstock.engines.local.spec.plan import Machine
from penstock.engines.local.state.snapshot import lock_is_held
from penstock.engines.local.volumes import LocalClaims
from penstock.engines.shared.processes import first_child
from penstock.settings import Settings
from tests.engines.contract.nodes import processes_with
from tests.engines.launches import a_launch, run_of
from tests.sampling import KILLS


async def kill_supervisors(settings: Settings, account: Account) -> int:
    """How many had begun. Fails if a process stays, or if one that began does not read as lost."""
    engine, begun = LocalEngine(settings), 0
    await engine.open()
    for number in range(KILLS):
        launch = a_launch("sleep 600", account=account)
        await asyncio.to_thread(_start_and_kill, settings, launch, begun=number % 4 == 0)
        report = await engine.observe(run_of(launch))
        assert report.presence in (Presence.lost, Presence.absent), report
        begun += report.presence is Presence.lost
        await engine.remove(run_of(launch))
    await engine.close()
    return begun


def _start_and_kill(settings: Settings, launch: Launch, *, begun: bool) -> None:
    """Some are killed only once they began: on a busy machine none would get that far in its first milliseconds."""
    layout = Layout(settings)
    machine = Machine(settings, layout, LocalClaims(settings, layout), CgroupLimits(), {}, doctor.find_bwrap())
    run_dir = layout.run_dir(run_of(launch))
    parent = runs.start_supervisor(run_dir, launch, machine)
    assert parent
    while not (supervisor := first_child(parent.pid)):
        if parent.poll() is not None:  # on a busy machine it may have begun before we looked
            supervisor = int(json.loads((run_dir / "began").read_text())["pid"])
            break
        time.sleep(0.0002)
    while begun and parent.poll() is None:
        time.sleep(0.0002)
    time.sleep(random.uniform(0, 0.015))
    os.kill(supervisor, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 5
    while (left := processes_with(launch.workload_id)) or lock_is_held(run_dir):
        assert time.monotonic() < deadline, left
        time.sleep(0.005)
        if time.monotonic() > deadline - 4:
            runs.end_leftovers(run_dir)  # as a server that watches does
