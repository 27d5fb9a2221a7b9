"""What changes a job into another one is translated or refused, never dropped: alternatives, recovery, services."""

from __future__ import annotations

import pytest

from penstock.dialects.task.read import read_task
from penstock.domain.workloads import Spec
from penstock.errors import Invalid


def spec(text: str) -> Spec:
    return read_task(text, "t.yaml").spec


def problems(text: str) -> list[str]:
    with pytest.raises(Invalid) as refused:
        read_task(text, "t.yaml")
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize("key", ["accelerators", "gpus"])
def test_alternatives_of_gpu_products_are_a_choice_of_them(key):
    text = f"run: a\nresources:\n  cpus: 4\n  any_of:\n    - {{{key}: A100:2, cloud: aws}}\n    - {{{key}: H100:2}}\n"
    found = spec(text).resources
    assert (found.gpus, found.gpu_products, found.cpus_milli) == (2, ("A100", "H100"), 4000)


@pytest.mark.parametrize("key", ["any_of", "ordered"])
def test_alternatives_that_differ_only_in_what_is_of_other_places_are_one(key):
    each = "[{cloud: aws, region: x}, {infra: k8s, use_spot: true}]"
    text = f"run: a\nresources:\n  accelerators: A10:1\n  {key}: {each}\n"
    found = spec(text).resources
    assert (found.gpus, found.gpu_products) == (1, ("A10",))


@pytest.mark.parametrize(
    "each",
    [
        "[{accelerators: A100:1}, {accelerators: H100:2}]",
        "[{accelerators: A100:1}, {cpus: 8}]",
        "[{accelerators: A100:1, memory: 8Gi}, {accelerators: H100:1, memory: 16Gi}]",
        "[{accelerators: 1}, {accelerators: H100:1}]",
    ],
)
def test_alternatives_that_differ_in_more_are_refused(each):
    [said] = problems(f"run: a\nresources:\n  any_of: {each}\n")
    assert "resources.any_of: differ in more than the GPU product" in said
    assert "accelerators: [A10:1, L4:1]" in said


def test_an_order_of_preference_is_refused_with_what_would_do():
    [said] = problems("run: a\nresources:\n  ordered: [{accelerators: H100:1}, {accelerators: A100:1}]\n")
    assert "resources.ordered: is an order of preference, which cannot be kept here" in said
    assert "accelerators: [H100:1, A100:1]" in said


@pytest.mark.parametrize("each", ["{accelerators: A10}", "[A10]", "[]", "A10"])
def test_alternatives_that_are_none_are_refused(each):
    [said] = problems(f"run: a\nresources: {{any_of: {each}}}\n")
    assert "t.yaml:2" in said
    assert "must be a list of resources" in said


def test_what_is_wrong_in_an_alternative_is_said_with_its_place():
    [said] = problems("run: a\nresources:\n  any_of:\n    - {accelerators: A100:1}\n    - {accelerater: H100:1}\n")
    assert said.startswith("t.yaml:5:8: resources.any_of[1].accelerater: is not a known key")


def test_restarts_on_errors_are_retries_unless_those_are_said():
    recovery = "run: a\nresources: {job_recovery: {strategy: EAGER_NEXT_REGION, max_restarts_on_errors: 3}}\n"
    task = read_task(recovery, "t.yaml")
    assert task.spec.retries == 3
    assert task.notices == ("resources.job_recovery: is taken as 'retries: 3'",)
    assert spec(f"{recovery}retries: 1\n").retries == 1
    assert (
        "max_restarts_on_errors" in problems("run: a\nresources: {job_recovery: {max_restarts_on_errors: many}}\n")[0]
    )


@pytest.mark.parametrize(
    ("resources", "field", "said"),
    [
        ("{any_of: [{accelerators: A10:1}], ordered: [{accelerators: H100:1}]}", "ordered", "says 'any_of' as well"),
        (
            "{ordered: [{any_of: [{accelerators: A10:1}]}]}",
            "ordered[0].any_of",
            "cannot be had in one alternative alone",
        ),
        (
            "{any_of: [{accelerators: A10:1, job_recovery: {max_restarts_on_errors: 3}}, {accelerators: L4:1}]}",
            "any_of[0].job_recovery",
            "cannot be had in one alternative alone",
        ),
        (
            "{job_recovery: {max_restarts_on_errors: 3, recover_on_exit_codes: [33]}}",
            "job_recovery.recover_on_exit_codes",
            "cannot be had: no exit code is told apart from the others",
        ),
        ("{instance_type: p4d.24xlarge}", "instance_type", "names a machine of a cloud"),
        ("{any_of: [{instance_type: p4d}, {instance_type: p5}]}", "instance_type", "names a machine of a cloud"),
    ],
)
def test_what_would_be_lost_beside_or_inside_of_alternatives_is_refused(resources, field, said):
    [problem] = problems(f"run: a\nresources: {resources}\n")
    assert f"resources.{field}: {said}" in problem


def test_a_machine_of_a_cloud_beside_what_is_needed_is_only_noted():
    task = read_task("run: a\nresources: {instance_type: p4d.24xlarge, accelerators: A100:8}\n", "t.yaml")
    assert (task.spec.resources.gpus, task.notices) == (8, ("resources.instance_type: has no effect on this engine",))


@pytest.mark.parametrize("key", ["service", "pool", "num_replicas"])
def test_what_would_be_something_else_than_a_job_is_refused(key):
    [said] = problems(f"run: a\n{key}: {{replicas: 2}}\n")
    assert said.startswith(f"t.yaml:2:1: {key}: asks for ")
