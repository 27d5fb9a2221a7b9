"""The keys of a task, those of SkyPilot that have no effect here, and hints for any other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from penstock.dialects.reader import ReadContext, Reader, nearest_word
from penstock.dialects.yaml import Node, Pairs, Scalar, is_null
from penstock.domain.names import shorten

IGNORED = frozenset(["config", "inputs", "outputs", "experimental", "event_callback"])
IGNORED_RESOURCES = frozenset(
    [
        "cloud",
        "region",
        "zone",
        "infra",
        "use_spot",
        "spot_recovery",
        "disk_tier",
        "local_disk",
        "network_tier",
        "ports",
        "labels",
        "accelerator_args",
        "autostop",
        "hooks",
        "priority",
        "priority_class",
        "max_hourly_cost",
    ]
)
REFUSED = {
    "file_mounts": (
        "is not supported yet, and a job without its data would be worse than none",
        "put the data in a volume and mount it under 'volumes'",
    ),
    "service": (
        "asks for a service with replicas, and this would be one job",
        "remove it to run the program once; 'ports' and 'restart: always' are the nearest to it",
    ),
    "pool": ("asks for a pool of workers, which there is none of", "submit each task by itself, or say 'array'"),
    "num_replicas": ("asks for several of the same, and this would be one", "say 'array' or 'num_nodes'"),
    "resources.volumes": ("is not supported", "mount volumes under the top-level 'volumes'"),
}
TOP_LEVEL = [
    "name",
    "num_nodes",
    "array",
    "after",
    "queue",
    "workdir",
    "resources",
    "selectors",
    "labels",
    "envs",
    "secrets",
    "volumes",
    "setup",
    "run",
    "terminal",
    "ports",
    "max_duration",
    "stop_grace",
    "retries",
    "requeue",
    "restart",
    "ttl",
    "priority",
    "idle_timeout",
    "notify",
]
RESOURCES = ["cpus", "exclusive_cpus", "memory", "disk_size", "accelerators", "image_id", "requests"]
PREFIX = "resources."
OTHER_WORDS = {
    "command": "run",
    "script": "run",
    "nodes": "num_nodes",
    "replicas": "num_nodes",
    "timeout": "max_duration",
    "time_limit": "max_duration",
    "image": "image_id",
    "gpu": "accelerators",
    "mounts": "volumes",
    "depends_on": "after",
    "dependencies": "after",
    "indexes": "array",
    "completions": "array",
    "backoff_limit": "retries",
    "grace_period": "stop_grace",
    "disk": "disk_size",
    "args": "run",
    "tty": "terminal",
    "node_selector": "selectors",
    "plugins": "notify",
}
OF_A_MANIFEST = frozenset({"apiVersion", "kind", "metadata", "spec"})


def read_keys(
    context: ReadContext,
    pairs: Collection[tuple[Scalar, Node]],
    readers: Mapping[str, Reader],
    ignored: Collection[str],
    prefix: str,
) -> dict[str, Any]:
    """Return the values of the keys that are set; null is not set."""
    said = {}
    for key, node in pairs:
        name = key.text
        if name in readers:
            if not is_null(node) and (value := readers[name](context, node, prefix + name)) is not None:
                said[name] = value
        elif name in ignored:
            if not is_null(node):
                where = f"here; '{name}' at the top level has" if prefix and name in TOP_LEVEL else "on this engine"
                context.notices.append(f"{prefix}{name}: has no effect {where}")
        elif prefix + name in REFUSED:
            if not is_null(node) and not (type(node) is Pairs and not node.items):
                message, hint = REFUSED[prefix + name]
                context.problem(message, key, prefix + name, hint)
        else:
            hint = _hint(context, name, prefix, readers)
            context.problem("is not a known key", key, prefix + shorten(name), hint)
    return said


def _hint(context: ReadContext, name: str, prefix: str, readers: Collection[str]) -> str:
    if prefix not in ("", PREFIX):
        near = nearest_word(context, name.lower(), readers, 0.5)
        return f"did you mean '{near}'?" if near else f"the keys here are {', '.join(readers)}"
    if not prefix and name in OF_A_MANIFEST:
        return "a document with a 'kind' is taken by: penstock apply -f FILE"
    here, elsewhere = (RESOURCES, TOP_LEVEL) if prefix else (TOP_LEVEL, RESOURCES)
    if name in elsewhere:
        return "it belongs at the top level" if prefix else "it belongs under 'resources'"
    near = OTHER_WORDS.get(name.lower()) or nearest_word(context, name.lower(), [*here, *elsewhere], 0.5)
    if not near:
        return f"the keys here are {', '.join(here)}"
    place = "" if near in here else " at the top level" if prefix else " under 'resources'"
    return f"did you mean '{near}'{place}?"
