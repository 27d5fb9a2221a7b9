"""The kinds of documents and the words for each. This module imports nothing, so that the command line can use it."""

from __future__ import annotations

ALIASES: dict[str, tuple[str, ...]] = {
    "Workload": ("wk", "workload", "workloads"),
    "GPU": ("gpu", "gpus"),
    "CPU": ("cpu", "cpus"),
    "Node": ("node", "nodes"),
    "Group": ("group", "groups"),
    "User": ("user", "users"),
    "Volume": ("vol", "vols", "volume", "volumes"),
    "Storage": ("storage", "storages"),
}
READ_ONLY = {
    "GPU": "a GPU is found on its node",
    "CPU": "a CPU is found on its node",
}
"""Kinds that are shown and never written, and why."""
APPLIED = tuple(kind for kind in ALIASES if kind not in READ_ONLY)


def kind_named(word: str) -> str | None:
    """Return the kind a person means by its own name, or by one of its words in any case."""
    lower = word.lower()
    return next((kind for kind, words in ALIASES.items() if word == kind or lower in words), None)
