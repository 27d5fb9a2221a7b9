"""Tell how a job ended: as a sentence, as a duration and as an exit code."""

from __future__ import annotations

from typing import Any

ACTIVE = ("pending", "running")
IN_DOUBT = "unknown"

Job = dict[str, Any]


def is_over(job: Job) -> bool:
    """One whose node does not answer is in doubt, and may run again; only with an end it is over."""
    return job["status"] not in ACTIVE and not (job["status"] == IN_DOUBT and job.get("ended_at") is None)


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
