"""Images: pulled where they are missing, with the registry's own reason where that fails."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from penstock.domain.names import new_id
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Resources
from penstock.engines.base import HeldUp, Launch, Presence, Report
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.images import HUB, PullFailed, registry_of
from tests.engines.docker.engines import opened, settings_for
from tests.engines.launches import a_launch, ended, observed, outcome, run_of
from tests.hosts.lot import Hosts


def asking_for(image: str, run: tuple[str, ...] = ("echo", "hello")):
    return a_launch(run, resources=Resources(image=image))


async def test_an_image_that_is_missing_is_pulled_and_that_can_be_watched(engine: DockerEngine, hosts: Hosts) -> None:
    image = hosts.push("busybox:1", f"team/{new_id()}:1")
    launch = asking_for(image)
    seen: list[tuple[State | None, Reason | None]] = []

    async def watch() -> None:
        async for run in engine.changes():
            if run == run_of(launch):
                report = await engine.observe(run)
                seen.append((report.state, report.reason))

    watching = asyncio.create_task(watch())
    await engine.start(launch)
    report = await ended(engine, run_of(launch))
    watching.cancel()
    assert report.units[0].state is State.EXITED
    assert (State.REQUESTED_PULLING, Reason.PULLING_IMAGE) in seen or (State.PULLING, Reason.PULLING_IMAGE) in seen
    hosts.hosts[0].docker("rmi", "-f", image)


async def held_up(engine: DockerEngine, launch: Launch) -> HeldUp | None:
    """Why it gives its place back; None once it has ended."""
    changes = engine.changes()
    await engine.start(launch)
    async with asyncio.timeout(90):
        while True:
            try:
                if (await observed(engine, run_of(launch))).presence is Presence.ended:
                    return None
            except HeldUp as held:
                return held
            await anext(changes)


async def failed(engine: DockerEngine, image: str) -> str:
    report, _ = await outcome(engine, asking_for(image))
    assert (report.units[0].state, report.units[0].reason) == (State.CRASHED, Reason.PULL_FAILED)
    return report.units[0].message or ""


async def test_an_image_that_nobody_has_is_said_to_be_missing(engine: DockerEngine, hosts: Hosts) -> None:
    image = f"{hosts.registry.address}/no/such:1"
    assert f"The image {image} cannot be pulled: the registry has no such image" in await failed(engine, image)


async def test_a_registry_that_wants_a_login_is_said_to(engine: DockerEngine, hosts: Hosts) -> None:
    image = hosts.push("busybox:1", f"team/{new_id()}:1", private=True)
    assert "the registry asks for credentials" in await failed(engine, image)


@pytest.mark.parametrize("right", [True, False])
async def test_a_login_of_docker_is_used(hosts: Hosts, tmp_path: Path, right: bool) -> None:
    image = hosts.push("busybox:1", f"team/{new_id()}:1", private=True)
    user, password = hosts.private_registry.login
    auth = base64.b64encode(f"{user}:{password if right else 'wrong'}".encode()).decode()
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"auths": {image.partition("/")[0]: {"auth": auth}}}))
    async with opened(settings_for(hosts, tmp_path, docker_registry_config=str(config)), hosts.hosts[:1]) as engine:
        if right:
            report: Report = (await outcome(engine, asking_for(image)))[0]
            assert report.units[0].state is State.EXITED
        else:
            said = await failed(engine, image)
            assert "the registry asks for credentials" in said
            assert password not in said
    hosts.hosts[0].docker("rmi", "-f", image, check=False)


async def test_a_registry_that_is_away_is_tried_again(engine: DockerEngine, hosts: Hosts) -> None:
    image = hosts.push("busybox:1", f"team/{new_id()}:1")
    hosts.registry.stop()
    try:
        launch = asking_for(image)
        held = await held_up(engine, launch)
    finally:
        hosts.registry.start()
    assert held.reason is Reason.PULLING_IMAGE
    assert "the registry is not there" in held.message
    assert (await engine.observe(run_of(launch))).presence is Presence.absent
    await engine.start(launch)
    assert (await ended(engine, run_of(launch))).units[0].state is State.EXITED
    hosts.hosts[0].docker("rmi", "-f", image)


async def test_a_registry_whose_name_nobody_knows_is_said_so_in_the_same_words_each_time(engine: DockerEngine) -> None:
    """Each try asks from another port, which is no news to those who follow it."""
    launch, said = asking_for("lab.example/team/thing:1"), []
    while held := await held_up(engine, launch):
        said.append(held.message)
    assert (await engine.observe(run_of(launch))).units[0].reason is Reason.PULL_FAILED
    assert len(set(said)) == 1, said


@pytest.mark.parametrize(
    "answer",
    [
        'Get "https://lab.example/v2/": dial tcp: lookup lab.example: read udp {}->10.0.0.1:53: i/o timeout',
        "read tcp {}->10.0.0.9:443: read: connection reset by peer",
    ],
)
def test_the_same_failure_has_the_same_words_each_time(answer: str) -> None:
    """From another port: whoever follows it is not told again."""
    ports = ("10.1.2.3:45123", "10.1.2.3:51734", "[fd00::2]:40001")
    [said] = {PullFailed("lab.example/team/thing:1", answer.format(port), "lab-1").message for port in ports}
    assert said.endswith((": i/o timeout)", "connection reset by peer"))
    assert "10.0.0." in said


def test_the_registry_of_an_image() -> None:
    assert registry_of("ubuntu") == HUB
    assert registry_of("tensorflow/tensorflow:2") == HUB
    assert registry_of("localhost/thing") == "localhost"
    assert registry_of("registry.example.org:5000/team/thing@sha256:00") == "registry.example.org:5000"


@pytest.mark.parametrize("image", ["../containers", "a b", "-x", "Å", "a//b", "x/"])
async def test_what_is_no_name_of_an_image_is_said_to_be_none(engine: DockerEngine, image: str) -> None:
    report, _ = await outcome(engine, asking_for(image))
    assert (report.units[0].state, report.units[0].reason) == (State.CRASHED, Reason.LAUNCH_FAILED)
    assert report.units[0].message == f"'{image}' is not the name of an image."
