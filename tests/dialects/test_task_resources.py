"""`resources`: CPUs, memory, GPUs and the image of a task."""

from __future__ import annotations

import pytest

from penstock.dialects.task.read import read_task
from penstock.domain.workloads import Requests
from tests.dialects.reading import problems_of, resources_of, spec_of


@pytest.mark.parametrize(("written", "milli"), [("4", 4000), ('"0.5"', 500), ("500m", 500), ("2.5", 2500)])
def test_cpus(written, milli):
    assert spec_of(resources_of(cpus=written)).resources.cpus_milli == milli


def test_at_least_four_cpus_counts_as_four_and_says_so():
    task = read_task(resources_of(cpus="4+"), "t.yaml")
    assert task.spec.resources.cpus_milli == 4000
    assert task.notices == ("resources.cpus: 4+ is taken as 4",)


@pytest.mark.parametrize("written", ["true", "0", "-1", "many", "[4]", "{a: b}", "1:30"])
def test_what_is_not_a_number_of_cpus_is_refused(written):
    (problem,) = problems_of(resources_of(cpus=written))
    assert problem.startswith("t.yaml:3:9: resources.cpus: ")
    assert "for example" in problem


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("16", "'16' has no unit (write 16Gi)"),
        ('"16"', "'16' has no unit (write 16Gi)"),
        ("16+", "'16+' has no unit (write 16Gi)"),
        ("0.5", "'0.5' has no unit (write 0.5Gi)"),
        ("16Gi+", "'16Gi+' is not a size (write 16Gi)"),
        ("16GB", "'16GB' is not a size (16Gi)"),
        ("true", "'true' is not a size (a number with a unit, such as 500Mi, 10Gi or 1Ti)"),
        ("0", "a size must be more than zero (for example 10Gi)"),
        ("-1Gi", "'-1Gi' is negative; a size must be more than zero"),
        ("99Ei", "'99Ei' is larger than any disk (at most 8Ei - 1)"),
        ("1e3", "'1e3' is less than any program needs (for example 512Mi)"),
    ],
)
def test_a_memory_without_a_right_unit_is_refused_with_the_suggestion(written, said):
    assert problems_of(resources_of(memory=written)) == [f"t.yaml:3:11: resources.memory: {said}"]


@pytest.mark.parametrize(
    ("written", "count", "products"),
    [
        ("2", 2, ()),
        ('"2"', 2, ()),
        ("0", 0, ()),
        ("A10", 1, ("A10",)),
        ("A10:1", 1, ("A10",)),
        ("NVIDIA-A10:4", 4, ("NVIDIA-A10",)),
        ("{A100-80GB: 8}", 8, ("A100-80GB",)),
        ("{A10: 1}", 1, ("A10",)),
        ("{A10:1}", 1, ("A10",)),
        ("{A10: '2'}", 2, ("A10",)),
        ("any", 1, ()),
        ("any:2", 2, ()),
        ("{any: 2}", 2, ()),
        ("{A10, L4}", 1, ("A10", "L4")),
        ("{A10:2, L4:2}", 2, ("A10", "L4")),
        ("{A10: 1, L4: 1}", 1, ("A10", "L4")),
        ("[A10:1, L4:1]", 1, ("A10", "L4")),
        ("['A10:1', A10]", 1, ("A10",)),
        ("NVIDIA A10", 1, ("NVIDIA A10",)),
    ],
)
def test_accelerators_are_a_number_a_product_or_any_of_several(written, count, products):
    wanted = spec_of(resources_of(accelerators=written)).resources
    assert (wanted.gpus, wanted.gpu_products) == (count, products)


def test_gpus_is_another_word_for_accelerators_but_not_beside_it():
    assert spec_of(resources_of(gpus="A10:2")).resources.gpus == 2
    (problem,) = problems_of(resources_of(gpus="2", accelerators="2"))
    assert "is the same as 'accelerators'" in problem


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("0.5", "'0.5' is not a number of GPUs: they are given whole, 0 to 1,000"),
        ("A10:0.5", "'A10:0.5' is not a number of GPUs: they are given whole, 1 to 1,000"),
        ("{A10: 0.5}", "'A10:0.5' is not a number of GPUs"),
        ("A10:0", "'A10:0' is not a number of GPUs"),
        ("-1", "'-1' is not a number of GPUs"),
        ("1:30", "'1:30' names no GPU product"),
        ("':2'", "':2' names no GPU product"),
        ("'A10:'", "'A10:' is not a number of GPUs"),
        ("A10:B:1", "'A10:B:1' names no GPU product"),
        ("../x:1", "'../x:1' names no GPU product"),
        ("{A10: 1, L4: 2}", "must ask for the same number of each product (for example [A10:2, L4:2])"),
        ("[2, A10:2]", "must name a product in each of several"),
        ("[]", "must name 1 to 50 products"),
        ("[any:1, A10:1]", "must name a product in each of several"),
        ("{A10: [1]}", "must be a number of GPUs"),
        ("[[A10]]", "must be a text, not a list"),
        ("''", "'' is not a number of GPUs"),
    ],
)
def test_accelerators_that_make_no_sense_are_refused(written, said):
    (problem,) = problems_of(resources_of(accelerators=written))
    assert said in problem
    assert "for example" in problem


@pytest.mark.parametrize("written", ["python:3.13-slim", "docker:python:3.13-slim"])
def test_an_image_is_kept_without_skypilots_prefix(written):
    assert spec_of(resources_of(image_id=written)).resources.image == "python:3.13-slim"


@pytest.mark.parametrize("written", ["'a b'", "''", "--privileged", "{us: ami}", '"a\\nb"', "x" * 1000])
def test_what_is_not_an_image_is_refused(written):
    (problem,) = problems_of(resources_of(image_id=written))
    assert "resources.image_id: " in problem
    assert len(problem) < 300


# disk and requests


@pytest.mark.parametrize("key", ["disk_size", "ephemeral_storage"])
@pytest.mark.parametrize(("written", "amount"), [("10", 10 * 1024**3), ("100Gi", 100 * 1024**3), ("500M", 500 * 10**6)])
def test_a_disk_size_without_a_unit_is_gib_as_skypilot_has_it(key, written, amount):
    assert spec_of(resources_of(**{key: written})).resources.disk_bytes == amount


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("256GB", "'256GB' is not a size (256Gi)"),
        ("0", "a size must be more than zero"),
        ("10+", "'10+' is not a size"),
        ("[1]", "must be a text, not a list (for example 100Gi)"),
    ],
)
def test_what_is_not_a_disk_size_is_refused(written, said):
    (problem,) = problems_of(resources_of(disk_size=written))
    assert problem.startswith(f"t.yaml:3:14: resources.disk_size: {said}")


def test_a_disk_size_is_said_once():
    (problem,) = problems_of(resources_of(disk_size="1", ephemeral_storage="1"))
    assert "resources.ephemeral_storage: is the same as 'disk_size'; keep one of them" in problem


def test_requests_may_be_less_than_the_limits_or_stand_alone():
    spec = spec_of(resources_of(cpus="2", memory="8Gi", requests="{cpus: 500m, memory: 8Gi, disk_size: 10}"))
    assert spec.resources.requests == Requests(cpus_milli=500, disk_bytes=10 * 1024**3)


def test_requests_beyond_the_limits_and_wrong_ones_are_refused():
    text = resources_of(cpus="2", memory="8Gi", requests="{cpus: 3, memory: 8, gpus: 1}")
    assert problems_of(text) == [
        "t.yaml:5:20: resources.requests.cpus: asks for more than the limit (at most what 'resources.cpus' says)",
        "t.yaml:5:31: resources.requests.memory: '8' has no unit (write 8Gi)",
        "t.yaml:5:34: resources.requests.gpus: is not a known key (did you mean 'cpus'?)",
    ]
