"""Find records beside containers and volumes after the server's database was lost.

Whoever may use Docker on a host may write labels, too: a record counts only on the very thing it is about. What is
marked as ours and is no such thing is named, so that an admin hears of it; nothing is ever removed for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from penstock.domain.names import ID, USER, name_problem
from penstock.domain.users import Account
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.engines.base import Found, Run
from penstock.engines.docker import names
from penstock.engines.docker.api.errors import DockerError
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import PATIENCE, DockerHosts
from penstock.engines.docker.names import Label
from penstock.engines.docker.state import total_of
from penstock.engines.shared.records import read_volume, with_values

log = logging.getLogger(__name__)
NO_RECORD = "it has no record"
NOT_READ = "its record cannot be read"
NOT_ITS_OWN = "it has the record of something else"


class _RecordRefused(Exception):
    """Says why the record on a thing of ours is not believed."""


async def read_records(hosts: DockerHosts, installation: str, nodes: Collection[str]) -> Found:
    """Read the records on these nodes; one that does not answer costs the others nothing."""
    unreadable: list[str] = []
    asked = [link for link in hosts.links() if link.host.name in nodes]
    answers = await asyncio.gather(*(_volumes_if_there(link, installation, unreadable) for link in asked))
    there = [(link, has) for link, has in zip(asked, answers, strict=True) if has is not None and link.answers]
    volumes = {id_: volume for _, has in there for id_, volume in has.items()}
    workloads = _workloads([link for link, _ in there], unreadable)
    return Found(
        workloads=tuple([await _as_it_is(workloads[id_], hosts) for id_ in sorted(workloads)]),
        volumes=tuple(volumes[id_] for id_ in sorted(volumes)),
        unreadable=tuple(sorted(set(unreadable))),
        nodes=tuple(link.host.name for link, _ in there),
    )


async def _as_it_is(workload: Workload, hosts: DockerHosts) -> Workload:
    """Complete a record from its containers: where it runs, since when, and its secrets. A workload that is over has no
    GPUs and CPUs any more."""
    parts = hosts.parts(Run.of(workload))
    placed = dict(enumerate(workload.hosts))
    placed |= {seen.place: seen.host for seen in parts.values()}
    began = [seen.started_at for seen in parts.values() if seen.started_at]
    update: dict[str, Any] = {
        "hosts": tuple(placed[number] for number in sorted(placed)),
        "started_at": min(began, default=None),
    }
    if all(seen.over for seen in parts.values()) and len(parts) >= total_of(None, parts):
        update |= {"gpus": (), "cpusets": (), "counted": ()}
    if workload.spec.secrets:
        workload = with_values(workload, await _variables(parts, hosts))
    return workload.model_copy(update=update)


async def _variables(parts: Mapping[int, ContainerRecord], hosts: DockerHosts) -> dict[str, str]:
    """Return the variables that one of its containers was given."""
    for seen in parts.values():
        if container := await hosts.link(seen.host).api.container(seen.id):
            lines = container["Config"].get("Env") or ()
            return {name: value for name, _, value in (line.partition("=") for line in lines)}
    return {}


def _workloads(links: list[HostLink], unreadable: list[str]) -> dict[str, Workload]:
    newest: dict[str, Workload] = {}
    for link in links:
        for seen in link.all():
            try:
                workload = _workload(seen)
            except _RecordRefused as why:
                unreadable.append(f"the container {seen.name} on {seen.host}: {why}")
                continue
            if workload.id not in newest or newest[workload.id].attempt < workload.attempt:
                newest[workload.id] = workload
    return newest


def _workload(seen: ContainerRecord) -> Workload:
    record = seen.labels.get(Label.RECORD)
    if not record:
        raise _RecordRefused(NO_RECORD)
    try:
        workload = Workload.model_validate_json(record)
    except ValidationError:
        raise _RecordRefused(NOT_READ) from None
    if (workload.id, workload.attempt) != (seen.run.workload_id, seen.run.attempt):
        raise _RecordRefused(NOT_ITS_OWN)
    _check(workload, seen.labels)
    return workload


async def _volumes_if_there(
    link: HostLink, installation: str, unreadable: list[str]
) -> dict[str, tuple[Volume, Account]] | None:
    try:
        async with asyncio.timeout(PATIENCE):
            return await _volumes(link, installation, unreadable)
    except (DockerError, TimeoutError) as error:
        log.info("the records on %s cannot be read: %s", link.host.name, error)
        return None


async def _volumes(link: HostLink, installation: str, unreadable: list[str]) -> dict[str, tuple[Volume, Account]]:
    result = {}
    for each in await link.api.volumes({"label": [names.ours_filter(installation), Label.VOLUME]}):
        labels = dict(each.get("Labels") or {})
        if not labels.get(Label.RECORD):
            continue
        try:
            read = read_volume(labels[Label.RECORD])
            if read is None:
                raise _RecordRefused(NOT_READ)
            if read[0].id != labels.get(Label.VOLUME) or each["Name"] != f"{installation}-{read[0].object_name}":
                raise _RecordRefused(NOT_ITS_OWN)
            _check(read[0], labels)
            result[read[0].id] = read
        except _RecordRefused as why:
            unreadable.append(f"the Docker volume {each['Name']} on {link.host.name}: {why}")
    return result


def _check(recorded: Workload | Volume, labels: dict[str, str]) -> None:
    if not ID.match(recorded.id) or name_problem(recorded.name) or not USER.match(recorded.user):
        raise _RecordRefused(NOT_READ)
    if f"{recorded.group}/{recorded.user}" != labels.get(Label.OWNER):
        raise _RecordRefused(NOT_ITS_OWN)
