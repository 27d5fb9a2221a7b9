"""The files that hold tokens: only their owner can read them, and one command at a time replaces them as a whole.

credentials.json has the token for each server, profiles.json those of profiles.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH123

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.client.address import config_dir
from penstock.errors import SettingsError

LOCAL = "local"
"""The key of the server of this machine; the others are keyed by their URL."""
Document = dict[str, Any]


def read_private(path: str, is_ours: Callable[[Any], bool], remedy: str) -> Document:
    """Return the file's content, {} without a file; `remedy` is what to run after moving a foreign file away."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}", hint=f"mv {path} {path}.old, then {remedy}") from error
    if not isinstance(found, dict) or not is_ours(found):
        raise SettingsError(f"{path} is not what penstock wrote.", hint=f"mv {path} {path}.old, then {remedy}")
    return found


def change_private(path: str, read: Callable[[], Document], change: Callable[[Document], None]) -> None:
    """Read, change and replace the file while no other command does the same."""
    import fcntl

    directory = path.rpartition("/")[0]
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _not_written(path, error) from error
    try:
        with suppress(OSError):  # a home on NFS: the file is still replaced as a whole
            fcntl.flock(folder, fcntl.LOCK_EX)
        document = read()
        change(document)
        _replace(path, document)
    finally:
        os.close(folder)


def _replace(path: str, document: Document) -> None:
    fresh = f"{path}.{os.getpid()}"
    try:
        if os.path.lexists(fresh):  # of a command that was killed, with whatever mode
            os.unlink(fresh)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2, ensure_ascii=False)
            file.flush()
            os.fsync(handle)
        os.replace(fresh, path)
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: str, error: OSError) -> SettingsError:
    return SettingsError(f"{path} cannot be written: {error.strerror}.")


def credentials_path() -> str:
    return f"{config_dir()}/credentials.json"


def read_credentials(server: str) -> dict[str, str]:
    """Return `user` and `token` of a server, as far as they are known."""
    found = _read_all().get(server, {})
    return {key: value for key, value in found.items() if key in ("user", "token") and isinstance(value, str)}


def write_credentials(server: str, user: str, token: str | None) -> None:
    entry = {"user": user} | ({"token": token} if token else {})
    change_private(credentials_path(), _read_all, lambda known: known.update({server: entry}))


def _read_all() -> Document:
    return read_private(credentials_path(), _is_ours, "penstock auth login")


def _is_ours(known: dict[str, Any]) -> bool:
    return all(isinstance(entry, dict) for entry in known.values())
