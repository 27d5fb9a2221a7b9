"""kinds Volume, Storage, Node, Group and User: what they read as, and what is said of one that is wrong."""

from __future__ import annotations

import pytest

from penstock.dialects.document.types import AskedVolume
from penstock.domain.nodes import Allows, Gpu, Host
from penstock.domain.policy import WORDS
from penstock.domain.users import Group, Limits, Membership, User
from penstock.domain.volumes import AccessMode, Storage, StorageKind
from tests.dialects.documents import a, noun_document, noun_of, problem_of, problems_of

GIB = 1024**3


# Volume


@pytest.mark.parametrize(
    ("spec", "volume"),
    [
        ("{storage: nfs01}", AskedVolume(name="one", storage="nfs01")),
        ("{storage: nfs01, subPath: ./a//b, policy: rw}", AskedVolume(name="one", storage="nfs01", sub_path="a/b")),
        (
            "{size: 10Gi, storage_class: fast, access_modes: [ReadWriteMany]}",
            AskedVolume(name="one", size="10Gi", storage_class="fast", access_modes=(AccessMode.ReadWriteMany,)),
        ),
        ("{}", AskedVolume(name="one")),
    ],
)
def test_a_volume_is_on_a_storage_or_where_its_class_makes_it(spec, volume):
    assert noun_of(a("Volume", spec)) == volume


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{subPath: ../other}", "subPath: '../other' is no directory below another one"),
        ("{subPath: a/../../b}", "subPath: 'a/../../b' is no directory below another one"),
        ("{subPath: /a}", "subPath: '/a' is absolute (write a)"),
        ("{policy: ro}", "policy: must be readonly or rw, not 'ro'"),
        ("{storage: a, storage_class: b}", "storage_class: cannot be together with 'storage'"),
        ("{size: 10}", "size: '10' has no unit (10Gi or 10Mi)"),
        ("{access_modes: [ReadWriteSome]}", "access_modes[0]: 'ReadWriteSome' is not an access mode"),
        ("{target: /a}", "target: is not supported: a workload says where it mounts it"),
        ("{storag: a}", "storag: is not supported: no field of that name is known; did you mean 'storage'?"),
    ],
)
def test_a_wrong_volume_is_said(spec, said):
    assert problem_of(a("Volume", spec)).startswith("d.yaml:4:")
    assert f" spec.{said}" in problem_of(a("Volume", spec))


# Storage


@pytest.mark.parametrize(
    "spec",
    [
        "{kind: nfs, nfs: {server: 192.168.186.65, path: /pwmzfs01/share_01}}",
        "{nfs: {server: 192.168.186.65, path: /pwmzfs01/share_01/}}",
    ],
)
def test_an_nfs_export_is_a_storage(spec):
    storage = noun_of(a("Storage", spec, name="pwmzfs01", group="pwm.resource"))
    assert storage == Storage(
        name="pwmzfs01",
        group="pwm.resource",
        kind=StorageKind.nfs,
        server="192.168.186.65",
        path="/pwmzfs01/share_01",
    )
    assert storage.mount == "192.168.186.65:/pwmzfs01/share_01"


def test_a_nodes_own_disk_is_one_too_in_the_group_of_whoever_applies_it():
    document = noun_document(a("Storage", "{kind: local, local: {node: jakku}}", name="jakku-local"))
    assert document.group is None
    assert document.within("vision") == Storage(
        name="jakku-local", group="vision", kind=StorageKind.local, node="jakku"
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{}", ": says neither an NFS export nor a node"),
        ("{kind: nfs}", ": says neither an NFS export nor a node"),
        ("{nfs: {server: a, path: /}, local: {node: b}}", ": says where it is twice"),
        ("{kind: local, nfs: {server: a, path: /}}", ".kind: is 'local', and there is 'nfs' beside it"),
        ("{kind: cifs}", ".kind: 'cifs' is not a kind of storage"),
        ("{nfs: {server: a}}", ".nfs.path: is missing"),
        ("{nfs: {path: /a}}", ".nfs.server: is missing"),
        ("{nfs: {server: 'a,soft', path: /a}}", ".nfs.server: 'a,soft' is not a host or address"),
        ("{nfs: {server: a, path: b}}", ".nfs.path: 'b' is not an export: an absolute path without '..' and ','"),
        ("{nfs: {server: a, path: /b/../c}}", ".nfs.path: '/b/../c' is not an export"),
        ("{nfs: {server: a, path: '/b,x'}}", ".nfs.path: '/b,x' is not an export"),
        ("{local: {node: pwm.all}}", ".local.node: must be one node"),
        ("{local: {}}", ".local.node: is missing"),
        ("{local: {node: a}, capacity: 1Ti}", ".capacity: is not supported: it is seen where the storage is"),
    ],
)
def test_a_wrong_storage_is_said(spec, said):
    assert f" spec{said}" in problem_of(a("Storage", spec))


def test_everything_that_is_wrong_with_a_storage_is_said_at_once():
    kind, server = problems_of(a("Storage", "{kind: cifs, nfs: {server: 'a b', path: /}}"))
    assert "spec.nfs.server: 'a b' is not a host or address" in server
    assert "spec.kind: 'cifs' is not a kind of storage" in kind


# Node


def test_a_node_is_a_docker_engine():
    text = a(
        "Node",
        "{address: 'ssh://root@10.0.0.7:2222', allow: [GPUWorkload], maintenance: true, labels: {rack: a}, gpus: ["
        "{product_name: Tesla V100, memory: 16Gi}, {product_name: A10, memory: 24Gi, minor_number: 4, uuid: GPU-9a}]}",
        name="gpu01",
        group="pwm.resource",
    )
    assert noun_of(text) == Host(
        name="gpu01",
        group="pwm.resource",
        address="ssh://root@10.0.0.7:2222",
        allows=(Allows.GPUWorkload,),
        maintenance=True,
        labels={"rack": "a"},
        gpus=(
            Gpu(uuid="GPU-gpu01-0", product="Tesla V100", memory_bytes=16 * GIB, minor=0),
            Gpu(uuid="GPU-9a", product="A10", memory_bytes=24 * GIB, minor=4),
        ),
    )


@pytest.mark.parametrize(
    "address",
    [
        "unix:///var/run/docker.sock",
        "ssh://gpu01",
        "ssh://user@gpu01.lab:22",
        "tcp://10.0.0.7:2376",
        "'tcp://[fe80::1]:2376'",
    ],
)
def test_a_node_is_reached_in_three_ways(address):
    host = noun_document(a("Node", f"{{address: {address}}}")).within("vision")
    assert host == Host(name="one", group="vision", address=address.strip("'"))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{address: ['10.0.0.7:3001']}", "address: must be a text, not a list (one of unix:///var/run/docker.sock, "),
        ("{address: '10.0.0.7:3001'}", "address: '10.0.0.7:3001' is not an address of a Docker engine (one of unix"),
        ("{address: 'http://a:1/b'}", "address: 'http://a:1/b' is not an address of a Docker engine"),
        ("{address: 'tcp://a:99999'}", "address: 'tcp://a:99999' is not an address of a Docker engine"),
        ("{address: 'tcp://a'}", "address: 'tcp://a' is not an address of a Docker engine"),
        ("{address: 'ssh://-oProxyCommand=x'}", "address: 'ssh://-oProxyCommand=x' is not an address"),
        ("{address: 'unix://docker.sock'}", "address: 'unix://docker.sock' is not an address"),
        ("{}", "address: is missing (one of unix:///var/run/docker.sock, ssh://user@host or tcp://host:2376)"),
        ("{address: 'ssh://a', allow: [Everything]}", "allow[0]: 'Everything' is not something a node takes"),
        ("{address: 'ssh://a', allow: []}", "allow: allows nothing ('maintenance: true' lets nothing new come)"),
        ("{address: 'ssh://a', maintenance: soon}", "maintenance: must be true or false, not 'soon'"),
        ("{address: 'ssh://a', gpus: [{memory: 1Gi}]}", "gpus[0].product_name: is missing"),
        ("{address: 'ssh://a', gpus: [{product_name: A10}]}", "gpus[0].memory: is missing"),
        ("{address: 'ssh://a', gpus: {A10: 2}}", "gpus: must be a list, not a mapping"),
        (
            "{address: 'ssh://a', gpus: [{product_name: A, memory: 1Gi, minor_number: 1},"
            " {product_name: A, memory: 1Gi}]}",
            "gpus[1]: another GPU has this number or uuid already: 1, GPU-one-1",
        ),
        ("{address: 'ssh://a', status: READY}", "status: is not supported: the server wrote it"),
    ],
)
def test_a_wrong_node_is_said(spec, said):
    assert f" spec.{said}" in problem_of(a("Node", spec))


# Group


def test_a_group_has_limits_and_defaults():
    text = a(
        "Group",
        "{limits: {gpus: 8, cpus: 64, workloads: 20, volume_size: 2Ti}, limits_each: {gpus: 0, cpus: 1500m},"
        " defaults: {max_duration: 12h, idle_timeout: 30m}, stop_idle: true, max_priority: 5}",
    )
    assert noun_of(text) == Group(
        name="one",
        limits=Limits(gpus=8, cpus_milli=64_000, workloads=20, volume_bytes=2 * 1024**4),
        limits_each=Limits(gpus=0, cpus_milli=1500),
        max_duration=43_200,
        idle_timeout=1800,
        stop_idle=True,
        max_priority=5,
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{limits: {gpu: 8}}", "limits.gpu: is not supported: no field of that name is known; did you mean 'gpus'?"),
        ("{limits: {gpus: many}}", "limits.gpus: must be a whole number from 0 to 1,000,000, not 'many'"),
        ("{limits_each: {volume_size: 10}}", "limits_each.volume_size: '10' has no unit"),
        (
            "{max_duration: 1h}",
            "max_duration: is not supported: it is what workloads have that say none (write it under",
        ),
        ("{defaults: {max_duration: long}}", "defaults.max_duration: 'long' is not a duration"),
        ("{defaults: {max_duration: 0}}", "defaults.max_duration: a duration must be more than zero (for example 30m)"),
        ("[]", "must be a mapping, not a list"),
    ],
)
def test_a_wrong_group_is_said(spec, said):
    assert said in problem_of(a("Group", spec))


# User


def test_an_admin_is_one_who_may_everything_everywhere():
    text = a("User", "{groups: [{name: pwm.all, policy: pwm.all}], active: false, uid: 1000}", name="Alice")
    assert noun_of(text) == User(
        name="Alice", groups=(Membership(name="pwm.all", policy="pwm.all"),), active=False, uid=1000
    )


def test_a_verb_may_stand_alone_and_every_verb_there_is_is_taken():
    every = ", ".join(dict.fromkeys([*WORDS, "token"]))
    text = a("User", f"{{groups: [{{name: a, policy: {{Workload: [{every}], Node: use, Volume: pwm.all, GPU: []}}}}]}}")
    user = noun_of(text)
    assert isinstance(user, User)
    assert user.groups[0].policy == {
        "Workload": tuple(dict.fromkeys([*WORDS, "token"])),
        "Node": ("use",),
        "Volume": ("pwm.all",),
        "GPU": (),
    }


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ("[{name: a, policy: all}]", "[0].policy: must be pwm.all, or lines of 'kind: [verbs]', not 'all'"),
        (
            "[{name: a, policy: {Workloads: [get]}}]",
            "[0].policy.Workloads: 'Workloads' is not a kind (did you mean 'Workload'? the kinds are Workload, GPU, C",
        ),
        (
            "[{name: a, policy: {Workload: [list]}}]",
            "[0].policy.Workload[0]: 'list' is not a verb (the verbs are get, getOne, describe, apply, delete, cancel",
        ),
        (
            "[{name: a, policy: {Workload: [gett]}}]",
            "[0].policy.Workload[0]: 'gett' is not a verb (did you mean 'get'? ",
        ),
        ("[{name: a}]", "[0].policy: is missing (for example 'policy: pwm.all')"),
        ("[{policy: pwm.all}]", "[0].name: is missing"),
        ("[{name: a/b, policy: pwm.all}]", "[0].name: 'a/b' is not a group's name"),
        ("[{name: a, policy: pwm.all}, {name: a, policy: {}}]", "[1].name: the group 'a' appears twice (say it once)"),
        ("[a]", "[0]: must be a mapping, not a single text"),
    ],
)
def test_a_wrong_membership_is_said(groups, said):
    assert f" spec.groups{said}" in problem_of(a("User", f"{{groups: {groups}}}"))


def test_what_is_wrong_beyond_the_text_is_said_at_the_membership():
    document = noun_document(a("User", "{groups: [{name: a, policy: {}}, {name: b, policy: {}}]}"))
    assert document.place("groups", "1", "name") == ("d.yaml:4:40", "spec.groups[1]")
    assert document.place("active") == ("d.yaml:1:1", "User")


def test_a_token_is_not_written_into_a_file():
    assert "spec.token: is not supported: tokens are made by the server" in problem_of(a("User", "{token: secret}"))
