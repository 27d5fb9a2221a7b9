"""Nouns as documents that read back to the same, and the same workload in every way of writing."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.dialects.convert import ConvertTarget, convert
from penstock.dialects.document.types import AskedVolume, NounDocument, WorkloadDocument
from penstock.dialects.document.write import write_noun, write_workload
from penstock.dialects.documents import read_documents
from penstock.dialects.task.read import read_task
from penstock.dialects.task.write import write_task
from penstock.domain.model import now
from penstock.domain.nodes import Allows, Gpu, Host
from penstock.domain.policy import WORDS
from penstock.domain.states import State
from penstock.domain.users import Group, Limits, Membership, User
from penstock.domain.volumes import AccessMode, Storage, StorageKind, Volume
from penstock.domain.workloads import Mount, Notice, Port, Resources, Scratch, Selectors, Spec
from tests.dialects.documents import noun_of, spec_of
from tests.dialects.manifests import CLAIM, POD, SWEEP
from tests.dialects.test_task_write import GROUPS, NAMES, NODE_LABELS, NODES, SUB_PATHS, specs
from tests.e2e.pwm import CPU_TEST, DOCUMENTS, FIRST_TEST, TENSORFLOW

ONE_CPU = Resources(cpus_milli=1000, exclusive_cpus=True)
GIB = 1024**3
ONCE = (AccessMode.ReadWriteOnce,)


# Workload


@given(specs())
@example(Spec(run=None, resources=ONE_CPU.model_copy(update={"image": "a"})))
@example(Spec(run=None, resources=Resources(image="docker:dind"), terminal=True))
@example(Spec(run=("sh", "-c", "a 'b' \"c\""), resources=Resources(gpus=1, cpus_milli=1000, exclusive_cpus=True)))
@example(Spec(run=("-x", "~", "", "a\nb")))
@example(Spec(run=("null",), resources=Resources(gpus=2, cpus_milli=1500), selectors=Selectors(cpu_product="Xeon")))
def test_a_workload_reads_back_to_the_same(spec):
    named = spec.model_copy(update={"name": spec.name or "task"})
    (document,) = read_documents(write_workload(spec, "pwm.resource"), "written.yaml")
    assert isinstance(document, WorkloadDocument)
    assert document.group == "pwm.resource"
    assert document.task.spec == named
    assert read_task(write_task(document.task.spec), "written.yaml").spec == named


@pytest.mark.parametrize("text", [FIRST_TEST, CPU_TEST, TENSORFLOW])
def test_the_documents_own_workloads_are_two_spellings_of_one(text):
    task = convert(text, "d.yaml")
    assert read_task(task, "t.yaml").spec == spec_of(text)
    assert spec_of(convert(task, "t.yaml", to=ConvertTarget.document)) == spec_of(text)


def test_a_workload_is_written_as_the_document_has_it():
    spec = Spec(
        name="train",
        resources=Resources(gpus=2, gpu_products=("Quadro RTX 6000",), memory_bytes=8 * GIB, image="torch"),
        selectors=Selectors(node="gpu01", labels={"rack": "a"}),
        envs={"EPOCHS": "10"},
        labels={"team": "vision"},
        mounts=(Mount(path="/home", volume="home", storage="nfs01"), Mount(path="/a", volume="a", read_only=True)),
        scratch=(Scratch(path="/scratch", size_bytes=GIB),),
        run=("python", "train.py", "--epochs", "10"),
        terminal=True,
        ports=(Port(port=8888), Port(port=53, protocol="udp")),
        max_duration=3600,
        notify=(
            Notice(to="telegram:12345", on=(State.RUNNING, State.EXITED)),
            Notice(to="https://example.com/hook", on=(State.EXITED, State.CRASHED, State.STOPPED, State.STUCK)),
        ),
    )
    assert write_workload(spec, "vision") == (
        "apiVersion: v1\n"
        "kind: Workload\n"
        "metadata:\n"
        "  name: train\n"
        "  group: vision\n"
        "spec:\n"
        "  driver: pwm.docker\n"
        "  selectors:\n"
        "    node:\n"
        "      name: gpu01\n"
        "    gpu:\n"
        "      product_name: Quadro RTX 6000\n"
        "      count: 2\n"
        "    label:\n"
        "      rack: a\n"
        "  resources:\n"
        "    memory: 8Gi\n"
        "  image:\n"
        "    image: torch\n"
        "  config:\n"
        "    cmd: python train.py --epochs 10\n"
        "    env:\n"
        "      EPOCHS: '10'\n"
        "    labels:\n"
        "      team: vision\n"
        "    ports: [8888, 53/udp]\n"
        "  volumes:\n"
        "  - name: home\n"
        "    storage: nfs01\n"
        "    target: /home\n"
        "  - name: a\n"
        "    autoCreate: false\n"
        "    target: /a\n"
        "    policy: readonly\n"
        "  - target: /scratch\n"
        "    size: 1Gi\n"
        "  plugins:\n"
        "    telegram:\n"
        "      id: '12345'\n"
        "      sendOn: [RUNNING, EXITED]\n"
        "    webhook:\n"
        "      url: https://example.com/hook\n"
        "  max_duration: 1h\n"
    )


def test_the_shortest_task_as_a_document_asks_for_no_cpu_and_no_terminal():
    text = write_workload(Spec(run="echo hello"))
    assert text.startswith("# name: the task has none; a document needs one, here 'task'\napiVersion: v1\n")
    assert text.endswith(
        "spec:\n"
        "  driver: pwm.docker\n"
        "  selectors:\n"
        "    cpu:\n"
        "      product_name: pwm.all\n"
        "      count: 0\n"
        "  config:\n"
        "    startMode: -d\n"
        "  run: echo hello\n"
    )


# the other kinds

COUNTS = st.none() | st.integers(0, 1000)
LIMITS = st.builds(
    Limits,
    gpus=COUNTS,
    cpus_milli=COUNTS,
    workloads=COUNTS,
    volume_bytes=st.none() | st.just(0) | st.integers(1, 2**60),
)
SECONDS = st.none() | st.integers(1, 10**6)
VERBS = st.lists(st.sampled_from(sorted({*WORDS, "token"})), max_size=3, unique=True).map(tuple)
POLICIES = st.just("pwm.all") | st.dictionaries(st.sampled_from(["Workload", "GPU", "Token"]), VERBS, max_size=3)
VOLUMES = st.builds(
    AskedVolume,
    name=NAMES,
    sub_path=st.none() | SUB_PATHS,
    readonly=st.booleans(),
    size=st.none() | st.sampled_from(["10Gi", "1.5Ti", "1e12"]),
    access_modes=st.lists(st.sampled_from(AccessMode), max_size=3, unique=True).map(tuple),
).flatmap(
    lambda volume: st.tuples(st.sampled_from(["storage", "storage_class"]), st.none() | NODES).map(
        lambda where: volume.model_copy(update={where[0]: where[1]})
    )
)
STORAGES = st.builds(
    Storage,
    name=NODES,
    group=GROUPS,
    kind=st.just(StorageKind.nfs),
    server=st.sampled_from(["10.0.0.5", "nfs.lab", "fe80::1"]),
    path=st.sampled_from(["/", "/a", "/a b/#c"]),
) | st.builds(Storage, name=NODES, group=GROUPS, kind=st.just(StorageKind.local), node=NODES)
GPUS = st.lists(
    st.builds(
        Gpu,
        uuid=st.uuids().map(lambda uuid: f"GPU-{uuid}"),
        product=st.sampled_from(["A10", "Quadro RTX 6000"]),
        memory_bytes=st.integers(1, 2**40),
        minor=st.integers(0, 255),
    ),
    max_size=3,
    unique_by=lambda gpu: gpu.minor,
)
HOSTS = st.builds(
    Host,
    name=NODES,
    group=GROUPS,
    address=st.sampled_from(["unix:///run/docker.sock", "ssh://user@gpu01:22", "tcp://[::1]:2376"]),
    allows=st.sampled_from([(Allows.CPUWorkload,), (Allows.GPUWorkload,), tuple(Allows)]),
    maintenance=st.booleans(),
    labels=NODE_LABELS,
    gpus=GPUS.map(tuple),
)
NOUNS = st.one_of(
    VOLUMES,
    STORAGES,
    HOSTS,
    st.builds(
        Group,
        name=GROUPS,
        limits=LIMITS,
        limits_each=LIMITS,
        max_duration=SECONDS,
        idle_timeout=SECONDS,
        stop_idle=st.booleans(),
        max_priority=st.integers(0, 1000),
    ),
    st.builds(
        User,
        name=GROUPS,
        groups=st.lists(
            st.builds(Membership, name=GROUPS, policy=POLICIES), max_size=3, unique_by=lambda each: each.name
        ).map(tuple),
        active=st.booleans(),
        uid=st.none() | st.integers(0, 10**6),
    ),
)


@given(NOUNS)
def test_a_noun_reads_back_to_the_same(noun):
    (document,) = read_documents(write_noun(noun), "written.yaml")
    assert isinstance(document, NounDocument)
    assert document.noun == noun


def test_a_volume_is_written_with_the_group_it_is_said_to_be_in():
    text = write_noun(AskedVolume(name="a", storage="nfs01", readonly=True), "pwm.resource")
    assert text == (
        "apiVersion: v1\nkind: Volume\nmetadata:\n  name: a\n  group: pwm.resource\n"
        "spec:\n  storage: nfs01\n  policy: readonly\n"
    )


def test_a_volume_that_is_there_is_written_as_it_would_be_asked_for():
    about = {"id": "abcd2345", "name": "a", "group": "vision", "user": "alice", "created_at": now()}
    there = Volume(size="10Gi", size_bytes=10 * GIB, storage_class="fast", access_modes=ONCE, **about)
    assert AskedVolume.of(there) == AskedVolume(name="a", size="10Gi", storage_class="fast", access_modes=ONCE)
    dataset = {"storage": "nfs01", "sub_path": "a", "readonly": True}
    there = Volume(size="", size_bytes=0, storage_class="", access_modes=ONCE, **about, **dataset)
    assert AskedVolume.of(there) == AskedVolume(name="a", storage="nfs01", readonly=True)


def test_a_node_says_only_what_is_not_so_anyway():
    gpu = Gpu(uuid="GPU-gpu01-0", product="A10", memory_bytes=24 * GIB, minor=0)
    assert write_noun(Host(name="gpu01", group="vision", address="ssh://gpu01", gpus=(gpu,))) == (
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: gpu01\n  group: vision\n"
        "spec:\n  address: ssh://gpu01\n  gpus:\n  - {product_name: A10, memory: 24Gi}\n"
    )


def test_a_group_that_says_nothing_has_no_spec():
    assert write_noun(Group(name="vision")) == "apiVersion: v1\nkind: Group\nmetadata:\n  name: vision\n"


# convert


@pytest.mark.parametrize("text", DOCUMENTS)
def test_a_document_as_a_document_is_the_same_and_the_shortest(text):
    written = convert(text, "d.yaml", to=ConvertTarget.document)
    assert convert(written, "d.yaml", to=ConvertTarget.document) == written
    assert len(read_documents(written, "d.yaml")) == len(read_documents(text, "d.yaml"))


@pytest.mark.parametrize("manifest", [POD, SWEEP])
def test_a_manifest_becomes_a_document(manifest):
    task = read_task(convert(manifest, "m.yaml"), "t.yaml").spec
    text = "".join(
        line
        for line in convert(manifest, "m.yaml", to=ConvertTarget.document).splitlines(True)
        if not line.startswith("#")
    )
    assert spec_of(text) == task


def test_a_claim_becomes_a_volume():
    assert noun_of(convert(CLAIM, "m.yaml", to=ConvertTarget.document)) == AskedVolume(
        name="results-alice",
        size="1Gi",
        storage_class="rook-cephfs",
        access_modes=(AccessMode.ReadWriteMany,),
    )


def test_a_document_becomes_a_manifest_with_what_that_cannot_say_above_it():
    text = convert(TENSORFLOW, "d.yaml", to=ConvertTarget.kubernetes)
    assert text.startswith(
        "# selectors, terminal: cannot be said in a manifest that Penstock reads\n# exclusive_cpus: "
    )
    assert "kind: Job\n" in text


def test_a_task_stays_a_task_where_that_is_asked_for():
    assert convert("run:   a\n", "t.yaml", to=ConvertTarget.task) == "run: a\n"
