"""`envs` and `secrets` of a task."""

from __future__ import annotations

import pytest

from penstock.dialects.task.read import read_task
from tests.dialects.reading import notices_of, problems_of, spec_of


def test_the_command_line_wins_over_the_file_and_fills_what_was_left_open():
    spec = spec_of("run: a\nenvs: {A: 1, TOKEN: }", envs={"A": "2", "TOKEN": "t", "NEW": ""})
    assert spec.envs == {"A": "2", "TOKEN": "t", "NEW": ""}


def test_secrets_are_passed_like_envs_and_that_is_said():
    task = read_task("run: a\nenvs: {A: 1}\nsecrets: {B: 2}", "t.yaml")
    assert task.spec.envs == {"A": "1", "B": "2"}
    assert task.spec.secrets == ("B",)
    assert task.notices == ("secrets: are passed like envs and kept with the job; what shows the job masks them",)
    assert "is in 'envs' too" in problems_of("run: a\nenvs: {B: 1}\nsecrets: {B: 1}")[0]


def test_a_secret_without_a_value_is_one_that_is_kept_elsewhere():
    spec = read_task("run: a\nsecrets: {B: , C: x}", "t.yaml").spec
    assert (spec.envs, spec.secrets, spec.open_secrets) == ({"C": "x"}, ("B", "C"), ("B",))
    assert read_task("run: a\nsecrets: {B: }", "t.yaml", envs={"B": "y"}).spec.open_secrets == ()


def test_a_mask_is_no_value_of_a_secret():
    assert "secrets.B: '***' is what is shown in place of a value" in problems_of("run: a\nsecrets: {B: '***'}")[0]
    given = problems_of("run: a\nsecrets: {B: }", envs={"B": "***"})
    assert "--env B: '***' is what is shown in place of a value" in given[0]
    assert read_task("run: a\nenvs: {B: '***'}", "t.yaml").spec.envs == {"B": "***"}


@pytest.mark.parametrize("name", ["NODE_RANK", "MASTER_ADDR", "PENSTOCK_TASK_ID", "SKYPILOT_NODE_RANK"])
def test_a_name_of_penstocks_own_is_a_notice(name):
    (notice,) = notices_of(f"run: a\nenvs: {{{name}: 1}}")
    assert notice == f"envs.{name}: is one of Penstock's own names; what Penstock sets replaces this value"


@pytest.mark.parametrize("name", ["1A", "A-B", "A B", "'A=B'", "''", "é", '"A\\0"', "x" * 300])
def test_what_is_not_a_variables_name_is_refused(name):
    (problem,) = problems_of(f"run: a\nenvs: {{{name}: 1}}")
    assert "is not a variable's name" in problem
    assert len(problem) < 400


@pytest.mark.parametrize(
    ("envs", "said"),
    [
        ('{A: "a\\0b"}', "t.yaml:2:11: envs.A: has a NUL character, which no variable can hold"),
        ("{A: [1]}", "t.yaml:2:11: envs.A: must be a text, not a list"),
        ("[A=1]", "t.yaml:2:7: envs: must be lines of 'key: value', not a list (for example 'EPOCHS: 10')"),
        ("{A: " + "x" * 131_072 + "}", "t.yaml:2:11: envs.A: is longer than 128 KiB (put long values in a file"),
        ("{" + ", ".join(f"A{n}: 1" for n in range(10_000)) + "}", "t.yaml:2:7: envs: has 10,000 entries; 1,000 at"),
    ],
)
def test_envs_no_program_could_be_started_with_are_refused(envs, said):
    (problem,) = problems_of(f"run: a\nenvs: {envs}")
    assert problem.startswith(said)


def test_what_the_command_line_adds_is_held_to_the_same_rules():
    assert problems_of("run: a", envs={"1A": "x", "B": "\0", "C": "\ud800"}) == [
        "--env 1A: '1A' is not a variable's name: letters, digits and '_', no digit first, 255 characters at most "
        "(for example _1A)",
        "--env B: has a NUL character, which no variable can hold",
        "--env C: is not valid Unicode: it has half of a surrogate pair",
    ]
    assert problems_of("run: a", envs={f"A{n}": "x" for n in range(1001)}) == ["envs: has 1,001 entries; 1,000 at most"]
    assert problems_of("run: a", envs={f"A{n}": "x" * 120_000 for n in range(9)}) == [
        "envs: is longer than 1 MiB in all"
    ]
