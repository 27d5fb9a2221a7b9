"""Hold the Lease that lets one server work in a namespace: two would stop and delete each other's work.

The holder renews it every few seconds. A server of the same installation, by an id in its data directory, takes it at
once: it was killed, or its replica was. Any other waits as long as the Lease lasts without being renewed, by its own
clock, and is refused as soon as it sees that somebody renews it. Who finds that another has it must not do one thing
more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.background import Tasks
from penstock.domain.model import now
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import (
    AlreadyExists,
    KubernetesConflict,
    KubernetesError,
    KubernetesForbidden,
    KubernetesNotFound,
    KubernetesUnavailable,
)
from penstock.engines.kubernetes.api.resources import Lease
from penstock.errors import PenstockError, StartRefused, Unavailable

log = logging.getLogger(__name__)

NAME = "penstock"
SECONDS, RENEW, LOOK = 15, 5.0, 1.0
"""Seconds the Lease lasts, between two renewals, and between two looks at another's."""
PATIENCE = 3.0
PROCESS = "penstock.dev/process"
"""Which process took it last, of several with the same id, as a copy of a data directory has."""
FIELDS = "%Y-%m-%dT%H:%M:%S.%fZ"


class HeldLease:
    """The Lease of this server. `open` returns when it is held, or goes on trying where the cluster does not answer or
    allow it; StartRefused if another server has it."""

    def __init__(self, api: KubernetesApi, namespace: str, data_dir: Path, lost: Callable[[str], None]) -> None:
        self._api = api.hurried(PATIENCE)
        self._namespace = namespace
        self._id = read_installation(data_dir)
        self._process = secrets.token_hex(8)
        self._lost = lost
        self._version = ""
        self._seen: tuple[str, float] | None = None
        """The version of another's Lease, and when it was first seen."""
        self._tasks = Tasks()
        self.held = asyncio.Event()
        self.why: str | None = None
        """Why it is not held."""

    async def open(self) -> None:
        try:
            await self._get()
        except (KubernetesUnavailable, KubernetesForbidden, Unavailable) as error:
            self.why = error.message
        except KubernetesError as error:
            raise error.shown() from error
        self._tasks.start(self._keep())

    async def close(self) -> None:
        """Give it up, so that the next server has it at once."""
        await self._tasks.close()
        if self.held.is_set():
            self.held.clear()
            with suppress(KubernetesError):
                await self._write({"holderIdentity": None})

    def require(self) -> None:
        if not self.held.is_set() and self.why:
            raise Unavailable(f"Kubernetes: {self.why}", hint="Penstock keeps trying; running jobs go on")

    # -- getting it ----------------------------------------------------------------------------------------------------

    async def _get(self) -> None:
        while True:
            if await self._take():
                return
            await asyncio.sleep(LOOK)

    async def _take(self) -> bool:
        """Try to take the Lease: StartRefused if another holds it, False while that cannot be told yet."""
        found = await self._api.find(Lease, NAME, self._namespace)
        try:
            if found is None:
                await self._create()
            elif self._is_free(found):
                self._version = found.metadata.resource_version
                await self._write(self._fields() | {"leaseTransitions": found.spec.lease_transitions + 1})
            else:
                return False
        except (AlreadyExists, KubernetesConflict):
            return False
        self.why = None
        self.held.set()
        return True

    def _is_free(self, found: Lease) -> bool:
        holder, version = found.spec.holder_identity, found.metadata.resource_version
        if not holder or holder.rpartition("/")[2] == self._id:
            return True
        if self._seen is None:
            self._seen = (version, time.monotonic())
        first, since = self._seen
        if first != version:
            raise self._refusal(found)
        return time.monotonic() - since > (found.spec.lease_duration_seconds or SECONDS)

    def _refusal(self, found: Lease) -> StartRefused:
        return StartRefused(
            f"{self._said(found)}.",
            hint="give this one another kubernetes_namespace, or stop that one; "
            f"one that is gone for good holds it for {SECONDS} seconds",
        )

    def _said(self, found: Lease) -> str:
        host = "".join(letter for letter in found.spec.holder_identity.partition("/")[0] if letter.isprintable())[:253]
        since = found.spec.acquire_time
        when = f" since {since:%Y-%m-%d %H:%M} UTC" if since else ""
        return f"The namespace {self._namespace} is held by another Penstock server, on {host}{when}"

    async def _create(self) -> None:
        spec = self._fields() | {"leaseTransitions": 0}
        metadata = {"name": NAME, "annotations": {PROCESS: self._process}}
        try:
            made = await self._api.create(Lease, {"metadata": metadata, "spec": spec}, self._namespace)
        except KubernetesNotFound as error:
            hint = f"kubectl create namespace {self._namespace}"
            raise Unavailable(f"the namespace {self._namespace} is not there", hint=hint) from error
        self._version = made.metadata.resource_version

    def _fields(self) -> dict[str, Any]:
        moment = now().strftime(FIELDS)
        return {
            "holderIdentity": f"{socket.gethostname()}/{self._id}",
            "leaseDurationSeconds": SECONDS,
            "acquireTime": moment,
            "renewTime": moment,
        }

    async def _write(self, spec: dict[str, Any]) -> None:
        """Write the Lease; KubernetesConflict if somebody else wrote it meanwhile."""
        metadata = {"resourceVersion": self._version, "annotations": {PROCESS: self._process}}
        written = await self._api.patch(Lease, NAME, {"metadata": metadata, "spec": spec}, self._namespace)
        self._version = written.metadata.resource_version

    # -- keeping it ----------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while not self.held.is_set():
            await asyncio.sleep(LOOK)
            try:
                await self._get()
            except StartRefused as error:
                self._is_lost(error.message)
                return
            except (PenstockError, KubernetesError) as error:
                self.why = error.message
        while self.held.is_set():
            await asyncio.sleep(RENEW)
            try:
                await self._write({"renewTime": now().strftime(FIELDS)})
            except (KubernetesConflict, KubernetesNotFound):
                await self._look()
            except KubernetesError as error:
                log.warning("the Lease of %s is not renewed: %s", self._namespace, error.message)

    async def _look(self) -> None:
        """Find out who changed or removed the Lease."""
        try:
            found = await self._api.find(Lease, NAME, self._namespace)
            if found is None:
                await self._create()
            elif found.annotations.get(PROCESS) == self._process:
                self._version = found.metadata.resource_version
            else:
                self._is_lost(self._said(found))
        except (KubernetesError, Unavailable) as error:
            log.warning("the Lease of %s cannot be read: %s", self._namespace, error.message)

    def _is_lost(self, why: str) -> None:
        self.held.clear()
        self.why = why
        self._lost(why)


def read_installation(data_dir: Path) -> str:
    """Return the id of the installation, the same for all servers of this data directory; one runs at a time
    (`server.lock`)."""
    place = data_dir / "kubernetes" / "installation"
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if known := place.read_text().strip():
            return known
    new = place.with_suffix(f".{os.getpid()}")
    new.write_text(secrets.token_hex(8))
    new.rename(place)
    return place.read_text().strip()
