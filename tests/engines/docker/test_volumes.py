"""Volumes on one host's disk, and directories of NFS storages: what Docker is asked for, and what is said if it fails.

There is no NFS client in this kernel: that the mount itself works cannot be seen here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.names import new_id
from penstock.domain.policy import SHARED_GROUP
from penstock.domain.states import Reason, State
from penstock.domain.volumes import Phase, Storage, StorageKind, path_inside
from penstock.domain.workloads import Unit
from penstock.engines.docker import volumes
from penstock.engines.docker.api.errors import DockerError
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.nfs import mount_words, nfs_options
from penstock.engines.docker.settings import read_settings
from penstock.engines.docker.spec import ContainerPlace, VolumeDirectory, container
from penstock.engines.docker.volumes import DockerClaims
from penstock.errors import Conflict, InUse, Invalid, PenstockError, Unavailable
from penstock.settings import Settings
from tests.engines.contract.exec import running
from tests.engines.docker.engines import document, opened, settings_for
from tests.engines.launches import a_launch, a_volume, log_of, outcome, run_of, the_account
from tests.hosts.lot import Hosts

ZFS = Storage(
    name="pwmzfs01", group=SHARED_GROUP, kind=StorageKind.nfs, server="192.168.186.65", path="/pwmzfs01/share_01"
)
SECOND = Storage(name="host-2-local", group=SHARED_GROUP, kind=StorageKind.local, node="host-2")
NO_CLIENT = "cannot be mounted on host-1: this node's kernel has no NFS client (no such device)."


def test_the_path_on_a_storage_is_that_of_the_guide() -> None:
    volume = a_volume("datasets-hmdb-uci", group="pwm.resource", sub_path="datasets/hmdb_ucf", readonly=True)
    asked = nfs_options(ZFS, path_inside(volume), read_only=True)
    assert asked["Driver"] == "local"
    assert asked["DriverOpts"]["type"] == "nfs"
    assert asked["DriverOpts"]["device"] == ":/pwmzfs01/share_01/pwm.resource/datasets/hmdb_ucf"
    assert asked["DriverOpts"]["o"].split(",")[:2] == ["addr=192.168.186.65", "ro"]


def test_a_home_has_the_name_of_its_volume() -> None:
    assert path_inside(a_volume("home", group="ann")) == "ann/home"


@given(st.text(max_size=30))
def test_no_path_leaves_its_groups_directory(path: str) -> None:
    try:
        inside = path_inside(a_volume("home", group="ann", sub_path=path))
    except Invalid:
        return
    parts = inside.split("/")
    assert parts[0] == "ann"
    assert not {"", ".", ".."} & set(parts)
    assert "," not in inside


@pytest.mark.parametrize("path", ["..", "../bob", "a/../../bob", "/etc", "", "a//b", "a/./b", "a,ro", "a\nb", "a/"])
def test_a_path_that_would_is_refused(path: str) -> None:
    with pytest.raises(Invalid) as told:
        path_inside(a_volume("home", group="ann", sub_path=path))
    assert "is not a path inside the directory of ann" in str(told.value.problems[0])


@pytest.mark.parametrize("server", ["a,addr=b", "-x", "a b", ""])
def test_a_server_cannot_bring_options_along(server: str) -> None:
    with pytest.raises(Invalid):
        nfs_options(ZFS.model_copy(update={"server": server}), "", read_only=False)


def test_why_a_mount_failed_is_said_in_plain_words() -> None:
    said = (
        "error while mounting volume '/var/lib/docker/volumes/x/_data': failed to mount local volume: "
        "mount :/share:/var/lib/docker/volumes/x/_data, data: addr=10.0.0.1,nfsvers=4: permission denied"
    )
    assert mount_words(said) == "the NFS server does not let this node in (permission denied)"


# -- on hosts --------------------------------------------------------------------------------------------------------


async def test_a_storage_that_cannot_be_mounted_is_said_to_be_that(hosts: Hosts, tmp_path: Path) -> None:
    machine = hosts.hosts[0]
    said = f"The storage pwmzfs01 (192.168.186.65:/pwmzfs01/share_01) {NO_CLIENT}"
    async with opened(settings_for(hosts, tmp_path), [machine], [ZFS]) as engine:
        with pytest.raises(PenstockError) as told:
            await engine.create_volume(a_volume("home", storage="pwmzfs01"), the_account())
        assert told.value.message == said
        data = a_volume("sets", storage="pwmzfs01", sub_path="datasets", readonly=True)
        report, _ = await outcome(engine, a_launch("ls /data", {"/data": data}))
        unit = report.units[0]
        assert (unit.state, unit.reason, unit.message) == (State.CRASHED, Reason.LAUNCH_FAILED, said)
        assert "penstock-storage-" not in machine.docker("volume", "ls", "-q")


async def test_docker_is_asked_for_the_mount_and_its_failure_is_told(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the directory were there, and just what was mounted."""

    async def there(*_: object, **__: object) -> None:
        return None

    @asynccontextmanager
    async def held(*_: object) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(DockerClaims, "_walk", there)
    monkeypatch.setattr(DockerClaims, "_held", held)
    machine = hosts.hosts[0]
    async with opened(settings_for(hosts, tmp_path), [machine], [ZFS]) as engine:
        data = a_volume("sets", storage="pwmzfs01", sub_path="datasets", readonly=True)
        for run in ("ls /data", ("ls", "/data")):
            report, _ = await outcome(engine, a_launch(run, {"/data": data}))
            unit = report.units[0]
            assert (unit.state, unit.reason) == (State.CRASHED, Reason.LAUNCH_FAILED)
            assert unit.message == f"Volume sets {NO_CLIENT}"
        [made] = json.loads(machine.docker("volume", "inspect", f"penstock-{data.object_name}"))
        assert made["Options"]["device"] == ":/pwmzfs01/share_01/ann/datasets"
        assert ",ro," in made["Options"]["o"]
        await engine.delete_volume(data)
        assert data.object_name not in machine.docker("volume", "ls", "-q")


async def test_a_link_on_the_way_to_a_directory_is_not_followed(engine: DockerEngine, hosts: Hosts) -> None:
    """On a volume of this host, as it would be on an export."""
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    name = f"penstock-{volume.object_name}"
    link = engine._hosts.link("host-1")
    await engine._claims._walk(link, name, ["ann", "data", "two words"], make=True)
    await outcome(engine, a_launch("mkdir /data/bob; ln -s ../bob /data/ann/link", {"/data": volume}))
    for parts in (["ann", "link"], ["ann", "link", "new"]):
        with pytest.raises(DockerError, match="link leads elsewhere"):
            await engine._claims._walk(link, name, parts, make=True)
    with pytest.raises(DockerError, match="there is no directory ann/missing, and a read-only mount makes none"):
        await engine._claims._walk(link, name, ["ann", "missing"], make=False)
    _, log = await outcome(engine, a_launch("cd /data; find . | sort", {"/data": volume}))
    assert log.split("\n")[:-1] == [".", "./ann", "./ann/data", "./ann/data/two words", "./ann/link", "./bob"]


@pytest.fixture
def exported(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """A directory of the host stands for the export; says what is in it."""
    machine = hosts.hosts[0]
    machine.docker("volume", "create", "export")
    export = machine.docker("volume", "inspect", "-f", "{{.Mountpoint}}", "export").strip()

    def bound(_: Storage, inside: str, *, read_only: bool) -> dict[str, object]:
        options = {"type": "none", "o": f"bind,{'ro' if read_only else 'rw'}", "device": f"{export}/{inside}"}
        return {"Driver": "local", "DriverOpts": options}

    def found() -> list[str]:
        image = read_settings(Settings(engine="docker")).helper_image
        said = machine.docker("run", "--rm", "-v", "export:/export:ro", image, "find", "/export", "-mindepth", "1")
        return sorted(path.removeprefix("/export/") for path in said.splitlines())

    monkeypatch.setattr(volumes, "nfs_options", bound)
    yield found
    machine.docker("volume", "rm", "export")


async def test_a_mount_that_only_reads_makes_no_directory_on_a_storage(
    hosts: Hosts, tmp_path: Path, exported: Callable[[], list[str]]
) -> None:
    async with opened(settings_for(hosts, tmp_path), hosts.hosts[:1], [ZFS]) as engine:
        volume = a_volume("home", storage="pwmzfs01")
        await engine.create_volume(volume, the_account())
        launch = a_launch("ls /data", {"/data": volume})

        async def tried(read_only: bool) -> Unit:
            mount = launch.mounts[0].model_copy(update={"sub_path": "new/deep", "read_only": read_only})
            report, _ = await outcome(engine, launch.model_copy(update={"mounts": (mount,), "workload_id": new_id()}))
            return report.units[0]

        refused = await tried(read_only=True)
        assert (refused.state, refused.reason) == (State.CRASHED, Reason.LAUNCH_FAILED)
        assert exported() == ["ann", "ann/home"]
        assert refused.message == (
            "The storage pwmzfs01 (192.168.186.65:/pwmzfs01/share_01) cannot be used on host-1: "
            "there is no directory ann/home/new, and a read-only mount makes none."
        )
        assert (await tried(read_only=False)).state is State.EXITED
        assert exported() == ["ann", "ann/home", "ann/home/new", "ann/home/new/deep"]
        assert (await tried(read_only=True)).state is State.EXITED
        for run in await engine.runs():
            await engine.remove(run)
        await engine.delete_volume(volume)


class Exchange:
    """Somebody who may write to volume `a`, and puts a link to what is Bob's in the place of its directory `b`."""

    def __init__(self, hosts: Hosts) -> None:
        self._machine = hosts.hosts[0]
        self._do("mkdir -p ann/a/b bob/private; echo ann >ann/a/b/whose; echo bob >bob/private/whose")

    def put_link(self) -> None:
        self._do("mv ann/a/b ann/a/aside; ln -s ../../bob/private ann/a/b")

    def put_back(self) -> None:
        self._do("rm ann/a/b; mv ann/a/aside ann/a/b")

    def _do(self, words: str) -> None:
        self._machine.docker("run", "--rm", "-v", "export:/x", "-w", "/x", "busybox:1", "sh", "-ec", words)


@pytest.mark.parametrize("nested", ["a/b", "a"], ids=["a volume", "a subPath"])
@pytest.mark.parametrize("when", ["after the walk", "while another has it mounted", "after the comparison"])
async def test_a_link_that_is_exchanged_between_the_look_and_the_mount_leads_nowhere(
    hosts: Hosts,
    tmp_path: Path,
    exported: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    nested: str,
) -> None:
    """At the moments that are best for who exchanges it: Docker follows every link when it mounts."""
    exchange, machine = Exchange(hosts), hosts.hosts[0]
    walk, hold = DockerClaims._walk, DockerClaims._held

    async def walked(*given: Any, **more: Any) -> None:
        await walk(*given, **more)
        if when == "after the walk":
            exchange.put_link()

    @asynccontextmanager
    async def held(*given: Any) -> AsyncIterator[None]:
        async with hold(*given):
            if when == "after the comparison":
                exchange.put_link()
            yield

    async with opened(settings_for(hosts, tmp_path), [machine], [ZFS]) as engine:
        volume = a_volume("b", storage="pwmzfs01", sub_path=nested)
        launch = a_launch("cat /data/whose", {"/data": volume})
        if nested == "a":
            mount = launch.mounts[0].model_copy(update={"sub_path": "b"})
            launch = launch.model_copy(update={"mounts": (mount,)})
        if when == "while another has it mounted":
            report, log = await outcome(engine, launch)
            assert log == "ann\n"
            [name] = [each for each in machine.docker("volume", "ls", "-q").split() if volume.object_name in each]
            exchange.put_link()
            machine.docker("run", "-d", "--name", "measures", "-v", f"{name}:/x", "busybox:1", "sleep", "600")
            exchange.put_back()
            launch = launch.model_copy(update={"workload_id": new_id()})
        monkeypatch.setattr(DockerClaims, "_walk", walked)
        monkeypatch.setattr(DockerClaims, "_held", held)
        try:
            report, log = await outcome(engine, launch)
        finally:
            machine.docker("rm", "-f", "measures", check=False)
        if when == "after the comparison":
            assert log == "ann\n"
        else:
            assert log == ""
            assert report.units[0].reason is Reason.LAUNCH_FAILED
            said = "b leads elsewhere." if when == "after the walk" else "was exchanged while it was mounted."
            assert said in (report.units[0].message or "")
        for run in await engine.runs():
            await engine.remove(run)
        await engine.delete_volume(volume)
    assert machine.docker("ps", "-aq") == ""
    assert "penstock-storage-" not in machine.docker("volume", "ls", "-q")


async def test_a_docker_volume_that_others_made_by_our_name_is_theirs(
    hosts: Hosts, tmp_path: Path, exported: Callable[[], list[str]]
) -> None:
    """Also where it is made by the job that uses it first, as on a storage."""
    machine = hosts.hosts[0]
    async with opened(settings_for(hosts, tmp_path), [machine], [ZFS]) as engine:
        for volume in (a_volume(), a_volume("home", storage="pwmzfs01")):
            name = f"penstock-{volume.object_name}"
            machine.docker("volume", "create", name)
            said = f"There is a Docker volume {name} on host-1 that Penstock did not make."
            with pytest.raises(Conflict, match=said):
                await engine.create_volume(volume, the_account())
            if volume.storage:
                report, _ = await outcome(engine, a_launch("true", {"/data": volume}))
                assert report.units[0].message == f"{said} docker volume rm {name}"
            await engine.delete_volume(volume)
            machine.docker("volume", "rm", name)


async def test_a_directory_inside_a_volume_needs_a_newer_docker(engine: DockerEngine) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    launch = a_launch("true", {"/data": volume})
    mounts = tuple(mount.model_copy(update={"sub_path": "sets"}) for mount in launch.mounts)
    report, _ = await outcome(engine, launch.model_copy(update={"mounts": mounts}))
    said = report.units[0].message or ""
    assert "Docker on host-1 cannot mount a directory inside volume data: 26.0 and newer can." in said


def test_a_newer_docker_is_asked_for_the_directory() -> None:
    volume = a_volume()
    launch = a_launch("true", {"/data": volume})
    place = ContainerPlace("host-1", 0, 0, "net", 1 << 30, volumes={"/data": VolumeDirectory("penstock-x", "sets/a")})
    [mount] = container(launch, read_settings(Settings(engine="docker")), place)["HostConfig"]["Mounts"]
    assert mount["VolumeOptions"] == {"NoCopy": True, "Subpath": "sets/a"}


async def test_a_volume_is_on_the_node_its_storage_names_and_used_only_there(hosts: Hosts, tmp_path: Path) -> None:
    async with opened(settings_for(hosts, tmp_path), hosts.hosts, [SECOND]) as engine:
        volume = a_volume(storage="host-2-local")
        await engine.create_volume(volume, the_account())
        assert await engine.volume_node(volume) == "host-2"
        assert volume.object_name in hosts.hosts[1].docker("volume", "ls", "-q")
        assert volume.object_name not in hosts.hosts[0].docker("volume", "ls", "-q")
        report, log = await outcome(
            engine, a_launch("echo kept >/data/x; cat /data/x", {"/data": volume}, hosts=("host-2",))
        )
        assert (report.units[0].state, log) == (State.EXITED, "kept\n")
        report, _ = await outcome(engine, a_launch("ls", {"/data": volume}, hosts=("host-1",)))
        assert report.units[0].reason is Reason.LAUNCH_FAILED
        assert "Volume data is on host-2, and the job was placed on host-1." in (report.units[0].message or "")
        for run in await engine.runs():
            await engine.remove(run)
        await engine.delete_volume(volume)
        assert volume.object_name not in hosts.hosts[1].docker("volume", "ls", "-q")


async def test_where_a_volume_is_is_known_as_long_as_somebody_can_tell(hosts: Hosts, tmp_path: Path) -> None:
    first, second = hosts.hosts
    settings = settings_for(hosts, tmp_path)
    here, share = a_volume(made=True), a_volume(storage=ZFS.name)
    async with opened(settings, [first]) as engine:
        await engine.create_volume(here, the_account())
        assert await engine.volume_node(here) == "host-1"
        gone = document(second, "tcp://192.0.2.1:2376")
        await engine.use_hosts([document(first), gone], [ZFS, SECOND])
        assert await engine.volume_node(here) == "host-1"
        assert await engine.volume_node(share) is None
        assert await engine.volume_node(a_volume()) is None  # it will be made wherever there is room
        assert await engine.volume_node(a_volume(storage=SECOND.name)) == "host-2"
        with pytest.raises(Unavailable, match="Volume data cannot be located"):
            await engine.volume_node(a_volume(made=True))
        await engine.delete_volume(here)


async def test_one_in_use_is_not_deleted(engine: DockerEngine, hosts: Hosts) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    async with running(engine, mounts={"/data": volume}) as launch:
        pass
    with pytest.raises(InUse) as told:  # it has ended, and has its log
        await engine.delete_volume(volume)
    id_ = launch.workload_id
    assert told.value.message == f"Volume data is in use on host-1 by penstock-try-{id_}.0."
    assert told.value.hint == f"first penstock delete wk {id_}"
    name = f"penstock-{volume.object_name}"
    hosts.hosts[0].docker("run", "-d", "--name", "other", "-v", f"{name}:/x", "busybox:1", "sleep", "600")
    assert await engine.volume_users(volume) == ["other on host-1"]
    hosts.hosts[0].docker("rm", "-f", "other")


async def test_one_deleted_by_hand_is_lost(engine: DockerEngine, hosts: Hosts) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    hosts.hosts[0].docker("volume", "rm", f"penstock-{volume.object_name}")
    report = (await engine.volume_reports([volume]))[volume.id]
    assert (report.phase, report.message) == (Phase.Lost, "no node has its Docker volume")


async def test_a_volume_belongs_to_whom_containers_run_as(hosts: Hosts, tmp_path: Path) -> None:
    async with opened(settings_for(hosts, tmp_path, docker_run_as="1234:1234"), hosts.hosts[:1]) as engine:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        run = "id -u; touch /data/x /scratch/y && echo fine"
        launch = a_launch(run, {"/data": volume}, scratch=({"path": "/scratch"},))
        report, log = await outcome(engine, launch)
        assert (report.units[0].exit_code, log) == (0, "1234\nfine\n")


async def test_once_its_end_is_written_down_its_scratch_takes_no_room(engine: DockerEngine, hosts: Hosts) -> None:
    machine = hosts.hosts[0]
    launch = a_launch(
        "dd if=/dev/zero of=/scratch/big bs=1M count=4 2>/dev/null; echo done", scratch=({"path": "/scratch"},)
    )
    await outcome(engine, launch)
    name = f"penstock-try-{launch.workload_id}.0"
    mounted = "{{range .Mounts}}{{.Name}}{{end}}"
    scratch = machine.docker("inspect", "--format", mounted, name).strip()
    await engine.settle(run_of(launch), 60)
    assert machine.docker("run", "--rm", "-v", f"{scratch}:/x", "busybox:1", "ls", "-A", "/x") == ""
    assert await log_of(engine, run_of(launch)) == b"done\n"
    await engine.remove(run_of(launch))
    assert scratch not in machine.docker("volume", "ls", "-q")


async def test_while_a_host_is_away_what_may_be_there_is_not_said_to_be_gone(hosts: Hosts, tmp_path: Path) -> None:
    first, second = hosts.hosts
    async with opened(settings_for(hosts, tmp_path), ()) as engine:
        await engine.use_hosts([document(first), document(second, "unix:///no/such")])
        with pytest.raises(Unavailable):
            await engine.volume_reports([a_volume()])
        with pytest.raises(Unavailable):
            await engine.delete_volume(a_volume())
        known = a_volume()
        await engine.create_volume(known, the_account())
        assert (await engine.volume_reports([known]))[known.id].phase is Phase.Bound
        await engine.delete_volume(known)
