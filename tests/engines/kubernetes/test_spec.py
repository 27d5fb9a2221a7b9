"""The pods and Jobs of runs, as the API server and its Pod Security take them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penstock.domain.volumes import AccessMode
from penstock.domain.workloads import Array, Medium, Requests, Resources, Scratch
from penstock.engines.base import BoundMount, Launch
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes import spec as job
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import AdmissionDenied, KubernetesError
from penstock.engines.kubernetes.api.objects import Job, Pod
from penstock.engines.kubernetes.api.resources import Service
from penstock.engines.kubernetes.settings import read_pod_settings
from penstock.errors import SettingsError
from penstock.settings import Settings
from tests.engines.launches import a_launch, a_volume, an_array
from tests.rig.cluster import Rig

PLAIN = Settings(default_cpus="50m", kubernetes_image="penstock-test:1")
STRICT = dataclasses.replace(PLAIN, kubernetes_pod_security="restricted", kubernetes_run_as="1000:1000")
Fields = dict[str, Any]

POD_FIELDS = {
    "restartPolicy",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "terminationGracePeriodSeconds",
    "securityContext",
    "containers",
    "volumes",
    "subdomain",
    "activeDeadlineSeconds",
    "affinity",
}
CONTAINER_FIELDS = {
    "name",
    "image",
    "command",
    "env",
    "resources",
    "volumeMounts",
    "securityContext",
    "workingDir",
}
LIMITS = {"cpu", "memory", "ephemeral-storage", names.GPU}


def job_of(launch: Launch, settings: Settings = PLAIN, products: tuple[str, ...] = ()) -> Fields:
    (body,) = job.build_jobs(launch, read_pod_settings(settings), products)
    return body


def pod_of(launch: Launch, settings: Settings = PLAIN, products: tuple[str, ...] = ()) -> Fields:
    spec: Fields = job_of(launch, settings, products)["spec"]["template"]["spec"]
    return spec


def container_of(launch: Launch, settings: Settings = PLAIN) -> Fields:
    (container,) = pod_of(launch, settings)["containers"]
    return container


def variables(launch: Launch) -> dict[str, Any]:
    found = container_of(launch)["env"]
    assert len({each["name"] for each in found}) == len(found)
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in found}


# -- what the user asked for ------------------------------------------------------------------------------------------


def test_what_is_asked_for_is_request_and_limit() -> None:
    asked = Resources(cpus_milli=1500, memory_bytes=2**30, disk_bytes=2**33, gpus=2)
    found = {"cpu": "1500m", "memory": str(2**30), "ephemeral-storage": str(2**33), names.GPU: "2"}
    assert container_of(a_launch("true", resources=asked))["resources"] == {"limits": found, "requests": found}


def test_requests_may_be_less_than_the_limits() -> None:
    less = Requests(cpus_milli=100, memory_bytes=2**20, disk_bytes=2**21)
    asked = Resources(cpus_milli=1500, memory_bytes=2**30, disk_bytes=2**33, requests=less)
    found = container_of(a_launch("true", resources=asked))["resources"]
    assert found["requests"] == {"cpu": "100m", "memory": str(2**20), "ephemeral-storage": str(2**21)}
    assert found["limits"] == {"cpu": "1500m", "memory": str(2**30), "ephemeral-storage": str(2**33)}


def test_nothing_asked_for_is_counted_as_the_default_and_not_limited() -> None:
    assert container_of(a_launch("true"))["resources"] == {"limits": {}, "requests": {"cpu": "50m"}}


def test_a_claim_at_two_paths_is_one_volume_of_the_pod() -> None:
    volume = a_volume("data")
    mounts = (
        BoundMount(path="/a", volume=volume, read_only=True),
        BoundMount(path="/b", volume=volume, read_only=False),
        BoundMount(path="/c", volume=a_volume("other"), read_only=True),
    )
    spec = pod_of(a_launch("true").model_copy(update={"mounts": mounts}))
    claims = [each["persistentVolumeClaim"] for each in spec["volumes"] if "persistentVolumeClaim" in each]
    assert [(claim["claimName"], claim["readOnly"]) for claim in claims] == [
        (volume.object_name, False),
        (mounts[2].volume.object_name, True),
    ]
    found = [(each["mountPath"], each["readOnly"]) for each in spec["containers"][0]["volumeMounts"][:3]]
    assert found == [("/a", True), ("/b", False), ("/c", True)]


def scratches(launch: Launch) -> dict[str, Fields]:
    spec = pod_of(launch)
    by_name = {each["name"]: each["emptyDir"] for each in spec["volumes"] if "emptyDir" in each}
    return {
        each["mountPath"]: by_name[each["name"]]
        for each in spec["containers"][0]["volumeMounts"]
        if each["name"] in by_name
    }


def test_shared_memory_is_half_the_limit_or_what_was_said() -> None:
    limited = Resources(memory_bytes=2**30)
    assert scratches(a_launch("true"))["/dev/shm"] == {"medium": "Memory"}
    assert scratches(a_launch("true", resources=limited))["/dev/shm"] == {"medium": "Memory", "sizeLimit": str(2**29)}
    said = (Scratch(path="/dev/shm", medium=Medium.disk), Scratch(path="/fast", medium=Medium.memory, size_bytes=7))
    found = scratches(a_launch("true", resources=limited, scratch=said))
    assert found == {"/dev/shm": {}, "/fast": {"medium": "Memory", "sizeLimit": "7"}}
    volume = a_volume()
    assert scratches(a_launch("true", {"/dev/shm": volume})) == {}


def test_products_are_chosen_by_the_nodes_label() -> None:
    spec = pod_of(a_launch("true", resources=Resources(gpus=1)), products=("NVIDIA-A10", "NVIDIA-A100"))
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    wanted = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-A10", "NVIDIA-A100"]}
    assert terms == [{"matchExpressions": [wanted]}]
    assert "affinity" not in pod_of(a_launch("true", resources=Resources(gpus=1)))


def test_ours_wins_over_what_the_user_says_and_the_nodes_gpus_stay_hidden() -> None:
    said = {"NODE_RANK": "9", "PENSTOCK_X": "y", "NVIDIA_VISIBLE_DEVICES": "all", "JOB_COMPLETION_INDEX": "8"}
    found = variables(a_launch("true", envs=said | {"MINE": "$(NODE_RANK)", "PYTHONUNBUFFERED": ""}))
    assert (found["NODE_RANK"], found["NVIDIA_VISIBLE_DEVICES"]) == ("0", "void")
    assert (found["MINE"], found["PYTHONUNBUFFERED"]) == ("$$(NODE_RANK)", "")
    assert not {"PENSTOCK_X", "JOB_COMPLETION_INDEX"} & set(found)
    assert "NVIDIA_VISIBLE_DEVICES" not in variables(a_launch("true", envs=said, resources=Resources(gpus=1)))


def test_nodes_have_names_and_their_rank_from_kubernetes() -> None:
    launch = a_launch("true", nodes=3)
    found, name = variables(launch), f"try-{launch.workload_id}"
    assert found["MASTER_ADDR"] == f"{name}-0.{name}"
    assert found["SKYPILOT_NODE_IPS"] == "\n".join(f"{name}-{rank}.{name}" for rank in range(3))
    assert found["NODE_RANK"] == found["SKYPILOT_NODE_RANK"]
    assert "job-completion-index" in found["NODE_RANK"]["fieldRef"]["fieldPath"]
    assert pod_of(launch)["subdomain"] == name
    assert variables(a_launch("true"))["MASTER_ADDR"] == "127.0.0.1"


def test_a_time_limit_is_kept_by_who_can_count_from_the_start() -> None:
    assert "activeDeadlineSeconds" not in pod_of(a_launch("true", max_duration=60))
    assert pod_of(a_launch(("true",), max_duration=60))["activeDeadlineSeconds"] == 60


# -- Jobs -------------------------------------------------------------------------------------------------------------


def test_a_job_of_one_node_has_the_labels_and_annotations_of_document_001() -> None:
    launch = a_launch("true", user="ada@lab.org", group="lab", record='{"id": 1}')
    body = job_of(launch)
    meta, spec = body["metadata"], body["spec"]
    assert meta["name"] == f"try-{launch.workload_id}"
    common = {"skypilot-task": "true", "task-id": launch.workload_id, "username": "ada-lab.org", "node-idx": "0"}
    ours = {names.MANAGED: "penstock", names.ATTEMPT: "1"}
    assert meta["labels"] == common | ours | {"task-name": "try"}
    assert spec["template"]["metadata"]["labels"] == common | ours
    assert meta["annotations"]["num-nodes"] == "1"
    assert meta["annotations"]["created-at"].startswith("20")
    assert meta["annotations"][names.OWNER] == "lab/ada@lab.org"
    assert meta["annotations"][names.RECORD] == '{"id": 1}'
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 0)
    assert "suspend" not in spec
    assert "ttlSecondsAfterFinished" not in spec


def test_a_queue_decides_when_a_job_starts() -> None:
    body = job_of(a_launch("true", queue="gpus"))
    assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert body["spec"]["suspend"] is True


def test_indexes_of_an_array_fail_each_for_itself() -> None:
    spec = job_of(an_array("true", 100, 8))["spec"]
    assert (spec["completions"], spec["parallelism"]) == (100, 8)
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (0, 100)
    assert "backoffLimit" not in spec


def test_a_later_attempt_has_a_job_for_each_index_it_runs() -> None:
    launch = an_array("true", 100, 8, indexes=(3, 70), attempt=2, record="kept")
    bodies = job.build_jobs(launch, read_pod_settings(PLAIN))
    assert [body["metadata"]["name"] for body in bodies] == [
        f"try-{launch.workload_id}-2-3",
        f"try-{launch.workload_id}-2-70",
    ]
    for body, index in zip(bodies, ("3", "70"), strict=True):
        spec = body["spec"]
        assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 0)
        found = {each["name"]: each.get("value") for each in spec["template"]["spec"]["containers"][0]["env"]}
        assert found["JOB_COMPLETION_INDEX"] == index
        assert spec["template"]["metadata"]["labels"][names.ARRAY_INDEX] == index
    assert [names.RECORD in body["metadata"]["annotations"] for body in bodies] == [True, False]


@given(st.from_regex(r"[a-z]([a-z0-9-]{0,46}[a-z0-9])?", fullmatch=True), st.integers(1, 9999), st.integers(0, 9999))
def test_names_fit_whatever_the_attempt_and_the_index(name: str, attempt: int, index: int) -> None:
    launch = an_array("true", 10_000, 8, attempt=attempt, indexes=(index,)).model_copy(update={"name": name})
    (body,) = job.build_jobs(launch, read_pod_settings(PLAIN))
    made = body["metadata"]["name"]
    assert len(f"{made}-99999") <= 63
    assert launch.workload_id in made
    if attempt == 1:
        assert made == f"{name}-{launch.workload_id}"


# -- what an admin says -----------------------------------------------------------------------------------------------


def test_every_mistake_of_an_admin_is_named_at_once() -> None:
    wrong = dataclasses.replace(
        PLAIN,
        kubernetes_tolerations=("gpu:Sometimes", "good"),
        kubernetes_node_selector={"pool": "a b"},
        kubernetes_run_as="root",
        kubernetes_fs_group="x",
        kubernetes_pull_secrets=("No_Name",),
    )
    with pytest.raises(SettingsError) as error:
        read_pod_settings(wrong)
    assert [problem["field"] for problem in error.value.problems] == [
        "kubernetes_node_selector",
        "kubernetes_tolerations",
        "kubernetes_pull_secrets",
        "kubernetes_run_as",
        "kubernetes_fs_group",
    ]
    with pytest.raises(SettingsError, match="settings are wrong"):
        read_pod_settings(dataclasses.replace(STRICT, kubernetes_run_as="0"))


ADMIN = dataclasses.replace(
    PLAIN,
    kubernetes_tolerations=("gpu", "pool=big", "dedicated=ml:NoSchedule"),
    kubernetes_node_selector={"pool": "big"},
    kubernetes_runtime_class="nvidia",
    kubernetes_pull_secrets=("registry",),
    kubernetes_run_as="1000:100",
    kubernetes_fs_group="100",
)


def test_what_an_admin_says_is_in_every_pod() -> None:
    spec = pod_of(a_launch("true"), ADMIN)
    assert spec["tolerations"] == [
        {"key": "gpu", "operator": "Exists"},
        {"key": "pool", "operator": "Equal", "value": "big"},
        {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
    ]
    assert (spec["nodeSelector"], spec["runtimeClassName"]) == ({"pool": "big"}, "nvidia")
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    context = spec["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (1000, 100, 100)


# -- the API server and Pod Security ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(rig: Rig) -> Iterator[dict[str, str]]:
    """A namespace for each level, which refuses pods that ask for more."""
    made = {level: f"test-{level}-{secrets.token_hex(3)}" for level in ("baseline", "restricted")}
    for level, name in made.items():
        rig.make_namespace(name, **{"pod-security.kubernetes.io/enforce": level})
    yield made
    for name in made.values():
        rig.delete_namespace(name)


async def tried(api: KubernetesApi, kind: type[Any], body: Fields, namespace: str) -> Fields:
    """What the server would have made of it."""
    path = kind.kind.path(namespace)
    params = {"dryRun": "All", "fieldValidation": "Strict"}
    found: Fields = json.loads(await api._calls.call("POST", path, body=body, params=params))
    return found


def as_pod(body: Fields) -> Fields:
    template = body["spec"]["template"]
    annotations = template["metadata"]["annotations"] | {names.INDEX: "0"}
    return {"metadata": template["metadata"] | {"name": "tried", "annotations": annotations}, "spec": template["spec"]}


EVERYTHING = a_launch(
    "echo $(date)",
    {"/data": a_volume(), "/ro": a_volume(access_modes=(AccessMode.ReadOnlyMany,))},
    setup="pip install x",
    envs={"A": "b"},
    scratch=(Scratch(path="/scratch", size_bytes=2**30), Scratch(path="/ram", medium=Medium.memory)),
    resources=Resources(cpus_milli=100, memory_bytes=2**28, disk_bytes=2**30, gpus=1),
    workdir_archive=Path("/sent"),
    max_duration=60,
)
SPECS = {
    "plain": a_launch("true"),
    "everything": EVERYTHING,
    "nodes": a_launch("true", nodes=4),
    "array": an_array("true", 10_000, 8),
    "program": a_launch(("sh", "-c", "true"), workdir="/some/where", max_duration=3),
    "queue": a_launch("true", queue="gpus"),
}


@pytest.mark.parametrize("level", ["baseline", "restricted"])
@pytest.mark.parametrize("spec", SPECS)
async def test_pod_security_lets_our_pods_pass(
    api: KubernetesApi, secured: dict[str, str], level: str, spec: str
) -> None:
    settings = STRICT if level == "restricted" else PLAIN
    launch = SPECS[spec]
    body = job_of(launch, settings, products=("NVIDIA-A10",))
    await tried(api, Job, body, secured[level])
    found = await tried(api, Pod, as_pod(body), secured[level])
    assert found["spec"]["containers"][0]["command"] == body["spec"]["template"]["spec"]["containers"][0]["command"]
    service = job.build_service(launch)
    assert (service is not None) == (launch.spec.nodes > 1)
    if service:
        assert (await tried(api, Service, service, secured[level]))["spec"]["clusterIP"] == "None"


async def test_what_an_admin_says_is_understood(api: KubernetesApi, secured: dict[str, str]) -> None:
    found = await tried(api, Job, job_of(a_launch("true"), ADMIN), secured["baseline"])
    assert len(found["spec"]["template"]["spec"]["tolerations"]) == 3


async def test_the_level_is_really_asked_for(api: KubernetesApi, secured: dict[str, str]) -> None:
    with pytest.raises(AdmissionDenied, match="restricted"):
        await tried(api, Pod, as_pod(job_of(a_launch("true"), PLAIN)), secured["restricted"])


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200)
ODD = st.sampled_from(
    ["hostNetwork: true", '"}],"hostPID":true', "{{.}}", "$(NODE_RANK)", "privileged", "\n- hostPath:", "/proc/1/root"]
)
VARIABLE = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,30}", fullmatch=True)
PATH = st.from_regex(r"/[a-z]{1,8}(/[A-Za-z0-9 ._:$-]{1,20}){0,3}", fullmatch=True)
AMOUNT = st.none() | st.integers(1, 2**50)


@st.composite
def wishes(draw: st.DrawFn) -> Fields:
    """Anything the types allow a user to say; they say it with any text."""
    words = TEXT | ODD
    run = draw(words | st.lists(words, min_size=1, max_size=5).map(tuple))
    paths = draw(st.lists(PATH, max_size=4, unique=True))
    size = {"size_bytes": draw(AMOUNT)}
    scratch = tuple(Scratch(path=path, medium=draw(st.sampled_from(Medium)), **size) for path in paths[2:])
    cpus, memory, disk = draw(st.none() | st.integers(1, 10**6)), draw(AMOUNT), draw(AMOUNT)
    products = tuple(draw(st.lists(words, max_size=2)))
    asked = Resources(cpus_milli=cpus, memory_bytes=memory, disk_bytes=disk, gpus=draw(st.integers(0, 8)))
    spec: Fields = {
        "setup": draw(st.none() | words) if isinstance(run, str) else None,
        "envs": draw(st.dictionaries(VARIABLE, words, max_size=5)),
        "scratch": scratch,
        "resources": asked.model_copy(update={"gpu_products": products, "image": "penstock-test:1"}),
        "workdir": draw(st.none() | PATH),
        "max_duration": draw(st.none() | st.integers(1, 10**6)),
    }
    if draw(st.booleans()):
        spec["array"] = Array(count=draw(st.integers(1, 1000)))
    else:
        spec["nodes"] = draw(st.integers(1, 20))
    people = draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", fullmatch=True))
    said = {"user": people, "group": people, "record": draw(TEXT)}
    return {"run": run, "paths": paths[:2], **said, **spec}


@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(wish=wishes(), level=st.sampled_from(["baseline", "restricted"]))
def test_nothing_a_user_says_reaches_a_field_we_did_not_mean(
    rig: Rig, secured: dict[str, str], wish: Fields, level: str
) -> None:
    launch = a_launch(wish.pop("run"), {path: a_volume() for path in wish.pop("paths")}, **wish)
    settings = STRICT if level == "restricted" else PLAIN
    body = job_of(launch, settings)
    spec = body["spec"]["template"]["spec"]
    assert set(spec) <= POD_FIELDS
    assert not any({"hostPath", "secret", "configMap", "projected", "csi"} & set(volume) for volume in spec["volumes"])
    (container,) = spec["containers"]
    assert set(container) <= CONTAINER_FIELDS
    assert {*container["resources"]["limits"], *container["resources"]["requests"]} <= LIMITS
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    plain = job_of(a_launch("true"), settings)["spec"]["template"]["spec"]
    assert container["securityContext"] == plain["containers"][0]["securityContext"]
    assert spec["securityContext"] == plain["securityContext"]

    async def accepted() -> Fields:
        api = KubernetesApi.open(rig.kubeconfig)
        try:
            await tried(api, Job, body, secured[level])
            return await tried(api, Pod, as_pod(body), secured[level])
        finally:
            await api.close()

    try:
        found = asyncio.run(accepted())
    except KubernetesError as error:
        raise AssertionError(f"{error.message}: {json.dumps(body)}") from error
    assert {key: found["spec"][key] for key in ("containers", "volumes")} != {}
    for wanted, made in zip(spec["containers"][0]["env"], found["spec"]["containers"][0]["env"], strict=True):
        assert made["name"] == wanted["name"]
        assert made.get("value", "") == wanted.get("value", "")
