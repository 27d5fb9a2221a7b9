"""A task as JSON: k8s-cli's body, and JSON text where YAML is expected."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from penstock.dialects.task import keys
from penstock.dialects.task.read import read_task, read_task_json
from penstock.domain.workloads import Mount, Resources, Spec
from penstock.errors import Invalid


def test_a_json_body_reads_by_the_same_rules():
    body = {
        "name": "model-training",
        "num_nodes": 4,
        "workdir": None,
        "resources": {"cpus": 4, "memory": "8Gi", "accelerators": {"A10": 1}, "use_spot": None, "ports": None},
        "envs": {"A": "no", "B": 5, "C": True, "D": 1.5, "E": "\N{GRINNING FACE}\x7f"},
        "file_mounts": None,
        "volumes": {"/data": "ml-data"},
        "setup": None,
        "run": "echo\n",
    }
    task = read_task_json(body)
    assert task.notices == ()
    assert task.spec == Spec(
        name="model-training",
        nodes=4,
        resources=Resources(cpus_milli=4000, memory_bytes=8 * 1024**3, gpus=1, gpu_products=("A10",)),
        envs={"A": "no", "B": "5", "C": "true", "D": "1.5", "E": "\N{GRINNING FACE}\x7f"},
        mounts=(Mount(path="/data", volume="ml-data"),),
        run="echo\n",
    )


def test_a_json_bodys_problems_have_a_field_and_no_place():
    with pytest.raises(Invalid) as caught:
        read_task_json({"num_nodes": 2.5, "resources": {"memory": 16}, "nmae": "x", "envs": {"A": None}})
    assert caught.value.message == "The task has 5 problems."
    assert {problem["field"] for problem in caught.value.problems} == {
        "num_nodes",
        "resources.memory",
        "nmae",
        "envs.A",
        "run",
    }
    assert not any("where" in problem for problem in caught.value.problems)


@pytest.mark.parametrize("body", [{"run": "\ud800"}, {"\ud800": 1, "run": "a"}, {"run": {"a": b"x"}}, ["run"], 7])
def test_a_body_that_is_not_json_of_a_task_is_refused(body):
    with pytest.raises(Invalid):
        read_task_json(body)


def test_a_deep_body_is_refused():
    deep: object = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(Invalid, match="40 levels"):
        read_task_json({"run": "a", "service": deep})


KEYS = st.sampled_from([*keys.TOP_LEVEL, *keys.RESOURCES, "file_mounts", "/data", "A10"]) | st.text(max_size=5)
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["4", "8Gi", "A10:1"])
BODIES = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5))


@given(st.dictionaries(KEYS, BODIES, max_size=8).map(lambda body: {"run": "a"} | body))
def test_any_body_is_a_task_or_an_error_that_says_why(body):
    try:
        read_task_json(body)
    except Invalid as error:
        json.dumps(error.body())


@given(st.text().filter(str.strip), st.text())
@example("echo \N{GRINNING FACE}", "\\ud83d\\ude00")
@example('\\"\\', "\x7f\x85\u2028")
def test_json_text_reads_as_the_yaml_it_is(run, value):
    body = {"run": run.replace("\0", ""), "envs": {"A": value.replace("\0", "")}}
    assume(body["run"].strip())
    assert read_task(json.dumps(body), "t.json").spec == read_task_json(body).spec
