"""Put the YAML parser's complaints into plain words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from penstock.errors import Problem

WORDS: tuple[tuple[str, str, str | None], ...] = (
    ("mapping values are not allowed", "a ':' stands where no key can be", "check the indentation, or quote the text"),
    ("could not find expected ':'", "a key without ':' is here", "write 'key: value', or quote a long text"),
    ("did not find expected key", "this does not belong here", "check the indentation of this line and the one before"),
    ("did not find expected '-'", "this is not an item of the list above it", "check the indentation"),
    ("did not find expected ',' or '}'", "a '{' is not closed, or a ',' is missing", None),
    ("did not find expected ',' or ']'", "a '[' is not closed, or a ',' is missing", None),
    ("did not find expected node content", "a value is missing here", None),
    ("found unexpected end of stream", "a quote is opened and never closed", None),
    ("found unexpected document indicator", "a quote is opened and never closed", None),
    ("found unknown escape character", "an unknown '\\' sequence is in double quotes", "use single quotes"),
    ("found character that cannot start any token", "a text cannot begin with this character", "put it in quotes"),
    ("block sequence entries are not allowed", "a list cannot begin here", "begin it on a line of its own"),
    ("did not find expected <document start>", "this does not belong here", "a file has one mapping of 'key: value'"),
)
TAB = ("a tab is used for indentation; YAML wants spaces", "replace the tab with spaces")


def syntax_problem(error: yaml.YAMLError, text: str, place: Callable[[Any], str | None]) -> Problem:
    complaint = str(getattr(error, "problem", None) or error)
    mark = getattr(error, "problem_mark", None)
    message, hint = _in_words(complaint)
    if "tab character" in complaint or (mark and _at(text, mark) == "\t"):
        message, hint = TAB
    elif "quote is opened" in message or "is not closed" in message:
        # Where it was opened helps; where the file ended does not.
        mark = getattr(error, "context_mark", None) or mark
    return Problem(message, where=place(mark), hint=hint)


def _in_words(complaint: str) -> tuple[str, str | None]:
    for begin, message, hint in WORDS:
        if begin in complaint:
            return message, hint
    return f"is not YAML: {complaint}", None


def _at(text: str, mark: Any) -> str:
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[mark.column : mark.column + 1]
