"""Every error a user can meet, once, for server and client.

PenstockError
├── Invalid            422  the input is wrong; lists every problem with its place
├── BadRequest         400  not a request we can read
├── Unauthenticated    401  no or bad identity
├── Forbidden          403  known, but not allowed
├── NotFound           404  not there, or not yours: they read the same
├── Conflict           409  the present state forbids it
│   ├── NameTaken           the name exists already
│   ├── Ambiguous           a name that several things share
│   └── InUse               a workload uses it
├── TooSlow            408  the rest of the request did not come
├── TooLarge           413  over a limit of size
│   └── HeadTooLarge   431  the headers are
├── WrongMediaType     415  not JSON where JSON is asked
├── FilesNeeded        428  the server read the text; the client must send these local files
├── Unavailable        503  an outside part does not answer
├── StorageFull        507  no room on the disk
├── SettingsError      exit 2, a setting is wrong
├── BadName            exit 2, what was written cannot be a name (client only)
├── StartRefused       exit 1, the server cannot start here
├── Unreachable        exit 1, no server answers (client only)
└── ServerFault        exit 1, the server asks for what no server may (client only)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class Problem(dict[str, Any]):
    """One thing wrong in an input: `message`, and where known `where` (file:line:column), `field` and `hint`."""

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
    """The root; `message` is one sentence for a person, `hint` the command or change that mends it."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str | None = None, problems: Sequence[Problem] = (), **details: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.problems = list(problems)
        self.details = details

    def body(self) -> dict[str, Any]:
        """The one shape of an error on the wire; `detail` is the text k8s-cli's clients print."""
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
    code, status = "invalid", 422


class BadRequest(PenstockError):
    code, status = "bad_request", 400


class Unauthenticated(PenstockError):
    code, status = "unauthenticated", 401


class Forbidden(PenstockError):
    code, status = "forbidden", 403
    noted = False
    """Is it in the audit already?"""
    about = ""
    """Whom or what it was about, where the address of the request does not say it."""


class NotFound(PenstockError):
    code, status = "not_found", 404


class Conflict(PenstockError):
    code, status = "conflict", 409


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
    code, status = "unavailable", 503


class StorageFull(PenstockError):
    code, status = "storage_full", 507


class SettingsError(PenstockError):
    code, exit_code = "settings", 2


class BadName(PenstockError):
    code, exit_code = "bad_name", 2


class StartRefused(PenstockError):
    code = "start_refused"


class Unreachable(PenstockError):
    code = "unreachable"


class ServerFault(PenstockError):
    code = "server_fault"


def _tree(root: type[PenstockError]) -> dict[str, type[PenstockError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def from_body(status: int, body: Any) -> PenstockError:
    """The exception the server raised, made again in the client from its answer."""
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
    """A proxy between client and server may answer anything; only what has our shape is kept."""
    return [
        Problem(str(body["message"]), where=body.get("where"), field=body.get("field"), hint=body.get("hint"))
        for body in bodies
        if isinstance(body, dict) and "message" in body
    ]
