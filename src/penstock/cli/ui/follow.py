"""Follow a job: its log goes to stdout, why it waits and how it ended to stderr.

When the server goes away, the client waits for it, asks for the log from its start, and drops what was shown already.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from math import inf
from typing import Any

from penstock.cli.ui.output import note
from penstock.cli.ui.table import message_with_place
from penstock.client.api import Client
from penstock.client.http import Response
from penstock.client.retry import ServerWait
from penstock.errors import Unreachable

QUIET_SECONDS = 1.0
"""Seconds without output before a waiting job is asked why, and between two such questions."""
WAIT_SECONDS = 30
LAST_SECONDS = 5
"""Seconds to wait for the job's end after the end of its log."""


def follow_to_the_end(client: Client, job: Job) -> int:
    """Print the log until the job has ended, say how, and give its exit code."""
    try:
        patience = ServerWait(client, note)
        Log(client, patience, job, {}).follow()
        job = wait_for_end(client, patience, job["id"])
    except KeyboardInterrupt:
        goes_on(job["id"])
        return 0
    note(ending(job))
    return exit_code(job)


class Log:
    """The log of one job on its way to stdout; `query` has `tail`, `since`, `node`, `index` and `attempt`."""

    def __init__(self, client: Client, patience: ServerWait, job: Job, query: Mapping[str, Any]) -> None:
        self._client = client
        self._patience = patience
        self._path = f"/v1/workloads/{job['id']}"
        self._job = job
        self._query = query
        one = query.get("node") is not None or query.get("index") is not None
        several = not one and (job["nodes"] > 1 or bool((job.get("spec") or {}).get("array")))
        self._shown = ShownLines() if several else ShownBytes()
        self._said: str | None = None

    def show(self) -> None:
        if self._job["status"] == "pending":
            self._say_why(self._job)
        answer = self._client.stream(f"{self._path}/logs", self._query)
        try:
            self._print(answer)
        finally:
            answer.close()

    def follow(self) -> None:
        """Print until the job has ended, across restarts of the server."""
        while not self._follow_one_server():
            self._shown.again()

    def _follow_one_server(self) -> bool:
        """Tell whether the log is complete; the stream may also have ended with the server, before the job is over."""
        answer = self._patience.ask(lambda: self._client.stream(f"{self._path}/logs", {**self._query, "follow": True}))
        away = self._patience.absences
        try:
            self._say_why_it_waits(answer)
            self._print(answer)
        except Unreachable:
            self._refuse_a_part()
            self._patience.broke()
            return False
        finally:
            answer.close()
        job = self._patience.ask(lambda: self._client.get(f"{self._path}/wait", {"timeout": LAST_SECONDS}))
        if is_over(job) and self._patience.absences == away:
            return True
        self._refuse_a_part()
        return False

    def _refuse_a_part(self) -> None:
        """Give up if only a part was asked for: nothing tells how much of it was shown."""
        if self._query.get("tail") is None and self._query.get("since") is None:
            return
        from datetime import UTC, datetime

        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        raise Unreachable(
            "The server went away, so following the log ends here; the job goes on.",
            hint=f"read on with: penstock jobs logs {self._job['id']} --since {now}",
        )

    def _print(self, answer: Response) -> None:
        for piece in _pieces(answer):
            _write(self._shown.fresh(piece))
        _write(self._shown.rest())

    def _say_why_it_waits(self, answer: Response) -> None:
        """Print why the job waits whenever that changes, until the log begins."""
        while not answer.ready(QUIET_SECONDS):
            job = self._client.get(self._path)
            if job["status"] != "pending":
                return
            self._say_why(job)

    def _say_why(self, job: Job) -> None:
        why = message_with_place(job)
        if why and why != self._said:
            self._said = why
            note(f"Waiting: {self._said}")


def _pieces(answer: Response) -> Iterator[bytes]:
    """Tell errors of the connection apart from those of stdout."""
    try:
        yield from answer
    except OSError as error:
        raise Unreachable("The connection to the server broke; the job goes on.") from error


def _write(piece: bytes) -> None:
    """Write the program's bytes unchanged, at once."""
    if piece:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def wait_for_end(client: Client, patience: ServerWait, job_id: str, deadline: float | None = None) -> Job:
    """Return the job once it has ended, or as it is at the deadline (a time.monotonic)."""
    from time import monotonic

    while True:
        left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, deadline - monotonic())
        ask = partial(client.get, f"/v1/workloads/{job_id}/wait", {"timeout": f"{max(left, 0):.3f}"})
        job: Job = patience.ask(ask, inf if deadline is None else deadline)
        if is_over(job) or (deadline is not None and monotonic() >= deadline):
            return job


def goes_on(job_id: str) -> None:
    if sys.stderr.isatty():
        note("")  # after the terminal's own ^C
    note(f"The job goes on. Follow it with: penstock jobs logs {job_id}; stop it with: penstock jobs stop {job_id}")


class ShownBytes:
    """Tracks the log of one node, whose bytes come in the same order each time."""

    def __init__(self) -> None:
        self._shown = 0
        self._skip = 0

    def again(self) -> None:
        """Begin anew: the log comes from its start once more."""
        self._skip = self._shown

    def fresh(self, piece: bytes) -> bytes:
        """Return the part of the next piece that was not shown yet."""
        known = min(self._skip, len(piece))
        self._skip -= known
        self._shown += len(piece) - known
        return piece[known:]

    def rest(self) -> bytes:
        """Return what was held back, at the end of the log."""
        return b""


class ShownLines:
    """Tracks the log of several nodes, where only the lines of each node (`node-<i> | `) keep their order."""

    def __init__(self) -> None:
        self._shown: Counter[bytes] = Counter()
        self._passed: Counter[bytes] = Counter()
        self._held = b""

    def again(self) -> None:
        self._passed.clear()
        self._held = b""

    def fresh(self, piece: bytes) -> bytes:
        *lines, self._held = (self._held + piece).split(b"\n")
        return b"".join(line + b"\n" for line in lines if self._is_fresh(line))

    def _is_fresh(self, line: bytes) -> bool:
        node = line.partition(b" | ")[0]
        self._passed[node] += 1
        if self._passed[node] <= self._shown[node]:
            return False
        self._shown[node] += 1
        return True

    def rest(self) -> bytes:
        held, self._held = self._held, b""
        return held


ACTIVE = ("pending", "running")
IN_DOUBT = "unknown"

Job = dict[str, Any]


def is_over(job: Job) -> bool:
    """Tell whether a job has ended. One whose node does not answer may run again, unless it has an end time."""
    return job["status"] not in ACTIVE and not (job["status"] == IN_DOUBT and job.get("ended_at") is None)


def ending(job: Job) -> str:
    """Write how a job ended: `Task abc (train) failed after 2m5s: exit code 3, PROGRAM_FAILED. Node 1 …`"""
    text = f"Task {job['id']} ({job['name']}) {job['status']}{_after(job)}"
    if job["status"] == "completed":
        return f"{text}."
    known = [] if job.get("exit_code") is None else [f"exit code {job['exit_code']}"]
    known += [job["reason"]] if job.get("reason") else []
    text += f": {', '.join(known)}." if known else "."
    return f"{text} {job['message']}" if job.get("message") else text


def _after(job: Job) -> str:
    seconds = duration(job.get("started_at"), job.get("ended_at"))
    return "" if seconds is None else f" {'in' if job['status'] == 'completed' else 'after'} {seconds}"


def duration(start: str | None, end: str | None) -> str | None:
    """Return the duration between two times of the API, such as `2m5s`."""
    if not start or not end:
        return None
    from datetime import datetime

    from penstock.domain.quantities import show_duration

    return show_duration(max(0, round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())))


def exit_code(job: Job) -> int:
    """Return the job's own exit code; 1 if it did not run to its end."""
    code = job.get("exit_code")
    if isinstance(code, int) and job["status"] in ("completed", "failed"):
        return code if job["status"] == "completed" or code else 1
    return 0 if job["status"] == "completed" else 1
