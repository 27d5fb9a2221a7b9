"""Choose the variables and capabilities a job gets on every engine."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.environment import is_ours
from penstock.engines.base import Launch

CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
)
"""Capabilities that root in a container needs to install packages and change accounts, and no more."""
RANKS = ("NODE_RANK", "SKYPILOT_NODE_RANK")
INDEX = "JOB_COMPLETION_INDEX"
NO_GPUS = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
"""Without these, an image made for GPUs sees all of a machine's GPUs where NVIDIA's runtime is the default one."""


def user_variables(launch: Launch) -> dict[str, str]:
    """Return what the user set, and unbuffered Python, so that a log line comes when it is printed."""
    reserved = {*NO_GPUS, INDEX}
    theirs = {name: value for name, value in launch.spec.envs.items() if not is_ours(name) and name not in reserved}
    return {"PYTHONUNBUFFERED": "1"} | theirs


def run_variables(launch: Launch, addresses: Sequence[str]) -> dict[str, str]:
    """Return what every node is told about the run, except its rank. These win over what the user set."""
    nodes, gpus = str(launch.spec.nodes), str(launch.spec.resources.gpus)
    return {
        "NUM_NODES": nodes,
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(launch.master_port),
        "GPUS_PER_NODE": gpus,
        "PENSTOCK_TASK_ID": launch.workload_id,
        "PENSTOCK_ATTEMPT": str(launch.attempt),
        "SKYPILOT_NUM_NODES": nodes,
        "SKYPILOT_NODE_IPS": "\n".join(addresses),
        "SKYPILOT_NUM_GPUS_PER_NODE": gpus,
        "SKYPILOT_TASK_ID": launch.workload_id,
    }
