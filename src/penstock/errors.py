"""Every error a user can meet, once, for server and client, with its HTTP status and the command's exit code.

PenstockError           500  1
├── Invalid             422  2  the input is wrong; lists every problem with its place
├── BadRequest          400  1  the request cannot be read
├── Unauthenticated     401  4  no identity, or a wrong one
├── Forbidden           403  4  known, but not allowed
├── NotFound            404  3  not there, or not yours: they read the same
├── Conflict            409  6  the present state forbids it
│   ├── NameTaken               the name exists already
│   ├── Ambiguous               several things share the name
│   └── InUse                   a workload uses it
├── TooSlow             408  1  the rest of the request did not come
├── TooLarge            413  1  over a limit of size
│   └── HeadTooLarge    431     the headers are
├── WrongMediaType      415  1  not JSON where JSON is asked for
├── FilesNeeded         428  1  the server read the text; the client must send these local files
├── Unavailable         503  5  something outside the server does not answer
├── StorageFull         507  1  no room on the disk
├── SettingsError            2  a setting is wrong
├── BadName                  2  the text cannot be a name (client only)
├── StartRefused             1  the server cannot start here
├── Unreachable              5  no server answers (client only)
└── ServerFault              1  the server asks for what no server may (client only)

Commands that end with the exit code of a program in a job end with 125 instead, but for wrong usage (2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class Problem(dict[str, Any]):
    """One thing wrong in an input: `message` and, where known, `where` (file:line:column), `field` and `hint`."""

    def __init__(
        self, message: str, *, where: str | None = None, field: str | None = None, hint: str | None = None
    ) -> None:
        pairs = {"where": where, "field": field, "message": message, "hint": hint}
        super().__init__({key: value for key, value in pairs.items() if value is not None})

    def __str__(self) -> str:
        place = ": ".join(str(self[key]) for key in ("where", "field") if key in self)
        hint = f" ({self['hint']})" if "hint" in self else ""
        return f"{place}: {self['message']}{hint}" if place else f"{self['message']}{hint}"


class PenstockError(Exception):
    """The root of all errors; `message` is one sentence for a person, `hint` the command or change that mends it."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: int = 1

    def __init__(
        self, message: str, *, hint: str | None = None, problems: Sequence[Problem] = (), **details: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.problems = list(problems)
        self.details = details

    def body(self) -> dict[str, Any]:
        """Return the one shape of an error on the wire; `detail` is the text that k8s-cli's clients print."""
        lines = [self.message, *(f"  {problem}" for problem in self.problems), *([self.hint] if self.hint else [])]
        body: dict[str, Any] = {"detail": "\n".join(lines), "code": self.code, "message": self.message}
        if self.hint:
            body["hint"] = self.hint
        if self.problems:
            body["problems"] = [dict(problem) for problem in self.problems]
        if self.details:
            body["details"] = self.details
        return body


class Invalid(PenstockError):
    code, status, exit_code = "invalid", 422, 2


class BadRequest(PenstockError):
    code, status = "bad_request", 400


class Unauthenticated(PenstockError):
    code, status, exit_code = "unauthenticated", 401, 4


class Forbidden(PenstockError):
    code, status, exit_code = "forbidden", 403, 4
    noted = False
    """Is the refusal in the audit already?"""
    about = ""
    """Whom or what the refusal was about, where the address of the request does not say it."""


class NotFound(PenstockError):
    code, status, exit_code = "not_found", 404, 3


class Conflict(PenstockError):
    code, status, exit_code = "conflict", 409, 6


class NameTaken(Conflict):
    code = "name_taken"


class Ambiguous(Conflict):
    code = "ambiguous"


class InUse(Conflict):
    code = "in_use"


class TooLarge(PenstockError):
    code, status = "too_large", 413


class HeadTooLarge(TooLarge):
    code, status = "head_too_large", 431


class TooSlow(PenstockError):
    code, status = "too_slow", 408


class WrongMediaType(PenstockError):
    code, status = "wrong_media_type", 415


class FilesNeeded(PenstockError):
    """`details["files"]` maps a field (`workdir`) to the local path the client must pack and send."""

    code, status = "files_needed", 428


class Unavailable(PenstockError):
    code, status, exit_code = "unavailable", 503, 5


class StorageFull(PenstockError):
    code, status = "storage_full", 507


class SettingsError(PenstockError):
    code, exit_code = "settings", 2


class BadName(PenstockError):
    code, exit_code = "bad_name", 2


class StartRefused(PenstockError):
    code = "start_refused"


class Unreachable(PenstockError):
    code, exit_code = "unreachable", 5


class ServerFault(PenstockError):
    code = "server_fault"


def _tree(root: type[PenstockError]) -> dict[str, type[PenstockError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def from_body(status: int, body: Any) -> PenstockError:
    """Make the exception that the server raised again in the client, from the response."""
    if not isinstance(body, dict):
        return PenstockError(f"The server answered {status}.")
    kind = _tree(PenstockError).get(str(body.get("code")), PenstockError)
    message = body.get("message") or body.get("detail") or f"The server answered {status}."
    hint, problems, details = body.get("hint"), body.get("problems"), body.get("details")
    return kind(
        str(message),
        hint=str(hint) if hint else None,
        problems=_problems(problems) if isinstance(problems, list) else (),
        **{key: value for key, value in details.items() if key not in _NAMED} if isinstance(details, dict) else {},
    )


_NAMED = frozenset({"self", "message", "hint", "problems"})


def _problems(bodies: list[Any]) -> list[Problem]:
    """Keep what has our shape: a proxy between client and server may answer anything."""
    return [
        Problem(str(body["message"]), where=body.get("where"), field=body.get("field"), hint=body.get("hint"))
        for body in bodies
        if isinstance(body, dict) and "message" in body
    ]
