"""Which processes hold a socket, as far as /proc shows it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LISTENS = "0A"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def rows() -> Iterator[list[str]]:
    """The fields of every TCP socket of this network: 1 local, 2 remote, 3 state, 7 uid, 9 inode."""
    for table in TABLES:
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                yield line.split()


def processes() -> Iterator[Path]:
    return (Path("/proc", name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def holds(process: Path, inode: str) -> bool | None:
    """None where it may not be seen."""
    wanted = f"socket:[{inode}]"
    try:
        for number in os.listdir(process / "fd"):  # noqa: PTH208
            with suppress(FileNotFoundError):
                if os.readlink(process / "fd" / number) == wanted:  # noqa: PTH115
                    return True
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    except OSError:
        return None
    return False


def who_listens(port: int) -> str:
    """A sentence about who has this TCP port."""
    for fields in rows():
        if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            uid, inode = int(fields[7]), fields[9]
            found = next((process for process in processes() if holds(process, inode)), None)
            who = f"process {found.name} ({_program(found)})" if found else "a process that cannot be seen from here"
            return f"Port {port} is held by {who} of {_account(uid)}"
    return f"Port {port} is held by a process that cannot be seen from here"


def _program(process: Path) -> str:
    try:
        name = (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return "ended"
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _account(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
