"""What a server finds whose own records were lost, and what it leaves alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.domain.model import now
from penstock.domain.states import State
from penstock.domain.workloads import Workload
from penstock.engines.base import Launch, Presence
from penstock.engines.docker.engine import DockerEngine
from tests.engines.docker.engines import document, left_behind, opened, settings_for
from tests.engines.launches import a_launch, a_volume, ended, printed, run_of, the_account
from tests.hosts.lot import Hosts


def recorded(launch: Launch) -> Launch:
    moment = now().replace(microsecond=0)
    workload = Workload(
        id=launch.workload_id,
        name=launch.name,
        group=launch.group,
        user=launch.user,
        account=launch.account,
        spec=launch.spec,
        created_at=moment,
        updated_at=moment,
    )
    return launch.model_copy(update={"record": workload.model_dump_json(exclude_defaults=True)})


async def test_what_runs_is_found_with_its_record_and_goes_on(hosts: Hosts, tmp_path: Path) -> None:
    settings = settings_for(hosts, tmp_path / "first", docker_installation="lost")
    launch, volume = recorded(a_launch("echo up; sleep 600")), a_volume()
    first = DockerEngine(settings)
    await first.open()
    await first.use_hosts([document(hosts.hosts[0])])
    await first.create_volume(volume, the_account())
    await first.start(launch)
    await printed(first, run_of(launch), "up")
    await first.close()
    async with opened(settings_for(hosts, tmp_path / "second", docker_installation="lost"), hosts.hosts[:1]) as engine:
        found = await engine.found([hosts.hosts[0].name])
        assert [(workload.id, workload.spec) for workload in found.workloads] == [(launch.workload_id, launch.spec)]
        assert [each.id for each, _ in found.volumes] == [volume.id]
        assert found.unreadable == ()
        assert (await engine.observe(run_of(launch))).presence is Presence.running
        await engine.stop(run_of(launch), 0)
        assert (await ended(engine, run_of(launch))).units[0].state is State.STOPPED
        await engine.remove(run_of(launch))
        await engine.delete_volume(volume)


async def test_a_secret_is_in_no_label_and_is_found_again(hosts: Hosts, tmp_path: Path) -> None:
    machine, value = hosts.hosts[0], "hunter2-and-nobody-knows"
    settings = settings_for(hosts, tmp_path / "first", docker_installation="vault")
    launch = recorded(a_launch("echo up; sleep 600", envs={"LICENCE": value, "A": "b"}, secrets=("LICENCE",)))
    async with left_behind(settings, machine) as first:
        await first.start(launch)
        await printed(first, run_of(launch), "up")
    container = machine.jobs("--filter", f"label=penstock.dev/workload={launch.workload_id}")[0]
    assert value not in machine.docker("inspect", "--format", "{{json .Config.Labels}}", container)
    async with opened(settings_for(hosts, tmp_path / "second", docker_installation="vault"), [machine]) as engine:
        [found] = (await engine.found([machine.name])).workloads
        assert found.spec == launch.spec


async def test_what_is_marked_as_ours_and_is_not_is_reported_and_left_alone(hosts: Hosts, tmp_path: Path) -> None:
    machine = hosts.hosts[0]
    marks = {"installation": "forged", "workload": "abcdefgh", "attempt": "1", "part": "0", "record": "{}"}
    labels = [word for key, text in marks.items() for word in ("--label", f"penstock.dev/{key}={text}")]
    machine.docker("run", "-d", "--name", "stranger", *labels, "busybox:1", "sleep", "600")
    engine = DockerEngine(settings_for(hosts, tmp_path, docker_installation="forged"))
    await engine.open()
    try:
        await engine.use_hosts([document(machine)])
        found = await engine.found([hosts.hosts[0].name])
        assert found.workloads == ()
        assert found.unreadable == ("the container stranger on host-1: its record cannot be read",)
        assert "stranger" in machine.docker("ps", "--format", "{{.Names}}")
    finally:
        await engine.close()
        machine.docker("rm", "-f", "stranger")


async def test_what_helped_a_server_that_was_killed_is_removed_by_the_next(hosts: Hosts, tmp_path: Path) -> None:
    machine = hosts.hosts[0]
    labels = ("--label", "penstock.dev/installation=penstock", "--label", "penstock.dev/helper=true")
    machine.docker("create", "--name", "left-over", *labels, "busybox:1", "true")
    machine.docker(
        "create", "--name", "of-another", labels[0], "penstock.dev/installation=other", *labels[2:], "busybox:1"
    )
    async with opened(settings_for(hosts, tmp_path), [machine]), asyncio.timeout(60):
        while "left-over" in (there := machine.docker("ps", "-a", "--format", "{{.Names}}").split()):
            await asyncio.sleep(0.05)
        assert "of-another" in there
    machine.docker("rm", "of-another")


async def test_two_that_share_a_host_do_not_see_each_other(hosts: Hosts, tmp_path: Path) -> None:
    one = settings_for(hosts, tmp_path / "one", docker_installation="one")
    two = settings_for(hosts, tmp_path / "two", docker_installation="two")
    async with opened(one, hosts.hosts[:1]) as first, opened(two, hosts.hosts[:1]) as second:
        launch = recorded(a_launch("echo up; sleep 600"))
        await first.start(launch)
        await printed(first, run_of(launch), "up")
        assert await second.runs() == []
        assert (await second.found([hosts.hosts[0].name])).workloads == ()
        assert (await second.observe(run_of(launch))).presence is Presence.absent
