"""Values of `secrets` are in a Secret of the Job alone; a manifest names only Secrets that are its group's."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.states import State
from penstock.domain.workloads import FromSecret, Spec, Workload
from penstock.engines.base import Launch
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.engines.kubernetes.runs import KubernetesRuns
from penstock.errors import PenstockError
from tests.engines.kubernetes.deployed import Deployed
from tests.engines.kubernetes.making import eventually
from tests.engines.kubernetes.opening import opened
from tests.engines.kubernetes.test_adoption import with_record
from tests.engines.launches import a_launch, ended, outcome, run_of
from tests.rig.cluster import Rig

SHOW = "echo ${#TOKEN} $PLAIN; sleep 0.1"
"""Of the secret only how long it is."""


@pytest.fixture
async def engine(account: Deployed, tmp_path: Path) -> AsyncIterator[KubernetesEngine]:
    async with opened(account.settings(tmp_path)) as engine:
        yield engine


def with_secret(value: str, run: str = SHOW, **fields: Any) -> Launch:
    return with_record(a_launch(run, envs={"TOKEN": value, "PLAIN": "shown"}, secrets=("TOKEN",), **fields))


def found(rig: Rig, kinds: str, namespace: str) -> str:
    return rig.kubectl("get", kinds, "-n", namespace, "-o", "json")


async def test_no_object_but_the_secret_has_the_value(engine: KubernetesEngine, account: Deployed) -> None:
    value = f"$(PLAIN)-$${secrets.token_hex(12)}-{secrets.token_hex(12)}"
    launch = with_secret(value, "sleep 600")
    await engine.start(launch)
    pods = await eventually(lambda: [p for p in engine._cluster.pods_of(run_of(launch)) if p.status.phase == "Running"])
    assert len(pods) == 1
    everything = found(account.rig, "jobs,pods,events,services,configmaps,controllerrevisions", account.jobs)
    everything += json.dumps(await engine.inspect(run_of(launch)))
    assert launch.workload_id in everything
    encoded = base64.b64encode(value.encode()).decode()
    for text in (value, value.replace("$", "$$"), encoded, value.rsplit("-", 1)[1]):
        assert text not in everything
    await engine.remove(run_of(launch))


async def test_the_program_has_it_letter_for_letter_and_the_secret_goes_with_the_job(
    engine: KubernetesEngine, account: Deployed
) -> None:
    value = "$(PLAIN) $$ $HOME 'x' \"y\"\n  z ü"
    launch = with_secret(value, 'printf %s "$TOKEN" | base64 -w0')
    report, log = await outcome(engine, launch)
    assert report.units[0].state is State.EXITED
    assert base64.b64decode(log).decode() == value
    assert f"try-{launch.workload_id}" in account.rig.kubectl("get", "secrets", "-n", account.jobs, "-o", "name")
    await engine.remove(run_of(launch))
    await eventually(
        lambda: launch.workload_id not in account.rig.kubectl("get", "secrets", "-n", account.jobs, "-o", "name")
    )


async def test_a_start_that_was_cut_off_after_the_job_is_finished_by_the_next(
    account: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = with_secret("x" * 20)

    async def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    first = KubernetesEngine(account.settings(tmp_path / "first"))
    await first.open()
    with monkeypatch.context() as patch:
        patch.setattr(KubernetesRuns, "_give_secret", killed)
        with pytest.raises(RuntimeError):
            await first.start(launch)
    await first.close()
    async with opened(account.settings(tmp_path / "second")) as second:
        await second.start(launch)
        await second.start(launch)
        assert (await ended(second, run_of(launch), 120)).units[0].state is State.EXITED


async def test_a_lost_database_has_the_values_again(engine: KubernetesEngine, account: Deployed) -> None:
    kept, lost = with_secret("kept", "sleep 600"), with_secret("lost", "sleep 600")
    for launch in (kept, lost):
        await engine.start(launch)
    await eventually(lambda: all(engine._cluster.jobs_of(run_of(launch)) for launch in (kept, lost)))
    account.rig.kubectl("delete", "secret", "-n", account.jobs, f"try-{lost.workload_id}")
    adopted = {each.id: each for each in (await engine.found(())).workloads}
    assert adopted[kept.workload_id] == Workload.model_validate_json(kept.record)
    without = adopted[lost.workload_id]
    assert (without.spec.envs, without.spec.secrets) == ({"PLAIN": "shown"}, ())
    assert "the values of TOKEN were lost" in without.notices[-1]


async def test_a_secret_that_somebody_else_made_in_its_place_is_not_taken(
    engine: KubernetesEngine, account: Deployed
) -> None:
    launch = with_secret("mine")
    make(account.rig, account.jobs, f"try-{launch.workload_id}", {"TOKEN": "planted"})
    with pytest.raises(PenstockError, match="Penstock did not make"):
        await engine.start(launch)
    await eventually(lambda: not engine._cluster.jobs_of(run_of(launch)))


# -- those that a manifest names ---------------------------------------------------------------------------------------


def make(rig: Rig, namespace: str, name: str, data: dict[str, str], **more: Any) -> None:
    metadata = {"name": name, "namespace": namespace} | more.pop("metadata", {})
    rig.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data} | more)


def naming(*secrets_: str, **fields: Any) -> dict[str, Any]:
    return {"from_secrets": tuple(FromSecret(secret=name) for name in secrets_)} | fields


async def test_in_a_namespace_of_all_a_secret_is_for_the_groups_written_on_it(
    engine: KubernetesEngine, account: Deployed
) -> None:
    rig, here = account.rig, account.jobs
    make(rig, here, "hub", {"token": "t", "B": "b"}, metadata={"annotations": {names.GROUPS: "vision, ada"}})
    make(rig, here, "nobodys", {"token": "t"})
    both = (FromSecret(secret="hub", prefix="X_"), FromSecret(secret="hub", key="token", name="TOKEN"))
    report, log = await outcome(engine, a_launch("echo $TOKEN $X_B $X_token", from_secrets=both))
    assert (report.units[0].state, log) == (State.EXITED, "t b t\n")
    (refusal,) = await engine.refusals(Spec(run="true", **naming("nobodys")), ("ada", "ada"))
    assert refusal.message == f"there is no Secret 'nobodys' in {here} that jobs of group ada may use"
    assert f"{names.GROUPS}=ada" in (refusal.hint or "")
    for spec in (naming("nobodys"), naming("not-there"), naming("hub", group="eve"), {"pull_secrets": ("nobodys",)}):
        with pytest.raises(PenstockError, match="there is no Secret"):
            await engine.start(a_launch("true", **spec))


async def test_what_penstock_made_for_a_job_and_accounts_tokens_are_never_named(
    engine: KubernetesEngine, account: Deployed
) -> None:
    """Not even where somebody wrote the group on them."""
    mine = with_secret("mine", "sleep 600")
    await engine.start(mine)
    allowed = {names.GROUPS: "eve"}
    own = f"try-{mine.workload_id}"
    account.rig.kubectl("annotate", "secret", "-n", account.jobs, own, f"{names.GROUPS}=eve")
    token = {"annotations": {"kubernetes.io/service-account.name": "default"} | allowed}
    make(account.rig, account.jobs, "token", {}, type="kubernetes.io/service-account-token", metadata=token)
    for name in (own, "token"):
        (refusal,) = await engine.refusals(Spec(run="true", **naming(name)), ("eve", "eve"))
        assert refusal.message.startswith(f"there is no Secret '{name}'")
        with pytest.raises(PenstockError, match="there is no Secret"):
            await engine.start(a_launch("true", user="eve", group="eve", **naming(name)))


async def test_images_are_pulled_with_what_the_manifest_names(engine: KubernetesEngine, account: Deployed) -> None:
    allowed = {"metadata": {"annotations": {names.GROUPS: "ada"}}}
    registry = {".dockerconfigjson": json.dumps({"auths": {}})}
    make(account.rig, account.jobs, "registry", registry, type="kubernetes.io/dockerconfigjson", **allowed)
    make(account.rig, account.jobs, "opaque", {"a": "b"}, **allowed)
    launch = a_launch("true", pull_secrets=("registry",))
    report, _ = await outcome(engine, launch)
    assert report.units[0].state is State.EXITED
    (job,) = [
        raw for raw in json.loads(found(account.rig, "jobs", account.jobs))["items"] if launch.workload_id in str(raw)
    ]
    assert job["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    (refusal,) = await engine.refusals(Spec(run="true", pull_secrets=("opaque",)), ("ada", "ada"))
    assert refusal.message == "the Secret 'opaque' has no credentials of a registry"
