"""Ids and names."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.names import ID, NAME, NAME_LIMIT, VOLUME_REFERENCE, name_problem, new_id, shorten, suggest_name


def test_a_new_id_is_8_characters_that_no_yaml_reader_takes_for_a_number():
    ids = {new_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(ID.match(one) and NAME.match(one) and VOLUME_REFERENCE.match(one) for one in ids)
    assert all(isinstance(yaml.safe_load(one), str) for one in ids)


@pytest.mark.parametrize("name", ["a", "training-data", "a1", "x" * NAME_LIMIT, "no", "a--b"])
def test_dns_labels_are_names(name):
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "1a",
        "-a",
        "a-",
        "a_b",
        "a.b",
        "a/b",
        "../a",
        "a\n",
        "a\0b",
        "é",
        "x" * 49,
        "a b",
        ".",
        "..",
        "/etc/passwd",
    ],
)
def test_anything_else_is_not(name):
    problem = name_problem(name, field="name", where="t.yaml:1:7")
    assert "is not a name" in problem["message"]
    assert problem["where"] == "t.yaml:1:7"
    assert problem["field"] == "name"


def test_a_wrong_name_gets_the_nearest_right_one_suggested():
    assert name_problem("My Training_Data")["hint"] == "for example 'my-training-data'"


def test_a_name_of_a_megabyte_gives_a_short_error():
    assert len(str(name_problem("x" * 1_000_000))) < 300


@given(st.text())
def test_a_suggested_name_is_always_a_name(text):
    guess = suggest_name(text)
    assert guess is None or name_problem(guess) is None


@given(st.text())
def test_shortened_text_is_printable_and_short(text):
    assert len(shorten(text)) <= 60
    assert shorten(text).isprintable()
