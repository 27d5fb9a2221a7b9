"""The Kubernetes engine on a real cluster, beside kubectl: submit to running, lists, memory, requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import process, server
from bench.table import Line
from penstock.engines.kubernetes.api import Api
from penstock.engines.kubernetes.objects import Job, Node, Pod
from tests.rig import cluster, kwok
from tests.rig.cluster import Rig
from tests.running import RunningServer

ROUNDS = 10
JOBS = 2000
NODES, PODS, FINISHED = 5000, 20_000, 10_000
RIG = "bench"
SLEEP = ["sleep", "60"]
PENSTOCK = str(Path(sys.executable).parent / "penstock")


def lines() -> list[Line]:
    if said := cluster.fault():
        return [Line("Kubernetes", 0, "", "-", None, note=f"not measured: {said}")]
    Rig.down(RIG)
    rig = Rig.up(RIG)
    try:
        rig.make_namespace("bench")
        return [*_submits(rig), _list(rig), *_crowd(rig)]
    finally:
        Rig.down(RIG)


def _settings(rig: Rig) -> dict[str, str]:
    return {
        "engine": "kubernetes",
        "kubernetes_config": str(rig.kubeconfig),
        "kubernetes_namespace": "bench",
        "kubernetes_image": "busybox:1",
        "default_cpus": "10m",
    }


# -- submit to running -------------------------------------------------------------------------------------------------


def _submits(rig: Rig) -> list[Line]:
    ours, theirs = [], []
    with server.running(**_settings(rig)) as served:
        for number in range(ROUNDS + 1):
            theirs.append(_by_kubectl(rig, f"plain-{number}", served.place))
            ours.append(_by_penstock(rig, served, f"ours-{number}"))
        mark = rig.request_mark()
        _by_penstock(rig, served, "counted")
        writes = [asked for asked in rig.requests("penstock", mark) if asked["verb"] not in ("watch", "list")]
    asked = ", ".join(f"{each['verb']} {each.get('objectRef', {}).get('resource', '?')}" for each in writes)
    mine, plain = statistics.median(ours[1:]), statistics.median(theirs[1:])
    return [
        Line(
            "submit to running, Kubernetes",
            mine,
            "ms",
            "≤ 1.1 × kubectl",
            mine <= 1.1 * plain,
            plain,
            "kubectl apply of the same Job",
        ),
        Line("requests for one submit", len(writes), "", "≤ 4", len(writes) <= 4, note=asked or "none"),
    ]


def _by_penstock(rig: Rig, served: RunningServer, name: str) -> float:
    task = served.place / f"{name}.yaml"
    task.write_text(f"name: {name}\nresources: {{cpus: 100m, memory: 32Mi}}\nrun: {json.dumps(SLEEP)}\n")
    began = time.perf_counter()
    line = [PENSTOCK, "jobs", "submit", "-d", "-o", "name", str(task)]
    made = subprocess.run(line, env=served.environ, check=True, capture_output=True, text=True)
    _until_running(rig, f"task-id={made.stdout.strip()}")
    return (time.perf_counter() - began) * 1000


def _by_kubectl(rig: Rig, name: str, place: Path) -> float:
    file = place / f"{name}.json"
    file.write_text(json.dumps(_job(name)))
    began = time.perf_counter()
    rig.kubectl("apply", "-f", file)
    _until_running(rig, f"job-name={name}")
    return (time.perf_counter() - began) * 1000


def _until_running(rig: Rig, selector: str) -> None:
    asyncio.run(_seen_running(rig, selector))


async def _seen_running(rig: Rig, selector: str) -> None:
    api = Api.open(rig.kubeconfig)
    try:
        while not any(pod.status.phase == "Running" for pod in await api.list(Pod, "bench", labels=selector)):
            await asyncio.sleep(0.01)
    finally:
        await api.close()


def _job(name: str, **spec: object) -> dict[str, object]:
    limits = {"cpu": "100m", "memory": "32Mi"}
    container = {"name": "task", "image": "busybox:1", "command": SLEEP, "resources": {"limits": limits}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "bench"},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container],
                }
            },
            **spec,
        },
    }


# -- lists -------------------------------------------------------------------------------------------------------------


def _list(rig: Rig) -> Line:
    rig.make_namespace("listed")
    asyncio.run(_fill(rig, Job, (_listed(number) for number in range(JOBS)), "listed"))
    penstock = [PENSTOCK, "jobs", "list", "--limit", "0"]
    kubectl = [str(rig.programs / "kubectl"), "--kubeconfig", str(rig.kubeconfig), "-n", "listed", "get", "jobs"]
    ours, theirs = [], []
    with server.running(stored=JOBS, **_settings(rig)) as served:
        for _ in range(ROUNDS + 2):
            ours.append(process.run(penstock, served.environ)[0])
            theirs.append(process.run(kubectl, served.environ)[0])
    mine, plain = statistics.median(ours[2:]), statistics.median(theirs[2:])
    what = f"jobs list --limit 0, {JOBS:,} jobs"
    return Line(what, mine, "ms", "≤ 0.5 × kubectl", mine <= 0.5 * plain, plain, "kubectl get jobs, real API server")


def _listed(number: int) -> dict[str, object]:
    job = _job(f"listed-{number}", suspend=True)
    job["metadata"] = {"name": f"listed-{number}", "namespace": "listed"}
    return job


# -- a crowd -----------------------------------------------------------------------------------------------------------


def _crowd(rig: Rig) -> list[Line]:
    with server.running(stored=100, **_settings(rig)) as served:
        alone = _list_time(served)
    rig.kwok(0)
    names = [f"fake-{number}" for number in range(NODES)]
    asyncio.run(_fill(rig, Node, (kwok.node(name) for name in names)))
    nodes = itertools.cycle(names)
    asyncio.run(_fill(rig, Pod, (_pod(number, next(nodes)) for number in range(PODS)), "bench"))
    with server.running(stored=FINISHED, **_settings(rig)) as served:
        served.request("GET", "/v1/nodes")
        used, _ = process.resident(served.process.pid)
        crowded = _list_time(served)
    memory, listing = f"server memory, {NODES:,} nodes, {PODS:,} pods", f"jobs list, {FINISHED:,} finished jobs beside"
    note = "the nodes and pods are KWOK's: nothing runs on them"
    return [
        Line(memory, used, "MB", "≤ 400 MB", used <= 400, note=note),
        Line(listing, crowded, "ms", "no slower", crowded <= 1.2 * alone, alone, "the same, 100 jobs and 2 nodes"),
    ]


def _list_time(served: RunningServer) -> float:
    times = [process.run([PENSTOCK, "jobs", "list"], served.environ)[0] for _ in range(ROUNDS + 2)]
    return statistics.median(times[2:])


def _pod(number: int, node: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "bench", "labels": {"app": f"app-{number % 100}"}},
        "spec": {
            "nodeName": node,
            "tolerations": [kwok.TOLERATION],
            "containers": [{"name": "c", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


async def _fill(
    rig: Rig, kind: type[Job | Node | Pod], bodies: Iterator[dict[str, object]], namespace: str | None = None
) -> None:
    api = Api.open(rig.kubeconfig)

    async def make() -> None:
        for body in bodies:
            await api.create(kind, body, namespace)

    try:
        await asyncio.gather(*(make() for _ in range(16)))
    finally:
        await api.close()
