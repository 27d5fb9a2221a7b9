"""What is written reads back to the same, and is what a person would have written."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.dialects.task import read_task, write_task
from penstock.domain.names import suggest_name
from penstock.domain.paths import NotAMountPath, mount_path
from penstock.domain.quantities import LARGEST
from penstock.domain.workloads import Mount, Resources, Spec


def is_mount_path(path: str) -> bool:
    try:
        return mount_path(path) == path
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


@st.composite
def specs(draw) -> Spec:
    gpus, products = draw(GPUS)
    mounts = draw(st.dictionaries(PATHS, st.tuples(REFERENCES, st.booleans()), max_size=3))
    return Spec(
        name=draw(st.none() | NAMES),
        nodes=draw(st.integers(1, 1000)),
        resources=Resources(
            cpus_milli=draw(st.none() | st.integers(1, 999_999)),
            memory_bytes=draw(
                st.none() | st.integers(1024**2, LARGEST) | st.integers(1, 999).map(lambda n: n * 1024**3)
            ),
            gpus=gpus,
            gpu_products=products,
            image=draw(st.none() | IMAGES),
        ),
        envs=draw(st.dictionaries(VARIABLES, TEXT, max_size=4)),
        mounts=tuple(
            Mount(path=path, volume=volume, read_only=read_only) for path, (volume, read_only) in mounts.items()
        ),
        workdir=draw(st.none() | WORKDIRS),
        setup=draw(st.none() | SCRIPTS),
        run=draw(SCRIPTS),
        max_duration=draw(st.none() | st.integers(1, 10**9)),
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


@pytest.mark.parametrize("text", ["Train It!", "x" * 60])
def test_a_suggested_name_reads_as_one(text):
    assert read_task(f"run: a\nname: {suggest_name(text)}", "t.yaml").spec.name
