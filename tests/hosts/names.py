"""The hosts' name server, which knows no name and says so at once.

Run as `python names.py ADDRESS`, with nothing but the standard library.
"""

from __future__ import annotations

import socket
import sys

PORT = 53
_HEADER = 12
_NO_SUCH_NAME = b"\x81\x83"


def main(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, PORT))
        while True:
            query, asker = server.recvfrom(4096)
            if len(query) > _HEADER:
                server.sendto(answer(query), asker)


def answer(query: bytes) -> bytes:
    """Repeat the question, without what a client may say after it."""
    end = query.index(b"\0", _HEADER) + 5 if b"\0" in query[_HEADER:] else len(query)
    return query[:2] + _NO_SUCH_NAME + b"\0\1" + bytes(6) + query[_HEADER:end]


if __name__ == "__main__":
    main(sys.argv[1])
