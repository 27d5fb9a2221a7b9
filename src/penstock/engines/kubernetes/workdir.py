"""Send a user's code into the containers that wait for it.

Kubernetes takes no uploads. A container of a run with code waits until it is told that all is there; the server, as it
sees the container begin, streams the archive into a `tar` inside. Whatever is cut off is done again from the start: the
mark is set only after the last file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from penstock.background import Tasks
from penstock.domain.paths import WORKDIR
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.api.requests import RetryPauses
from penstock.engines.kubernetes.api.streams import ExecSession
from penstock.engines.shared.minder import ARRIVED, BASH, MARKS

log = logging.getLogger(__name__)

CHUNK = 1 << 20
AT_ONCE, EACH = 16, 4
"""How many containers are sent to at the same time, in all and of one owner: who never takes it holds up nobody else.
"""
ANSWER_SECONDS, SECONDS = 30.0, 300.0
"""Seconds for a container's answer, and for the whole archive; it waits no longer itself."""
ARCHIVE = f"{MARKS}/archive"
RECEIVE = f"""
[[ -e {ARRIVED} ]] && exit
printf 'go\\n'
head -c "$1" >{ARCHIVE} && (($(wc -c <{ARCHIVE}) == $1)) || exit 1
if said=$(tar -xzof {ARCHIVE} -C {WORKDIR} 2>&1); then : >{ARRIVED}
else printf '%s\\n' "${{said##*$'\\n'}}" >{ARRIVED}.failed; fi
rm -f {ARCHIVE}
""".strip()
"""The script that receives the archive; it ends with 0 when nothing more is to be sent."""


class WorkdirSender:
    def __init__(self, api: KubernetesApi, cluster: Cluster, data_dir: Path) -> None:
        self._api = api
        self._cluster = cluster
        self._archives = data_dir / "kubernetes" / "workdirs"
        self._sent: set[str] = set()
        """The uids of pods that have the archive, or never will."""
        self._tasks = Tasks()
        """The sends, by the uid of the pod."""
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._shares: dict[str, asyncio.Semaphore] = {}
        cluster.pods.subscribe(self._seen)

    def open(self) -> None:
        for pod in list(self._cluster.pods.all()):
            self._seen(None, pod)

    async def close(self) -> None:
        await self._tasks.close()

    # -- the archives ----------------------------------------------------------------------------------------------

    def _archive(self, run: Run) -> Path:
        return self._archives / f"{run.workload_id}.{run.attempt}.tar.gz"

    def keep(self, run: Run, archive: Path) -> None:
        """Keep the archive before the run is started, so that the next server finds it."""
        kept = self._archive(run)
        self._archives.mkdir(mode=0o700, parents=True, exist_ok=True)
        if kept.exists():
            return
        try:
            os.link(archive, kept)
        except FileExistsError:
            return
        except OSError:
            shutil.copyfile(archive, kept.with_suffix(".new"))
            kept.with_suffix(".new").rename(kept)

    def forget(self, run: Run) -> None:
        self._archive(run).unlink(missing_ok=True)

    # -- how it is sent --------------------------------------------------------------------------------------------

    def _seen(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        if pod is None or names.SENDS_WORKDIR not in pod.annotations or names.run_of(pod) is None:
            return
        if not self._cluster.is_at_home(pod):
            return
        if after is None:
            self._sent.discard(pod.uid)
            if task := self._tasks.get(pod.uid):
                task.cancel()
        elif _runs(after) and pod.uid not in self._sent and pod.uid not in self._tasks:
            self._tasks.start(self._send_until_there(after), key=pod.uid)

    async def _send_until_there(self, pod: Pod) -> None:
        pauses = RetryPauses()
        share = self._shares.setdefault(pod.annotations.get(names.OWNER, ""), asyncio.Semaphore(EACH))
        while (now := self._cluster.pods.get(pod.name, pod.namespace)) and now.uid == pod.uid and _runs(now):
            try:
                async with share, self._limit, asyncio.timeout(SECONDS):
                    if await self._send(pod):
                        self._sent.add(pod.uid)
                        return
            except (KubernetesError, OSError) as error:
                log.warning("the workdir is not yet in %s: %s", pod.name, error)
            await asyncio.sleep(pauses.next())

    async def _send(self, pod: Pod) -> bool:
        """Send the archive; returns whether nothing more is to be sent."""
        run = names.run_of(pod)
        if run is None or not self._cluster.is_at_home(pod):
            return True
        with self._archive(run).open("rb") as archive:
            size = os.fstat(archive.fileno()).st_size
            command = [BASH, "-c", RECEIVE, "bash", str(size)]
            session = await self._api.exec(pod.name, pod.namespace, command, container=names.CONTAINER, stdin=True)
            async with session:
                if not await _wants_it(session):
                    return await session.exit_code() == 0
                copy = asyncio.create_task(_copy(archive, session))
                try:
                    return await session.exit_code() == 0
                finally:
                    copy.cancel()
                    with suppress(asyncio.CancelledError, KubernetesError):
                        await copy


async def _wants_it(session: ExecSession) -> bool:
    async with asyncio.timeout(ANSWER_SECONDS):
        async for _, data in session:
            return data.startswith(b"go")
    return False


async def _copy(archive: BinaryIO, session: ExecSession) -> None:
    while data := await asyncio.to_thread(archive.read, CHUNK):
        await session.send(data)
    await session.close_input()


def _runs(pod: Pod) -> bool:
    status = pod.container(names.CONTAINER)
    return bool(status and status.state.running) and not pod.metadata.deletion_timestamp
