"""How many CPUs the nodes of a rig show, where that is not the machine's own number.

Kubelet counts directories below /sys/devices/system. The rig's holder mounts what is made up here over them, in its own
mount namespace; pods, which have a /sys of their own, see the machine's. A pod gets no more CPU than there is.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.rig.holder import MADE_UP_SYSTEM

_MEMORY = Path("/sys/devices/system/node/node0/meminfo")


def make_up_cpus(directory: Path, number: int) -> None:
    """One socket, each CPU a core. They share the machine's own numbers: kubelet lets pods onto no others."""
    system, own = directory / MADE_UP_SYSTEM, sorted(os.sched_getaffinity(0))
    (system / "cpu").mkdir(parents=True)
    (system / "cpu/online").write_text(",".join(map(str, own)) + "\n")
    for core in range(number):
        name = f"cpu{own[core % len(own)]}-{core}"
        topology = system / "node/node0" / name / "topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{core}\n")
        (topology / "physical_package_id").write_text("0\n")
        (system / "cpu" / name).symlink_to(f"../node/node0/{name}")
    if _MEMORY.exists():
        shutil.copyfile(_MEMORY, system / "node/node0/meminfo")


def made_up_cpus(directory: Path) -> int | None:
    """How many a rig shows, if not the machine's number."""
    return len(list((directory / MADE_UP_SYSTEM).glob("node/node0/cpu*"))) or None
