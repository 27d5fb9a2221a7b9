"""Translate between workloads and the scheduler: what one asks for, and what it was given."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.domain.model import now
from penstock.domain.scheduling.demand import Allocation, Ask, PlacedJob, QueuedJob
from penstock.domain.scheduling.explain import WaitCause
from penstock.domain.states import WAITING, Reason, State
from penstock.domain.workloads import Wants, Workload
from penstock.services.infrastructure import LOCAL
from penstock.store.session import Store


@dataclass(frozen=True)
class Assignment:
    """The places of a job that is to start, as they are written in its record."""

    held: PlacedJob
    port: int
    hosts: tuple[str, ...]
    """By place, where there are several nodes to choose from."""


@dataclass(frozen=True)
class NotAssigned:
    """A job that could not have its places: its record by now, and the workloads that have what it was to get."""

    workload: Workload | None
    holders: tuple[Workload, ...] = ()
    elsewhere: bool = False
    """One of its volumes is on another node by now."""


def job_of(workload: Workload, ask: Ask) -> QueuedJob:
    return QueuedJob(
        id=workload.id,
        ask=ask,
        user=workload.user,
        group=workload.group,
        since=workload.queued_at or workload.created_at,
        priority=workload.spec.priority,
        max_duration=lasts(workload),
        unlimited=workload.session,
    )


def lasts(workload: Workload) -> int | None:
    """Return for how many seconds it runs at the longest. Each index of an array has the time for itself, and they may
    come one after the other."""
    each = workload.time_limit
    if each is None or workload.spec.array is None:
        return each
    return each * (len(workload.indexes) or workload.spec.array.count)


def held_of(workload: Workload, ask: Ask, only: str) -> PlacedJob:
    """Return what a workload has by its record; `only` is the node, where there is one to choose."""
    places = len(workload.gpus) or workload.spec.nodes
    hosts = workload.hosts or (only,) * places
    counted = workload.counted or ((ask.cpus_milli or 0, ask.memory_bytes or 0),) * places
    return PlacedJob(
        job_of(workload, ask),
        tuple(
            Allocation(
                node=hosts[min(number, len(hosts) - 1)],
                cpus_milli=counted[number][0] if number < len(counted) else 0,
                memory_bytes=counted[number][1] if number < len(counted) else 0,
                gpus=workload.gpus[number] if number < len(workload.gpus) else (),
                cpuset=workload.cpusets[number] if number < len(workload.cpusets) else (),
            )
            for number in range(places)
        ),
        workload.started_at or workload.updated_at,
    )


def write_assignments(tx: Store, starts: Iterable[Assignment]) -> tuple[dict[str, NotAssigned], list[Workload]]:
    """Write the places of jobs. Return those that were not placed: stopped or placed meanwhile, or another server gave
    away what they were to get; and those that wait and mount a volume whose node is known from now on."""
    refused: dict[str, NotAssigned] = {}
    bound: list[str] = []
    for each in starts:
        found = tx.workloads.get(each.held.job.id)
        if found is None or found.state not in WAITING or found.wants is not Wants.RUN:
            refused[each.held.job.id] = NotAssigned(found)
            continue
        places = each.held.places
        given: dict[str, Any] = {
            "gpus": tuple(place.gpus for place in places),
            "cpusets": tuple(place.cpuset for place in places) if any(place.cpuset for place in places) else (),
            "counted": tuple((place.cpus_milli, place.memory_bytes) for place in places),
            "hosts": each.hosts,
            "master_port": each.port,
        }
        if each.hosts and not _can_mount(tx, found, each, bound):
            refused[found.id] = NotAssigned(found, elsewhere=True)
            continue
        if holders := tx.locks.take(found.model_copy(update=given)):
            there = tuple(other for id_ in holders if (other := tx.workloads.get(id_)))
            refused[found.id] = NotAssigned(found, there)
            continue
        on = ", ".join(dict.fromkeys(place.node for place in places))
        found = tx.workloads.move(found, State.ASSIGNED, Reason.PLACED, f"on {on}", **given)
        if not each.hosts:  # Docker hosts tell of the further steps themselves: an image may have to be pulled first
            tx.workloads.move(found, State.LAUNCHING, Reason.PLACED)
    users = {user.id: user for volume_id in bound for user in tx.workloads.using(volume_id)}
    return refused, [user for user in users.values() if user.state in WAITING]


def _can_mount(tx: Store, workload: Workload, assignment: Assignment, bound: list[str]) -> bool:
    """Bind volumes that no node has used yet to the node where the workload runs, and add them to `bound`. False: the
    workload must be asked for again, for a volume that it did not know the place of is elsewhere by now, or it would
    run on several nodes."""
    node, known = assignment.hosts[0], dict(assignment.held.job.ask.volumes)
    right = True
    for id_ in sorted(set(workload.volume_ids.values())):
        volume = tx.volumes.get(id_)
        if volume and volume.awaits_node:
            volume = volume.model_copy(update={"storage": f"{node}{LOCAL}"})
            tx.volumes.update(volume)
            bound.append(volume.id)
        elif volume is None or volume.storage is None or volume.many_nodes or volume.name in known:
            continue
        right &= volume.storage == f"{node}{LOCAL}" and set(assignment.hosts) == {node}
    return right


def write_causes(tx: Store, causes: Mapping[str, WaitCause]) -> None:
    """Write why each waits. The first cause is a line of its history; that the queue moves is not."""
    for workload_id, cause in causes.items():
        found = tx.workloads.get(workload_id)
        if found is None or found.state not in WAITING or found.wants is not Wants.RUN:
            continue
        if (found.state, found.reason) == (cause.state, cause.reason):
            changes = {"message": cause.message, "ahead": cause.ahead, "updated_at": now()}
            tx.workloads.update(found.model_copy(update=changes))
        else:
            tx.workloads.move(found, cause.state, cause.reason, cause.message, ahead=cause.ahead)


FIRST, COUNT = 20000, 10000


def free_port(workload_id: str, taken: Collection[int]) -> int:
    """Return a port below the kernel's own range; begun at a place that differs by workload, so two servers seldom
    meet."""
    start = zlib.crc32(workload_id.encode())
    for step in range(COUNT):
        port = FIRST + (start + step) % COUNT
        if port not in taken and _bindable(port):
            return port
    return FIRST


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
