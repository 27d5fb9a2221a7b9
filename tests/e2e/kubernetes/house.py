"""A server on the rig behind a proxy that kills it, what a person does with it, and what the cluster says of it all."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.e2e.kubernetes.proxy import Between, between
from tests.rig.cluster import Rig
from tests.rig.processes import wait_for
from tests.running import RunningServer, start_server

Job = dict[str, Any]
KINDS = "jobs,services,pods,configmaps,secrets"
PATIENCE = 90


class House:
    def __init__(self, rig: Rig, proxy: Between, place: Path, namespace: str, **settings: str) -> None:
        self.rig, self.proxy, self.place, self.namespace = rig, proxy, place, namespace
        if not (place / "kubeconfig").exists():
            proxy.kubeconfig(place / "kubeconfig")
        self.settings = {
            "engine": "kubernetes",
            "kubernetes_config": str(place / "kubeconfig"),
            "kubernetes_namespace": self.namespace,
            "kubernetes_image": "penstock-test:1",
            "kubernetes_helper_image": "penstock-test:1",
            "default_cpus": "50m",
            "stop_grace": "2s",
        } | settings
        self.server = self._start()

    def _start(self) -> RunningServer:
        return start_server(self.place, None, **self.settings)

    def end(self) -> None:
        self.server.end()

    # -- killing it --------------------------------------------------------------------------------------------------

    @contextmanager
    def killed(self, moment: str) -> Iterator[None]:
        """What is done inside meets a server that is killed at this moment; afterwards there is another."""
        self.proxy.kill_at(moment, self.server.process.pid)
        with suppress(OSError, HTTPException):  # whoever asked for it may not have got an answer any more
            yield
        assert self.proxy.killed.wait(PATIENCE), f"no {moment}; it wrote: {self.proxy.writes}"
        self.again()

    def again(self) -> None:
        self.server.kill()
        self.server = self._start()

    # -- what a person does and sees -----------------------------------------------------------------------------------

    def penstock(self, *words: str, code: int | None = 0) -> str:
        """What a command prints, stdout and stderr."""
        command = [sys.executable, "-m", "penstock.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=self.server.environ, timeout=110)
        assert code in (None, done.returncode), f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def submit(self, text: str) -> str:
        """The id."""
        return str(self.server.submit(text)["id"])

    def named(self, name: str) -> Job:
        """The one job of this name."""
        found = json.loads(self.penstock("jobs", "list", "--name", name, "-o", "json"))
        assert len(found) == 1, found
        return self.job(found[0]["id"])

    def job(self, ref: str) -> Job:
        shown: Job = json.loads(self.penstock("jobs", "status", ref, "-o", "json"))
        return shown

    def becomes(self, ref: str, wanted: Callable[[Job], bool]) -> Job:
        """The job once that is true of it."""
        found: list[Job] = []

        def is_so() -> bool:
            found[:] = [self.server.request("GET", f"/v1/workloads/{ref}")[1]]
            return wanted(found[0])

        wait_for(f"{ref} to become something else than {found}", is_so, PATIENCE)
        return found[0]

    def ended(self, ref: str) -> Job:
        self.server.ended(ref)
        return self.job(ref)

    def runs(self, ref: str) -> Job:
        return self.becomes(ref, lambda job: job["status"] == "running")

    # -- what the cluster says -----------------------------------------------------------------------------------------

    def objects(self, workload_id: str, kinds: str = KINDS) -> list[str]:
        """All it has of a workload: `Job/train-abcd2345`, …"""
        labelled = self.items(kinds, f"task-id={workload_id}")
        return sorted(f"{each['kind']}/{each['metadata']['name']}" for each in labelled)

    def items(self, kinds: str, selector: str) -> list[dict[str, Any]]:
        return self.rig.api.items(kinds, self.namespace, selector)

    def nothing_left(self, workload_id: str, kinds: str = KINDS) -> None:
        wait_for(f"all of {workload_id} to be gone", lambda: not self.objects(workload_id, kinds), PATIENCE)

    def settled(self, workload_id: str) -> None:
        """Each of its Jobs goes by itself, or is gone."""

        def will_go() -> bool:
            jobs = self.items("jobs", f"task-id={workload_id}")
            return all("penstock.dev/settled" in job["metadata"]["annotations"] for job in jobs)

        wait_for(f"the Jobs of {workload_id} to be settled", will_go, PATIENCE)


@contextmanager
def house(rig: Rig, place: Path, **settings: str) -> Iterator[House]:
    namespace = f"house-{secrets.token_hex(4)}"
    rig.make_namespace(namespace)
    try:
        with between(rig) as proxy:
            made = House(rig, proxy, place, namespace, **settings)
            try:
                yield made
            finally:
                made.end()
    finally:
        rig.delete_namespace(namespace)
