"""Map the API server's answers, and their absence, to exceptions, and those to what a user is told.

KubernetesError                anything else it refused; `message` is the server's own sentence
├── KubernetesNotFound         404
├── AlreadyExists              409, on create
├── KubernetesConflict         409, something else changed it, or a precondition does not hold
├── VersionGone                410, a resourceVersion or a page of a list is too old: list anew
├── KubernetesInvalid          422, a field is wrong
├── KubernetesForbidden        403, Penstock's own account lacks a right
├── AdmissionDenied            a quota, a policy or an admission webhook refuses this object
├── CredentialsExpired         401, the credentials are not accepted, not even when read anew
└── KubernetesUnavailable      it may work later; was repeated for as long as the patience lasts
    ├── Throttled              429
    └── KubernetesUnreachable  no connection, no answer in time, or an error of the server's own (5xx)
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import httpx2
import msgspec

from penstock import errors
from penstock.domain.quantities import show_bytes, show_cpus
from penstock.engines.kubernetes.api.resources import amount, milli, whole
from penstock.errors import PenstockError, Problem

QUOTA_HINT = "delete what is not needed any more (penstock volumes list, penstock jobs list), or ask an admin for more"


class KubernetesError(Exception):
    ours: ClassVar[type[PenstockError]] = errors.Unavailable
    """What a user sees where no caller says more."""
    hint: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        problems: tuple[Problem, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.problems = problems

    def shown(self) -> PenstockError:
        """Convert it to what a user sees."""
        return self.ours(f"Kubernetes: {self.message}", hint=self.hint, problems=self.problems)


class KubernetesNotFound(KubernetesError):
    ours = errors.NotFound


class AlreadyExists(KubernetesError):
    ours = errors.NameTaken


class KubernetesConflict(KubernetesError):
    ours = errors.Conflict


class VersionGone(KubernetesError):
    pass


class KubernetesInvalid(KubernetesError):
    ours = errors.Invalid


class KubernetesForbidden(KubernetesError):
    hint = "an admin must give this right to Penstock's account in the cluster"


class AdmissionDenied(KubernetesError):
    ours = errors.Forbidden

    def shown(self) -> PenstockError:
        if quota := describe_quota(self.message):
            return self.ours(f"{quota[0].upper()}{quota[1:]}.", hint=QUOTA_HINT)
        return super().shown()


class CredentialsExpired(KubernetesError):
    hint = "an admin must renew the credentials in Penstock's kubeconfig"


class KubernetesUnavailable(KubernetesError):
    pass


class Throttled(KubernetesUnavailable):
    pass


class KubernetesUnreachable(KubernetesUnavailable):
    hint = "Penstock keeps trying; running jobs go on"


@contextmanager
def shown() -> Iterator[None]:
    """Raise errors of the cluster as Penstock's own."""
    try:
        yield
    except KubernetesError as error:
        raise error.shown() from error


class Trouble(NamedTuple):
    """Why something cannot be seen, and what mends that."""

    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.why} ({self.fix})"


class StatusCause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct):
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = msgspec.field(name="retryAfterSeconds", default=None)


class KubernetesStatus(msgspec.Struct):
    """Kubernetes' own shape of an answer that is not an object."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None

    @property
    def causes(self) -> list[StatusCause]:
        return (self.details and self.details.causes) or []


_status = msgspec.json.Decoder(KubernetesStatus)
_BY_CODE: dict[int, type[KubernetesError]] = {
    401: CredentialsExpired,
    404: KubernetesNotFound,
    409: KubernetesConflict,
    410: VersionGone,
    422: KubernetesInvalid,
}
_PASSING = {408, 500, 502, 503, 504}


def read_status(body: bytes) -> KubernetesStatus:
    """Read an answer; a proxy on the way may answer anything, of which the text is taken."""
    try:
        return _status.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return KubernetesStatus(message=body[:300].decode(errors="replace").strip())


def from_answer(code: int, body: bytes, retry_after: str | None = None) -> KubernetesError:
    return from_status(code, read_status(body), retry_after)


def from_status(code: int, status: KubernetesStatus, retry_after: str | None = None) -> KubernetesError:
    message = status.message or f"the API server answered {code}"
    return _class_of(code, status)(
        message,
        status=code,
        reason=status.reason,
        retry_after=_seconds(retry_after, status),
        problems=tuple(_problem(cause) for cause in status.causes if cause.field) if code == 422 else (),
    )


def _class_of(code: int, status: KubernetesStatus) -> type[KubernetesError]:
    if code == 429:
        return Throttled
    if _is_denial(code, status):
        return AdmissionDenied
    if code == 403:
        return KubernetesForbidden
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists
    if code == 504 and any(cause.reason == "ResourceVersionTooLarge" for cause in status.causes):
        return VersionGone  # the server went back in time, for example to a backup: what we know is not its past
    if code in _PASSING:
        return KubernetesUnreachable
    return _BY_CODE.get(code, KubernetesError)


def _is_denial(code: int, status: KubernetesStatus) -> bool:
    """Is it a quota, a policy or a webhook? A webhook chooses its own code; a 403 that is no missing right is a quota
    or policy."""
    if "denied the request" in status.message or "denied request" in status.message:
        return True
    return code == 403 and not ("User " in status.message and " cannot " in status.message)


def _seconds(header: str | None, status: KubernetesStatus) -> float | None:
    if header and header.isdigit():
        return float(header)
    told = status.details.retry_after_seconds if status.details else None
    return float(told) if told else None


def _problem(cause: StatusCause) -> Problem:
    return Problem(cause.message or cause.reason, field=cause.field)


def from_transport(error: Exception, server: str) -> KubernetesUnreachable:
    """Convert an error of the connection: refused, timed out, or a certificate that is not trusted."""
    return KubernetesUnreachable(f"the API server at {server} {describe_failure(error)}", reason=type(error).__name__)


def certificate_error(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Return what is wrong with the certificate, if that is why there is no answer."""
    root = _root(error)
    return root if isinstance(root, ssl.SSLCertVerificationError) else None


def describe_failure(error: Exception) -> str:
    """Describe why there is no answer, without a subject: `does not answer in time`."""
    root = _root(error)
    if wrong := certificate_error(error):
        return f"shows a certificate that is not trusted: {wrong.verify_message}"
    if isinstance(error, httpx2.ConnectTimeout):
        return "cannot be reached: no answer to the connection in time"
    if isinstance(error, (httpx2.TimeoutException, TimeoutError)):
        return "does not answer in time"
    if isinstance(error, httpx2.ConnectError):
        return f"cannot be reached: {_words(root)}"
    return f"broke off: {_words(root)}"


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        if error.errno and error.strerror.startswith("Connect call failed"):  # what asyncio says of every reason
            return os.strerror(error.errno)
        return error.strerror
    return str(error) or type(error).__name__


def _root(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


_Show = Callable[[str], str]
_UNSAID = re.compile(r"failed quota: ([^:\s]+): must specify ([\w.,/-]+) for: ")
_OVER = re.compile(r"exceeded quota: ([^,\s]+), requested: (.*?), used: (.*?), limited: (.*)", re.S)


def describe_quota(said: str) -> str | None:
    """Describe a used-up quota in the user's words; None if the message is about something else."""
    if unsaid := _UNSAID.search(said):
        counted = " and ".join(dict.fromkeys(_shown(name)[1] for name in unsaid[2].split(",")))
        return f"the quota {unsaid[1]} counts {counted}: it must say under resources how much it needs"
    found = _OVER.search(said)
    if not found:
        return None
    requested, used, limited = (_pairs(text) for text in found.groups()[1:])
    sentences = [
        _sentence(name, requested.get(name, "0"), used.get(name, "0"), limit) for name, limit in limited.items()
    ]
    return f"the quota {found[1]} has no room: " + ", ".join(sentences)


def _pairs(text: str) -> dict[str, str]:
    return {name: size for name, _, size in (pair.strip().rpartition("=") for pair in text.split(",")) if name}


def _sentence(name: str, requested: str, used: str, limit: str) -> str:
    show, what = _shown(name)
    if amount(requested) > amount(limit):
        return f"it asks for {show(requested)} {what}, and {show(limit)} are allowed in all"
    return f"{show(used)} of {show(limit)} {what} are used, and it asks for {show(requested)}"


def _shown(name: str) -> tuple[_Show, str]:
    short = name.removeprefix("requests.").removeprefix("limits.")
    if short == "cpu":
        return _cpus, "CPUs"
    if short in ("memory", "ephemeral-storage", "storage"):
        return _bytes, {"memory": "memory", "ephemeral-storage": "disk", "storage": "storage"}[short]
    return str, {
        "nvidia.com/gpu": "GPUs",
        "count/pods": "pods",
        "count/jobs.batch": "Jobs",
        "persistentvolumeclaims": "volumes",
    }.get(short, short)


def _cpus(text: str) -> str:
    return show_cpus(milli(text))


def _bytes(text: str) -> str:
    return show_bytes(whole(text)) if whole(text) else "0"
