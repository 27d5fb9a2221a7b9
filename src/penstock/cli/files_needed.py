"""A server that asks for local files gets those directories that the submitted text itself names, and no others.

The server reads the text and says what it needs (428). That is a claim: a server that lies could name any directory of
whoever asks. So the client reads the same text, for that one key alone, and compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from penstock.cli.output import note
from penstock.cli.workdir import Pipe, Progress, contents, pack, upload, walk
from penstock.client.api import Client
from penstock.errors import FilesNeeded, ServerFault

KEY = "workdir"


def send_files(client: Client, text: str, base: str, asked: FilesNeeded) -> dict[str, str]:
    """Pack and send what is asked for; the id of the upload of each field. Everything is checked before any is sent."""
    files, limit = asked.details.get("files"), asked.details.get("limit_bytes")
    if not isinstance(files, dict) or not files:
        raise refusal(files)
    known = set(named_directories(text))
    for path in files.values():
        if not isinstance(path, str) or path not in known:
            raise refusal(path)
    limit = limit if isinstance(limit, int) else None
    sent = {path: _send(client, path, base, limit) for path in dict.fromkeys(files.values())}
    return {field: sent[path] for field, path in files.items()}


def sent_along(text: str, base: str, limit: int | None) -> list[str]:
    """Say what of local directories would be sent: each is packed, so that a dry run finds what sending would."""
    return [_would_send(path, base, limit) for path in dict.fromkeys(named_directories(text))]


def _would_send(path: str, base: str, limit: int | None) -> str:
    directory = Path(base, path)
    entries = list(walk(directory))
    pack(entries, Pipe(lambda _: None, directory, entries, limit), Progress(directory, entries, "Packing"))
    return f"{path} ({contents(entries)} before packing)"


def _send(client: Client, path: str, base: str, limit: int | None) -> str:
    directory = Path(base, path)
    entries = list(walk(directory))
    note(f"Sending {path} ({contents(entries)})")
    return upload(client, directory, entries, limit)


def refusal(path: Any) -> ServerFault:
    return ServerFault(
        f"The server asks for {json.dumps(path)}, which is not a relative {KEY} of what you submit; nothing was sent.",
        hint="do not trust this server: it may be after your files; tell its admin",
    )


def named_directories(text: str) -> Iterator[str]:
    """Every relative workdir that the text says, in any of its documents; none of a text that cannot be read."""
    for document in _documents(text):
        for each in (document, *_items(document)):
            for place in (each, each.get("spec") if isinstance(each, dict) else None):
                path = place.get(KEY) if isinstance(place, dict) else None
                if isinstance(path, str) and path and not path.startswith("/"):
                    yield path


def _documents(text: str) -> list[Any]:
    """JSON by its own reader: that of YAML does not put a character together that is written as two escapes."""
    try:
        if text.startswith("{"):
            return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    try:
        return list(yaml.load_all(text, Loader=yaml.CBaseLoader))
    except (yaml.YAMLError, RecursionError):
        return []


def _items(document: Any) -> list[Any]:
    """The documents in a List."""
    items = document.get("items") if isinstance(document, dict) else None
    return items if isinstance(items, list) else []
