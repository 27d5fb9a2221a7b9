"""The errors of Docker's API, and what they are as errors of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import Conflict, PenstockError, StorageFull, Unavailable

SERVER_ERROR = 500
"""From this status on it is Docker that cannot, and not we who ask for something wrong."""


class DockerError(Exception):
    """An answer that is an error, with Docker's own words in `message`."""

    def __init__(self, message: str, *, host: str, status: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.host = host
        self.status = status


class DockerNotFound(DockerError):
    pass


class DockerConflict(DockerError):
    """The name is taken, or the present state of a container forbids it."""


class DockerUnreachable(DockerError):
    """No answer, or the answer was lost: what was asked for may have been done all the same."""


class DockerNotConnected(DockerUnreachable):
    """There was no connection, so nothing was asked for."""


_BY_STATUS = {404: DockerNotFound, 409: DockerConflict}


def from_answer(host: str, status: int, body: bytes) -> DockerError:
    return _BY_STATUS.get(status, DockerError)(words_of(body) or f"it answered {status}", host=host, status=status)


def words_of(body: bytes) -> str:
    try:
        said = json.loads(body)
        return str(said["message"]).strip()
    except (ValueError, LookupError, TypeError):
        return body.decode(errors="replace").strip()[:500]


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise Docker's errors as errors of ours."""
    try:
        yield
    except DockerError as error:
        raise translate(error) from error


def is_disk_full(error: DockerError) -> bool:
    """Is a disk of the host full?"""
    return "no space left on device" in error.message


def translate(error: DockerError) -> PenstockError:
    said = f"Docker on {error.host}: {error.message.rstrip('.')}."
    if isinstance(error, DockerUnreachable):
        return Unavailable(f"{error.message.rstrip('.')}.", hint="penstock doctor shows which nodes answer")
    if is_disk_full(error):
        return StorageFull(f"The disk of {error.host} is full.", hint=said)
    return (Conflict if isinstance(error, DockerConflict) else PenstockError)(said)
