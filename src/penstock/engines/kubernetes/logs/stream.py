"""Stream a container's log from the kubelet to its end through broken connections: no line twice, none lost.

The kubelet can be asked only for what came after a whole second, so a reader that comes back gets lines again. It
knows them by their times: the last ones it had are kept in a mark. Times have nanoseconds and lines of the two outputs
may stand in the file a little out of order, hence several times and not one.

That an answer ended says little: it also ends when the kubelet or the API server stops. So after each end the pod is
looked at; while the container is not over, the next answer goes on at the mark, and one is read after it is over.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from penstock.domain.model import now
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import KubernetesError, KubernetesUnavailable
from penstock.engines.kubernetes.api.objects import OVER, ContainerStatus, Pod
from penstock.engines.kubernetes.api.requests import RetryPauses

KEPT = 128
NS = 1_000_000_000
LONGEST_TIME = 40
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


class LogLine(NamedTuple):
    """A line with its newline, or a piece of one that is long or not yet ended."""

    time: int
    """Nanoseconds since 1970, by the clock of the node."""
    data: bytes


class LogMark:
    """How far a reader has come. Made again from `times` and `part`, it goes on at the same byte."""

    def __init__(self, times: Iterable[int] = (), part: int = 0) -> None:
        self._times = deque(times, KEPT)
        self.part = part
        """Bytes read of the last line, if it was not at its end."""

    @property
    def times(self) -> tuple[int, ...]:
        """The times of the last lines, the latest last. Fewer than KEPT means that there were no others."""
        return tuple(self._times)

    @property
    def oldest(self) -> int:
        """Lines older than this were read before."""
        return min(self._times) if len(self._times) == KEPT else 0

    @property
    def since(self) -> str | None:
        """The time to ask the kubelet for; None for the whole log."""
        if not self._times:
            return None
        second = self.oldest // NS or min(self._times) // NS - 1
        return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def begun(self, time: int) -> None:
        self._times.append(time)
        self.part = 0

    def had(self, data: bytes) -> None:
        self.part = 0 if data.endswith(b"\n") else self.part + len(data)


class LineFilter:
    """Filters the bytes of one answer: it gives what is new and moves the mark along."""

    def __init__(self, mark: LogMark) -> None:
        self._mark = mark
        self._had = Counter(mark.times)
        self._oldest = mark.oldest
        self._cut = (mark.times[-1], mark.part) if mark.part else None
        self._prefix = b""
        self._time: int | None = None
        self._skip = 0
        self._new = False
        self._in_line = False
        self.missed = bool(mark.times)
        """True while this answer has no line that was read before: nodes drop the beginning of a long log."""
        self.said = b""
        """Text of the kubelet's own: why there is nothing more."""

    def feed(self, chunk: bytes) -> Iterable[LogLine]:
        for text in _pieces(chunk):
            line = self._rest(text) if self._in_line else self._begin(self._prefix + text)
            if line:
                yield line

    def _begin(self, text: bytes) -> LogLine | None:
        found = _TIME.match(text)
        if found is None:
            self._without_time(text)
            return None
        self._prefix, self._in_line, self.said = b"", True, b""
        self._time = nanoseconds(*found.groups())
        self._skip = self._had_of(self._time)
        self._new = not self._skip
        return self._rest(text[found.end() :])

    def _without_time(self, text: bytes) -> None:
        if len(text) < LONGEST_TIME and not text.endswith(b"\n"):
            self._prefix = text  # the time is still coming
            return
        self._prefix, self._in_line, self._time = b"", not text.endswith(b"\n"), None
        self.said = text

    def _had_of(self, time: int) -> int:
        """Return how many bytes of this line were read before; -1 for all of them."""
        if time < self._oldest:
            self.missed = False
            return -1
        if not self._had[time]:
            return 0
        self.missed = False
        self._had[time] -= 1
        if self._cut and self._cut[0] == time and not self._had[time]:
            return self._cut[1]
        return -1

    def _rest(self, text: bytes) -> LogLine | None:
        ended = text.endswith(b"\n")
        self._in_line = not ended
        if self._time is None:
            self.said += text
            return None
        if self._skip < 0:
            return None
        skipped = min(self._skip, len(text))
        self._skip -= skipped
        data = text[skipped:]
        if not data:
            return None
        if self._new:
            self._mark.begun(self._time)
            self._new = False
        self._mark.had(data)
        return LogLine(self._time, data)


def _pieces(chunk: bytes) -> Iterator[bytes]:
    start = 0
    while end := chunk.find(b"\n", start) + 1:
        yield chunk[start:end]
        start = end
    if start < len(chunk):
        yield chunk[start:]


def nanoseconds(second: bytes, fraction: bytes | None, zone: bytes) -> int:
    return _epoch(second + zone) * NS + int((fraction or b"0").ljust(9, b"0"))


@lru_cache(64)
def _epoch(text: bytes) -> int:
    return int(datetime.fromisoformat(text.decode()).timestamp())


SECOND = timedelta(seconds=1)

Look = Callable[[], Awaitable[Pod | None]]
Lost = Callable[[str], None]


class LogIncomplete(KubernetesError):
    """The container has ended and its log, or the rest of it, is gone."""


async def follow_log(
    api: KubernetesApi,
    pod: Pod,
    container: str,
    mark: LogMark | None = None,
    *,
    look: Look | None = None,
    lost: Lost | None = None,
) -> AsyncGenerator[LogLine, None]:
    """Follow a log from the mark on, which moves along. Ends when the container has ended, with LogIncomplete if a part
    of its log is gone.

    `look` returns the pod as it is now, best from a cache; without it the API server is asked. `lost` is told where
    something is missing in between.
    """
    follower = _Follower(api, pod, container, mark or LogMark(), look, lost)
    while not follower.done:
        async with aclosing(follower.answer()) as lines:
            async for line in lines:
                yield line
        if not follower.done:
            await follower.look_again()


class _Follower:
    def __init__(
        self, api: KubernetesApi, pod: Pod, container: str, mark: LogMark, look: Look | None, lost: Lost | None
    ) -> None:
        self._api, self._pod, self._container, self._mark = api, pod, container, mark
        self._look = look or self._ask
        self._lost = lost
        self._pauses = RetryPauses()
        self._trouble: KubernetesError | None = None
        self._ended_well: datetime | None = None
        """When a followed log last came to its end, as it does with its container's."""
        self.done = False

    async def answer(self) -> AsyncGenerator[LogLine, None]:
        """Yield what is new in one answer of the kubelet. No container of a job is ever restarted."""
        status = self._pod.container(self._container)
        over = self._pod.status.phase in OVER or bool(status and status.state.terminated)
        if status and (status.state.running or status.state.terminated):
            async with aclosing(self._read(follow=not over)) as lines:
                async for line in lines:
                    yield line
            if not over:
                self._ended_well = None if self._trouble else now()
        if over and not isinstance(self._trouble, KubernetesUnavailable):
            self.done = True
            if self._trouble and not self._was_followed_to_the_end(status):
                raise LogIncomplete(self._trouble.message, status=self._trouble.status)

    def _was_followed_to_the_end(self, status: ContainerStatus | None) -> bool:
        """Was it followed until after its container ended? Then its log is whole, though a deleted pod is often gone
        before a last look."""
        state = status.state.terminated if status else None
        ended = state.finished_at if state else None
        return bool(ended and self._ended_well and ended <= self._ended_well + SECOND)

    async def _read(self, *, follow: bool) -> AsyncGenerator[LogLine, None]:
        answer = LineFilter(self._mark)
        self._trouble = None
        try:
            async with self._api.log(
                self._pod.name,
                self._pod.namespace,
                container=self._container,
                follow=follow,
                timestamps=True,
                since=self._mark.since,
            ) as chunks:
                async for chunk in chunks:
                    for line in answer.feed(chunk):
                        self._pauses = RetryPauses()
                        if answer.missed and self._lost:
                            self._lost("the node has begun a new log: what it printed before this may be missing")
                        answer.missed = False
                        yield line
        except KubernetesError as error:
            self._trouble = error
        else:
            if answer.said:
                self._trouble = LogIncomplete(f"the node says: {answer.said.decode(errors='replace').strip()}")

    async def look_again(self) -> None:
        await asyncio.sleep(self._pauses.next(self._trouble))
        try:
            pod = await self._look()
        except KubernetesUnavailable:
            return
        if pod and pod.uid == self._pod.uid:
            self._pod = pod
            return
        self.done = True
        if self._trouble:
            raise LogIncomplete(f"the pod {self._pod.name} was deleted before the end of its log was read")

    async def _ask(self) -> Pod | None:
        return await self._api.find(Pod, self._pod.name, self._pod.namespace)
