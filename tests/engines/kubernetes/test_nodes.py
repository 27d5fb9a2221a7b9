"""Runs on several nodes: they are in different places, know each other by name, and begin and end together."""

from __future__ import annotations

import asyncio

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Resources
from penstock.engines.base import Presence
from penstock.engines.kubernetes.engine import KubernetesEngine
from tests.engines.kubernetes.deployed import Deployed
from tests.engines.launches import a_launch, ended, log_of, printed, run_of

MEETING = """
import os, socket, sys
rank, nodes = int(os.environ["NODE_RANK"]), int(os.environ["NUM_NODES"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("", address[1])) as server:
        for _ in range(nodes - 1):
            with server.accept()[0] as other:
                print("hello", other.recv(100).decode(), flush=True)
else:
    while True:
        try:
            with socket.create_connection(address, 5) as master:
                master.sendall(f"from {rank}".encode())
                break
        except ConnectionRefusedError:
            pass
names = os.environ["SKYPILOT_NODE_IPS"].split()
print(len({socket.gethostbyname(name) for name in names}), socket.gethostname() == names[rank].split(".")[0])
"""
"""Rank 0 listens, the others come to it by its name; then each looks up all of them."""


async def test_four_nodes_on_two_machines_meet_by_name(engine: KubernetesEngine, account: Deployed) -> None:
    """More CPUs than one of the rig's machines has."""
    asked = Resources(cpus_milli=600)
    launch = a_launch('python3 -c "$MEETING"', nodes=4, envs={"MEETING": MEETING}, resources=asked)
    await engine.start(launch)
    seen: set[str] = set()

    async def look() -> None:
        while True:
            seen.update(pod.spec.node_name for pod in engine._cluster.pods_of(run_of(launch)))
            await asyncio.sleep(0.1)

    looking = asyncio.create_task(look())
    report = await ended(engine, run_of(launch), 110)
    looking.cancel()
    assert [unit.state for unit in report.units] == [State.EXITED] * 4
    assert set(account.rig.node_names) <= seen
    logs = [(await log_of(engine, run_of(launch), rank)).decode().splitlines() for rank in range(4)]
    assert sorted(logs[0][:3]) == ["hello from 1", "hello from 2", "hello from 3"]
    assert [lines[-1] for lines in logs] == ["4 True"] * 4


async def test_no_node_begins_before_all_have_a_place(engine: KubernetesEngine) -> None:
    """One of two finds a place beside what runs, so none runs."""
    large = Resources(cpus_milli=1100)
    holder = a_launch("echo up; sleep 600", resources=large)
    await engine.start(holder)
    await printed(engine, run_of(holder), "up")
    launch = a_launch("echo ran", nodes=2, resources=large)
    await engine.start(launch)
    async with asyncio.timeout(60):
        async for _ in engine.changes():
            report = await engine.observe(run_of(launch))
            if report.reason is Reason.PARTLY_PLACED:
                break
    assert report.presence is Presence.waiting
    for rank in range(2):
        assert await log_of(engine, run_of(launch), rank) == b""
    await engine.stop(run_of(launch), 1)
    report = await ended(engine, run_of(launch))
    assert {unit.state for unit in report.units} == {State.STOPPED}
