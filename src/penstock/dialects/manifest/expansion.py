"""What Kubernetes does with `$(NAME)` in commands, arguments and variables before a program sees them.

A known name is replaced by its value, an unknown one stays as it is, and `$$` is one `$`. Here it happens when a
manifest is read, so that a Spec holds what the program will get.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


def expanded(text: str, values: Mapping[str, str]) -> str:
    return _replaced(text, lambda found: values.get(found[1], found[0]), "$")


def expanded_length(text: str, values: Mapping[str, str]) -> int:
    """At most so many characters: known before the text is made, which may be far longer than what it is made of."""
    named = (name for name in _names(text) if name in values)
    return len(text) + sum(len(values[name]) for name in named)


def referenced(text: str) -> set[str]:
    """The names a text asks for."""
    return set(_names(text))


def escaped(text: str) -> str:
    """So written that Kubernetes hands on exactly this text. A `$(` that holds more than one word names no variable
    and stays: scripts remain readable."""
    return _replaced(text, lambda found: f"${found[0]}" if VARIABLE_NAME.match(found[1]) else found[0], "$$$$")


def _replaced(text: str, named: Callable[[re.Match[str]], str], dollar: str) -> str:
    """Behind the last ')' no name can end; not to look for one there keeps the time in proportion to the length."""
    if "$" not in text:
        return text
    end = text.rfind(")") + 1
    head = REFERENCE.sub(lambda found: dollar if found[1] is None else named(found), text[:end])
    return head + text[end:].replace("$$", dollar)


def _names(text: str) -> list[str]:
    if "$" not in text:
        return []
    return [found[1] for found in REFERENCE.finditer(text, 0, text.rfind(")") + 1) if found[1] is not None]
