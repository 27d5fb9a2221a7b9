"""Names and labels of our containers, networks and volumes. They follow from ids, so steps can be repeated."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum

from penstock.engines.base import Run

_OURS = "penstock.dev/"
_NOT_DOCKERS = re.compile(r"[^A-Za-z0-9_.-]+")
EXIT_CODE = "exitCode"
"""Docker tells the code of a container under this name, and a label of the same name instead."""


class Label(StrEnum):
    """Our labels on containers, networks and volumes."""

    INSTALLATION = "penstock.dev/installation"
    """Which Penstock made it; on everything of ours."""
    WORKLOAD = "penstock.dev/workload"
    ATTEMPT = "penstock.dev/attempt"
    PART = "penstock.dev/part"
    NAME = "penstock.dev/name"
    OWNER = "penstock.dev/owner"
    """`group/user`."""
    GROUP = "penstock.dev/group"
    PARTS = "penstock.dev/parts"
    """How many nodes, or indexes, the attempt has; nodes belong together, indexes are each for themselves."""
    ARRAY = "penstock.dev/array"
    PLACE = "penstock.dev/place"
    """Which of the places of an array an index has, of those that run at once."""
    GRACE = "penstock.dev/stop-grace"
    MAX_DURATION = "penstock.dev/max-duration"
    HAS_BASH = "penstock.dev/has-bash"
    GPUS = "penstock.dev/gpus"
    """The uuids of the GPUs that are its own."""
    CPUS = "penstock.dev/cpus"
    """The numbers of the CPUs that are its own."""
    DISK = "penstock.dev/disk"
    """What it may hold on its disks: JSON of path → bytes, the empty path for all."""
    RECORD = "penstock.dev/record"
    """The workload or volume as the store has it."""
    UP_TO = "penstock.dev/up-to"
    """All indexes up to this number had their containers when this one began."""
    INSTEAD_OF = "penstock.dev/instead-of"
    """Ids of containers that were taken back, so that this one could be made."""
    VOLUME = "penstock.dev/volume"
    HELPER = "penstock.dev/helper"
    """Marks containers that do something for us and are gone a moment later."""


def is_ours(label: str) -> bool:
    """Is this a label that nobody else may write?"""
    return label.startswith(_OURS) or label == EXIT_CODE


def with_all_labels(installation: str, said: dict[str, str]) -> dict[str, str]:
    """Return all our labels for a container, empty where nothing is said: Docker would take the image's."""
    return dict.fromkeys(map(str, Label), "") | {Label.INSTALLATION: installation} | said


def container_name(installation: str, name: str, run: Run, part: int) -> str:
    """Return `penstock-train-abcd2345.0`, for a later attempt `penstock-train-abcd2345-2.0`."""
    again = f"-{run.attempt}" if run.attempt > 1 else ""
    return f"{installation}-{name}-{run.workload_id}{again}.{part}"


def peer_name(name: str, run: Run, rank: int) -> str:
    """Return the DNS label by which the nodes of a run find each other."""
    mark = f"-{run.workload_id}-{run.attempt}-{rank}"
    return name[: 63 - len(mark)].rstrip("-") + mark


def network_name(installation: str, group: str) -> str:
    """Return the name of a group's network. One that Docker cannot have gets a mark, so that two never meet."""
    plain = _NOT_DOCKERS.sub("-", group)
    mark = "" if plain == group else f"-{hashlib.sha256(group.encode()).hexdigest()[:12]}"
    return f"{installation}-{plain}{mark}"


def run_of(labels: dict[str, str]) -> Run | None:
    workload_id, attempt = labels.get(Label.WORKLOAD, ""), labels.get(Label.ATTEMPT, "")
    return Run(workload_id, int(attempt)) if workload_id and attempt.isdecimal() else None


def number(labels: dict[str, str], label: str, otherwise: int = 0) -> int:
    text = labels.get(label, "")
    return int(text) if text.isdecimal() else otherwise


def ours_filter(installation: str) -> str:
    """Return the filter for all that is ours."""
    return f"{Label.INSTALLATION}={installation}"
