"""Names and labels of our containers, networks and volumes. They follow from ids, so steps can be repeated."""

from __future__ import annotations

import hashlib
import re

from penstock.engines.base import Run

_OURS = "penstock.dev/"
_NOT_DOCKERS = re.compile(r"[^A-Za-z0-9_.-]+")
INSTALLATION = f"{_OURS}installation"
"""Which Penstock made it; on everything of ours."""
WORKLOAD = f"{_OURS}workload"
ATTEMPT = f"{_OURS}attempt"
PART = f"{_OURS}part"
NAME = f"{_OURS}name"
OWNER = f"{_OURS}owner"
"""`group/user`."""
GROUP = f"{_OURS}group"
PARTS = f"{_OURS}parts"
"""How many nodes, or indexes, the attempt has; nodes belong together, indexes are each for themselves."""
ARRAY = f"{_OURS}array"
PLACE = f"{_OURS}place"
"""Which of the places of an array an index has, of those that run at once."""
GRACE = f"{_OURS}stop-grace"
MAX_DURATION = f"{_OURS}max-duration"
HAS_BASH = f"{_OURS}has-bash"
GPUS = f"{_OURS}gpus"
"""The uuids of the GPUs that are its own."""
CPUS = f"{_OURS}cpus"
"""The numbers of the CPUs that are its own."""
DISK = f"{_OURS}disk"
"""What it may hold on its disks: JSON of path → bytes, the empty path for all."""
RECORD = f"{_OURS}record"
"""The workload or volume as the store has it."""
UP_TO = f"{_OURS}up-to"
"""All indexes up to this number had their containers when this one began."""
INSTEAD_OF = f"{_OURS}instead-of"
"""Ids of containers that were taken back, so that this one could be made."""
VOLUME = f"{_OURS}volume"
HELPER = f"{_OURS}helper"
"""Marks containers that do something for us and are gone a moment later."""
EXIT_CODE = "exitCode"
"""Docker tells the code of a container under this name, and a label of the same name instead."""

ON_CONTAINERS = (
    INSTALLATION,
    WORKLOAD,
    ATTEMPT,
    PART,
    NAME,
    OWNER,
    GROUP,
    PARTS,
    ARRAY,
    PLACE,
    GRACE,
    MAX_DURATION,
    HAS_BASH,
    GPUS,
    CPUS,
    DISK,
    RECORD,
    UP_TO,
    INSTEAD_OF,
    VOLUME,
    HELPER,
)


def is_ours(label: str) -> bool:
    """Is this a label that nobody else may write?"""
    return label.startswith(_OURS) or label == EXIT_CODE


def with_all_labels(installation: str, said: dict[str, str]) -> dict[str, str]:
    """Return all our labels for a container, empty where nothing is said: Docker would take the image's."""
    return dict.fromkeys(ON_CONTAINERS, "") | {INSTALLATION: installation} | said


def base_name(installation: str, name: str, run: Run) -> str:
    """Return `penstock-train-abcd2345`, for a later attempt `penstock-train-abcd2345-2`."""
    again = f"-{run.attempt}" if run.attempt > 1 else ""
    return f"{installation}-{name}-{run.workload_id}{again}"


def container_name(installation: str, name: str, run: Run, part: int) -> str:
    return f"{base_name(installation, name, run)}.{part}"


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
    workload_id, attempt = labels.get(WORKLOAD, ""), labels.get(ATTEMPT, "")
    return Run(workload_id, int(attempt)) if workload_id and attempt.isdecimal() else None


def number(labels: dict[str, str], label: str, otherwise: int = 0) -> int:
    text = labels.get(label, "")
    return int(text) if text.isdecimal() else otherwise


def ours_filter(installation: str) -> str:
    """Return the filter for all that is ours."""
    return f"{INSTALLATION}={installation}"
