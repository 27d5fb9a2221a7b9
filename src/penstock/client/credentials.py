"""Who a person said they are, per server: credentials.json, readable by its owner only."""

# ruff: noqa: PTH103, PTH105, PTH123

from __future__ import annotations

import json
import os
from typing import Any

from penstock.client.address import config_dir
from penstock.errors import SettingsError

LOCAL = "local"
"""The key of the server of this machine; the others are keyed by their URL."""


def credentials_path() -> str:
    return f"{config_dir()}/credentials.json"


def read_credentials(server: str) -> dict[str, str]:
    """`user` and `token`, as far as they are known for this server."""
    found = _read_all().get(server, {})
    return {key: value for key, value in found.items() if key in ("user", "token") and isinstance(value, str)}


def write_credentials(server: str, user: str, token: str | None) -> None:
    known = _read_all()
    known[server] = {"user": user} | ({"token": token} if token else {})
    path = credentials_path()
    fresh = f"{path}.{os.getpid()}"
    try:
        os.makedirs(config_dir(), mode=0o700, exist_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(known, file, indent=2)
        os.replace(fresh, path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}.") from error


def _read_all() -> dict[str, Any]:
    path = credentials_path()
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}", hint=f"rm {path}, then penstock auth login") from error
    if not isinstance(known, dict) or not all(isinstance(entry, dict) for entry in known.values()):
        raise SettingsError(f"{path} is not what penstock wrote.", hint=f"rm {path}, then penstock auth login")
    return known
