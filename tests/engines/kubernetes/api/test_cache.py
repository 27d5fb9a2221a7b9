"""A cache says what the cluster has, also after the worst, and says when it cannot know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.engines.kubernetes.api import cache as cache_module
from penstock.engines.kubernetes.api import client as api_module
from penstock.engines.kubernetes.api.cache import Cache, EventCache, by_claim, by_node
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import KubernetesForbidden, VersionGone
from penstock.engines.kubernetes.api.objects import Job, KubernetesObject, Pod
from penstock.engines.kubernetes.api.resources import KubernetesEvent
from tests.engines.kubernetes.making import IMAGE, ConfigMap, config_map, eventually, pod


@asynccontextmanager
async def running(cache: Cache[Any]) -> AsyncIterator[Cache[Any]]:
    cache.start()
    try:
        async with asyncio.timeout(60):
            await cache.synced()
        yield cache
    finally:
        await cache.close()


def by_n(item: KubernetesObject) -> Iterable[str]:
    value = item.labels.get("n")
    return () if value is None else (value,)


async def until(cache: Cache[Any], holds: Callable[[], Any]) -> None:
    """Looks after each change, not in between."""
    changed = asyncio.Event()
    cache.subscribe(lambda *_: changed.set())
    async with asyncio.timeout(60):
        while not holds():
            await changed.wait()
            changed.clear()


async def watch_from(api: KubernetesApi, version: str) -> None:
    async with asyncio.timeout(60), api.watch(ConfigMap, version, "kept") as changes:
        async for _ in changes:
            pass


def names(cache: Cache[Any]) -> set[str]:
    return {item.name for item in cache.all()}


async def test_it_has_what_was_there_and_sees_what_is_made_changed_and_deleted(api, rig_namespace):
    await api.create(ConfigMap, config_map("before", n="1"), rig_namespace)
    told = []
    async with running(Cache(api, ConfigMap, rig_namespace, labels="n")) as cache:
        assert names(cache) == {"before"}
        assert cache.get("before", rig_namespace).labels == {"n": "1"}
        cache.subscribe(lambda old, new: told.append((old and old.labels["n"], new and new.labels["n"])))
        await api.create(ConfigMap, config_map("after", n="2"), rig_namespace)
        await api.patch(ConfigMap, "after", {"metadata": {"labels": {"n": "3"}}}, rig_namespace)
        await api.delete(ConfigMap, "before", rig_namespace)
        await until(cache, lambda: len(told) == 3)
        assert told == [(None, "2"), ("2", "3"), ("1", None)]
        assert (names(cache), len(cache), cache.stale) == ({"after"}, 1, None)
        assert cache.get("before", rig_namespace) is None


async def test_the_watch_begins_at_the_version_of_the_list(shaky, proxy, rig_namespace):
    """Not at the version of an item: with none, or old ones, everything since would come again or be refused."""
    async with running(Cache(shaky, ConfigMap, rig_namespace, labels="none=such")) as cache:
        await eventually(lambda: cache.stale is None)
    (listed,) = [page async for page in shaky.pages(ConfigMap, rig_namespace, labels="none=such")]
    watch = next(line for line in proxy.requests if "watch=true" in line)
    version = int(watch.split("resourceVersion=")[1].split("&")[0])
    assert 1 < version <= int(listed.metadata.version)
    assert "allowWatchBookmarks=true" in watch


async def test_nothing_is_asked_of_the_server_when_something_is_read(shaky, proxy, rig_namespace):
    await shaky.create(ConfigMap, config_map("read", n="1"), rig_namespace)
    cache = Cache(shaky, ConfigMap, rig_namespace, indexes={"n": by_n})
    async with running(cache):
        await eventually(lambda: cache.stale is None)
        before = list(proxy.requests)
        for _ in range(100):
            assert cache.get("read", rig_namespace)
            assert cache.by("n", "1")
            assert len(cache.all()) == len(cache)
        assert proxy.requests == before


async def test_many_pages_are_one_picture(api, rig_namespace, monkeypatch):
    monkeypatch.setattr(api_module, "PAGE", 2)
    wanted = {f"p{number}" for number in range(5)}
    for name in wanted:
        await api.create(ConfigMap, config_map(name), rig_namespace)
    async with running(Cache(api, ConfigMap, rig_namespace, fields="metadata.name!=kube-root-ca.crt")) as cache:
        assert names(cache) == wanted


async def test_pods_are_found_by_label_claim_and_node(api, rig_namespace, rig):
    template = pod("x", "sleep 1000")["spec"] | {"nodeName": rig.node_names[0]}
    template["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    job = {"metadata": {"name": "j"}, "spec": {"template": {"metadata": {"labels": {"n": "1"}}, "spec": template}}}
    indexes = {"label": by_n, "claim": by_claim, "node": by_node}
    async with running(Cache(api, Pod, rig_namespace, indexes=indexes)) as cache:
        await api.create(Job, job, rig_namespace)
        await until(cache, lambda: len(cache) == 1)
        (found,) = cache.all()
        assert cache.by("label", "1") == [found]
        assert cache.by("claim", f"{rig_namespace}/data") == [found]
        assert cache.by("node", rig.node_names[0]) == [found]
        await api.patch(Pod, found.name, {"metadata": {"labels": {"n": "2"}}}, rig_namespace)
        await until(cache, lambda: cache.by("label", "2"))
        assert cache.by("label", "1") == []
        await api.delete(Job, "j", rig_namespace)
        await until(cache, lambda: len(cache) == 0)
        assert not any(cache.by(index, value) for index, value in (("label", "2"), ("node", found.spec.node_name)))


async def test_only_what_is_kept_is_kept(api, rig_namespace):
    def keep(item: ConfigMap) -> ConfigMap | None:
        if "drop" in item.labels:
            return None
        return replace(item, metadata=replace(item.metadata, annotations={}))

    async with running(Cache(api, ConfigMap, rig_namespace, keep=keep)) as cache:
        body = config_map("kept", here="1")
        body["metadata"]["annotations"] = {"long": "x" * 1000}
        await api.create(ConfigMap, body, rig_namespace)
        await until(cache, lambda: "kept" in names(cache))
        assert cache.get("kept", rig_namespace).annotations == {}
        await api.patch(ConfigMap, "kept", {"metadata": {"labels": {"drop": "1"}}}, rig_namespace)
        await until(cache, lambda: "kept" not in names(cache))


async def test_a_listener_that_fails_disturbs_nobody(api, rig_namespace, caplog):
    def broken(*_: object) -> None:
        raise RuntimeError("listener")

    async with running(Cache(api, ConfigMap, rig_namespace)) as cache:
        cache.subscribe(broken)
        await api.create(ConfigMap, config_map("a"), rig_namespace)
        await until(cache, lambda: "a" in names(cache))
    assert "a change of configmaps was not taken in" in caplog.text


# when things go wrong


async def test_a_broken_watch_goes_on_where_it_stood_without_a_new_list(shaky, proxy, api, rig_namespace):
    async with running(Cache(shaky, ConfigMap, rig_namespace)) as cache:
        await api.create(ConfigMap, config_map("one"), rig_namespace)
        await until(cache, lambda: "one" in names(cache))
        told = []
        cache.subscribe(lambda old, new: told.append((new or old).name))
        await proxy.down()
        await eventually(lambda: cache.stale)
        assert "cannot be reached" in cache.stale.why
        await api.create(ConfigMap, config_map("two"), rig_namespace)
        await api.delete(ConfigMap, "one", rig_namespace)
        proxy.requests.clear()
        await proxy.up()
        await until(cache, lambda: told == ["two", "one"])
        await eventually(lambda: cache.stale is None)
        assert all("watch=true" in line for line in proxy.requests)


async def test_a_watch_that_comes_back_at_once_was_never_stale(shaky, proxy, rig_namespace):
    async with running(Cache(shaky, ConfigMap, rig_namespace)) as cache:
        await eventually(lambda: cache.stale is None)
        begun = len(proxy.requests)
        proxy.cut()
        while len(proxy.requests) == begun:
            assert cache.stale is None
            await asyncio.sleep(0.01)


async def test_a_forgotten_version_is_listed_anew_and_the_differences_are_told(shaky, proxy, api, rig_namespace):
    """410 comes as the answer, or as the first word of a watch that was accepted."""
    for name in ("stays", "changes", "vanishes"):
        await api.create(ConfigMap, config_map(name, n="1"), rig_namespace)
    async with running(Cache(shaky, ConfigMap, rig_namespace, labels="n", indexes={"n": by_n})) as cache:
        told = []
        cache.subscribe(lambda old, new: told.append((old and old.name, new and new.name)))
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (9)"}
        proxy.answer("watch=true", 410, gone)
        proxy.answer("watch=true", 200, {"type": "ERROR", "object": gone})
        await proxy.down()
        await eventually(lambda: cache.stale)
        await api.patch(ConfigMap, "changes", {"metadata": {"labels": {"n": "2"}}}, rig_namespace)
        await api.delete(ConfigMap, "vanishes", rig_namespace)
        await api.create(ConfigMap, config_map("appears", n="1"), rig_namespace)
        await proxy.up()
        await until(cache, lambda: len(told) == 3)
        assert sorted(told, key=str) == [("changes", "changes"), ("vanishes", None), (None, "appears")]
        assert {item.name for item in cache.by("n", "1")} == {"stays", "appears"}
        await eventually(lambda: cache.stale is None)


async def test_a_throttled_watch_waits_as_it_is_told_and_says_why(shaky, proxy, rig_namespace):
    proxy.answer("watch=true", 429, {"message": "too many requests, please try again later"}, Retry_After="1")
    async with running(Cache(shaky, ConfigMap, rig_namespace)) as cache:
        await eventually(lambda: "too many requests" in cache.stale.why)
        await eventually(lambda: cache.stale is None)


async def test_a_watch_that_falls_silent_is_begun_again(shaky, proxy, rig_namespace, monkeypatch):
    monkeypatch.setattr(api_module, "QUIET_SECONDS", 0.3)
    async with running(Cache(shaky, ConfigMap, rig_namespace)):
        await eventually(lambda: sum("watch=true" in line for line in proxy.requests) >= 3)


async def test_a_watch_that_is_not_answered_is_noticed_before_it_would_be_silent(
    shaky, proxy, rig_namespace, monkeypatch
):
    monkeypatch.setattr(api_module, "BEGIN_SECONDS", 0.2)
    async with running(Cache(shaky, ConfigMap, rig_namespace)) as cache:
        await eventually(lambda: cache.stale is None)
        proxy.hold()
        proxy.cut()
        assert "does not answer in time" in (await eventually(lambda: cache.stale)).why
        proxy.release()
        await eventually(lambda: cache.stale is None)


async def test_a_watch_that_the_server_ends_is_begun_again(shaky, proxy, rig_namespace, monkeypatch):
    monkeypatch.setattr(KubernetesApi.watch, "__kwdefaults__", {"labels": None, "fields": None, "seconds": 1})
    async with running(Cache(shaky, ConfigMap, rig_namespace)) as cache:
        await eventually(lambda: sum("watch=true" in line for line in proxy.requests) >= 3)
        assert cache.stale is None


async def test_a_server_that_is_away_at_the_start_is_waited_for(shaky, proxy, rig_namespace):
    await proxy.down()
    cache = Cache(shaky, ConfigMap, rig_namespace)
    cache.start()
    try:
        await eventually(lambda: shaky.trouble)
        assert cache.stale
        await proxy.up()
        async with asyncio.timeout(60):
            await cache.synced()
    finally:
        await cache.close()


async def test_a_missing_right_is_told_instead_of_waited_for(rig, rig_namespace, tmp_path):
    api = KubernetesApi.open(rig.kubeconfig_for("default", rig_namespace, tmp_path / "nobody"))
    cache = Cache(api, Pod, rig_namespace)
    cache.start()
    try:
        with pytest.raises(KubernetesForbidden, match='cannot list resource "pods"'):
            await cache.synced()
        assert "cannot list" in cache.stale.why
        grant = ("--clusterrole=view", f"--serviceaccount={rig_namespace}:default", "-n", rig_namespace)
        rig.kubectl("create", "rolebinding", "view", *grant)
        await eventually(lambda: cache.stale is None)
        await cache.synced()
    finally:
        await cache.close()
        await api.close()


@pytest.mark.timeout(300)
async def test_an_api_server_that_is_killed_and_started_again_costs_no_change(own_rig):
    """A server that starts has forgotten every version before its start: a real 410."""
    own_rig.make_namespace("kept")
    api = KubernetesApi.open(own_rig.kubeconfig)
    for name in ("stays", "vanishes"):
        await api.create(ConfigMap, config_map(name, n="1"), "kept")
    told = []
    async with running(Cache(api, ConfigMap, "kept", labels="n")) as cache:
        cache.subscribe(lambda old, new: told.append((old and old.name, new and new.name)))
        await asyncio.to_thread(own_rig.stop, "apiserver")
        try:
            await eventually(lambda: cache.stale and "cannot be reached" in cache.stale.why)
            assert names(cache) == {"stays", "vanishes"}
        finally:
            await asyncio.to_thread(own_rig.start, "apiserver")
            await asyncio.to_thread(own_rig.control.wait_for_apiserver)
        with pytest.raises(VersionGone, match="too old"):
            await watch_from(api, "1")
        own_rig.kubectl("delete", "configmap", "vanishes", "-n", "kept")
        own_rig.kubectl("create", "configmap", "appears", "-n", "kept")
        own_rig.kubectl("label", "configmap", "appears", "-n", "kept", "n=1")
        await until(cache, lambda: len(told) == 2)
        assert sorted(told, key=str) == [("vanishes", None), (None, "appears")]
        await eventually(lambda: cache.stale is None)
    await api.close()


@pytest.mark.timeout(300)
async def test_an_api_server_that_stands_still_is_noticed(own_rig, monkeypatch):
    monkeypatch.setattr(api_module, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr("penstock.engines.kubernetes.api.connection.CALL_TIMEOUT", 1.0)
    api = KubernetesApi.open(own_rig.kubeconfig, patience=0)
    async with running(Cache(api, ConfigMap, "default")) as cache:
        await eventually(lambda: cache.stale is None)
        own_rig.pause("apiserver")
        try:
            assert "in time" in (await eventually(lambda: cache.stale)).why
        finally:
            own_rig.resume("apiserver")
        await eventually(lambda: cache.stale is None)
    await api.close()


# events


def event(name: str, uid: str, kind: str = "Pod", at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    about = {"kind": kind, "name": "x", "namespace": "", "uid": uid}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": name, "lastTimestamp": at}


async def test_what_kubernetes_says_about_a_pod_is_found_in_order(api, rig_namespace):
    async with running(EventCache(api, rig_namespace)) as events:
        body = pod("said", "true")
        body["spec"]["containers"][0]["image"] = IMAGE
        made = await api.create(Pod, body, rig_namespace)
        await until(events, lambda: "Started" in [event.reason for event in events.about(made.uid)])
        reasons = [event.reason for event in events.about(made.uid)]
        assert reasons[0] == "Scheduled"
        assert reasons.index("Created") < reasons.index("Started")
        assert events.about(made.uid)[0].times == 1


async def test_events_are_bounded_by_number_and_by_kind(api, rig_namespace, monkeypatch):
    monkeypatch.setattr(cache_module, "MOST_EVENTS", 4)
    bodies = [event(f"a{n}", "A", at=f"2026-01-01T00:00:0{n}Z") for n in range(5)]
    bodies += [event(f"b{n}", "B") for n in range(2)] + [event("n1", "N", kind="Node")]
    for body in bodies:
        body["involvedObject"]["namespace"] = rig_namespace
        body["metadata"]["namespace"] = rig_namespace
    async with running(EventCache(api, rig_namespace)) as events:
        for body in bodies:
            await api.create(KubernetesEvent, body, rig_namespace)
        await until(events, lambda: "b1" in names(events))
        assert [event.reason for event in events.about("A")] == ["a3", "a4"]
        assert [event.reason for event in events.about("B")] == ["b0", "b1"]
        assert (events.about("N"), len(events)) == ([], 4)
