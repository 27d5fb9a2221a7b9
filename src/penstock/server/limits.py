"""Limits on connections of one account or address, before anybody knows who it is.

Without limits a stranger needs no token to use the server up: with headers that never end, with connections that say
nothing, or with so many of them that no descriptor is left. Deadlines are counted in ticks of one second, by one look
over all connections, so that a request costs no timer.
"""

from __future__ import annotations

import ipaddress
import json
import resource
from collections import Counter

from penstock.errors import PenstockError, Unavailable

HEAD_BYTES = 64 * 1024
"""The limit on a request's line, headers and everything else but its body."""
HEAD_SECONDS = 15
BODY_SECONDS = 30
"""Seconds between two pieces of a body."""
SHARE = 4
"""One account, or everybody over TCP, may hold a quarter of the descriptors; all other accounts together half. The
last quarter is left to the server's own account and to its own work."""
MOST_TCP = 8192
"""TCP connections, however many descriptors there are: each takes memory, too."""
LOOPBACK = "loopback"

Holder = int | str
"""A uid, or the address a TCP connection comes from."""


def address_of(host: str) -> str:
    """Return what counts as one address: the whole loopback network, and a /64 of IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return LOOPBACK
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class Connections:
    """Counts the connections of each holder."""

    def __init__(self, per_address: int) -> None:
        self._per_address = per_address
        self._held: Counter[Holder] = Counter()
        self._tcp = 0
        self._accounts = 0

    def take(self, holder: Holder) -> PenstockError | None:
        """Count a connection, and return an error if it must be closed. It must be given back in either case."""
        share = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE
        self._held[holder] += 1
        held = self._held[holder]
        if isinstance(holder, int):
            self._accounts += 1
            if held > share or self._accounts > 2 * share:
                return Unavailable("Your account or all accounts together have too many connections open here.")
            return None
        self._tcp += 1
        if self._tcp > min(share, MOST_TCP):
            return Unavailable("Too many connections are open here.", hint="The Unix socket still answers.")
        if held > self._per_address:
            return Unavailable(
                "Too many connections are open here from your address.", hint="See the setting address_connections."
            )
        return None

    def give_back(self, holder: Holder) -> None:
        self._held[holder] -= 1
        if not self._held[holder]:
            del self._held[holder]
        if isinstance(holder, int):
            self._accounts -= 1
        else:
            self._tcp -= 1


def refusal(error: PenstockError) -> bytes:
    """Return an error as a complete HTTP response, for when no request was read."""
    body = json.dumps(error.body()).encode()
    head = f"HTTP/1.1 {error.status} {error.code}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
