"""People who use two Docker hosts all at once, and a ledger in which every program they run writes down what it did.

A ledger listens on this machine, outside of all that is tested: what stands in it happened, whatever a server, an
engine or a database says. Each start of a program has a mark of its own, so that a line that came twice is told from a
program that ran twice.
"""

from __future__ import annotations

import json
import random
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

from tests.rig.processes import wait_for

PATIENCE = 120
BUSYBOX = ("busybox:1", "sh", 'echo "$1" | nc -w 5 {host} {port}')
BASH = ("penstock-test:1", "bash", 'echo "$1" > /dev/tcp/{host}/{port}')
"""An image, its shell, and how a line is sent from it."""
PROGRAM = """\
mark=$(cat /proc/sys/kernel/random/uuid)
tell() {{ until {send}; do sleep 0.2; done; }}
me="$PENSTOCK_TASK_ID $PENSTOCK_ATTEMPT $JOB_COMPLETION_INDEX $mark"
tell "$me began $CUDA_VISIBLE_DEVICES"
{work}
tell "$me ended {code}"
exit {code}
"""
Part = tuple[int, int]
"""Attempt, and which node or index of it."""


@dataclass
class Start:
    """Of a program: which GPUs it was told are its own, and with what code it ended, if it came to that."""

    mark: str
    gpus: tuple[str, ...]
    began: int
    last: int
    """When it last wrote: one that was killed was there until then at least."""
    code: int | None = None


class Ledger:
    def __init__(self, host: str) -> None:
        self._lines: list[str] = []
        self._lock = threading.Lock()
        ledger = self

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                ledger._write(self.rfile.read().decode().strip())

        self._server = ThreadingTCPServer((host, 0), Handler)
        self._server.daemon_threads = True  # of a host whose plug was pulled, a connection may never end
        self.host, self.port = self._server.server_address[:2]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _write(self, line: str) -> None:
        with self._lock:
            if line and line not in self._lines:
                self._lines.append(line)

    def starts(self) -> dict[str, dict[Part, list[Start]]]:
        """Of each workload, by part: several starts of one part are what must never be."""
        found: dict[str, dict[Part, list[Start]]] = defaultdict(lambda: defaultdict(list))
        with self._lock:
            lines = list(self._lines)
        for moment, line in enumerate(lines):
            workload, attempt, part, mark, what, *rest = line.split()
            starts = found[workload][int(attempt), int(part)]
            start = next((each for each in starts if each.mark == mark), None)
            if start is None:
                starts.append(start := Start(mark, tuple(rest[0].split(",")) if rest else (), moment, moment))
            start.last = moment
            if what == "ended":
                start.code = int(rest[0])
        return found


@contextmanager
def kept_by(host: str) -> Iterator[Ledger]:
    ledger = Ledger(host)
    try:
        yield ledger
    finally:
        ledger.close()


@dataclass
class Job:
    """What was asked for."""

    name: str
    kind: str
    id: str = ""
    stop_asked: bool = False
    deleted: bool = False


KINDS = {"plain": 5, "gpu": 5, "two-gpus": 1, "array": 2, "ranks": 2, "fails": 2, "long": 3}
"""What people run, and how often in proportion."""

REQUEUE = {"plain": 3, "gpu": 3, "two-gpus": 3, "ranks": 3}
"""How often those begin again whose host was lost; the others end with it."""


def _work(kind: str, seconds: float) -> str:
    """What has a GPU says all the time that it is there."""
    if kind not in ("gpu", "two-gpus"):
        return f"sleep {600 if kind == 'long' else seconds}"
    steps = " ".join(str(number) for number in range(int(seconds * 4)))
    return f'for step in {steps}; do sleep 0.25; tell "$me lives $step"; done'


def document(job: Job, ledger: Ledger, seconds: float) -> str:
    """A Workload that takes a part of a CPU, so that many run at once."""
    image, shell, send = BASH if job.kind == "ranks" else BUSYBOX
    program = PROGRAM.format(
        send=send.format(host=ledger.host, port=ledger.port),
        work=_work(job.kind, seconds),
        code=3 if job.kind == "fails" else 0,
    )
    selectors: dict[str, Any] = {"cpu": {"count": 0.1, "exclusive": False}}
    if job.kind in ("gpu", "two-gpus"):
        selectors["gpu"] = {"product_name": "pwm.all", "count": 2 if job.kind == "two-gpus" else 1}
    more: dict[str, Any] = {"array": {"array": 3}, "ranks": {"num_nodes": 2}}.get(job.kind, {})
    spec = {
        "driver": "pwm.docker",
        "selectors": selectors,
        "image": {"image": image},
        "config": {"cmd": [shell, "-c", program], "startMode": "-d"},
        "requeue": REQUEUE.get(job.kind, 0),
        **more,
    }
    return json.dumps({"apiVersion": "v1", "kind": "Workload", "metadata": {"name": job.name}, "spec": spec})


@dataclass
class Progress:
    """How many workloads were applied, by all together, and whether someone had to give up."""

    _count: int = 0
    _faults: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def one_more(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def fails(self, fault: str) -> None:
        with self._changed:
            self._faults.append(fault)
            self._changed.notify_all()

    def reaches(self, count: int) -> None:
        with self._changed:
            reached = self._changed.wait_for(lambda: self._count >= count or self._faults, PATIENCE)
            assert not self._faults, "\n".join(self._faults)
            assert reached, f"{self._count} of {count}"


class Member(threading.Thread):
    """Someone with a token, who applies, looks, stops and deletes, and asks again where nobody answered."""

    def __init__(self, name: str, token: str, address: str, ledger: Ledger, progress: Progress, count: int) -> None:
        super().__init__(name=name, daemon=True)
        self.jobs: list[Job] = []
        self._host, port = address.removeprefix("http://").split(":")
        self._port = int(port)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._ledger, self._progress, self._count = ledger, progress, count
        self._chance = random.Random(name)

    def run(self) -> None:
        try:
            for number in range(self._count):
                self._applies(number)
                for _ in range(self._chance.randrange(3)):
                    self._does_something()
            for job in self.jobs:
                if job.kind == "long" and not job.stop_asked:
                    self._stops(job)
        except BaseException:
            self._progress.fails(f"{self.name}: {traceback.format_exc()}")

    def asks(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Until there is an answer: a server that was killed is back in a moment."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self._asks(method, path, body, headers)
            except (OSError, HTTPException):
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def _asks(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        connection = HTTPConnection(self._host, self._port, timeout=PATIENCE)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, self._headers | headers)
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(raw) if "json" in answer.headers.get("Content-Type", "") else raw

    def _applies(self, number: int) -> None:
        [kind] = self._chance.choices(list(KINDS), list(KINDS.values()))
        job = Job(f"{kind}-{number}", kind)
        text = document(job, self._ledger, seconds=self._chance.choice([0, 0.5, 1, 2]))
        key = {"Idempotency-Key": f"{self.name}-{number}"}
        status, answer = self.asks("POST", "/v1/apply", {"text": text}, **key)
        assert status == 200, answer
        [result] = answer["results"]
        assert result["result"] in ("created", "not changed"), result  # The answer to the first time may be lost.
        job.id = result["id"]
        self.jobs.append(job)
        self._progress.one_more()

    def _does_something(self) -> None:
        job = self._chance.choice(self.jobs)
        if job.deleted:
            return
        what = self._chance.choice(["look", "look", "stop", "delete"])
        if what == "look":
            status, answer = self.asks("GET", f"/v1/workloads/{job.id}/logs?follow=false")
            assert status in (200, 409, 503), answer
        elif what == "stop" and job.kind in ("long", "array", "plain"):
            self._stops(job)
        elif what == "delete":
            self.deletes(job)

    def _stops(self, job: Job) -> None:
        job.stop_asked = True
        status, answer = self.asks("POST", f"/v1/workloads/{job.id}/stop")
        assert status in (200, 404 if job.deleted else 200), answer

    def deletes(self, job: Job) -> bool:
        """What still runs is refused, and what is on a host that is away cannot be removed yet."""
        if job.deleted:
            return True
        status, answer = self.asks("DELETE", f"/v1/workloads/{job.id}")
        assert status in (200, 404, 409, 503), answer
        job.deleted = status in (200, 404)
        return job.deleted

    def clears_up(self) -> None:
        for job in self.jobs:
            wait_for(f"{job.name} of {self.name} to be deleted", partial(self.deletes, job), PATIENCE)

    def sees_the_end_of(self, job: Job) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while True:
            status, workload = self.asks("GET", f"/v1/workloads/{job.id}/wait?timeout=10")
            assert status == 200, workload
            if workload["ended_at"]:
                return dict(workload)
            assert time.monotonic() < end, workload
