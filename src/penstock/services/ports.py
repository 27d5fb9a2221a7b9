"""The port the ranks of a multi-node workload meet at."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Collection

FIRST, COUNT = 20000, 10000


def free_port(workload_id: str, taken: Collection[int]) -> int:
    """Below the kernel's own range; begun at a place that differs by workload, so two servers seldom meet."""
    start = zlib.crc32(workload_id.encode())
    for step in range(COUNT):
        port = FIRST + (start + step) % COUNT
        if port not in taken and _bindable(port):
            return port
    return FIRST


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
