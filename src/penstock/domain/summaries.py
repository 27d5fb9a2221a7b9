"""What a list tells of a workload: kept beside its record, so that a list is a copy and not a computation.

These are the store's names. What the API calls them is said in `penstock.wire.workloads`.
"""

from __future__ import annotations

from penstock.domain.model import Model, Time
from penstock.domain.quantities import show_bytes, show_cpus
from penstock.domain.states import State
from penstock.domain.workloads import Progress, Resources, Workload


class ArrayProgress(Progress):
    count: int


class WorkloadSummary(Model):
    id: str
    name: str
    group: str
    namespace: str
    user: str
    status: str
    state: State
    reason: str
    message: str | None
    ahead: int | None
    exit_code: int | None
    nodes: int
    hosts: tuple[str, ...]
    containers: tuple[str, ...]
    array: ArrayProgress | None
    cpus: str | None
    memory: str | None
    accelerators: str | None
    created_at: Time
    started_at: Time | None
    ended_at: Time | None
    updated_at: Time

    @classmethod
    def of(cls, workload: Workload) -> WorkloadSummary:
        asked = workload.spec.resources
        return cls(
            id=workload.id,
            name=workload.name,
            group=workload.group,
            namespace=workload.namespace or workload.group,
            user=workload.user,
            status=workload.status,
            state=workload.state,
            reason=workload.reason,
            message=workload.spec.without_secrets(workload.message),
            ahead=workload.ahead,
            exit_code=workload.exit_code,
            nodes=workload.spec.nodes,
            hosts=workload.hosts,
            containers=workload.containers,
            array=_array(workload),
            cpus=show_cpus(asked.cpus_milli) if asked.cpus_milli else None,
            memory=show_bytes(asked.memory_bytes) if asked.memory_bytes else None,
            accelerators=_accelerators(asked),
            created_at=workload.created_at,
            started_at=workload.started_at,
            ended_at=workload.ended_at,
            updated_at=workload.updated_at,
        )


def _accelerators(resources: Resources) -> str | None:
    """`A10:1`, `A10|L4:1`, `2`: as short as the task YAML writes it."""
    if not resources.gpus:
        return None
    return f"{'|'.join(resources.gpu_products)}:{resources.gpus}".removeprefix(":")


def _array(workload: Workload) -> ArrayProgress | None:
    if workload.spec.array is None:
        return None
    so_far = workload.progress or Progress()
    return ArrayProgress(count=workload.spec.array.count, **so_far.model_dump())
