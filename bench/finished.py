"""Jobs of ours that have ended, as many as wanted: one ran, the others are its copies in the cluster, store and log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench import crowd, server
from bench.crowd import Original, replaced
from penstock.domain.names import new_id
from penstock.domain.workloads import Workload
from penstock.engines.kubernetes import names
from tests.rig.cluster import Rig
from tests.rig.processes import wait_for

NAME = "ended-00000"
BYTES = "latin-1"
TASK = f"name: {NAME}\nresources: {{cpus: 100m, memory: 32Mi}}\nrun: [echo, finished]\n"


@dataclass(frozen=True)
class Finished:
    workload: Workload
    job: Original
    pod: Original
    log: dict[Path, str]
    """The files that the server keeps of it, from its data directory on, byte for character."""

    @classmethod
    def run(cls, rig: Rig, **settings: str) -> Finished:
        namespace = settings["kubernetes_namespace"]
        with server.running(**settings) as served:
            ended = served.ended(served.submit(TASK)["id"])
            name = f"{NAME}-{ended['id']}"
            wait_for("the end of its Job", lambda: _is_over(rig.get("job", name, namespace)))
            job = Original.of(rig, "job", name, namespace)
            pod = rig.kubectl("get", "pod", "-n", namespace, "-l", f"{names.TASK_ID}={ended['id']}", "-o", "name")
            data = served.place / "data"
            files = [path for path in data.glob(f"kubernetes/runs/{ended['id']}-*/**/*") if path.is_file()]
            return cls(
                _workload(job, ended),
                job,
                Original.of(rig, "pod", pod.strip().removeprefix("pod/"), namespace),
                {path.relative_to(data): path.read_bytes().decode(BYTES) for path in files},
            )

    def add(self, rig: Rig, place: Path, numbers: Sequence[int], nodes: Sequence[str]) -> None:
        """To a cluster, as if they had run on these nodes, and to the place of its server."""
        instead = [self._instead(number, nodes[number % len(nodes)]) for number in numbers]
        whole = self.workload.model_dump_json()
        server.store(place, (Workload.model_validate_json(replaced(whole, each)) for each in instead))
        for each in instead:
            self._write_log(place / "data", each)
        crowd.write(rig, self._copies(instead))

    def _instead(self, number: int, node: str) -> dict[str, str]:
        return {
            self.workload.id: new_id(),
            NAME: f"ended-{number:05d}",
            self.job.uid: str(uuid4()),
            self.pod.uid: str(uuid4()),
            self.pod.fields["spec"]["nodeName"]: node,
        }

    def _copies(self, instead: list[dict[str, str]]) -> Iterator[str]:
        for each in instead:
            yield self.job.copy(each)
            yield self.pod.copy(each)

    def _write_log(self, data: Path, instead: dict[str, str]) -> None:
        for path, text in self.log.items():
            copy = data / replaced(str(path), instead)
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy.write_bytes(replaced(text, instead).encode(BYTES))


def _is_over(job: dict[str, Any]) -> bool:
    """It has completed, and we said to it that all is stored."""
    return "completionTime" in job["status"] and names.SETTLED in job["metadata"]["annotations"]


def _workload(job: Original, ended: dict[str, Any]) -> Workload:
    """The record it was started with, and how it ended."""
    begun = Workload.model_validate_json(job.fields["metadata"]["annotations"][names.RECORD])
    end = {key: ended[key] for key in ("state", "reason", "exit_code", "updated_at", "started_at", "ended_at")}
    return Workload.model_validate(begun.model_dump(mode="json") | end | {"launched": 1})
