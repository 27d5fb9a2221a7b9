"""A server of an ordinary user: everything is imported as root, then root is given up for good."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 (what is imported late must be here before root is gone)
import json
import os
import shutil
import sys
from pathlib import Path

from penstock.domain.users import Account
from penstock.domain.volumes import AccessMode
from penstock.engines.local import LocalEngine, launching
from penstock.settings import Settings
from tests.engines.killing import kill_supervisors
from tests.engines.launching import a_launch, a_volume, outcome


async def facts(settings: Settings, account: Account) -> None:
    engine = LocalEngine(settings)
    await engine.open()
    volume = a_volume(access_modes=(AccessMode.ReadOnlyMany,))
    await engine.create_volume(volume, account)
    script = f"id -u; grep ^Cap /proc/self/status | cut -f2 | sort -u; touch /data/x; ls {settings.data_dir}; true"
    report, log = await outcome(engine, a_launch(script, {"/data": volume}, account=account))
    uid, *capabilities, touch, listing = log.splitlines()
    found = {
        "uid": uid,
        "capabilities": capabilities,
        "enforced": (await engine.nodes())[0].limits_enforced,
        "read_only": touch.rpartition(": ")[2],
        "state": report.units[0].state,
        "hidden": "No such file" in listing,
    }
    await engine.close()
    print(json.dumps(found))


def main(task: str, uid: int, home: Path) -> None:
    shutil.copytree(launching.PACKAGE / "supervisor", home / "supervisor")  # the checkout may be closed to others
    launching.PACKAGE = home
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    if not os.access(sys.executable, os.X_OK):
        sys.executable = "/usr/bin/python3"
    settings = Settings(data_dir=home / "data", gpu_lock_dir=home / "locks")
    account = Account(uid=uid, gid=uid, user="someone")
    work = facts(settings, account) if task == "facts" else kill_supervisors(settings, account, times=100)
    asyncio.run(work)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
