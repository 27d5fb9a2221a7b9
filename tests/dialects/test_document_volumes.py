"""kind Workload: the volumes it mounts, and who is told what becomes of it."""

from __future__ import annotations

import pytest

from penstock.domain.states import State
from penstock.domain.workloads import Medium, Mount, Notice, Scratch
from tests.dialects.documents import problem_of, problems_of, spec_of, under_workload, workload_of

GIB = 1024**3
HOW_IT_ENDED = (State.EXITED, State.CRASHED, State.STOPPED, State.STUCK)


def test_volumes_are_mounted_made_and_shared():
    spec = spec_of(
        under_workload(
            "volumes:",
            "- {name: ml-data, target: /data}",
            "- {name: ml-data, target: /read, policy: readonly, subPath: a//b/}",
            "- {name: ml-data, target: /write, policy: rw}",
            "- {name: home, storage: nfs01, target: /home}",
            "- {name: mine, storage: nfs01, autoCreate: true, target: /mine}",
            "- {name: images, group: pwm.resource, target: /images}",
            "- {target: /scratch, size: 10Gi}",
            "- {target: /dev/shm, medium: memory}",
        )
    )
    assert spec.mounts == (
        Mount(path="/data", volume="ml-data", storage="pwm.all"),
        Mount(path="/read", volume="ml-data", read_only=True, sub_path="a/b", storage="pwm.all"),
        Mount(path="/write", volume="ml-data", storage="pwm.all"),
        Mount(path="/home", volume="home", storage="nfs01"),
        Mount(path="/mine", volume="mine", storage="nfs01"),
        Mount(path="/images", volume="images", group="pwm.resource"),
    )
    assert spec.scratch == (
        Scratch(path="/scratch", size_bytes=10 * GIB),
        Scratch(path="/dev/shm", medium=Medium.memory),
    )


@pytest.mark.parametrize("said", ["autoCreate: true, ", "storage: pwm.all, ", "group: vision, ", ""])
def test_what_is_made_without_a_storage_is_made_where_it_is_first_used(said):
    mounts = spec_of(under_workload(f"volumes: [{{name: here, {said}target: /here}}]")).mounts
    assert [mount.storage for mount in mounts] == ["pwm.all"]


def test_a_dataset_of_all_is_not_made_unless_that_is_said():
    volume = "name: images, group: pwm.resource, target: /images"
    assert spec_of(under_workload(f"volumes: [{{{volume}}}]")).mounts[0].storage is None
    assert spec_of(under_workload(f"volumes: [{{{volume}, autoCreate: true}}]")).mounts[0].storage == "pwm.all"


def test_a_volume_that_is_not_to_be_made_is_not_and_that_is_told():
    task = workload_of(under_workload("volumes: [{name: a, storage: s, target: /a, autoCreate: false}]")).task
    assert task.spec.mounts == (Mount(path="/a", volume="a"),)
    assert task.notices == ("spec.volumes[0].storage: is not asked, because 'autoCreate: false' makes no volume",)


@pytest.mark.parametrize(
    ("volumes", "said"),
    [
        ("[{name: a}]", "[0].target: is missing (for example 'target: /data')"),
        ("[{target: /a}]", "[0].name: is missing (for example 'name: ml-data')"),
        ("[{name: A, target: /a}]", "[0].name: 'A' is not a volume's name"),
        ("[{name: a, target: a}]", "[0].target: 'a' is not an absolute path"),
        ("[{name: a, target: /etc}]", "[0].target: '/etc' belongs to the system"),
        ("[{name: a, target: /a, subPath: ../b}]", "[0].subPath: '../b' is no directory below another one"),
        ("[{name: a, target: /a, subPath: /b}]", "[0].subPath: '/b' is absolute (write b)"),
        (
            "[{name: a, target: /a, policy: read-only}]",
            "[0].policy: must be readonly or rw, not 'read-only'",
        ),
        ("[{name: a, target: /a, group: a/b}]", "[0].group: 'a/b' is not a group's name"),
        ("[{name: a, target: /a, storage: A}]", "[0].storage: 'A' is not a storage's name"),
        ("[{name: a, target: /a, readOnly: true}]", "[0].readOnly: is not supported: Penstock has nothing for it"),
        ("[{name: a, target: /a}, {target: /a/, size: 1Gi}]", "[1].target: '/a' has something mounted already"),
        ("[{target: /a, size: big}]", "[0].size: 'big' is not a size"),
        ("{/a: a}", ": must be a list, not a mapping"),
        ("[a]", "[0]: must be a mapping, not a single text"),
    ],
)
def test_a_wrong_volume_is_said(volumes, said):
    assert f" spec.volumes{said}" in problems_of(under_workload(f"volumes: {volumes}"))[0]


# who is told


def test_someone_is_told_of_the_states_that_are_named():
    spec = spec_of(
        under_workload(
            "plugins:",
            "  webhook: {url: 'https://example.com/hook', sendOn: [CRASHED]}",
            "  telegram: [{id: 12345, sendOn: [RUNNING, EXITED]}, {id: '@lab'}]",
        )
    )
    assert spec.notify == (
        Notice(to="telegram:12345", on=(State.RUNNING, State.EXITED)),
        Notice(to="telegram:@lab", on=HOW_IT_ENDED),
        Notice(to="https://example.com/hook", on=(State.CRASHED,)),
    )


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        (
            "{slack: {}}",
            ".slack: is not supported: Penstock has nothing for it (remove it; supported here are telegram, webh",
        ),
        ("{telegram: {sendOn: [RUNNING]}}", ".telegram.id: is missing (for example 'id: 12345')"),
        ("{telegram: {id: me}}", ".telegram.id: 'me' is not a chat of Telegram"),
        (
            "{telegram: {id: 1, sendOn: [running]}}",
            ".telegram.sendOn[0]: 'running' is not a state (did you mean RUNNING?)",
        ),
        (
            "{telegram: {id: 1, sendOn: [ENDED]}}",
            ".telegram.sendOn[0]: 'ENDED' is not a state (one of INSERTED, DENIED, QU",
        ),
        ("{telegram: {id: 1, sendOn: []}}", ".telegram.sendOn: names no state"),
        ("{telegram: [{id: 1}, {id: 1}]}", ".telegram[1]: 'telegram:1' appears twice"),
        ("{webhook: {url: 'ftp://a'}}", ".webhook.url: 'ftp://a' is not an address one can be told at"),
        ("{webhook: {url: 'http://[a'}}", ".webhook.url: 'http://[a' is not an address one can be told at"),
    ],
)
def test_a_wrong_plugin_is_said(plugins, said):
    assert f" spec.plugins{said}" in problem_of(under_workload(f"plugins: {plugins}"))
