"""A used-up ResourceQuota, in the user's words."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.domain.quantities import show_bytes, show_cpus
from penstock.engines.kubernetes.api.quantities import amount, milli, whole

_Show = Callable[[str], str]
_UNSAID = re.compile(r"failed quota: ([^:\s]+): must specify ([\w.,/-]+) for: ")
_OVER = re.compile(r"exceeded quota: ([^,\s]+), requested: (.*?), used: (.*?), limited: (.*)", re.S)


def over_quota(said: str) -> str | None:
    """None if it is about something else."""
    if unsaid := _UNSAID.search(said):
        counted = " and ".join(dict.fromkeys(_shown(name)[1] for name in unsaid[2].split(",")))
        return f"the quota {unsaid[1]} counts {counted}: it must say under resources how much it needs"
    found = _OVER.search(said)
    if not found:
        return None
    requested, used, limited = (_pairs(text) for text in found.groups()[1:])
    sentences = [
        _sentence(name, requested.get(name, "0"), used.get(name, "0"), limit) for name, limit in limited.items()
    ]
    return f"the quota {found[1]} has no room: " + ", ".join(sentences)


def _pairs(text: str) -> dict[str, str]:
    return {name: size for name, _, size in (pair.strip().rpartition("=") for pair in text.split(",")) if name}


def _sentence(name: str, requested: str, used: str, limit: str) -> str:
    show, what = _shown(name)
    if amount(requested) > amount(limit):
        return f"it asks for {show(requested)} {what}, and {show(limit)} are allowed in all"
    return f"{show(used)} of {show(limit)} {what} are used, and it asks for {show(requested)}"


def _shown(name: str) -> tuple[_Show, str]:
    short = name.removeprefix("requests.").removeprefix("limits.")
    if short == "cpu":
        return _cpus, "CPUs"
    if short in ("memory", "ephemeral-storage", "storage"):
        return _bytes, {"memory": "memory", "ephemeral-storage": "disk", "storage": "storage"}[short]
    return str, {
        "nvidia.com/gpu": "GPUs",
        "count/pods": "pods",
        "count/jobs.batch": "Jobs",
        "persistentvolumeclaims": "volumes",
    }.get(short, short)


def _cpus(text: str) -> str:
    return show_cpus(milli(text))


def _bytes(text: str) -> str:
    return show_bytes(whole(text)) if whole(text) else "0"
