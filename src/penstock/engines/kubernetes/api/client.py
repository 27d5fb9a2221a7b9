"""Call the API server: typed verbs that return small objects or raise the errors of errors.py."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import httpx2
import msgspec

from penstock.engines.kubernetes.api import errors
from penstock.engines.kubernetes.api.connection import Connection
from penstock.engines.kubernetes.api.errors import (
    KubernetesError,
    KubernetesNotFound,
    KubernetesUnreachable,
    VersionGone,
)
from penstock.engines.kubernetes.api.objects import KubernetesObject, Pod
from penstock.engines.kubernetes.api.requests import ApiRequests, lines
from penstock.engines.kubernetes.api.resources import ServiceAccount
from penstock.engines.kubernetes.api.streams import V4, V5, ExecSession, upgrade

log = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds for which a call is repeated before its error is raised."""
PAGE = 500
MANAGER = "penstock"
WATCH_SECONDS = 300
"""A watch is ended by the server after about so long, and begun again where it ended."""
BEGIN_SECONDS = 30.0
QUIET_SECONDS = 90.0
"""A watch that says nothing for so long, not even a bookmark (one comes each minute), is taken for dead."""
LOG_QUIET_SECONDS = 600.0

T = TypeVar("T", bound=KubernetesObject)
D = TypeVar("D")
Body = Mapping[str, Any]


class ListMeta(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    more: str = msgspec.field(name="continue", default="")


class ObjectPage(msgspec.Struct, Generic[T]):
    metadata: ListMeta
    items: tuple[T, ...] | None = None


class WatchEvent(NamedTuple, Generic[T]):
    """One event of a watch: ADDED, MODIFIED or DELETED with the object, BOOKMARK without; `version` is where the watch
    stands."""

    type: str
    version: str
    object: T | None


class _Frame(msgspec.Struct):
    type: str
    object: msgspec.Raw


class KubernetesApi:
    def __init__(self, connection: Connection, *, patience: float = PATIENCE) -> None:
        self._connection = connection
        self._calls = ApiRequests(connection, patience)

    @classmethod
    def open(
        cls, kubeconfig: Path | None = None, context: str | None = None, *, patience: float = PATIENCE
    ) -> KubernetesApi:
        """Read the kubeconfig (SettingsError if it is wrong); nothing is asked of the server yet."""
        return cls(Connection(kubeconfig, context), patience=patience)

    def hurried(self, patience: float) -> KubernetesApi:
        """The same API with another patience, for callers that try again themselves; closed with this one."""
        return KubernetesApi(self._connection, patience=patience)

    async def close(self) -> None:
        await self._calls.close()
        await self._connection.close()

    @property
    def server(self) -> str:
        return self._connection.server

    @property
    def namespace(self) -> str:
        """The namespace of the context, or of the pod we are in."""
        return self._connection.namespace

    @property
    def trouble(self) -> str | None:
        return self._calls.trouble

    # reading

    async def get(self, kind: type[T], name: str, namespace: str | None = None) -> T:
        return _decode(kind, await self._calls.call("GET", _path(kind, namespace, name)))

    async def raw(self, kind: type[KubernetesObject], name: str, namespace: str) -> dict[str, Any]:
        """Return an object whole, as the server has it: for people to look at."""
        return dict(msgspec.json.decode(await self._calls.call("GET", _path(kind, namespace, name))))

    async def raw_list(self, kind: type[KubernetesObject], namespace: str, labels: str) -> list[dict[str, Any]]:
        """Return all objects with these labels, whole. A list leaves out their kind, so it is added."""
        params = {"labelSelector": labels}
        found = msgspec.json.decode(await self._calls.call("GET", _path(kind, namespace), params=params))
        about = {"apiVersion": kind.kind.api_version, "kind": kind.kind.name}
        return [about | each for each in found["items"]]

    async def find(self, kind: type[T], name: str, namespace: str | None = None) -> T | None:
        try:
            return await self.get(kind, name, namespace)
        except KubernetesNotFound:
            return None

    async def list(
        self, kind: type[T], namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> list[T]:
        """List the objects of a namespace, or of all. `labels` and `fields` are selectors, as in kubectl -l."""
        while True:
            try:
                async with aclosing(self.pages(kind, namespace, labels=labels, fields=fields)) as pages:
                    return [item async for page in pages for item in page.items or ()]
            except VersionGone:
                log.info("a list of %s took too long for the server; listing anew", kind.kind.plural)

    async def pages(
        self, kind: type[T], namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> AsyncGenerator[ObjectPage[T], None]:
        """List page by page. All pages show the cluster at one moment, their `metadata.version`; VersionGone if the
        server forgot it between two."""
        path, more = _path(kind, namespace), ""
        while True:
            params = _given(limit=PAGE, labelSelector=labels, fieldSelector=fields) | _given(**{"continue": more})
            page: ObjectPage[T] = _decode(ObjectPage[kind], await self._calls.call("GET", path, params=params))  # type: ignore[valid-type]
            yield page
            more = page.metadata.more
            if not more:
                return

    def watch(
        self,
        kind: type[T],
        version: str,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        seconds: int = WATCH_SECONDS,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent[T]]]:
        """Watch every change after `version`. Entered when the server has accepted it; ends after about `seconds`.

        VersionGone if the server has forgotten that version; KubernetesUnreachable if the connection breaks. Nothing is
        repeated here.
        """
        params = _given(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=version,
            timeoutSeconds=round(seconds * random.uniform(0.8, 1.2)),  # noqa: S311
            labelSelector=labels,
            fieldSelector=fields,
        )
        return self._watch(kind, _path(kind, namespace), params)

    @asynccontextmanager
    async def _watch(
        self, kind: type[T], path: str, params: Mapping[str, Any]
    ) -> AsyncGenerator[AsyncIterator[WatchEvent[T]], None]:
        async with (
            self._calls.stream(path, params, QUIET_SECONDS, begins=BEGIN_SECONDS) as chunks,
            aclosing(lines(chunks)) as frames,
            aclosing(_changes(kind, frames)) as changes,
        ):
            yield changes

    def log(
        self,
        pod: str,
        namespace: str,
        *,
        container: str | None = None,
        follow: bool = False,
        timestamps: bool = False,
        since: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream a container's log as the kubelet sends it. `since` is an RFC 3339 time, of which it heeds whole
        seconds."""
        params = _given(
            container=container,
            follow=follow,
            timestamps=timestamps,
            sinceTime=since,
        )
        return self._calls.stream(f"{_path(Pod, namespace, pod)}/log", params, LOG_QUIET_SECONDS)

    # writing

    async def create(self, kind: type[T], body: Body, namespace: str | None = None) -> T:
        """Create an object. AlreadyExists also when an earlier try of the same call got through without an answer."""
        path = _path(kind, namespace or body["metadata"].get("namespace"))
        return _decode(kind, await self._calls.call("POST", path, body=body, params={"fieldManager": MANAGER}))

    async def apply(self, kind: type[T], body: Body, namespace: str | None = None) -> T:
        """Apply on the server: create the object, or change it to what the body says and leave others' fields alone."""
        meta = body["metadata"]
        path = _path(kind, namespace or meta.get("namespace"), meta["name"])
        whole = {"apiVersion": kind.kind.api_version, "kind": kind.kind.name, **body}
        params = {"fieldManager": MANAGER, "force": "true"}
        answer = await self._calls.call(
            "PATCH", path, body=whole, params=params, content="application/apply-patch+yaml"
        )
        return _decode(kind, answer)

    async def patch(self, kind: type[T], name: str, change: Body, namespace: str | None = None) -> T:
        """Merge a change into an object."""
        answer = await self._calls.call(
            "PATCH",
            _path(kind, namespace, name),
            body=change,
            params={"fieldManager": MANAGER},
            content="application/merge-patch+json",
        )
        return _decode(kind, answer)

    async def amend(self, found: KubernetesObject, change: Body) -> None:
        """Merge a change into an object, unless it is gone by now."""
        with suppress(KubernetesNotFound):
            await self.patch(type(found), found.name, change, found.namespace)

    async def delete(
        self,
        kind: type[KubernetesObject],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace: int | None = None,
        propagation: str = "Background",
    ) -> bool:
        """Delete an object; False if it was not there. With `uid`, another one of that name is a KubernetesConflict."""
        options = _given(kind="DeleteOptions", apiVersion="v1", propagationPolicy=propagation)
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self._calls.call("DELETE", _path(kind, namespace, name), body=options)
        except KubernetesNotFound:
            return False
        return True

    # running

    async def exec(
        self,
        pod: str,
        namespace: str,
        command: Sequence[str],
        *,
        container: str | None = None,
        stdin: bool = False,
        tty: bool = False,
    ) -> ExecSession:
        """Start a command in a container. With a terminal, both outputs come as one."""
        params = _given(container=container, stdin=stdin, stdout=True, stderr=not tty, tty=tty)
        params["command"] = list(command)
        path = f"{_path(Pod, namespace, pod)}/exec"
        response = await self._calls.upgraded(path, params, upgrade(V5))
        return ExecSession(response, self.server)

    async def forward(self, pod: str, namespace: str, port: int) -> httpx2.Response:
        """Open a connection to a port of a pod; whether anything listens there is told on it."""
        return await self._calls.upgraded(f"{_path(Pod, namespace, pod)}/portforward", {"ports": port}, upgrade(V4))

    async def page(self, pod: str, namespace: str, port: int, path: str, *, seconds: float, most: int) -> bytes:
        """Fetch a page from a pod by HTTP, once; what takes longer or is more than `most` bytes is an error."""
        said = bytearray()
        try:
            async with (
                asyncio.timeout(seconds),
                self._calls.stream(f"{_path(Pod, namespace, f'{pod}:{port}')}/proxy/{path}", {}, seconds) as chunks,
            ):
                async for chunk in chunks:
                    said += chunk
                    if len(said) > most:
                        raise KubernetesError(f"the pod {pod} says more than {most} bytes")
        except TimeoutError:
            raise KubernetesUnreachable(f"the pod {pod} does not say it within {seconds:.0f} seconds") from None
        return bytes(said)

    # about the server

    def tls_to_kubelets(self, authority: str) -> ssl.SSLContext:
        """The TLS context for kubelets; SettingsError if there is no such file of authorities."""
        return self._connection.tls_to_kubelets(authority)

    async def token(self, account: str, namespace: str, seconds: int) -> str:
        """Issue a token of a service account."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        path = f"{_path(ServiceAccount, namespace, account)}/token"
        return str(msgspec.json.decode(await self._calls.call("POST", path, body=body))["status"]["token"])

    async def version(self) -> str:
        """The server's version, for example `v1.34.2`."""
        return str(msgspec.json.decode(await self._calls.call("GET", "/version"))["gitVersion"])

    async def versions(self, group: str) -> tuple[str, ...]:
        """The versions the server has of an API group, for example `batch`; none if it does not know the group."""
        try:
            answer = msgspec.json.decode(await self._calls.call("GET", f"/apis/{group}"))
        except KubernetesNotFound:
            return ()
        return tuple(str(each["version"]) for each in answer["versions"])

    async def may(
        self, verb: str, kind: type[KubernetesObject], namespace: str | None = None, *, subresource: str = ""
    ) -> bool:
        """Whether Penstock's account has this right."""
        about = {"verb": verb, "group": kind.kind.group, "resource": kind.kind.plural, "subresource": subresource}
        spec = {"resourceAttributes": {**about, "namespace": namespace or ""}}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        answer = await self._calls.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
        return bool(msgspec.json.decode(answer)["status"]["allowed"])


def _path(kind: type[KubernetesObject], namespace: str | None, name: str | None = None) -> str:
    try:
        return kind.kind.path(namespace, name)
    except ValueError as error:
        raise KubernetesNotFound(str(error), status=404, reason="NotFound") from error


def _given(**params: object) -> dict[str, Any]:
    """Leave out parameters that are not set."""
    return {name: value for name, value in params.items() if value is not None and value is not False and value != ""}


@cache
def _decoder(of: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(of)


def _decode(of: Callable[..., D], data: bytes | msgspec.Raw) -> D:
    found: D
    try:
        try:
            found = _decoder(of).decode(data)
        except msgspec.ValidationError:
            # Some versions write null where others write nothing.
            found = msgspec.convert(_without_nulls(msgspec.json.decode(data)), of)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KubernetesError(f"the API server's answer cannot be read: {error}") from error
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


async def _changes(kind: type[T], frames: AsyncIterator[bytes]) -> AsyncGenerator[WatchEvent[T], None]:
    async for line in frames:
        if not line.endswith(b"\n"):
            return  # cut off in the middle: it comes again
        frame = _decode(_Frame, line)
        if frame.type == "ERROR":
            status = errors.read_status(bytes(frame.object))
            raise errors.from_status(status.code, status)
        found = _decode(kind, frame.object)
        yield WatchEvent(frame.type, found.metadata.resource_version, None if frame.type == "BOOKMARK" else found)
