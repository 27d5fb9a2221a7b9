"""Hold Jobs back until all their nodes have room, or until a node has the GPUs they ask for.

Kubernetes places pods one by one: of two workloads each may get half of its nodes and wait for the other half for ever.
So a workload of which some nodes have had a place for `placement_timeout` while others have none gives all places back
(its Job is suspended) and tries again: as soon as there is room for all of it, and otherwise after a pause that doubles
with each try. One for which the nodes there are can never be enough takes no places at all until there are more, unless
an autoscaler brings them: that needs to see its pods.

A pod can only name what nodes call a GPU product, and what those that are to come will call theirs nobody may know. So
the Job makes no pods until a node has what the user's words mean: only a Job that has never begun can still be told
where its pods belong.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from penstock.domain.model import now
from penstock.domain.nodes import product_matches
from penstock.domain.quantities import parse_duration
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.api.objects import Job, Pod, condition
from penstock.engines.kubernetes.nodes.inventory import Inventory
from penstock.engines.kubernetes.spec import Fields, build_affinity
from penstock.engines.kubernetes.state.jobs import (
    awaits_product,
    is_array,
    is_failing,
    is_finished,
    is_given_up,
    is_quiet,
    read_placement,
    write_placement,
)
from penstock.engines.kubernetes.waiting.capacity import (
    count_room,
    explain_lack_of_room,
    read_autoscaler,
    wanted_node,
    wanted_products,
)
from penstock.settings import Settings

log = logging.getLogger(__name__)

SHORTEST, LONGEST = 5.0, 30.0
"""Seconds until the second try, chosen at random between these."""
DOUBLED = 6
"""How often that doubles at most, to half an hour."""


class Gang:
    def __init__(
        self,
        api: KubernetesApi,
        cluster: Cluster,
        inventory: Inventory,
        settings: Settings,
    ) -> None:
        self._api, self._cluster = api, cluster
        self._inventory, self._autoscaler = inventory, read_autoscaler(settings)
        self._timeout = timedelta(seconds=parse_duration(settings.placement_timeout))
        self.held: set[Run] = set()
        """Runs without pods that try again when there is room."""
        self._short: set[Run] = set()
        """Held runs for which there was no room since they gave their places back."""
        self._trying: tuple[Run, str] | None = None
        """The run that was resumed early because there was room, and the version of its Job before: no other is resumed
        so until its pods have taken the room."""

    def waiting(self) -> set[Run]:
        """Return the held runs, and forget those that ended or were removed: nobody advances them any more."""
        self.held = {run for run in self.held if (job := _gang_job(self._cluster, run)) and job.spec.suspend}
        self._short = {run for run in self._short if _gang_job(self._cluster, run)}
        return self.held

    def _is_trying(self) -> bool:
        """Are the pods of a run that was resumed early still looking for their places?"""
        if self._trying:
            run, before = self._trying
            job = _gang_job(self._cluster, run)
            suspended_again = job and job.spec.suspend and job.metadata.resource_version != before
            if job is None or suspended_again or self._placed(run) >= job.completions:
                self._trying = None
        return self._trying is not None

    async def advance(self, run: Run) -> None:
        self.held.discard(run)
        job = _gang_job(self._cluster, run)
        if job is None:
            self._short.discard(run)
            return
        if job.spec.suspend:
            await self._resume(run, job)
        else:
            await self._give_back(run, job)

    async def _give_back(self, run: Run, job: Job) -> None:
        due = gives_back_at(self._cluster, run, self._timeout)
        if due is None:
            return
        if due > now():
            self._cluster.changed_at(run, due)
            return
        placement = read_placement(job)
        tries = (placement.tries if placement else 0) + 1
        log.info("%s gives back its places", job.name)
        annotations = {names.PLACEMENT: write_placement(tries, now() + self._pause(job, tries))}
        change = {"metadata": {"annotations": annotations}, "spec": {"suspend": True}}
        self._short.discard(run)
        self._has_new_room(run, job)  # which remembers that there is none
        await self._api.amend(job, change)

    def _pause(self, job: Job, tries: int) -> timedelta:
        """Choose the pause before the next try; a short one where an autoscaler brings nodes, since it takes away those
        without pods."""
        doubled = 0 if self._autoscaler.brings(job.pod()) else min(tries - 1, DOUBLED)
        return timedelta(seconds=random.uniform(SHORTEST, LONGEST) * 2**doubled)  # noqa: S311

    async def _resume(self, run: Run, job: Job) -> None:
        placement = read_placement(job)
        if placement is None or not is_quiet(job) or self._cluster.pods_of(run):
            return
        self.held.add(run)
        nodes = job.completions
        if explain_lack_of_room(job.pod(), nodes, self._inventory, self._autoscaler):
            return
        if placement.again and placement.again > now():
            if not self._has_new_room(run, job) or self._is_trying():
                self._cluster.changed_at(run, placement.again)
                return
            self._trying = (run, job.metadata.resource_version)
        self._short.discard(run)
        log.info("%s tries again to find places", job.name)
        try:
            await self._api.amend(job, {"spec": {"suspend": False}})
        except KubernetesError:
            if self._trying and self._trying[0] == run:
                self._trying = None
            raise

    def _has_new_room(self, run: Run, job: Job) -> bool:
        """Is there room for all of it that was not there when it gave up? What seemed free then was not: not all that
        decides is seen from here."""
        nodes = job.completions
        if self._placed(run) + sum(count_room(job.pod(), nodes, self._inventory).now.values()) < nodes:
            self._short.add(run)
            return False
        return run in self._short

    def _placed(self, run: Run) -> int:
        return sum(bool(pod.spec.node_name) for pod in self._cluster.pods_of(run))


def gives_back_at(cluster: Cluster, run: Run, timeout: timedelta) -> datetime | None:
    """Return when the nodes that have a place give it back, if the others have none by then."""
    job = _gang_job(cluster, run)
    if job is None or job.spec.suspend:
        return None
    since = _partly_since(cluster.pods_of(run), job.completions)
    return since + timeout if since else None


def _gang_job(cluster: Cluster, run: Run) -> Job | None:
    """Find the Job of a run with several nodes that is ours to start and stop."""
    jobs = cluster.jobs_of(run)
    job = jobs[0] if len(jobs) == 1 else None
    if job is None or job.completions < 2 or is_array(job) or names.QUEUE in job.labels:
        return None
    ended = is_finished(job) or is_failing(job) or job.metadata.deletion_timestamp
    return None if ended or is_given_up(job) else job


def _partly_since(pods: Sequence[Pod], total: int) -> datetime | None:
    """Return since when some pods have a place while others look for one in vain."""
    if any(pod.metadata.deletion_timestamp for pod in pods):
        return None
    placed = [pod for pod in pods if pod.spec.node_name]
    in_vain = [pod for pod in pods if not pod.spec.node_name and _looks_in_vain(pod)]
    if not placed or not in_vain or len(placed) >= total:
        return None
    found = [condition(pod.status.conditions, "PodScheduled") for pod in placed]
    return min((each.last_transition_time for each in found if each and each.last_transition_time), default=None)


def _looks_in_vain(pod: Pod) -> bool:
    found = condition(pod.status.conditions, "PodScheduled")
    return found is not None and not found.true


class Products:
    def __init__(self, api: KubernetesApi, cluster: Cluster, inventory: Inventory) -> None:
        self._api, self._cluster, self._inventory = api, cluster, inventory
        self.awaited: set[Run] = set()
        """Runs whose products no node has."""

    def waiting(self) -> set[Run]:
        """Return the runs that wait for a product, and forget those that ended or were removed."""
        self.awaited = {run for run in self.awaited if any(map(_may_be_named, self._cluster.jobs_of(run)))}
        return self.awaited

    async def advance(self, run: Run) -> None:
        self.awaited.discard(run)
        for job in self._cluster.jobs_of(run):
            if not _may_be_named(job) or self._inventory.has_product(wanted_products(job.pod())):
                continue
            self.awaited.add(run)
            if found := self._meant(job):
                await self._name(job, found)

    def _meant(self, job: Job) -> list[str]:
        try:
            words = json.loads(job.annotations[names.PRODUCTS])
            return [
                found for found in self._inventory.products() if any(product_matches(each, found) for each in words)
            ]
        except (ValueError, TypeError, AttributeError):
            return []

    async def _name(self, job: Job, products: list[str]) -> None:
        """Name the products in the Job. One node or an array begins; several nodes look for their places together."""
        log.info("%s now asks for %s", job.name, ", ".join(products))
        spec: Fields = {"template": {"spec": {"affinity": build_affinity(products, wanted_node(job.pod()))}}}
        if is_array(job) or job.completions < 2:
            spec["suspend"] = False
        await self._api.amend(job, {"spec": spec})


def _may_be_named(job: Job) -> bool:
    return awaits_product(job) and not is_given_up(job) and not job.metadata.deletion_timestamp
