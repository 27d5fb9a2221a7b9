"""Name and label Penstock's objects in a cluster. Names follow from ids, so writes can be repeated.

Labels are k8s-cli's, for people with kubectl and for selecting; they can be forged by whoever may edit the
namespace. What we believe about an object stands in its annotations, and only for objects that carry MANAGED.
"""

from __future__ import annotations

import hashlib
import re

from penstock.engines.base import Run
from penstock.engines.kubernetes.api.objects import Job, KubernetesObject, Pod

MANAGED = "app.kubernetes.io/managed-by"
PENSTOCK = "penstock"

TASK = "skypilot-task"
TASK_ID = "task-id"
TASK_NAME = "task-name"
USERNAME = "username"
NODE_INDEX = "node-idx"
ATTEMPT = "penstock.dev/attempt"
ARRAY_INDEX = "penstock.dev/index"
"""The index of an array that a Job runs once more: Kubernetes counts it as index 0 of a Job of its own."""

VOLUME = "skypilot-volume"
VOLUME_ID = "volume-id"
VOLUME_NAME = "volume-name"

OWNER = "penstock.dev/owner"
"""The true owner, `group/user`: a label cannot hold every name."""
RECORD = "penstock.dev/record"
"""The workload or volume as the store has it, for a server whose store was lost."""
GROUPS = "penstock.dev/groups"
"""On a Secret or a claim that Penstock did not make: the groups whose jobs may use it."""
CREATED_AT = "created-at"
NUM_NODES = "num-nodes"
STOP = "penstock.dev/stop"
"""When the user asked to stop it."""
VERDICT = "penstock.dev/verdict"
"""Why Penstock ended what Kubernetes would let wait for ever: JSON of state, reason and message."""
SETTLED = "penstock.dev/settled"
"""When the Job may be removed: its result and logs are stored."""
GRACE = "penstock.dev/stop-grace"
"""Seconds between TERM and KILL, as its pods have them."""
SENDS_WORKDIR = "penstock.dev/sends-workdir"
"""Its containers wait until the server has sent the user's code."""
HAS_BASH = "penstock.dev/has-bash"
"""Its containers run a script of bash."""
MAX_DURATION = "penstock.dev/max-duration"
"""Seconds it may run, for the sentence about one that ran longer."""
PLACEMENT = "penstock.dev/placement"
"""How often its nodes gave back the places they had, and when they try again: JSON."""
PRODUCTS = "penstock.dev/gpu-products"
"""The GPU products as the user wrote them, where its pods can only name what nodes call them: JSON."""

INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
QUEUE = "kueue.x-k8s.io/queue-name"
GPU = "nvidia.com/gpu"
GPU_PRODUCT = "nvidia.com/gpu.product"
CONTAINER = "task"

MOST_PARTS = 10_000
"""The most parts a Job of Penstock's has; one with more was not made by it."""
_LABEL_LIMIT = 63
_MARK = 12
_MARKED = re.compile(rf"(^|-)[0-9a-f]{{{_MARK}}}$")
_NOT_LABEL = re.compile(r"[^A-Za-z0-9._-]+")
_JOB_NAME_LIMIT = 57
"""A pod's host name is `{job}-{index}` and a DNS label: 63 characters, six of them for the index."""


def job_name(name: str, run: Run, index: int | None = None) -> str:
    """Name a Job: `train-abcd2345`, a later attempt `…-2`, one index of an array `…-2-7`."""
    mark = f"-{run.workload_id}"
    if run.attempt > 1:
        mark += f"-{run.attempt}"
    if index is not None:
        mark += f"-{index}"
    return name[: _JOB_NAME_LIMIT - len(mark)].rstrip("-") + mark


def run_of(found: KubernetesObject) -> Run | None:
    """Return the run an object belongs to, by its labels."""
    labels = found.labels
    workload_id, attempt = labels.get(TASK_ID, ""), labels.get(ATTEMPT, "")
    if labels.get(MANAGED) != PENSTOCK or not workload_id or not attempt.isdecimal():
        return None
    return Run(workload_id, int(attempt))


def is_for(group: str, found: KubernetesObject) -> bool:
    """Did somebody allow this group to use it?"""
    return bool(group) and group in re.split(r"[,\s]+", found.annotations.get(GROUPS, ""))


def selector(run: Run) -> str:
    """Return the label selector of everything that belongs to a run."""
    return f"{MANAGED}={PENSTOCK},{TASK_ID}={run.workload_id},{ATTEMPT}={run.attempt}"


def part_of(found: Pod | Job) -> int:
    """Return which rank or index a pod is, or which index a Job runs."""
    number = found.labels.get(ARRAY_INDEX) or found.annotations.get(INDEX) or found.labels.get(INDEX) or "0"
    return int(number) if number.isdecimal() else 0


def label(text: str) -> str:
    """Spell a user as a label, as k8s-cli does: `@` and whatever else a label cannot hold become `-`."""
    return _NOT_LABEL.sub("-", text)[:63].strip("-._")


def namespace_of(prefix: str, owner: str) -> str:
    """Name the namespace of a user or group. A name that had to be changed, or could be taken for a changed one, gets a
    mark, so that two never meet."""
    room = _LABEL_LIMIT - len(prefix) - 1
    plain = re.sub(r"[^a-z0-9]+", "-", owner.lower()).strip("-")
    if plain == owner and len(plain) <= room and not _MARKED.search(plain):
        return f"{prefix}-{plain}"
    mark = hashlib.sha256(owner.encode()).hexdigest()[:_MARK]
    return "-".join(filter(None, (prefix, plain[: max(room - _MARK - 1, 0)].strip("-"), mark)))
