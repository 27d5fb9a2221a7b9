"""The exception the server raised is the one the client raises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.errors import Invalid, PenstockError, Problem, from_body


def every_class(root: type[PenstockError] = PenstockError) -> list[type[PenstockError]]:
    return [root, *(found for child in root.__subclasses__() for found in every_class(child))]


@pytest.mark.parametrize("kind", every_class())
def test_an_error_survives_the_way_over_the_wire(kind):
    problem = Problem("'16' has no unit", where="t.yaml:3:11", field="resources.memory", hint="write 16Gi")
    sent = kind("It is wrong.", hint="mend it", problems=[problem], ids=["a", "b"], files={"workdir": "."})
    got = from_body(sent.status, json.loads(json.dumps(sent.body())))
    assert type(got) is kind
    assert (got.message, got.hint, got.problems, got.details) == (sent.message, sent.hint, sent.problems, sent.details)
    assert got.body() == sent.body()


@pytest.mark.parametrize("kind", every_class())
def test_an_error_with_nothing_but_a_sentence_survives_too(kind):
    got = from_body(kind.status, json.loads(json.dumps(kind("It is wrong.").body())))
    assert type(got) is kind
    assert (str(got), got.hint, got.problems, got.details) == ("It is wrong.", None, [], {})


def test_every_class_has_a_code_of_its_own_and_stands_in_the_drawing_of_the_tree():
    classes = every_class()
    assert len({kind.code for kind in classes}) == len(classes)
    for kind in classes:
        assert kind.__name__ in errors.__doc__
        assert str(kind.status) in errors.__doc__ or kind.status == 500


def test_the_text_for_older_clients_has_every_problem_on_a_line():
    error = Invalid("t.yaml has 2 problems.", problems=[Problem("is empty", field="run"), Problem("and more")])
    assert error.body()["detail"] == "t.yaml has 2 problems.\n  run: is empty\n  and more"


def test_a_problem_reads_as_place_field_message_and_hint():
    problem = Problem("'16' has no unit", where="t.yaml:3:11", field="resources.memory", hint="write 16Gi")
    assert str(problem) == "t.yaml:3:11: resources.memory: '16' has no unit (write 16Gi)"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"detail": "Not Found"}, "Not Found"),
        ("<html>bad gateway</html>", "The server answered 502."),
        (None, "The server answered 502."),
        ({}, "The server answered 502."),
        ({"code": "invented", "message": "Strange."}, "Strange."),
        ({"message": "x", "problems": [{"no": 1}, 7], "details": {"message": 1, "self": 2}, "hint": 3}, "x"),
    ],
)
def test_an_answer_that_is_not_ours_is_still_an_error_with_a_sentence(body, message):
    assert from_body(502, body).message == message


KEYS = st.sampled_from(["code", "message", "detail", "hint", "problems", "details", "self"]) | st.text()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(JSON)
def test_any_answer_becomes_an_error(body):
    error = from_body(500, body)
    assert isinstance(error, PenstockError)
    assert json.dumps(error.body())
