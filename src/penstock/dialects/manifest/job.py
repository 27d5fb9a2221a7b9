"""Read a Job's `spec` and the headless Service its Pods find each other by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.dialects.manifest.metadata import ManifestMetadata, template_metadata
from penstock.dialects.manifest.pod import pod_spec, told_of_restarts
from penstock.dialects.manifest.unsupported import JOB_PLAIN, JOB_REFUSED, SUBDOMAIN
from penstock.dialects.reader import (
    FieldRules,
    ReadContext,
    as_it_is,
    fields_of,
    mapping,
    one_of,
    read_fields,
    text,
    whole,
)
from penstock.dialects.task.runs import ATTEMPTS_LIMIT, COUNT_LIMIT, NODES_LIMIT, SECONDS_LIMIT, array_of, requeue
from penstock.dialects.yaml import Node, Scalar
from penstock.domain.names import shorten
from penstock.domain.workloads import UNLIMITED

BACKOFF_LIMIT = 6
"""Kubernetes' default."""
NO_LIMIT = 2**31 - 1
"""The largest Kubernetes takes; it stands for "as often as needed"."""
Services = Mapping[str, str]
"""Headless Services of the same text: name → the Job whose Pods it names."""


def job(context: ReadContext, node: Node, path: str, about: ManifestMetadata, services: Services) -> dict[str, Any]:
    shape = QUEUED if about.queue else JOB
    said = read_fields(context, node, path, shape)
    template = fields_of(context, said, "template", TEMPLATE)
    if "spec" not in template:
        context.problem("is missing", node, f"{path}.template.spec")
        return {}
    pod, pod_path = template["spec"]
    inside = pod_spec(context, pod, pod_path)
    _check_policy(context, inside.pop("restartPolicy"), pod, pod_path)
    subdomain: tuple[Node, str] | None = inside.pop("subdomain")
    inside |= _deadline(context, said, inside, node, path)
    inside |= _repeats(context, said, inside, node, path)
    inside["ttl"] = said.get("ttlSecondsAfterFinished")
    if subdomain:
        nodes = _nodes(context, said, *subdomain, about, services)
        if inside["retries"] and nodes > 1:
            context.notices.append(f"{path}.backoffLimit: when one node fails the others are ended and all start again")
        return inside | {"nodes": nodes}
    return inside | _array(context, said, node, path)


def _check_policy(context: ReadContext, policy: str | None, node: Node, path: str) -> None:
    if policy not in ("Never", "OnFailure"):
        message = f"must be Never or OnFailure, not '{shorten(policy)}'" if policy else "is missing"
        context.problem(message, node, f"{path}.restartPolicy", "Never or OnFailure")


def _deadline(
    context: ReadContext, said: dict[str, Any], inside: dict[str, Any], node: Node, path: str
) -> dict[str, Any]:
    """Return the deadline of each attempt, which the Job or its Pod may set, not both."""
    of_job, of_pod = said.get("activeDeadlineSeconds"), inside["max_duration"]
    if of_job and of_pod:
        context.problem("is in the template's spec, too", node, f"{path}.activeDeadlineSeconds", "keep one of them")
    return {"max_duration": of_job or of_pod}


def _repeats(
    context: ReadContext, said: dict[str, Any], inside: dict[str, Any], node: Node, path: str
) -> dict[str, Any]:
    """Return retries and requeues, which are equal: Kubernetes counts a lost node as a failure."""
    if "backoffLimit" in said and "backoffLimitPerIndex" in said:
        context.problem("is beside backoffLimitPerIndex", node, f"{path}.backoffLimit", "keep one of them")
    retries = said.get("backoffLimitPerIndex", said.get("backoffLimit", BACKOFF_LIMIT))
    if retries:
        told_of_restarts(context, inside, f"{path}.backoffLimit")
    return {"retries": retries, "requeue": ATTEMPTS_LIMIT if retries == UNLIMITED else retries}


def _array(context: ReadContext, said: dict[str, Any], node: Node, path: str) -> dict[str, Any]:
    count, indexed = said.get("completions"), said.get("completionMode") == "Indexed"
    parallelism = said.get("parallelism", 1)
    if count is None and (indexed or parallelism > 1):
        what = "an Indexed Job has" if indexed else "Pods that share a queue of work are not carried: a Job has"
        context.problem(f"is missing: {what} a number of completions", node, f"{path}.completions")
    if count is None or (count == 1 and not indexed):
        return {}
    if not indexed:
        context.notices.append(f"{path}.completions: the {count:,} runs are told apart by JOB_COMPLETION_INDEX here")
    return {"array": array_of(count, parallelism)}


def _nodes(
    context: ReadContext,
    said: dict[str, Any],
    node: Node,
    path: str,
    about: ManifestMetadata,
    services: Services,
) -> int:
    """Return the nodes of an Indexed Job whose Pods all run at once and know each other's names."""
    name = node.text if isinstance(node, Scalar) else ""
    count: int = said.get("completions", 1)
    if about.name is None or services.get(name) != about.name:
        context.problem(f"is not supported: {SUBDOMAIN[0]}", node, path, SUBDOMAIN[1])
    elif said.get("completionMode") != "Indexed" or count != said.get("parallelism") or count > NODES_LIMIT:
        hint = f"completionMode: Indexed, completions and parallelism equal, {NODES_LIMIT:,} at most"
        context.problem("names the Pods, so all must run at once", node, path, hint)
    return count


def _backoff(context: ReadContext, node: Node, path: str) -> int | None:
    if isinstance(node, Scalar) and node.text == str(NO_LIMIT):
        return UNLIMITED
    return requeue(context, node, path)


TEMPLATE = FieldRules({"metadata": template_metadata, "spec": as_it_is})
JOB = FieldRules(
    {
        "completions": whole(1, COUNT_LIMIT),
        "parallelism": whole(1, NO_LIMIT),
        "completionMode": one_of({mode: mode for mode in ("Indexed", "NonIndexed")}),
        "backoffLimit": _backoff,
        "backoffLimitPerIndex": _backoff,
        "ttlSecondsAfterFinished": whole(0, SECONDS_LIMIT),
        "activeDeadlineSeconds": whole(1, SECONDS_LIMIT),
        "template": as_it_is,
    },
    JOB_REFUSED,
    JOB_PLAIN,
)
QUEUED = FieldRules({**JOB.readers, "suspend": text}, JOB.refused, JOB.plain)
"""The fields of a Job in a queue, which may be suspended: the queue releases it."""


JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")
WHY = "only a headless Service that names the Pods of a Job in the same file is carried"
HINT = "clusterIP: None, and selector: {job-name: NAME}"


def service(context: ReadContext, node: Node, path: str) -> str | None:
    """Return the name of the Job that a Service is for."""
    said = read_fields(context, node, path, SERVICE)
    if said.get("clusterIP") != "None":
        context.problem(WHY, node, f"{path}.clusterIP", HINT)
    selector = said.get("selector")
    labels = mapping(context, *selector) if selector else []
    if len(labels) != 1 or labels[0][0].text not in JOB_LABELS:
        context.problem(WHY, node, f"{path}.selector", HINT)
        return None
    return context.text(labels[0][1], f"{path}.selector")


PUBLISHED = (WHY, "remove it")
SERVICE = FieldRules(
    {"clusterIP": text, "selector": as_it_is},
    dict.fromkeys(("ports", "type", "publishNotReadyAddresses", "clusterIPs", "externalName"), PUBLISHED),
    {"type": {"ClusterIP"}, "publishNotReadyAddresses": {"true", "false"}},
)
