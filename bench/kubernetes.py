"""The Kubernetes engine on a real cluster, beside kubectl: submit to running, lists, memory, requests."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench import crowd, process, server
from bench.crowd import Original
from bench.finished import Finished
from bench.table import Line
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.objects import Pod
from tests import running
from tests.rig import cluster
from tests.rig.cluster import Rig
from tests.rig.processes import wait_for
from tests.running import RunningServer

ROUNDS = 10
JOBS = 2000
NODES, PODS = 5000, 20_000
FINISHED, FEW = 10_000, 100
PATIENCE = 300
RIG = "bench"
SLEEP = ["sleep", "60"]
LIST = [server.program(), "jobs", "list"]


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
    note = "without lists and watches: " + ", ".join(
        f"{each['verb']} {each.get('objectRef', {}).get('resource', '?')}" for each in writes
    )
    mine, plain = statistics.median(ours[1:]), statistics.median(theirs[1:])
    return [
        Line(
            "submit to running, Kubernetes",
            mine,
            "ms",
            "≤ 1.1 × kubectl",
            mine <= 1.1 * plain,
            plain,
            "kubectl apply of such a Job",
        ),
        Line("requests for one submit", len(writes), "", "≤ 4", len(writes) <= 4, note=note),
    ]


def _by_penstock(rig: Rig, served: RunningServer, name: str) -> float:
    task = served.place / f"{name}.yaml"
    task.write_text(f"name: {name}\nresources: {{cpus: 100m, memory: 32Mi}}\nrun: {json.dumps(SLEEP)}\n")
    began = time.perf_counter()
    line = [server.program(), "jobs", "submit", "-d", "-o", "name", str(task)]
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
    api = KubernetesApi.open(rig.kubeconfig)
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
    rig.make_namespace("lists")
    first = _job("listed-00000", suspend=True)
    first["metadata"] = {"name": "listed-00000", "namespace": "lists"}
    rig.apply(first)
    wait_for("the Job to be seen", lambda: rig.get("job", "listed-00000", "lists")["status"].get("conditions"))
    job = Original.of(rig, "job", "listed-00000", "lists")
    copies = ({"listed-00000": f"listed-{number:05d}", job.uid: str(uuid4())} for number in range(1, JOBS))
    crowd.write(rig, map(job.copy, copies))
    penstock = [*LIST, "--limit", "0"]
    kubectl = [str(rig.programs / "kubectl"), "--kubeconfig", str(rig.kubeconfig), "-n", "lists", "get", "jobs"]
    ours, theirs = [], []
    with server.running(stored=JOBS, **_settings(rig)) as served:
        for _ in range(ROUNDS + 2):
            ours.append(process.run(penstock, served.environ)[0])
            theirs.append(process.run(kubectl, served.environ)[0])
    mine, plain = statistics.median(ours[2:]), statistics.median(theirs[2:])
    what, note = f"jobs list --limit 0, {JOBS:,} jobs", "ours have ended and are in the store, kubectl's are suspended"
    goal, within = "≤ 0.5 × kubectl", "kubectl get jobs, real API server"
    return Line(what, mine, "ms", goal, mine <= 0.5 * plain, plain, within, note)


# -- a crowd -----------------------------------------------------------------------------------------------------------


def _crowd(rig: Rig) -> list[Line]:
    """Beside a cluster of its own that has only a few of everything, so that a slow moment falls on both."""
    finished, other = Finished.run(rig, **_settings(rig)), _others_pod(rig)
    nodes = [f"crowd-{number:05d}" for number in range(NODES)]
    with _few() as few, server.fresh_place() as small, server.fresh_place() as large:
        for part in ("controller-manager", "scheduler"):
            few.stop(part)
            rig.stop(part)
        _fill(rig, nodes, other)
        with _served(large, rig) as served:
            used = _memory(served)
        finished.add(few, small, range(FEW), nodes)
        finished.add(rig, large, range(FINISHED), nodes)
        with _served(small, few) as quiet, _served(large, rig) as busy:
            more = _memory(busy)
            alone, crowded = _list_times(quiet, busy)
    few_of_all = f"the same, {FEW} jobs and {len(rig.nodes)} nodes"
    note = "nodes and pods are copies of real ones, on which nothing runs"
    return [
        Line(f"server memory, {NODES:,} nodes, {PODS:,} pods", used, "MB", "≤ 400 MB", used <= 400, note=note),
        Line(f"the same with {FINISHED:,} finished jobs", more, "MB", "-", None, used, "without, each with its pod"),
        Line("jobs list beside all that", crowded, "ms", "≤ 1.2 × with few", crowded <= 1.2 * alone, alone, few_of_all),
    ]


@contextmanager
def _few() -> Iterator[Rig]:
    name = f"{RIG}-few"
    Rig.down(name)
    try:
        rig = Rig.up(name)
        rig.make_namespace("bench")
        yield rig
    finally:
        Rig.down(name)


@contextmanager
def _served(place: Path, rig: Rig) -> Iterator[RunningServer]:
    running.START_SECONDS = PATIENCE  # it reads all of the cluster before it begins
    served = running.start_server(place, executed=True, **_settings(rig))
    try:
        yield served
    finally:
        served.kill()


def _memory(served: RunningServer) -> float:
    """Once it has read all there is, and has nothing more to do."""
    wait_for("all to be read", lambda: served.request("GET", "/v1/nodes")[0] == 200, PATIENCE)
    process.wait_until_idle(served.process.pid)
    return process.resident(served.process.pid)[0]


def _list_times(*servers: RunningServer) -> list[float]:
    rounds = [[process.run(LIST, served.environ)[0] for served in servers] for _ in range(2 * ROUNDS + 2)]
    return [statistics.median(times) for times in zip(*rounds[2:], strict=True)]


def _fill(rig: Rig, nodes: list[str], pod: Original) -> None:
    """Nodes like the rig's own, and on them what other people run."""
    own, holds = rig.node_names[0], pod.fields["spec"]["nodeName"]
    node = Original.of(rig, "node", own)
    crowd.write(rig, (node.copy({own: name, node.uid: str(uuid4())}) for name in nodes))
    copies = (
        {"web-00000": f"web-{number:05d}", pod.uid: str(uuid4()), holds: nodes[number % NODES]}
        for number in range(PODS)
    )
    crowd.write(rig, map(pod.copy, copies))


def _others_pod(rig: Rig) -> Original:
    """As a Deployment makes them, running on a node of the rig."""
    rig.make_namespace("others")
    rig.apply(_web())
    wait_for("the pod", lambda: rig.get("pod", "web-00000", "others")["status"]["phase"] == "Running")
    return Original.of(rig, "pod", "web-00000", "others")


def _web() -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "5d4f8c7b9d"}
    places = [{"name": "cache", "mountPath": "/cache"}, {"name": "about", "mountPath": "/about", "readOnly": True}]
    about = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    container = {
        "image": "busybox:1",
        "command": ["sleep", "1000000"],
        "env": [{"name": f"SETTING_{number}", "value": f"the value of setting {number}"} for number in range(12)],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 60},
        "volumeMounts": places,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-00000", "namespace": "others", "labels": labels},
        "spec": {
            "containers": [{"name": "web", **container}, {"name": "proxy", **container}],
            "volumes": [{"name": "cache", "emptyDir": {}}, {"name": "about", "downwardAPI": about}],
        },
    }
