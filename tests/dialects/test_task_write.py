"""What is written reads back to the same, and is what a person would have written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.dialects.task.notify import HOW_IT_ENDED
from penstock.dialects.task.read import read_task
from penstock.dialects.task.write import write_task
from penstock.domain.names import suggest_name
from penstock.domain.paths import NotAMountPath, mount_path
from penstock.domain.quantities import LARGEST
from penstock.domain.states import State
from penstock.domain.workloads import (
    UNLIMITED,
    Array,
    Medium,
    Mount,
    Notice,
    Port,
    Requests,
    Resources,
    Scratch,
    Selectors,
    Spec,
)


def is_mount_path(path: str) -> bool:
    try:
        return mount_path(path) == path and path != "/workdir"
    except NotAMountPath:
        return False


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SCRIPTS = (TEXT | st.text("ab #:-'\"|>&*!%@\\\n\t ")).filter(str.strip)
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,46}[a-z0-9])?", fullmatch=True) | st.just("no") | st.just("null")
REFERENCES = NAMES | st.from_regex(r"[a-z0-9]{1,8}(\.[a-z0-9]{1,8}){0,2}", fullmatch=True)
PATHS = st.from_regex(r"(/[a-zA-Z0-9 _.:#-]{1,12}){1,3}", fullmatch=True).filter(is_mount_path)
VARIABLES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
PRODUCTS = st.from_regex(r"[A-Za-z]([A-Za-z0-9 ._-]{0,10}[A-Za-z0-9])?", fullmatch=True)
GPUS = st.one_of(
    st.tuples(st.integers(0, 1000), st.just(())),
    st.tuples(st.integers(1, 1000), st.lists(PRODUCTS, min_size=1, max_size=3, unique=True).map(tuple)),
)
IMAGES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,20}", fullmatch=True).filter(
    lambda image: not image.startswith("docker:")
)
WORKDIRS = st.from_regex(r"[a-z./][a-z ./-]{0,10}", fullmatch=True).filter(str.strip)


CPUS = st.none() | st.integers(1, 999_999) | st.integers(1, 999).map(lambda n: n * 1000)
SIZES = st.none() | st.integers(1024**2, LARGEST) | st.integers(1, 999).map(lambda n: n * 1024**3)
SECONDS = st.integers(0, 2**31 - 1)
PROGRAMS = st.tuples(SCRIPTS) | st.lists(TEXT | SCRIPTS, max_size=4).flatmap(
    lambda rest: SCRIPTS.map(lambda program: (program, *rest))
)
ARRAYS = st.tuples(st.integers(1, 10_000), st.none() | st.integers(1, 10_000)).map(
    lambda asked: Array(count=asked[0], parallelism=asked[1] if asked[1] and asked[1] < asked[0] else None)
)
GROUPS = st.sampled_from(["alice", "pwm.resource", "yourUserName", "no", "1e3", "a@b.c"])
NODES = st.sampled_from(["gpu01", "1", "null", "node-2.lab"])
TEXTS = st.sampled_from(["Xeon", "Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", "a: b #c", "{x}", "[y]", "~", "ü", "&z"])
LABELS = st.dictionaries(
    st.sampled_from(["team", "yes", "0x1", "example.com/part-of"]), TEXTS | st.just(""), max_size=3
)
NODE_LABELS = st.dictionaries(st.sampled_from(["rack", "example.com/zone"]), NODES | st.just(""), max_size=2)
SELECTORS = st.builds(
    Selectors, node=st.none() | NODES, cpu_product=st.none() | TEXTS, labels=NODE_LABELS, spread=st.booleans()
)
PORTS = st.builds(Port, port=st.integers(1, 65_535), protocol=st.sampled_from(["tcp", "udp"]))
STATES = st.lists(st.sampled_from(State), min_size=1, max_size=3, unique=True).map(tuple) | st.just(HOW_IT_ENDED)
CHATS = st.sampled_from(["telegram:12345", "telegram:-100", "telegram:@lab"])
HOOKS = st.sampled_from(["https://a.example/x?y=z&t=#{1}", "http://[::1]:8000/", "http://b/[*],:"])
SUB_PATHS = st.sampled_from(["a", "a/b c", "0", "no", ": #", "datasets/hmdb_ucf"])


@st.composite
def notices(draw) -> tuple[Notice, ...]:
    told = [*draw(st.lists(CHATS, max_size=2, unique=True)), *draw(st.lists(HOOKS, max_size=2, unique=True))]
    return tuple(Notice(to=to, on=draw(STATES)) for to in told)


@st.composite
def mounts_at(draw, path: str) -> Mount:
    volume, read_only = draw(REFERENCES), draw(st.booleans())
    if draw(st.booleans()):
        return Mount(path=path, volume=volume, read_only=read_only)
    return Mount(
        path=path,
        volume=volume,
        read_only=read_only,
        group=draw(st.none() | GROUPS),
        storage=draw(st.none() | REFERENCES),
        sub_path=draw(st.none() | SUB_PATHS),
    )


@st.composite
def asked_resources(draw) -> Resources:
    """A request never reaches its limit: one that does says nothing."""
    gpus, products = draw(GPUS)
    limits = {"cpus_milli": draw(CPUS), "memory_bytes": draw(SIZES), "disk_bytes": draw(SIZES)}
    wanted = {"cpus_milli": draw(CPUS), "memory_bytes": draw(SIZES), "disk_bytes": draw(SIZES)}
    requests = {
        key: amount for key, amount in wanted.items() if amount and (limits[key] is None or amount < limits[key])
    }
    return Resources(
        **limits,
        requests=Requests(**requests),
        gpus=gpus,
        gpu_products=products,
        exclusive_cpus=(limits["cpus_milli"] or 1) % 1000 == 0 and draw(st.booleans()),
        image=draw(st.none() | IMAGES),
    )


@st.composite
def scratches(draw, path: str, limit: int | None) -> Scratch:
    medium = draw(st.sampled_from(Medium))
    size = draw(SIZES)
    fits = medium is Medium.disk or not limit or not size or size <= limit
    return Scratch(path=path, medium=medium, size_bytes=size if fits else limit)


@st.composite
def beyond_kubernetes(draw) -> dict[str, Any]:
    """What documents have and manifests have not."""
    return {
        "selectors": draw(SELECTORS),
        "labels": draw(LABELS),
        "terminal": draw(st.booleans()),
        "ports": tuple(draw(st.lists(PORTS, max_size=3, unique=True))),
        "priority": draw(st.integers(-1000, 1000)),
        "idle_timeout": draw(st.none() | SECONDS.filter(bool)),
        "notify": draw(notices()),
    }


@st.composite
def specs(draw) -> Spec:
    resources = draw(asked_resources())
    mounts = draw(st.lists(PATHS, max_size=3, unique=True))
    scratch = draw(st.lists(PATHS | st.sampled_from(["/dev/shm", "/tmp"]), max_size=3, unique=True))
    array = draw(st.none() | ARRAYS)
    run = draw(SCRIPTS | PROGRAMS if resources.image is None else st.none() | SCRIPTS | PROGRAMS)
    restart = array is None and draw(st.booleans())
    return Spec(
        **(draw(beyond_kubernetes()) if draw(st.booleans()) else {}),
        name=draw(st.none() | NAMES),
        nodes=draw(st.integers(1, 1000)) if array is None else 1,
        array=array,
        after=tuple(draw(st.lists(NAMES, max_size=3, unique=True))),
        queue=draw(st.none() | NAMES),
        resources=resources,
        envs=draw(st.dictionaries(VARIABLES, TEXT, max_size=4)),
        mounts=tuple(draw(mounts_at(path)) for path in mounts),
        scratch=tuple(draw(scratches(path, resources.memory_bytes)) for path in scratch if path not in mounts),
        workdir=draw(st.none() | WORKDIRS),
        setup=draw(st.none() | SCRIPTS) if isinstance(run, str) else None,
        run=run,
        max_duration=draw(st.none() | SECONDS.filter(bool)),
        stop_grace=draw(st.none() | SECONDS),
        retries=UNLIMITED if restart else draw(st.integers(0, 1000) | st.just(UNLIMITED)),
        requeue=draw(st.none() | st.integers(0, 1000)),
        restart=restart,
        ttl=draw(st.none() | SECONDS),
    )


@given(specs())
@example(Spec(run="\n  indented first"))
@example(Spec(run="a\n\n\n"))
@example(Spec(run=" a\nb\n"))
@example(Spec(run="a \nb\t\n"))
@example(Spec(run="a\r\nb"))
@example(Spec(run="a\x85b\u2028c\n"))
@example(Spec(run="\ufeffa\n\ufeffb"))
@example(Spec(run="---\na\n...\n"))
@example(Spec(run="a\x07\x1b[0m\nb"))
@example(Spec(run=("a", "", "~", "- b", "{c: d}", "a\nb\n", "x" * 200, "1e3", "no")))
@example(Spec(run="a", envs={"A": "", "B": "~", "C": "null", "D": " ", "E": "\n", "Y": "=", "N": "<<"}))
def test_what_is_written_reads_back_to_the_same(spec):
    task = read_task(write_task(spec), "written.yaml")
    assert task.spec == spec


def test_the_shortest_task_is_one_line():
    assert write_task(Spec(run="echo hello")) == "run: echo hello\n"


def test_it_is_written_as_a_person_would():
    spec = Spec(
        name="train",
        nodes=2,
        resources=Resources(cpus_milli=500, memory_bytes=3 * 512 * 1024**2, gpus=2, gpu_products=("A10",)),
        envs={"EPOCHS": "10", "NOTE": "grün"},
        mounts=(Mount(path="/data", volume="ml-data", read_only=True),),
        run="cd /data\npython train.py\n",
        max_duration=5400,
    )
    assert write_task(spec) == (
        "name: train\n"
        "num_nodes: 2\n"
        "resources:\n"
        "  cpus: 500m\n"
        "  memory: 1536Mi\n"
        "  accelerators: A10:2\n"
        "envs:\n"
        "  EPOCHS: '10'\n"
        "  NOTE: grün\n"
        "volumes:\n"
        "  /data: ml-data:ro\n"
        "run: |\n"
        "  cd /data\n"
        "  python train.py\n"
        "max_duration: 1h30m\n"
    )


def test_what_is_short_stays_on_one_line():
    spec = Spec(
        array=Array(count=100, parallelism=8),
        after=("prep", "abcd2345"),
        queue="gpu-queue",
        resources=Resources(
            memory_bytes=8 * 1024**3,
            disk_bytes=10 * 1024**3,
            gpus=1,
            gpu_products=("A10", "L4"),
            requests=Requests(memory_bytes=4 * 1024**3),
        ),
        mounts=(Mount(path="/data", volume="ml-data"),),
        scratch=(
            Scratch(path="/scratch", size_bytes=10 * 1024**3),
            Scratch(path="/dev/shm", medium=Medium.memory, size_bytes=2 * 1024**3),
            Scratch(path="/more"),
        ),
        run=("sh", "-c", "sleep 1000"),
        stop_grace=120,
        retries=UNLIMITED,
        requeue=2,
        ttl=0,
    )
    assert write_task(spec) == (
        "array: {count: 100, parallelism: 8}\n"
        "after: [prep, abcd2345]\n"
        "queue: gpu-queue\n"
        "resources:\n"
        "  memory: 8Gi\n"
        "  disk_size: 10Gi\n"
        "  accelerators:\n"
        "  - A10:1\n"
        "  - L4:1\n"
        "  requests: {memory: 4Gi}\n"
        "volumes:\n"
        "  /data: ml-data\n"
        "  /scratch: {size: 10Gi}\n"
        "  /dev/shm: {size: 2Gi, medium: memory}\n"
        "  /more: {medium: disk}\n"
        "run: [sh, -c, sleep 1000]\n"
        "stop_grace: 2m\n"
        "retries: unlimited\n"
        "requeue: 2\n"
        "ttl: 0s\n"
    )


def test_a_task_that_restarts_always_needs_to_say_nothing_else():
    assert write_task(Spec(run="serve", restart=True, retries=UNLIMITED)) == "run: serve\nrestart: always\n"


@pytest.mark.parametrize("text", ["Train It!", "x" * 60])
def test_a_suggested_name_reads_as_one(text):
    assert read_task(f"run: a\nname: {suggest_name(text)}", "t.yaml").spec.name
