"""The token for each server, kept in credentials.json, which only its owner can read."""

from __future__ import annotations

from typing import Any

from penstock.client.address import config_dir
from penstock.client.files import Document, change_private, read_private

LOCAL = "local"
"""The key of the server of this machine; the others are keyed by their URL."""


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
