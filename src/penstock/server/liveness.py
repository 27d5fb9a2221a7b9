"""`python -m penstock.server.liveness`: tell whether the server here has stopped answering.

It asks over the server's own socket, where the limits on connections do not count: one that many strangers talk to at
once is not dead. One that nobody listens for yet waits, for a database, a cluster or its turn, and is left to it.
"""

from __future__ import annotations

import socket
import sys

from penstock.config import load

PATIENCE = 8.0
"""Seconds for an answer, which comes at once where nothing is in its way."""
ASK = b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n"


def main() -> int:
    path = load().socket_path
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(path))
            connection.sendall(ASK)
            answer = connection.recv(64)
    except (FileNotFoundError, ConnectionRefusedError):
        print("it does not listen yet")
        return 0
    except OSError as error:
        print(f"no answer at {path}: {error}")
        return 1
    print(answer.decode(errors="replace").partition("\r\n")[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
