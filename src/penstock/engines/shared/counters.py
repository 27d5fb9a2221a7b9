"""Read how many bytes a machine's disks and networks have moved, from the kernel's counters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

SECTOR = 512
_NO_DISK = re.compile(r"(?:loop|ram|zram|sr|fd|dm-|md)\d")
"""Devices without a disk of their own: what passes through them is counted below them, or reaches none."""
_INNER = re.compile(
    r"lo$|veth|docker\d|nerdctl|br-|br\d|virbr|dummy|bond\d|team\d|vlan\d|\S+\.\d+$|wg"  # machines
    r"|cni|cbr|flannel|cali|tunl|vxlan|wireguard|cilium|lxc|genev|ovs-|antrea|weave|kube|nodelocaldns"  # and clusters
    r"|(?:eni|gke)[0-9a-f]{11}$|az(?:v|ure)"
)
"""Networks within the machine, or made of others: what leaves them is counted elsewhere."""


class Traffic(NamedTuple):
    """Bytes moved since the machine started; None where that cannot be seen."""

    disk_read: int | None = None
    disk_written: int | None = None
    received: int | None = None
    sent: int | None = None

    def since(self, before: Traffic, seconds: float) -> dict[str, int | None]:
        """Return the bytes a second since an earlier reading, named as in `NodeMeasure`."""
        names = ("disk_read_per_second", "disk_written_per_second", "received_per_second", "sent_per_second")
        return {
            name: None if new is None or old is None else max(round((new - old) / seconds), 0)
            for name, new, old in zip(names, self, before, strict=True)
        }


def read_traffic(diskstats: str, network: str) -> Traffic:
    """Read the contents of /proc/diskstats and /proc/net/dev."""
    lines = [line.split() for line in diskstats.splitlines()]
    disks = {words[2]: (int(words[5]) * SECTOR, int(words[9]) * SECTOR) for words in lines if len(words) > 9}
    return total(disks, {name: (int(words[0]), int(words[8])) for name, words in _wires(network)})


def total(disks: Mapping[str, tuple[int, int]], wires: Mapping[str, tuple[int, int]]) -> Traffic:
    """Count each byte once. Disks come with the bytes read and written, networks with those received and sent."""
    moved = [pair for name, pair in disks.items() if not _NO_DISK.match(name) and not _is_partition(name, disks)]
    carried = [pair for name, pair in wires.items() if not _INNER.match(name)]
    return Traffic(
        disk_read=sum(read for read, _ in moved) if moved else None,
        disk_written=sum(written for _, written in moved) if moved else None,
        received=sum(received for received, _ in carried) if carried else None,
        sent=sum(sent for _, sent in carried) if carried else None,
    )


def _is_partition(name: str, names: Mapping[str, tuple[int, int]]) -> bool:
    """Is it part of another device? `sda1` is of `sda`, `nvme0n1p2` of `nvme0n1`."""
    disk = name.rstrip("0123456789")
    return disk != name and (disk in names or (disk.endswith("p") and disk[:-1] in names))


def _wires(network: str) -> list[tuple[str, list[str]]]:
    pairs = [line.partition(":") for line in network.splitlines()]
    return [(name.strip(), rest.split()) for name, colon, rest in pairs if colon and len(rest.split()) >= 16]
