"""YAML nobody vouches for: every input is a mapping or one clear error, and none is expensive."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.dialects.task.read import Task, read_task
from penstock.dialects.yaml import DEPTH_LIMIT, SIZE_LIMIT, read_mapping
from penstock.errors import Invalid


def problems_of(text: str | bytes, source: str = "t.yaml") -> list[str]:
    with pytest.raises(Invalid) as caught:
        read_mapping(text, source)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "run: a\n\tb: c\n",
            "t.yaml:2:1: a tab is used for indentation; YAML wants spaces (replace the tab with spaces)",
        ),
        ("\trun: a", "t.yaml:1:1: a tab is used for indentation; YAML wants spaces (replace the tab with spaces)"),
        (
            "run: |\n\techo",
            "t.yaml:2:1: a tab is used for indentation; YAML wants spaces (replace the tab with spaces)",
        ),
        (
            "resources:\n\tcpus: 4",
            "t.yaml:2:1: a tab is used for indentation; YAML wants spaces (replace the tab with spaces)",
        ),
        (
            "run: echo a: b",
            "t.yaml:1:12: a ':' stands where no key can be (check the indentation, or quote the text)",
        ),
        (
            "a:\n  - b\n c",
            "t.yaml:3:2: this does not belong here (check the indentation of this line and the one before)",
        ),
        ("a: [1, 2\nb: c", "t.yaml:1:4: a '[' is not closed, or a ',' is missing"),
        ("a: {b: c", "t.yaml:1:4: a '{' is not closed, or a ',' is missing"),
        ('name: x\nrun: "echo', "t.yaml:2:6: a quote is opened and never closed"),
        ('run: "\\d"', "t.yaml:1:7: an unknown '\\' sequence is in double quotes (use single quotes)"),
        ("run: @x", "t.yaml:1:6: a text cannot begin with this character (put it in quotes)"),
        ("- a\nb: c", "t.yaml:2:1: this is not an item of the list above it (check the indentation)"),
        ("a: *x", "t.yaml:1:4: '*x' stands for nothing: there is no '&x' before it"),
        ("a: &x [*x]", "t.yaml:1:8: '*x' is inside what it stands for"),
        (
            "a: b\n---\nc: d",
            "t.yaml:2:1: a second document begins here; a file has one "
            "(remove the '---'; penstock apply -f takes several)",
        ),
        ("a: b\0c", "t.yaml:1:5: the control character NUL is not allowed here"),
        ("a: b\nc: \x1b[0m", "t.yaml:2:4: the control character U+001B is not allowed here"),
        ("", "t.yaml: the file is empty (a task is at least 'run: echo hello')"),
        ("# nothing\n", "t.yaml: the file is empty (a task is at least 'run: echo hello')"),
        ("~", "t.yaml: the file is empty (a task is at least 'run: echo hello')"),
        ("- run: a", "t.yaml:1:1: must be lines of 'key: value', not a list (a task is at least 'run: echo hello')"),
        ("echo", "t.yaml:1:1: must be lines of 'key: value', not a single text (a task is at least 'run: echo hello')"),
        (b"a: \xff\xfe", "t.yaml:1: is not UTF-8 text (save it as UTF-8)"),
        ("run: a".encode("utf-16"), "t.yaml:1: is not UTF-8 text (save it as UTF-8)"),
        ("a: \ud800", "t.yaml: is not UTF-8 text (save it as UTF-8)"),
        ("a: " + "x" * SIZE_LIMIT, "t.yaml: is larger than 1 MiB"),
        ("a: " + "é" * (SIZE_LIMIT // 2), "t.yaml: is larger than 1 MiB"),
    ],
)
def test_a_text_that_cannot_be_read_has_one_problem_with_its_place(text, said):
    assert problems_of(text) == [said]


def test_a_duplicate_key_names_both_lines_at_any_depth():
    text = "run: a\nenvs:\n  A: 1\n  B: 2\n  A: 3\nlabels: {x: 1, x: 2}\nrun: b\n"
    _, problems = read_mapping(text, "t.yaml")
    assert [str(problem) for problem in problems] == [
        "t.yaml:5:3: the key 'A' appears twice; it is first on line 3",
        "t.yaml:6:16: the key 'x' appears twice; it is first on line 6",
        "t.yaml:7:1: the key 'run' appears twice; it is first on line 1",
    ]


def test_keys_that_are_not_text_and_merge_keys_are_refused():
    _, problems = read_mapping("? [a, b]\n: c\nbase: &b {a: 1}\nx:\n  <<: *b\n", "t.yaml")
    assert [str(problem) for problem in problems] == [
        "t.yaml:1:3: a key must be a text, not a list or a mapping",
        "t.yaml:5:3: merging with '<<' is not supported (write the keys out)",
    ]


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!!binary", "!mine", "!<x>"])
def test_a_tag_means_nothing_and_does_nothing(tag):
    _, (problem,) = read_mapping(f"run: {tag} x", "t.yaml")
    assert str(problem).startswith("t.yaml:1:6: the tag '")
    assert str(problem).endswith("' means nothing here (leave it out)")


def test_a_byte_order_mark_is_no_matter():
    assert read_task(b"\xef\xbb\xbfrun: a", "t.yaml").spec.run == "a"


def test_an_alias_stands_for_what_it_names():
    assert read_task("setup: &s pip install x\nrun: *s\n", "t.yaml").spec.run == "pip install x"


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join([*lines, "run: echo"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (bomb(9), "has more than 25,000 values, repeated ones counted"),
        ("a: " + "[" * 100_000, "is nested more than 40 levels deep"),
        ("{a: " * 100_000, "is nested more than 40 levels deep"),
        ("- " * 100_000, "is nested more than 40 levels deep"),
        ("".join(" " * n + "a:\n" for n in range(1000)), "is nested more than 40 levels deep"),
        ("a: [" + "x," * 500_000 + "]", "has more than 25,000 values, repeated ones counted"),
        ("\n".join(f"k{n}: &a{n} x" for n in range(30_000)), "has more than 25,000 values, repeated ones counted"),
    ],
)
def test_a_bomb_is_refused_before_it_goes_off(text, said):
    (problem,) = problems_of(text)
    assert said in problem


def test_what_is_just_within_the_depth_is_read():
    read_mapping("a: " + "[" * (DEPTH_LIMIT - 1) + "]" * (DEPTH_LIMIT - 1), "t.yaml")
    assert "levels deep" in problems_of("a: " + "[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT)[0]


def test_ten_thousand_problems_are_an_answer_of_a_hundred_lines():
    with pytest.raises(Invalid) as caught:
        read_task("\n".join(f"key{n}: x" for n in range(10_000)), "t.yaml")
    assert caught.value.message == "t.yaml has 10,001 problems."
    assert len(caught.value.problems) == 101
    assert str(caught.value.problems[-1]) == "and 9,901 more"


def test_a_strange_file_name_is_shown_safely_and_shortly():
    (problem,) = problems_of("", "x\x1b[31m" * 1000)
    assert problem.isprintable()
    assert len(problem) < 300


WORDS = (
    "run name envs volumes resources num_nodes accelerators memory : : - ? [ ] { } , & * ! | > ' \" # % @ ` ~ "
    "null no 1e3 0o17 4 &a *a << --- ... /data \\ é 🙂"
)
BLANKS = ["\n", "\n", " ", "  ", "\t", "\r\n", "\x85", "\u2028", "\0", "\ufeff"]
YAMLISH = st.lists(st.sampled_from(WORDS.split() + BLANKS), max_size=40).map(" ".join) | st.text()


@given(YAMLISH | st.binary() | YAMLISH.map(str.encode) | YAMLISH.map(lambda text: "run: a\n" + text))
@example("run: a\n? ")
@example("%YAML 9.9\n---\nrun: a")
@example("%TAG ! x\n---\n!a run: a")
@example("!!binary run: a")
@example("run: !!float a")
@example("resources: {accelerators: {[a]: b}}")
def test_anything_is_a_task_or_an_error_that_says_why(text):
    try:
        assert isinstance(read_task(text, "t.yaml"), Task)
    except Invalid as error:
        caught = error
    else:
        return
    assert caught.problems
    assert caught.body()["detail"].encode()
