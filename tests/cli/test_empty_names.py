"""A name that names nothing, or that would be part of another address, is refused by every command before it asks."""

from __future__ import annotations

import json

import pytest

COMMANDS = [
    ("jobs", "status", "{}"),
    ("jobs", "logs", "{}"),
    ("jobs", "stop", "{}"),
    ("jobs", "delete", "{}", "--force"),
    ("jobs", "retry", "{}"),
    ("jobs", "wait", "{}"),
    ("exec", "{}", "true"),
    ("shell", "wk", "{}"),
    ("logs", "wk", "{}"),
    ("top", "wk", "{}"),
    ("inspect", "wk", "{}"),
    ("explain", "wk", "{}"),
    ("describe", "wk", "{}"),
    ("get", "wk", "{}"),
    ("get", "node", "{}"),
    ("stop", "wk", "{}"),
    ("port-forward", "{}", "8888"),
    ("ssh-proxy", "{}"),
    ("delete", "wk", "{}", "--yes"),
    ("delete", "user", "{}", "--yes"),
    ("delete", "group", "{}", "--yes"),
    ("delete", "node", "{}", "--yes"),
    ("delete", "vol", "{}", "--yes"),
    ("token", "delete", "{}"),
    ("token", "rotate", "{}"),
    ("volumes", "get", "{}"),
    ("volumes", "delete", "{}", "--force"),
    ("volumes", "resize", "{}", "2Gi"),
    ("volumes", "df", "{}"),
    ("volumes", "shell", "{}", "--", "true"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_it_is_refused_and_nothing_is_said_to_be_done(penstock, words):
    for name in ("", "job/x", ".."):
        told = penstock(*(word.format(name) for word in words))
        assert (told.code, told.out) == (2, ""), told
        assert "A name is missing" in told.err if not name else f"'{name}' is not a name or id" in told.err
        assert ("Did you mean x?" in told.err) == (name == "job/x")


@pytest.mark.parametrize(
    "words",
    [
        ("stop", "wk", "train", "-g", ""),
        ("delete", "wk", "train", "-g", "", "--yes"),
        ("get", "wk", "-g", ""),
        ("apply", "-f", "-", "-g", ""),
    ],
    ids=" ".join,
)
def test_an_empty_group_is_not_taken_for_ones_own(penstock, words):
    told = penstock(*words, stdin="name: x\nrun: 'true'\n")
    assert (told.code, told.out) == (2, "")
    assert "Invalid value for '-g' / '--group': must not be empty." in told.err


def test_an_empty_name_is_not_taken_for_none(penstock):
    refused = penstock("jobs", "submit", "-", "--name", "", stdin="name: x\nrun: 'true'\n")
    assert (refused.code, refused.out) == (125, "")
    assert "--name: '' is not a name" in refused.err
    refused = penstock("adm", "init", "")
    assert (refused.code, refused.out) == (2, "")
    assert "'' is not a user name" in refused.err
    assert json.loads(penstock("adm", "users", "-o", "json").out) == []
