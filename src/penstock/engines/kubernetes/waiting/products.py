"""GPU products that no node had when a workload asked for them.

A pod can only name what nodes call a product, and what those that are to come will call theirs nobody may know. So its
Job makes no pods until a node has what the user's words mean: only a Job that has never begun can still be told where
its pods belong.
"""

from __future__ import annotations

import json
import logging

from penstock.domain.nodes import product_matches
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesNotFound
from penstock.engines.kubernetes.api.objects.jobs import Job
from penstock.engines.kubernetes.nodes.inventory import Inventory
from penstock.engines.kubernetes.spec.pod import Fields, affinity
from penstock.engines.kubernetes.state.jobs import awaits_product, is_array, is_given_up
from penstock.engines.kubernetes.waiting.shortage import wanted_node, wanted_products

log = logging.getLogger(__name__)


class Products:
    def __init__(self, api: KubernetesApi, cluster: Cluster, inventory: Inventory) -> None:
        self._api, self._cluster, self._inventory = api, cluster, inventory
        self.awaited: set[Run] = set()
        """Runs whose products no node has."""

    async def advance(self, run: Run) -> None:
        self.awaited.discard(run)
        for job in self._cluster.jobs_of(run):
            if not self._waits(job):
                continue
            self.awaited.add(run)
            if found := self._meant(job):
                try:
                    await self._name(job, found)
                except KubernetesNotFound:
                    log.debug("%s is gone", job.name)

    def _waits(self, job: Job) -> bool:
        if is_given_up(job) or job.metadata.deletion_timestamp:
            return False
        return awaits_product(job) and not self._inventory.has_product(wanted_products(job.pod()))

    def _meant(self, job: Job) -> list[str]:
        try:
            words = json.loads(job.annotations[names.PRODUCTS])
            return [
                found for found in self._inventory.products() if any(product_matches(each, found) for each in words)
            ]
        except (ValueError, TypeError, AttributeError):
            return []

    async def _name(self, job: Job, products: list[str]) -> None:
        """One node of it or an array begins; several nodes look for their places together."""
        log.info("%s now asks for %s", job.name, ", ".join(products))
        spec: Fields = {"template": {"spec": {"affinity": affinity(products, wanted_node(job.pod()))}}}
        if is_array(job) or (job.spec.completions or 1) < 2:
            spec["suspend"] = False
        await self._api.patch(Job, job.name, {"spec": spec}, job.namespace)
