"""Jobs: how many pods are wanted, and how far they are."""

from __future__ import annotations

from datetime import datetime

from penstock.engines.kubernetes.api.objects.base import Condition, KubernetesObject, ObjectPart, ResourceKind
from penstock.engines.kubernetes.api.objects.pods import Pod, PodTemplate


class JobSpec(ObjectPart, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    template: PodTemplate = PodTemplate()

    one_for_all = ("completion_mode",)


class JobStatus(ObjectPart, frozen=True):
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Job(KubernetesObject, frozen=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    kind = ResourceKind("Job", "jobs", "batch")

    def pod(self) -> Pod:
        """Any one of its pods, as it is asked for."""
        return Pod(spec=self.spec.template.spec)
