"""A server of an ordinary user: everything is imported as root, then root is given up for good."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 (what is imported late must be here before root is gone)
import ctypes
import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path

from penstock.domain.users import Account
from penstock.domain.volumes import AccessMode
from penstock.domain.workloads import Medium, Scratch
from penstock.engines.base import Terminal
from penstock.engines.local import runs
from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings
from tests.engines.contract.exec import result, running, session, told
from tests.engines.contract.inspect import ECHO, connection, echoed, reads, refused
from tests.engines.kills import kill_supervisors
from tests.engines.launches import a_launch, a_volume, an_array, log_of, outcome, run_of


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


async def attacks(settings: Settings, account: Account) -> None:
    """The data lies in a system directory, beside the interpreter of the environment that is brought along."""
    home = settings.data_dir.parent
    prefix = home / "prefix"
    settings = dataclasses.replace(settings, data_dir=prefix / "share" / "penstock")
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python3").symlink_to("/usr/bin/python3")
    (home / "venv" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (home / "venv" / "pyvenv.cfg").write_text(f"home = {prefix}/bin\n")
    ctypes.CDLL(None).syscall(250, 1, None)
    ctypes.CDLL(None).syscall(248, b"user", b"penstock-test", b"hunter2", 7, -3)
    program = "import ctypes; print(ctypes.CDLL(None).syscall(249, b'user', b'penstock-test', None, 0))"
    script = (
        f'ls {prefix}; echo; ls -A {settings.data_dir}; echo; unshare -U echo made; /usr/bin/python3 -c "{program}"'
    )
    engine = LocalEngine(settings)
    await engine.open()
    _, log = await outcome(engine, a_launch(script, account=account, venv=home / "venv"))
    await engine.close()
    beside, data, rest = log.split("\n\n") if log.count("\n\n") == 2 else (*log.split("\n\n", 1), "")
    lines = (data + rest).split("\n")
    found = {
        "beside": beside.split(),
        "data": [line for line in lines if line in ("runs", "volumes")],
        "made": "made" in lines,
        "key": lines[-2],
    }
    print(json.dumps(found))


async def enter(settings: Settings, account: Account) -> None:
    engine = LocalEngine(settings)
    await engine.open()
    facts = "id; grep ^Cap /proc/self/status; cat /proc/self/mountinfo; readlink /proc/self/ns/*"
    async with running(engine, f"({facts}) >/tmp/facts; echo up; sleep 600", account=account) as launch:
        run = run_of(launch)
        _, found, _ = await told(engine, run, f"cat /tmp/facts; echo ===; {facts}")
        before, after = found.split("===\n")
        size = Terminal(columns=80, rows=24)
        async with session(engine, run, ["sh", "-c", "tty; id -u; ls /proc/$$/fd"], terminal=size) as opened:
            _, shown, _ = await result(opened)
    await engine.close()
    tty, uid, *descriptors = shown.decode().split()
    print(json.dumps({"same": before == after, "uid": uid, "tty": tty, "descriptors": descriptors}))


async def looking(settings: Settings, account: Account) -> None:
    engine = LocalEngine(settings)
    await engine.open()
    async with running(engine, ECHO, account=account) as launch, running(engine, account=account) as other:
        run = run_of(launch)
        port = int((await log_of(engine, run)).split()[1])
        echo = (await echoed(engine, run, port, b"hello")).decode()
        async with session(engine, run, ["sleep", "611"]), connection(engine, run, port) as opened:
            await opened.send(b"hello")
            await reads(opened, 5)
            measured = await engine.top(run, 0)
        elsewhere = await refused(engine, run_of(other), port)
        mounts = (await engine.inspect(run))["parts"][0]["mounts"]
    await engine.close()
    commands = [process.command for process in measured.processes]
    found = {"echo": echo, "commands": commands, "disk": measured.disk_read_bytes is not None}
    print(json.dumps(found | {"other": elsewhere.replace(str(port), "N"), "mounts": bool(mounts)}))


async def scratch(settings: Settings, account: Account) -> None:
    engine = LocalEngine(dataclasses.replace(settings, disk_scan="1s"))
    await engine.open()
    places = (
        Scratch(path="/scratch", size_bytes=4 << 20),
        Scratch(path="/ram", medium=Medium.memory, size_bytes=1 << 20),
    )
    fill = "head -c 2M /dev/zero >/ram/x; stat -c %s /ram/x; head -c 9M /dev/zero >/scratch/x; sleep 600"
    run = f"echo $JOB_COMPLETION_INDEX; ls /scratch /ram | grep x; [ $JOB_COMPLETION_INDEX != 1 ] || {{ {fill}; }}"
    launch = an_array(run, 3, 1, scratch=places, account=account)
    report, _ = await outcome(engine, launch)
    logs = [(await log_of(engine, run_of(launch), index)).decode() for index in range(3)]
    await engine.close()
    print(json.dumps({"messages": [unit.message for unit in report.units], "logs": logs}))


def main(task: str, uid: int, home: Path) -> None:
    shutil.copytree(runs.PACKAGES / "penstock", home / "penstock")  # the checkout may be closed to others
    runs.PACKAGES = home
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    if not os.access(sys.executable, os.X_OK):
        sys.executable = "/usr/bin/python3"
    settings = Settings(data_dir=home / "data", gpu_lock_dir=home / "locks")
    account = Account(uid=uid, gid=uid, user="someone")
    tasks = {"facts": facts, "attacks": attacks, "enter": enter, "looking": looking, "scratch": scratch}
    work = tasks[task](settings, account) if task in tasks else kill_supervisors(settings, account)
    asyncio.run(work)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
