"""Write a Spec as the manifest that does the same with kubectl alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.dialects.manifest.container import BASH
from penstock.dialects.manifest.expansion import escaped
from penstock.dialects.manifest.job import NO_LIMIT
from penstock.dialects.manifest.names import QUEUE_LABEL
from penstock.dialects.manifest.placement import PRODUCT_LABEL, REQUIRED
from penstock.dialects.manifest.service import JOB_LABELS
from penstock.dialects.manifest.unsaid import unsaid
from penstock.dialects.manifest.written import amounts, from_secrets, kept_text, own_variables, places, single_secrets
from penstock.dialects.writing import OnOneLine, Words, dump, only_said
from penstock.domain.environment import is_ours
from penstock.domain.workloads import UNLIMITED, Spec

IMAGE = "python:3.13-slim"
"""Document 001's own, for a task that names none."""
NAME = "task"


def write_manifest(spec: Spec, volumes: Mapping[str, str] | None = None, *, image: str = IMAGE) -> str:
    """`volumes`: name of a volume → name of its claim, where they differ. `image`: for a task that names none."""
    name = spec.name or NAME
    resources = spec.resources.model_copy(update={"image": spec.resources.image or image})
    whole = spec.model_copy(update={"name": name, "resources": resources})
    objects = [_service(name), _job(whole, volumes or {})] if spec.nodes > 1 else [_one(whole, volumes or {})]
    said = "".join(f"# {line}\n" for line in unsaid(spec, name, resources.image))
    return said + "---\n".join(map(dump, objects))


def _one(spec: Spec, volumes: Mapping[str, str]) -> dict[str, Any]:
    return _pod(spec, volumes) if spec.restart and not spec.array else _job(spec, volumes)


def _pod(spec: Spec, volumes: Mapping[str, str]) -> dict[str, Any]:
    """Only a Pod is started again after a success."""
    metadata = _metadata(spec)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod_spec(spec, volumes, "Always")}


def _job(spec: Spec, volumes: Mapping[str, str]) -> dict[str, Any]:
    several = spec.array is not None or spec.nodes > 1
    at_once = spec.array.parallelism if spec.array else None
    said = [
        ("completionMode", "Indexed" if several else None),
        ("completions", spec.parts if several else None),
        ("parallelism", (at_once or spec.parts) if several else None),
        _backoff(spec),
        ("ttlSecondsAfterFinished", spec.ttl),
        ("template", {"spec": _pod_spec(spec, volumes, "Never")}),
    ]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(spec), "spec": only_said(said)}


def _backoff(spec: Spec) -> tuple[str, int]:
    """An array repeats its failed indexes; of several nodes Kubernetes could repeat one alone, so none is."""
    times = NO_LIMIT if spec.retries == UNLIMITED else spec.retries
    if spec.nodes > 1:
        return "backoffLimit", 0
    return ("backoffLimitPerIndex" if spec.array else "backoffLimit"), times


def _metadata(spec: Spec) -> dict[str, Any]:
    labels = {QUEUE_LABEL: kept_text(spec.queue)} if spec.queue else None
    return only_said([("name", kept_text(spec.name or NAME)), ("labels", labels)])


def _service(name: str) -> dict[str, Any]:
    """Gives each node a name the others find."""
    spec = {"clusterIP": kept_text("None"), "publishNotReadyAddresses": True}
    selector = {"selector": {JOB_LABELS[0]: kept_text(name)}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": kept_text(name)}, "spec": spec | selector}


def _pod_spec(spec: Spec, volumes: Mapping[str, str], restart_policy: str) -> dict[str, Any]:
    mounts, sources = places(spec, volumes)
    said = [
        ("restartPolicy", restart_policy),
        ("activeDeadlineSeconds", spec.max_duration),
        ("terminationGracePeriodSeconds", spec.stop_grace),
        ("automountServiceAccountToken", False),
        ("subdomain", kept_text(spec.name or NAME) if spec.nodes > 1 else None),
        ("affinity", _affinity(spec.resources.gpu_products)),
        ("imagePullSecrets", [OnOneLine(name=kept_text(name)) for name in spec.pull_secrets]),
        ("containers", [_container(spec, mounts)]),
        ("volumes", sources),
    ]
    return only_said(said)


def _affinity(products: tuple[str, ...]) -> dict[str, Any] | None:
    if not products:
        return None
    values = Words(kept_text(product.replace(" ", "-")) for product in products)
    expression = {"key": PRODUCT_LABEL, "operator": "In", "values": values}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


def _container(spec: Spec, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    absolute = spec.workdir is not None and spec.workdir.startswith("/")
    said = [
        ("name", "task"),
        ("image", kept_text(spec.resources.image or IMAGE)),
        *_program(spec),
        ("workingDir", kept_text(spec.workdir) if spec.workdir and absolute else None),
        ("envFrom", from_secrets(spec)),
        ("env", _env(spec)),
        ("resources", amounts(spec.resources)),
        ("volumeMounts", mounts),
    ]
    return only_said(said)


def _program(spec: Spec) -> list[tuple[str, Words]]:
    if spec.run is None:
        return []
    if not isinstance(spec.run, str):
        return [("command", Words(kept_text(escaped(word)) for word in spec.run))]
    script = f"set -e\n{spec.setup}\nset +e\n{spec.run}" if spec.setup else spec.run
    return [("command", Words(map(kept_text, BASH))), ("args", Words([kept_text(escaped(script))]))]


def _env(spec: Spec) -> list[Mapping[str, Any]]:
    theirs = {name: value for name, value in spec.envs.items() if not is_ours(name) and name not in spec.secrets}
    said = [OnOneLine(name=kept_text(name), value=kept_text(escaped(value))) for name, value in theirs.items()]
    return [*said, *_secrets(spec), *single_secrets(spec), *own_variables(spec)]


def _secrets(spec: Spec) -> list[Mapping[str, Any]]:
    """Out of a Secret of the workload's name: no value is written out."""
    of = kept_text(spec.name or NAME)
    return [
        {"name": kept_text(name), "valueFrom": {"secretKeyRef": OnOneLine(name=of, key=kept_text(name))}}
        for name in spec.secrets
        if not is_ours(name)
    ]
