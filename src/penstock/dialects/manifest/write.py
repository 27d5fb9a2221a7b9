"""Write a Spec as the manifest that does the same with kubectl alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.dialects.manifest.container import BASH, GPU, escaped
from penstock.dialects.manifest.job import JOB_LABELS, NO_LIMIT
from penstock.dialects.manifest.metadata import QUEUE_LABEL
from penstock.dialects.manifest.pod import PRODUCT_LABEL, REQUIRED
from penstock.dialects.manifest.volumes import default_shared_memory
from penstock.dialects.task.runs import ATTEMPTS_LIMIT
from penstock.dialects.task.write import show_milli, show_size
from penstock.dialects.writer import FlowList, FlowMapping, QuotedText, dump, only_said
from penstock.domain.environment import is_ours
from penstock.domain.names import shorten, suggest_name
from penstock.domain.paths import SHARED_MEMORY
from penstock.domain.workloads import UNLIMITED, FromSecret, Medium, Resources, Scratch, Spec

WORDS = frozenset({"", "~", "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "=", "<<"})
"""Words that some YAML parsers do not read as text."""
PORT = 29500
INDEX = "batch.kubernetes.io/job-completion-index"
OF_SEVERAL_NODES = ("NODE_RANK", "NUM_NODES", "MASTER_ADDR", "MASTER_PORT")


def kept_text(text: str) -> str:
    """Quote a text that kubectl's YAML parser would read as a number or a boolean."""
    return QuotedText(text) if text[:1] in "0123456789+-." or text.lower() in WORDS else text


# amounts


def amounts(wanted: Resources) -> dict[str, Any]:
    requests = wanted.requests
    limits = _named(wanted.cpus_milli, wanted.memory_bytes, wanted.disk_bytes)
    if wanted.gpus:
        limits[GPU] = wanted.gpus
    less = _named(requests.cpus_milli, requests.memory_bytes, requests.disk_bytes)
    return only_said([("limits", limits), ("requests", less)])


def _named(cpus_milli: int | None, memory: int | None, disk: int | None) -> dict[str, Any]:
    return only_said(
        [
            ("cpu", cpus_milli and show_milli(cpus_milli)),
            ("memory", memory and show_size(memory)),
            ("ephemeral-storage", disk and show_size(disk)),
        ]
    )


# places


def places(spec: Spec, claims: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return `volumeMounts` and `volumes`. A volume at two paths is one volume; each scratch is its own."""
    mounts: list[dict[str, Any]] = []
    sources: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for mount in spec.mounts:
        claim = claims.get(mount.volume, mount.volume)
        name = names.setdefault(claim, _new_name(claim, sources))
        sources[name] = {"name": name, "persistentVolumeClaim": {"claimName": kept_text(claim)}}
        read_only = [("readOnly", True)] if mount.read_only else []
        mounts.append(dict([("name", name), ("mountPath", kept_text(mount.path)), *read_only]))
    for scratch in _scratch(spec):
        name = _new_name(scratch.path, sources)
        sources[name] = {"name": name, "emptyDir": _empty_dir(scratch)}
        mounts.append({"name": name, "mountPath": kept_text(scratch.path)})
    return mounts, list(sources.values())


def _scratch(spec: Spec) -> list[Scratch]:
    """Return the scratch to write: with the default /dev/shm of a task, without that of a Pod."""
    limit = spec.resources.memory_bytes
    found = list(spec.scratch)
    taken = {mount.path for mount in spec.mounts} | {scratch.path for scratch in spec.scratch}
    if SHARED_MEMORY not in taken:
        found.append(Scratch(path=SHARED_MEMORY, medium=Medium.memory, size_bytes=limit // 2 if limit else None))
    return [scratch for scratch in found if scratch != default_shared_memory(limit)]


def _empty_dir(scratch: Scratch) -> FlowMapping:
    medium = "Memory" if scratch.medium is Medium.memory else None
    return FlowMapping(
        only_said([("medium", medium), ("sizeLimit", scratch.size_bytes and show_size(scratch.size_bytes))])
    )


def _new_name(text: str, taken: Mapping[str, Any]) -> str:
    """Return a descriptive name that is not taken."""
    base = suggest_name(text) or "scratch"
    names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
    return kept_text(next(name for name in names if name not in taken))


# what is in Secrets


def single_secrets(spec: Spec) -> list[Mapping[str, Any]]:
    """Return the variables that are each a key of a Secret."""
    return [
        {"name": kept_text(each.name), "valueFrom": {"secretKeyRef": _key_of(each)}}
        for each in spec.from_secrets
        if each.name is not None
    ]


def from_secrets(spec: Spec) -> list[Mapping[str, Any]]:
    """Return the Secrets whose keys all become variables."""
    return [
        only_said(
            [
                ("prefix", kept_text(each.prefix) if each.prefix else None),
                ("secretRef", FlowMapping(name=kept_text(each.secret))),
            ]
        )
        for each in spec.from_secrets
        if each.name is None
    ]


def _key_of(each: FromSecret) -> FlowMapping:
    return FlowMapping(name=kept_text(each.secret), key=kept_text(each.key or ""))


# the variables Penstock would set


def own_variables(spec: Spec) -> list[Mapping[str, Any]]:
    """Return the variables that several nodes need, and others that the program's text names."""
    words = set(re.findall(r"\w+", _program_text(spec)))
    return [
        variable
        for name, variable in _own(spec).items()
        if name in words or (spec.nodes > 1 and name in OF_SEVERAL_NODES)
    ]


def _own(spec: Spec) -> dict[str, Mapping[str, Any]]:
    nodes, gpus = str(spec.nodes), str(spec.resources.gpus)
    values = {
        "NUM_NODES": nodes,
        "MASTER_ADDR": f"{spec.name}-0.{spec.name}" if spec.nodes > 1 else "127.0.0.1",
        "MASTER_PORT": str(PORT),
        "GPUS_PER_NODE": gpus,
        "SKYPILOT_NUM_NODES": nodes,
        "SKYPILOT_NUM_GPUS_PER_NODE": gpus,
    }
    said: dict[str, Mapping[str, Any]] = {}
    for name in ("NODE_RANK", "SKYPILOT_NODE_RANK"):
        field = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
        said[name] = (
            {"name": name, "valueFrom": field} if spec.nodes > 1 else FlowMapping(name=name, value=QuotedText("0"))
        )
    if spec.nodes == 1 and not spec.array:
        values["JOB_COMPLETION_INDEX"] = "0"
    return said | {name: FlowMapping(name=name, value=kept_text(value)) for name, value in values.items()}


IMAGE = "python:3.13-slim"
"""The default image, as in k8s-cli."""
NAME = "task"


def write_manifest(spec: Spec, volumes: Mapping[str, str] | None = None, *, image: str = IMAGE) -> str:
    """Write the manifest; `volumes` maps volumes to claims of other names, `image` is for a task without one."""
    name = spec.name or NAME
    resources = spec.resources.model_copy(update={"image": spec.resources.image or image})
    whole = spec.model_copy(update={"name": name, "resources": resources})
    objects = [_service(name), _job(whole, volumes or {})] if spec.nodes > 1 else [_one(whole, volumes or {})]
    said = "".join(f"# {line}\n" for line in unsaid(spec, name, resources.image))
    return said + "---\n".join(map(dump, objects))


def _one(spec: Spec, volumes: Mapping[str, str]) -> dict[str, Any]:
    return _pod(spec, volumes) if spec.restart and not spec.array else _job(spec, volumes)


def _pod(spec: Spec, volumes: Mapping[str, str]) -> dict[str, Any]:
    """Describe a Pod: only a Pod is started again after a success."""
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
    """Return the back-off: an array retries its indexes; several nodes do not, as Kubernetes would restart only one."""
    times = NO_LIMIT if spec.retries == UNLIMITED else spec.retries
    if spec.nodes > 1:
        return "backoffLimit", 0
    return ("backoffLimitPerIndex" if spec.array else "backoffLimit"), times


def _metadata(spec: Spec) -> dict[str, Any]:
    labels = {QUEUE_LABEL: kept_text(spec.queue)} if spec.queue else None
    return only_said([("name", kept_text(spec.name or NAME)), ("labels", labels)])


def _service(name: str) -> dict[str, Any]:
    """Describe the Service that gives each node a name the others can resolve."""
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
        ("imagePullSecrets", [FlowMapping(name=kept_text(name)) for name in spec.pull_secrets]),
        ("containers", [_container(spec, mounts)]),
        ("volumes", sources),
    ]
    return only_said(said)


def _affinity(products: tuple[str, ...]) -> dict[str, Any] | None:
    if not products:
        return None
    values = FlowList(kept_text(product.replace(" ", "-")) for product in products)
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


def _program(spec: Spec) -> list[tuple[str, FlowList]]:
    if spec.run is None:
        return []
    if not isinstance(spec.run, str):
        return [("command", FlowList(kept_text(escaped(word)) for word in spec.run))]
    script = f"set -e\n{spec.setup}\nset +e\n{spec.run}" if spec.setup else spec.run
    return [("command", FlowList(map(kept_text, BASH))), ("args", FlowList([kept_text(escaped(script))]))]


def _env(spec: Spec) -> list[Mapping[str, Any]]:
    theirs = {name: value for name, value in spec.envs.items() if not is_ours(name) and name not in spec.secrets}
    said = [FlowMapping(name=kept_text(name), value=kept_text(escaped(value))) for name, value in theirs.items()]
    return [*said, *_secrets(spec), *single_secrets(spec), *own_variables(spec)]


def _secrets(spec: Spec) -> list[Mapping[str, Any]]:
    """Return secret variables as keys of a Secret of the workload's name: no value is written out."""
    of = kept_text(spec.name or NAME)
    return [
        {"name": kept_text(name), "valueFrom": {"secretKeyRef": FlowMapping(name=of, key=kept_text(name))}}
        for name in spec.secrets
        if not is_ours(name)
    ]


OF_PENSTOCK = ("selectors", "labels", "terminal", "ports", "priority", "idle_timeout", "notify")
UNKNOWN_VARIABLES = ("PENSTOCK_TASK_ID", "PENSTOCK_ATTEMPT", "SKYPILOT_TASK_ID", "SKYPILOT_NODE_IPS")


def unsaid(spec: Spec, name: str, image: str | None) -> Iterator[str]:
    if spec.name is None:
        yield f"name: the task has none; a manifest needs one, here '{name}'"
    if spec.resources.image is None:
        yield f"image_id: the task names none; here it is {image}"
    if spec.after:
        yield f"after: kubectl starts it at once; first must complete {shorten(', '.join(spec.after), 200)}"
    if spec.secrets:
        values = " ".join(f"--from-literal={secret}=…" for secret in spec.secrets)
        yield f"secrets: before it, kubectl create secret generic {name} {shorten(values, 200)}"
    if spec.workdir is not None and not spec.workdir.startswith("/"):
        yield f"workdir: the code in '{shorten(spec.workdir)}' is not sent; put it into the image or a volume"
    yield from _of_documents(spec)
    yield from _of_programs(spec)
    yield from _of_repeats(spec)
    if spec.nodes > 1:
        yield "num_nodes: nodes start one by one as they find room, not all together"
    if any(not product.startswith("NVIDIA-") for product in spec.resources.gpu_products):
        yield "accelerators: write the products as the nodes' label nvidia.com/gpu.product has them"


def _of_documents(spec: Spec) -> Iterator[str]:
    """Yield a comment for what Penstock has beyond Kubernetes."""
    plain = Spec(run=spec.run)
    more = [key for key in OF_PENSTOCK if getattr(spec, key) != getattr(plain, key)]
    if more:
        yield f"{', '.join(more)}: cannot be said in a manifest that Penstock reads"
    if spec.resources.exclusive_cpus:
        yield "exclusive_cpus: the cluster's own settings decide who has CPUs to itself"
    if any(mount.group or mount.storage or mount.sub_path for mount in spec.mounts):
        yield "volumes: here each is a claim of the same namespace, mounted as a whole"


def _of_programs(spec: Spec) -> Iterator[str]:
    named = [variable for variable in UNKNOWN_VARIABLES if variable in _program_text(spec)]
    if spec.run is None:
        yield "run: none is said, so the image's own command runs"
    if named:
        yield f"run: nobody sets {', '.join(named)}"


def _program_text(spec: Spec) -> str:
    return "\n".join([spec.setup or "", *([spec.run] if isinstance(spec.run, str) else spec.run or ())])


def _of_repeats(spec: Spec) -> Iterator[str]:
    if spec.nodes > 1 and (spec.retries or spec.requeue or spec.restart):
        yield "retries, requeue, restart: Kubernetes repeats a node alone, so here none is repeated"
    after_failures = ATTEMPTS_LIMIT if spec.retries == UNLIMITED else spec.retries
    if spec.nodes == 1 and not spec.restart and (spec.requeue or 0) != after_failures:
        yield "requeue: Kubernetes repeats after a lost node as often as after a failure"
