"""What an image says of itself is not believed: Docker gives its labels to every container that is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Resources, Workload
from penstock.engines.base import Presence
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.names import Label
from penstock.engines.docker.settings import read_settings
from penstock.engines.docker.spec import ContainerPlace, container
from penstock.settings import Settings
from tests.engines.docker.engines import answering, left_behind, opened, settings_for
from tests.engines.docker.test_adoption import recorded
from tests.engines.launches import a_launch, an_array, ended, observed, outcome, printed, run_of
from tests.hosts.lot import Hosts

EVIL = "penstock-test:evil"
PLACE = ContainerPlace(host="host-1", part=0, number=0, network="net", host_memory=8 << 30, volumes={})
REFUSED = f"The image {EVIL} has labels that only Penstock writes, so it is not run."


class Images:
    """Makes images with labels on a host, under one name."""

    def __init__(self, hosts: Hosts) -> None:
        self._machine = hosts.hosts[0]

    def label(self, **labels: str) -> None:
        changes = [word for name, text in labels.items() for word in ("--change", f"LABEL {name}={text!r}")]
        self._machine.docker("create", "--name", "evil", "penstock-test:1")
        self._machine.docker("commit", *changes, "evil", EVIL)
        self._machine.docker("rm", "evil")


@pytest.fixture
def images(hosts: Hosts) -> Iterator[Images]:
    yield Images(hosts)
    hosts.hosts[0].docker("image", "rm", "--force", EVIL)


def ours(**labels: str) -> dict[str, str]:
    return {f"penstock.dev/{name}": text for name, text in labels.items()}


@pytest.mark.parametrize(
    "labels",
    [ours(**{"has-bash": "true"}), ours(cpus="0"), ours(launch="{}"), ours(anything="x"), {"exitCode": "0"}],
    ids=lambda labels: next(iter(labels)),
)
async def test_an_image_with_labels_of_ours_is_not_run(
    engine: DockerEngine, hosts: Hosts, images: Images, labels: dict[str, str]
) -> None:
    images.label(**labels)
    launch = a_launch(("sleep", "600"), max_duration=1, resources=Resources(image=EVIL))
    report, _ = await outcome(engine, launch)
    [unit] = report.units
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.LAUNCH_FAILED)
    assert (unit.message or "").startswith(REFUSED)
    filters = ("--filter", f"label=penstock.dev/workload={launch.workload_id}")
    assert hosts.hosts[0].docker("ps", "-aq", *filters) == ""


def test_every_label_of_ours_is_written_so_that_none_comes_from_an_image() -> None:
    made = container(a_launch(("true",)), read_settings(Settings(engine="docker")), PLACE)["Labels"]
    assert set(Label) <= made.keys()
    assert made[Label.HAS_BASH] == made[Label.CPUS] == made[Label.HELPER] == ""


def test_what_a_user_writes_cannot_stand_for_what_docker_says() -> None:
    launch = a_launch(("true",), labels={"exitCode": "0", "team": "blue"})
    made = container(launch, read_settings(Settings(engine="docker")), PLACE)["Labels"]
    assert made["team"] == "blue"
    assert "exitCode" not in made


async def test_what_somebody_made_of_such_an_image_is_not_ours(hosts: Hosts, tmp_path: Path, images: Images) -> None:
    """Neither taken over, nor counted as a part of the job it names, nor removed as a helper of ours."""
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path, docker_installation="marked")
    launch = a_launch("echo up; sleep 600")
    forged = Workload.model_validate_json(recorded(a_launch("true")).record)
    marks = ours(installation="marked", attempt="1", part="7", owner=f"{forged.group}/{forged.user}")
    async with left_behind(settings, machine) as first:
        await first.start(launch)
        await printed(first, run_of(launch), "up")
    try:
        images.label(**marks, **ours(workload=launch.workload_id))
        machine.docker("run", "-d", "--name", "joins", EVIL, "sleep", "600")
        images.label(**marks, **ours(workload=forged.id, record=forged.model_dump_json(exclude_defaults=True)))
        machine.docker("run", "-d", "--name", "new", EVIL, "sleep", "600")
        images.label(**ours(installation="marked", helper="true"))
        machine.docker("run", "-d", "--name", "helps", EVIL, "sleep", "600")
        async with opened(settings, [machine]) as engine:
            await answering(engine)
            assert (await engine.found([machine.name])).workloads == ()
            assert await engine.runs() == [run_of(launch)]
            report = await observed(engine, run_of(launch))
            assert [unit.rank for unit in report.units] == [0]
            assert await engine.left_over() == []
        left = machine.docker("ps", "--format", "{{.Names}}").split()
        assert {"joins", "new", "helps"} <= set(left)
    finally:
        machine.docker("rm", "--force", "joins", "new", "helps", check=False)


async def test_a_label_that_looks_like_an_exit_code_stops_nothing(hosts: Hosts, tmp_path: Path) -> None:
    """Docker tells it in the place of the code. Whoever looks back at what Docker remembers meets it."""
    machine = hosts.hosts[0]
    machine.docker("run", "--rm", "--label", "exitCode=nonsense", "busybox:1", "true")
    async with opened(settings_for(hosts, tmp_path), [machine]) as engine:
        await answering(engine)
        report, log = await outcome(engine, a_launch("echo fine"))
        assert (report.units[0].state, log) == (State.EXITED, "fine\n")


async def test_the_next_index_is_started_from_the_records_and_not_from_what_stands_beside_a_container(
    hosts: Hosts, tmp_path: Path
) -> None:
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launch = an_array("echo $JOB_COMPLETION_INDEX up; [ $JOB_COMPLETION_INDEX = 1 ] || sleep 2", 2, 1)
    async with left_behind(settings, machine) as first:
        await first.start(launch)
        await printed(first, run_of(launch), "0 up")
    async with opened(settings, [machine]) as engine:
        await answering(engine)
        labels = machine.docker("ps", "-a", "--format", "{{.Labels}}")
        assert "penstock.dev/launch" not in labels
        engine.remind(launch)
        report = await ended(engine, run_of(launch))
        assert report.presence is Presence.ended
        assert [unit.state for unit in report.units] == [State.EXITED, State.EXITED]
