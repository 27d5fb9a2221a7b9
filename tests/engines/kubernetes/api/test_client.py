"""The API server's verbs on a real one, and what is said when it refuses, is slow or is not there."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import httpx2
import pytest

from penstock import errors
from penstock.engines.kubernetes.api import client as api_module
from penstock.engines.kubernetes.api import errors as failures
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import (
    AdmissionDenied,
    AlreadyExists,
    KubernetesConflict,
    KubernetesError,
    KubernetesForbidden,
    KubernetesInvalid,
    KubernetesNotFound,
    KubernetesUnreachable,
    Throttled,
    VersionGone,
)
from penstock.engines.kubernetes.api.objects import Pod, condition
from penstock.engines.kubernetes.api.resources import (
    KubernetesNode,
    KubernetesStorageClass,
    ResourceQuota,
)
from tests.engines.kubernetes.making import ConfigMap, becomes, config_map, eventually, pod

# reading and writing


async def test_what_is_made_can_be_read_changed_and_deleted(api, namespace):
    made = await api.create(ConfigMap, config_map("life", app="a"), namespace)
    assert (made.name, made.namespace, made.labels) == ("life", namespace, {"app": "a"})
    assert await api.get(ConfigMap, "life", namespace) == made
    merged = await api.patch(ConfigMap, "life", {"metadata": {"labels": {"more": "b"}}}, namespace)
    assert merged.labels == {"app": "a", "more": "b"}
    removed = await api.patch(ConfigMap, "life", {"metadata": {"labels": {"app": None}}}, namespace)
    assert removed.labels == {"more": "b"}
    assert await api.delete(ConfigMap, "life", namespace)
    assert not await api.delete(ConfigMap, "life", namespace)
    assert await api.find(ConfigMap, "life", namespace) is None


async def test_a_second_of_the_same_name_is_refused_as_such(api, namespace):
    await api.create(ConfigMap, config_map("twice"), namespace)
    with pytest.raises(AlreadyExists, match='configmaps "twice" already exists'):
        await api.create(ConfigMap, config_map("twice"), namespace)


async def test_applying_can_be_repeated_and_leaves_what_others_wrote(api, namespace, rig):
    first = await api.apply(ConfigMap, config_map("applied", ours="1"), namespace)
    rig.kubectl("label", "configmap", "applied", "-n", namespace, "theirs=2")
    again = await api.apply(ConfigMap, config_map("applied", ours="3"), namespace)
    assert (again.uid, again.labels) == (first.uid, {"ours": "3", "theirs": "2"})
    same = await api.apply(ConfigMap, config_map("applied", ours="3"), namespace)
    assert same.metadata.resource_version == again.metadata.resource_version


async def test_only_the_object_that_was_meant_is_deleted(api, namespace):
    made = await api.create(ConfigMap, config_map("meant"), namespace)
    with pytest.raises(KubernetesConflict, match="UID"):
        await api.delete(ConfigMap, "meant", namespace, uid="another")
    assert await api.delete(ConfigMap, "meant", namespace, uid=made.uid)


async def test_a_long_list_is_read_in_pages_of_one_moment(api, namespace, monkeypatch):
    monkeypatch.setattr(api_module, "PAGE", 3)
    names = [f"page-{number}" for number in range(8)]
    for name in names:
        await api.create(ConfigMap, config_map(name, pages="yes"), namespace)
    pages = [page async for page in api.pages(ConfigMap, namespace, labels="pages=yes")]
    assert [len(page.items) for page in pages] == [3, 3, 2]
    assert len({page.metadata.version for page in pages}) == 1
    assert [item.name for item in await api.list(ConfigMap, namespace, labels="pages=yes")] == names


async def test_a_list_whose_next_page_is_forgotten_begins_anew(shaky, proxy, namespace, monkeypatch):
    monkeypatch.setattr(api_module, "PAGE", 2)
    for number in range(3):
        await shaky.create(ConfigMap, config_map(f"anew-{number}", anew="yes"), namespace)
    proxy.answer("continue=", 410, {"kind": "Status", "reason": "Expired", "message": "too old", "code": 410})
    assert len(await shaky.list(ConfigMap, namespace, labels="anew=yes")) == 3


async def test_everything_in_every_namespace_is_listed_if_none_is_named(api, namespace):
    await api.create(ConfigMap, config_map("somewhere"), namespace)
    found = await api.list(ConfigMap, fields="metadata.name=somewhere")
    assert [item.namespace for item in found] == [namespace]


@pytest.mark.parametrize("name", ["..", ".", "", "../secrets/x", "a/b", "x?watch=1", "ü"])
async def test_a_name_never_leads_to_something_else(api, namespace, name):
    assert await api.find(ConfigMap, name, namespace) is None


async def test_a_pod_is_read_with_what_we_need_of_it(api, namespace):
    body = pod("reading", "sleep 1", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    body["spec"]["schedulingGates"] = [{"name": "not/yet"}]
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    body["metadata"]["annotations"] = {"ours": "kept"}
    made = await api.create(Pod, body, namespace)
    assert list(made.claims()) == ["data"]
    assert [gate.name for gate in made.spec.scheduling_gates] == ["not/yet"]
    assert made.spec.containers[0].resources.requests == {"cpu": "1", "memory": "1Gi"}
    assert made.annotations == {"ours": "kept"}
    assert made.status.phase == "Pending"


async def test_what_a_pod_serves_is_read_whole_or_not_at_all(api, namespace):
    serve = "mkdir /www; seq 1000 > /www/numbers; httpd -f -p 9400 -h /www"
    probed = pod("serving", serve)
    probed["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 9400}, "periodSeconds": 1}
    made = await api.create(Pod, probed, namespace)
    await becomes(api, made, lambda found: bool((ready := condition(found.status.conditions, "Ready")) and ready.true))
    page = await api.page("serving", namespace, 9400, "numbers", seconds=60, most=10_000)
    assert page.split() == [b"%d" % number for number in range(1, 1001)]
    with pytest.raises(KubernetesError, match="more than 100 bytes"):
        await api.page("serving", namespace, 9400, "numbers", seconds=60, most=100)
    with pytest.raises(KubernetesNotFound):
        await api.page("serving", namespace, 9400, "letters", seconds=60, most=100)
    with pytest.raises(KubernetesUnreachable, match="refused"):
        await api.page("serving", namespace, 9401, "numbers", seconds=60, most=100)


async def test_nodes_and_storage_classes_are_read(api):
    nodes = await api.list(KubernetesNode)
    assert {"cpu", "memory", "ephemeral-storage"} <= nodes[0].status.allocatable.keys()
    assert nodes[0].status.node_info.kubelet_version.startswith("v1.")
    assert [found.name for found in await api.list(KubernetesStorageClass) if found.default] == ["standard"]


async def test_the_server_says_its_version_those_of_its_groups_and_what_we_may_do(api, namespace):
    assert (await api.version()).startswith("v1.")
    assert await api.versions("batch") == ("v1",)
    assert await api.versions("no.such.group") == ()
    assert await api.may("create", Pod, namespace, subresource="exec")


async def test_the_server_knows_who_asks(api, rig):
    mark = rig.request_mark()
    await api.list(KubernetesNode)
    assert await eventually(lambda: rig.requests("penstock/", mark))


# refusals


async def test_a_wrong_object_is_refused_with_each_field(api, namespace):
    body = pod("wrong", "true")
    body["spec"]["restartPolicy"] = "Sometimes"
    body["spec"]["containers"][0]["name"] = "Not A Name"
    with pytest.raises(KubernetesInvalid) as refused:
        await api.create(Pod, body, namespace)
    assert {problem["field"] for problem in refused.value.problems} >= {
        "spec.restartPolicy",
        "spec.containers[0].name",
    }


async def test_a_quota_speaks_for_itself(api, rig_namespace):
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"configmaps": "1"}}}
    await api.create(ResourceQuota, quota, rig_namespace)

    async def refused() -> AdmissionDenied:
        number = 0
        while True:
            number += 1
            try:
                await api.create(ConfigMap, config_map(f"one-{number}"), rig_namespace)
            except AdmissionDenied as error:
                return error

    async with asyncio.timeout(60):
        error = await refused()
    assert "few" in error.message
    assert isinstance(error.shown(), errors.Forbidden)


async def test_pod_security_speaks_for_itself(api, rig_namespace, rig):
    rig.kubectl("label", "namespace", rig_namespace, "pod-security.kubernetes.io/enforce=baseline")
    with pytest.raises(AdmissionDenied, match="violates PodSecurity"):
        await api.create(Pod, pod("rude", "true", hostNetwork=True), rig_namespace)


async def test_an_account_without_the_right_is_told_which(rig, namespace, tmp_path):
    api = KubernetesApi.open(rig.kubeconfig_for("default", namespace, tmp_path / "nobody"))
    assert not await api.may("list", Pod, namespace)
    with pytest.raises(KubernetesForbidden, match='cannot list resource "pods"') as refused:
        await api.list(Pod, namespace)
    assert "must give this right" in refused.value.shown().hint
    await api.close()


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (403, {"message": 'admission webhook "w.x" denied the request: no'}, AdmissionDenied),
        (400, {"message": 'admission webhook "w.x" denied the request: no'}, AdmissionDenied),
        (422, {"message": "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"}, AdmissionDenied),
        (403, {"message": 'pods "x" is forbidden: exceeded quota: q, requested: pods=1'}, AdmissionDenied),
        (403, {"message": 'pods is forbidden: User "u" cannot list resource "pods"'}, KubernetesForbidden),
        (409, {"reason": "AlreadyExists", "message": "it exists"}, AlreadyExists),
        (409, {"reason": "Conflict", "message": "it changed"}, KubernetesConflict),
        (429, {"message": "too many requests"}, Throttled),
        (500, {"reason": "InternalError", "message": "etcdserver: request timed out"}, KubernetesUnreachable),
        (504, {"message": "Too large", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}, VersionGone),
        (418, {"message": "a teapot"}, KubernetesError),
    ],
)
def test_each_refusal_has_its_class_and_keeps_the_servers_sentence(code, body, kind):
    error = failures.from_answer(code, json.dumps(body).encode())
    assert (type(error), error.message, error.status) == (kind, body["message"], code)


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"\xff\xfe", b"[1]", b'{"message": 3}'])
def test_an_answer_of_something_in_between_is_still_a_sentence(body):
    error = failures.from_answer(502, body)
    assert isinstance(error, KubernetesUnreachable)
    assert error.message


def every_failure(root: type[KubernetesError] = KubernetesError) -> list[type[KubernetesError]]:
    return [root, *(found for child in root.__subclasses__() for found in every_failure(child))]


@pytest.mark.parametrize("kind", every_failure())
def test_a_user_sees_an_error_of_penstock(kind):
    with pytest.raises(errors.PenstockError, match="Kubernetes: the server's sentence"), failures.shown():
        raise kind("the server's sentence")
    assert kind.__name__ in failures.__doc__ or kind.__module__ != failures.__name__


def every_transport_error(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(found for child in root.__subclasses__() for found in every_transport_error(child))]


@pytest.mark.parametrize("kind", every_transport_error(httpx2.TransportError))
def test_whatever_happens_on_the_way_is_told_with_the_servers_address(kind):
    error = failures.from_transport(kind("It broke."), "https://there")
    assert error.message.startswith("the API server at https://there ")


# trouble that passes


async def test_a_server_that_asks_to_wait_is_asked_again_after_that_time(shaky, proxy, monkeypatch):
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("penstock.engines.kubernetes.api.requests.asyncio.sleep", sleep)
    proxy.answer("/version", 429, {"message": "too many requests"}, times=2, Retry_After="7")
    assert (await shaky.version()).startswith("v1.")
    assert proxy.requests == ["GET /version"] * 3
    assert slept == [7, 7]
    assert shaky.trouble is None


async def test_a_server_that_asks_to_wait_longer_than_the_patience_is_not_waited_for(shaky, proxy):
    proxy.answer("/version", 429, {"message": "too many requests"}, times=99, Retry_After="3600")
    with pytest.raises(Throttled, match="too many requests"):
        await shaky.version()
    assert len(proxy.requests) == 1


async def test_a_write_is_repeated_when_the_server_fails_and_done_once(shaky, proxy, namespace):
    proxy.answer("POST", 500, {"reason": "InternalError", "message": "etcdserver: request timed out"})
    assert (await shaky.create(ConfigMap, config_map("once"), namespace)).name == "once"
    assert len(proxy.requests) == 2


async def test_a_server_that_is_gone_is_waited_for_and_said(shaky, proxy):
    await proxy.down()
    asked = asyncio.create_task(shaky.version())
    trouble = await eventually(lambda: shaky.trouble)
    assert trouble.startswith(f"the API server at {shaky.server} cannot be reached: ")
    await proxy.up()
    assert (await asked).startswith("v1.")
    assert shaky.trouble is None


async def test_a_server_that_stays_away_is_an_error_after_the_patience(proxy, tmp_path):
    api = KubernetesApi.open(proxy.kubeconfig(tmp_path / "config"), patience=0)
    await proxy.down()
    with pytest.raises(KubernetesUnreachable) as away:
        await api.version()
    assert isinstance(away.value.shown(), errors.Unavailable)
    await api.close()


async def test_a_server_that_does_not_answer_is_given_up_in_time(proxy, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.engines.kubernetes.api.connection.CALL_TIMEOUT", httpx2.Timeout(0.2))
    api = KubernetesApi.open(proxy.kubeconfig(tmp_path / "config"), patience=0)
    proxy.hold()
    with pytest.raises(KubernetesUnreachable, match="does not answer in time"):
        await api.version()
    await api.close()


async def test_what_is_no_kubernetes_is_told_as_such(shaky, proxy):
    proxy.answer("/nodes", 200, "<html>Welcome to the hotel</html>")
    with pytest.raises(KubernetesError, match="answer cannot be read"):
        await shaky.list(KubernetesNode)


async def test_a_null_is_as_good_as_nothing(shaky, proxy):
    """As some versions write what others leave out."""
    meta = {"name": "n", "labels": None, "annotations": None, "creationTimestamp": "2026-01-01T00:00:00Z"}
    node = {"metadata": meta, "spec": None, "status": {"conditions": None, "allocatable": {"cpu": "1"}}}
    proxy.answer("/nodes", 200, {"metadata": {"resourceVersion": "7", "continue": None}, "items": [node]})
    (found,) = await shaky.list(KubernetesNode)
    assert (found.name, found.labels, found.status.allocatable) == ("n", {}, {"cpu": "1"})
    assert found.metadata.creation_timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    proxy.answer("/nodes", 200, {"metadata": {}, "items": None})
    assert await shaky.list(KubernetesNode) == []


async def test_an_answer_that_breaks_off_is_asked_for_again(shaky, proxy):
    proxy.answer("/version", 200, '{"gitVersion": "v1.', Content_Length="500")
    assert (await shaky.version()).startswith("v1.")


async def test_not_found_is_no_trouble(shaky):
    with pytest.raises(KubernetesNotFound):
        await shaky.get(Pod, "nothing", "default")
    assert shaky.trouble is None
