"""Following a job: its log to stdout as it comes, why it waits and how it ended to stderr."""

from __future__ import annotations

import sys
from typing import Any

from penstock.cli.output import note
from penstock.client import Client
from penstock.client.api import Query
from penstock.client.http import Answer
from penstock.errors import Unreachable

PATIENCE = 1.0
"""Seconds without a line before a job that waits is asked why, and between two askings."""
WAIT_SECONDS = 30
ACTIVE = ("pending", "running")

Job = dict[str, Any]


def follow_to_the_end(client: Client, job: Job) -> int:
    """Print the log until the job has ended, say how, and give its exit code."""
    try:
        print_log(client, job["id"], {"follow": True}, say_why=True)
        job = wait_for_end(client, job["id"])
    except KeyboardInterrupt:
        goes_on(job["id"])
        return 0
    note(ending(job))
    return exit_code(job)


def print_log(client: Client, job_id: str, query: Query, *, say_why: bool = False) -> None:
    answer = client.stream(f"/v1/workloads/{job_id}/logs", query)
    try:
        if say_why:
            _say_why_it_waits(client, job_id, answer)
        for piece in answer:
            _write(piece)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise Unreachable(
            "The connection broke; the job goes on.", hint=f"read on with: penstock jobs logs {job_id}"
        ) from error
    finally:
        answer.close()


def _write(piece: bytes) -> None:
    """Bytes as the program wrote them, at once."""
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _say_why_it_waits(client: Client, job_id: str, answer: Answer) -> None:
    """While nothing is printed yet: the reason it waits, each time it is another one."""
    said = None
    while not answer.ready(PATIENCE):
        job = client.get(f"/v1/workloads/{job_id}")
        if job["status"] != "pending":
            return
        if job.get("message") and job["message"] != said:
            said = job["message"]
            note(f"Waiting: {said}")


def wait_for_end(client: Client, job_id: str, deadline: float | None = None) -> Job:
    """The job, ended; or as it is at the deadline (of time.monotonic)."""
    from time import monotonic

    while True:
        left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, deadline - monotonic())
        job: Job = client.get(f"/v1/workloads/{job_id}/wait", {"timeout": f"{max(left, 0):.3f}"})
        if job["status"] not in ACTIVE or (deadline is not None and monotonic() >= deadline):
            return job


def goes_on(job_id: str) -> None:
    note(f"\nThe job goes on. Follow it with: penstock jobs logs {job_id}; stop it with: penstock jobs stop {job_id}")


def ending(job: Job) -> str:
    """`Task abc (train) failed after 2m5s: exit code 3, PROGRAM_FAILED. Node 1 …`"""
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
    """`2m5s` between two times of the API."""
    if not start or not end:
        return None
    from datetime import datetime

    from penstock.domain.quantities import show_duration

    return show_duration(max(0, round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())))


def exit_code(job: Job) -> int:
    """The workload's own; 1 where it did not run to an end of its own."""
    code = job.get("exit_code")
    if isinstance(code, int) and job["status"] in ("completed", "failed"):
        return code if job["status"] == "completed" or code else 1
    return 0 if job["status"] == "completed" else 1
