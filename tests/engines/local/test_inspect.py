"""Looking at runs on one machine, where all share its network: whose port is whose, and what is counted as a job's."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engines.base import Terminal
from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings
from tests.engines.contract.exec import running, session, shown
from tests.engines.contract.inspect import ECHO, echoed, refused
from tests.engines.launches import log_of, printed, run_of

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")

SHARED = "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)"


def listens(address: str, port: int = 0, option: str = "") -> str:
    family = "AF_INET6" if ":" in address else "AF_INET"
    program = (
        f"import socket, time; s = socket.socket(socket.{family}); {option or 'pass'}; s.bind(({address!r}, {port})); "
        "s.listen(); print('port', s.getsockname()[1], flush=True); print('up', flush=True); time.sleep(600)"
    )
    return f'exec python3 -c "{program}"'


async def port_of(engine: LocalEngine, launch: object, part: int = 0) -> int:
    said = re.search(rb"port (\d+)", await log_of(engine, run_of(launch), part))  # type: ignore[arg-type]
    assert said
    return int(said[1])


async def test_what_was_started_beside_the_job_belongs_to_it(engine: LocalEngine) -> None:
    async with running(engine) as launch:
        run, size = run_of(launch), Terminal(columns=80, rows=24)
        async with session(engine, run, ["bash", "-c", ECHO], terminal=size) as opened:
            port = int((await shown(opened, "up")).split()[1])
            assert await echoed(engine, run, port, b"hello") == b"hello"
            commands = [process.command for process in (await engine.top(run, 0)).processes]
    assert any("echo.py" in command for command in commands)
    assert not any("bwrap" in command or "supervisor" in command for command in commands)


async def test_another_server_takes_over_what_runs(engine: LocalEngine, settings: Settings) -> None:
    async with running(engine, ECHO) as launch:
        after = LocalEngine(settings)
        await after.open()
        try:
            assert await echoed(after, run_of(launch), await port_of(engine, launch), b"hello") == b"hello"
            assert (await after.top(run_of(launch), 0)).processes
        finally:
            await after.close()


async def test_each_node_has_its_own_ports(engine: LocalEngine) -> None:
    async with running(engine, ECHO, nodes=2) as launch:
        ports = [await port_of(engine, launch, part) for part in (0, 1)]
        assert (
            await refused(engine, run_of(launch), ports[1]) == f"Nothing of it listens on port {ports[1]} of 127.0.0.1."
        )
        opened = await engine.connect(run_of(launch), 1, ports[1])
        await opened.close()


async def test_a_port_that_others_listen_on_as_well_is_nobodys(engine: LocalEngine) -> None:
    """The kernel would choose who gets the connection."""
    async with running(engine, listens("127.0.0.1", option=SHARED)) as launch:
        port = await port_of(engine, launch)
        await (await engine.connect(run_of(launch), 0, port)).close()
        async with running(engine, listens("127.0.0.1", port, SHARED)):
            assert await refused(engine, run_of(launch), port)
        await (await engine.connect(run_of(launch), 0, port)).close()


async def test_what_listens_elsewhere_than_here_is_not_reached(engine: LocalEngine) -> None:
    async with running(engine, listens("127.0.0.2")) as launch:
        port = await port_of(engine, launch)
        assert await refused(engine, run_of(launch), port) == f"Nothing of it listens on port {port} of 127.0.0.1."


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "::", "::1", "::ffff:127.0.0.1"])
async def test_every_way_to_listen_here_is_reached(engine: LocalEngine, address: str) -> None:
    async with running(engine, listens(address)) as launch:
        await (await engine.connect(run_of(launch), 0, await port_of(engine, launch))).close()


async def test_a_socket_the_job_gave_up_is_not_its_own_any_more(engine: LocalEngine) -> None:
    """Known from before is the socket, not the port."""
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
    async with running(engine, f"({listens('127.0.0.1', port)}); echo gone; sleep 600") as launch:
        await (await engine.connect(run_of(launch), 0, port)).close()
        async with session(engine, run_of(launch), ["pkill", "python3"]) as opened:
            await opened.exit_code()
        await printed(engine, run_of(launch), "gone")
        with socket.create_server(("127.0.0.1", port)):
            assert await refused(engine, run_of(launch), port) == f"Nothing of it listens on port {port} of 127.0.0.1."


async def test_the_processor_a_node_calls_its_own_is_named(engine: LocalEngine) -> None:
    said = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    [node] = await engine.nodes()
    assert node.cpu_product == (said[1].strip() if said else "")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be someone else")
def test_a_server_that_is_not_root_sees_as_much(place: Path) -> None:
    home = place / "home"
    home.mkdir()
    os.chown(home, 54322, 54322)
    command = [sys.executable, "-m", "tests.engines.as_user", "looking", "54322", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(command.split("/")[-1] for command in found.pop("commands")) == ["echo.py", "sleep 611"]
    assert found == {
        "echo": "hello",
        "disk": True,
        "other": "Nothing of it listens on port N of 127.0.0.1.",
        "mounts": True,
    }
