"""`array`, `retries`, `requeue`, `restart`, `after`, `queue`, `stop_grace`, `ttl`, and `run` as a list."""

from __future__ import annotations

import pytest

from penstock.domain.workloads import UNLIMITED, Array, Spec
from tests.dialects.reading import problems_of, spec_of


@pytest.mark.parametrize(
    ("written", "array"),
    [
        ("4", Array(count=4)),
        ("'4'", Array(count=4)),
        ("{count: 100, parallelism: 8}", Array(count=100, parallelism=8)),
        ("{count: 10000}", Array(count=10_000)),
        ("{count: 4, parallelism: 4}", Array(count=4)),
        ("{count: 4, parallelism: 9}", Array(count=4)),
        ("{count: 4, parallelism: null}", Array(count=4)),
    ],
)
def test_an_array_is_a_number_or_says_how_many_at_once(written, array):
    assert spec_of(f"run: a\narray: {written}") == Spec(run="a", array=array)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("0", "t.yaml:2:8: array: must be a whole number from 1 to 10,000, not '0'"),
        ("10001", "t.yaml:2:8: array: must be a whole number from 1 to 10,000, not '10001'"),
        ("many", "t.yaml:2:8: array: must be a whole number from 1 to 10,000, not 'many'"),
        ("[1, 2]", "t.yaml:2:8: array: must be lines of 'key: value', not a list (for example 'array: 4' or"),
        ("{}", "t.yaml:2:8: array.count: must say how many (for example 'array: 4' or"),
        ("{parallelism: 2}", "t.yaml:2:8: array.count: must say how many (for example 'array: 4' or"),
        ("{count: 4, parallelism: 0}", "t.yaml:2:32: array.parallelism: must be a whole number from 1 to 10,000, not"),
        (
            "{count: 4, at_once: 2}",
            "t.yaml:2:19: array.at_once: is not a known key (the keys here are count, parallelism)",
        ),
        ("{count: [4]}", "t.yaml:2:16: array.count: must be a text, not a list"),
    ],
)
def test_what_is_not_an_array_is_refused(written, said):
    (problem,) = problems_of(f"run: a\narray: {written}")
    assert problem.startswith(said)


def test_an_array_of_several_nodes_is_refused():
    text = "num_nodes: 2\narray: 4\nrun: a"
    assert problems_of(text) == ["t.yaml:2:8: array: cannot be together with 'num_nodes: 2' (keep one of them)"]
    assert spec_of("num_nodes: 1\narray: 4\nrun: a").array == Array(count=4)


def test_an_array_that_restarts_always_is_refused():
    (problem,) = problems_of("array: 4\nrun: a\nrestart: always")
    assert problem.startswith("t.yaml:3:10: restart: cannot be 'always' for an array")


def test_attempts_are_counted_or_unlimited():
    assert spec_of("run: a\nretries: 3\nrequeue: 2") == Spec(run="a", retries=3, requeue=2)
    assert spec_of("run: a\nretries: unlimited") == Spec(run="a", retries=UNLIMITED)
    assert spec_of("run: a\nretries: 0\nrestart: never") == Spec(run="a")
    assert (spec_of("run: a").requeue, spec_of("run: a\nrequeue: 0").requeue) == (None, 0)


def test_what_restarts_always_does_so_after_failures_too():
    assert spec_of("run: a\nrestart: always") == Spec(run="a", restart=True, retries=UNLIMITED)
    assert spec_of("run: a\nrestart: always\nretries: unlimited") == Spec(run="a", restart=True, retries=UNLIMITED)
    (problem,) = problems_of("run: a\nretries: 3\nrestart: always")
    assert problem.startswith(
        "t.yaml:2:10: retries: cannot be counted: 'restart: always' starts it again however often"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("retries: 1001", "t.yaml:2:10: retries: must be a whole number from 0 to 1,000, not '1001'"),
        ("retries: -1", "t.yaml:2:10: retries: must be a whole number from 0 to 1,000 or 'unlimited', not '-1' (for"),
        ("retries: forever", "t.yaml:2:10: retries: must be a whole number from 0 to 1,000 or 'unlimited', not 'for"),
        ("retries: [3]", "t.yaml:2:10: retries: must be a text, not a list"),
        ("requeue: unlimited", "t.yaml:2:10: requeue: must be a whole number from 0 to 1,000, not 'unlimited'"),
        ("restart: true", "t.yaml:2:10: restart: must be 'always' or 'never', not 'true' (for example 'restart: al"),
        ("restart: OnFailure", "t.yaml:2:10: restart: must be 'always' or 'never', not 'OnFailure' ('retries: unli"),
        ("stop_grace: 120", "t.yaml:2:13: stop_grace: '120' is not a duration (120s, 120m or 120h)"),
        ("ttl: soon", "t.yaml:2:6: ttl: 'soon' is not a duration (for example 12h, 30m or 1h30m)"),
        ("ttl: [1h]", "t.yaml:2:6: ttl: must be a text, not a list"),
        ("queue: GPU queue", "t.yaml:2:8: queue: 'GPU queue' is not a queue's name (for example 'queue: gpu-queue')"),
        ("queue: " + "q" * 64, "t.yaml:2:8: queue: 'qqqqqqqq"),
        ("after: Prep", "t.yaml:2:8: after: 'Prep' is not a job's name or id (for example 'after: prepare' or"),
        ("after: [a, a]", "t.yaml:2:12: after[1]: 'a' appears twice"),
        ("after: [[a]]", "t.yaml:2:9: after[0]: must be a text, not a list"),
        ("after: {a: b}", "t.yaml:2:8: after: must be a text, not a mapping"),
        (f"after: [{', '.join(f'a{n}' for n in range(101))}]", "t.yaml:2:8: after: has 101 entries; 100 at most"),
    ],
)
def test_each_mistake_is_said_in_one_line(line, said):
    (problem,) = problems_of(f"run: a\n{line}")
    assert problem.startswith(said)
    assert len(problem) < 300


def test_what_it_waits_for_is_one_or_several_names_or_ids():
    assert spec_of("run: a\nafter: prep").after == ("prep",)
    assert spec_of("run: a\nafter: [prep, abcd2345]\nqueue: gpu.queue-1") == Spec(
        run="a", after=("prep", "abcd2345"), queue="gpu.queue-1"
    )
    assert spec_of("run: a\nafter: []\nqueue:").after == ()


@pytest.mark.parametrize(("written", "seconds"), [("2m", 120), ("1h30m", 5400), ("0s", 0), ("0", 0)])
def test_times_after_the_end_may_be_none(written, seconds):
    spec = spec_of(f"run: a\nstop_grace: {written}\nttl: {written}")
    assert (spec.stop_grace, spec.ttl) == (seconds, seconds)


# run as a list


def test_a_list_is_a_program_and_its_arguments_as_they_are_written():
    spec = spec_of("workdir: .\nrun: [sh, -c, 'sleep 1000', 08, no, '', '~']")
    assert spec.run == ("sh", "-c", "sleep 1000", "08", "no", "", "~")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: []", "t.yaml:1:6: run: has 0 items; 1 to 1,000 can be (for example 'run: python train.py')"),
        ("run: [" + "a, " * 1001 + "]", "t.yaml:1:6: run: has 1,001 items; 1 to 1,000 can be"),
        ("run: ['']", "t.yaml:1:7: run[0]: names no program"),
        ("run: [echo, ~]", "t.yaml:1:13: run[1]: has no value (write '' for an empty argument)"),
        ("run: [echo, [a]]", "t.yaml:1:13: run[1]: must be a text, not a list"),
        ('run: [echo, "a\\0"]', "t.yaml:1:13: run[1]: has a NUL character in it"),
        ("run: [echo, " + "x" * 131_072 + "]", "t.yaml:1:13: run[1]: is longer than 128 KiB (put the code in"),
        ("run: [" + ("x" * 100_000 + ", ") * 3 + "]", "t.yaml:1:6: run: is longer than 256 KiB in all (put the code"),
        (
            "run: [a]\nsetup: b",
            "t.yaml:2:8: setup: cannot be there when 'run' is a program and its arguments (put it in the program, or",
        ),
    ],
)
def test_what_cannot_be_a_program_is_refused(text, said):
    (problem,) = problems_of(text)
    assert problem.startswith(said)
