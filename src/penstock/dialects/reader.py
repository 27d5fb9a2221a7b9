"""Read a mapping field by field and collect every problem with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sized
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from penstock.dialects.yaml import PROBLEMS_SHOWN, Items, Node, Pairs, Scalar, is_null, place
from penstock.domain.names import shorten
from penstock.domain.paths import NotAMountPath
from penstock.domain.quantities import NotAQuantity
from penstock.errors import Problem

WHOLE = re.compile(r"0|[1-9][0-9]{0,9}\Z")
TRUE = frozenset({"true", "yes", "on"})
FALSE = frozenset({"false", "no", "off"})
T = TypeVar("T")
ROUND = re.compile(r"0*([0-9]{1,9})\.0+\Z")


@dataclass(slots=True)
class ReadContext:
    source: str
    problems: list[Problem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def where(self, node: Node) -> str | None:
        return place(self.source, node.mark)

    def problem(self, message: str, node: Node, path: str, hint: str | None = None) -> None:
        self.problems.append(Problem(message, where=self.where(node), field=path, hint=hint))

    def found(self, problem: Problem | None) -> bool:
        if problem is not None:
            self.problems.append(problem)
        return problem is not None

    def text(self, node: Node, path: str, hint: str | None = None) -> str | None:
        """Return a text as written: `no`, `1e3` and `0o17` are what they look like."""
        if type(node) is Scalar:
            return node.text
        self.problem(f"must be a text, not {kind_of(node)}", node, path, hint)
        return None

    def whole(self, node: Node, path: str, low: int, high: int) -> int | None:
        """Return a whole number, written with or without quotes."""
        text = self.text(node, path)
        if text is None:
            return None
        if WHOLE.fullmatch(text) and low <= int(text) <= high:
            return int(text)
        found = ROUND.match(text)
        hint = f"write {int(found[1])}" if found and low <= int(found[1]) <= high else None
        self.problem(f"must be a whole number from {low} to {high:,}, not '{shorten(text)}'", node, path, hint)
        return None

    def flag(self, node: Node, path: str) -> bool | None:
        """Return a boolean, written in any of YAML's words."""
        text = self.text(node, path, "true or false")
        if text is None:
            return None
        if text.lower() in TRUE or text.lower() in FALSE:
            return text.lower() in TRUE
        self.problem(f"must be true or false, not '{shorten(text)}'", node, path)
        return None

    def require(self, node: Node, path: str, key: str, hint: str | None = None) -> None:
        """Note a problem if the mapping does not say this key."""
        if lacks(node, key):
            self.problem("is missing", node, f"{path}.{key}", hint)

    def too_many(self, entries: Sized, limit: int, node: Node, path: str) -> bool:
        if len(entries) > limit:
            self.problem(f"has {len(entries):,} entries; {limit:,} at most", node, path)
        return len(entries) > limit

    def pairs(self, node: Node, path: str, hint: str) -> list[tuple[Scalar, Node]]:
        if type(node) is Pairs:
            return node.items
        self.problem(f"must be lines of 'key: value', not {kind_of(node)}", node, path, hint)
        return []


def kind_of(node: Node) -> str:
    return {Pairs: "a mapping", Items: "a list", Scalar: "a single text"}[type(node)]


Refusal = tuple[str, str | None]
"""Why a field is not supported, and what to do instead."""


@dataclass(slots=True)
class PlacedContext(ReadContext):
    """A context that also remembers where the text says what a key of a task would say."""

    places: dict[tuple[str, ...], tuple[str | None, str]] = field(default_factory=dict)

    def says(self, node: Node, path: str, *keys: str) -> None:
        self.places[keys] = (self.where(node), path)


Reader = Callable[[PlacedContext, Node, str], Any]
"""Reads one field's value; None if it is not set, or if a problem was noted."""


class FieldRules(NamedTuple):
    readers: Mapping[str, Reader]
    refused: Mapping[str, Refusal] = {}
    plain: Mapping[str, Collection[str]] = {}
    """Refused fields that may be set to what is true anyway."""


def read_fields(context: PlacedContext, node: Node, path: str, shape: FieldRules) -> dict[str, Any]:
    """Return the values of the fields that are set; null is not set."""
    said = {}
    for key, value in mapping(context, node, path):
        name, here = key.text, below(path, key.text)
        if name in shape.readers:
            if not is_null(value) and (read := shape.readers[name](context, value, here)) is not None:
                said[name] = read
        elif not _says_nothing(name, value, shape):
            why, hint = shape.refused.get(name) or _unknown(name, shape, len(context.problems))
            context.problem(f"is not supported: {why}", key, here, hint)
    return said


def fields_of(context: PlacedContext, said: Mapping[str, Any], name: str, shape: FieldRules) -> dict[str, Any]:
    """Return the fields inside one that was read as it is; none if it is not set."""
    if name not in said:
        return {}
    node, path = said[name]
    return read_fields(context, node, path, shape)


def _says_nothing(name: str, value: Node, shape: FieldRules) -> bool:
    if name not in shape.refused:
        return False
    if is_null(value) or (not isinstance(value, Scalar) and not value.items):
        return True
    return isinstance(value, Scalar) and value.text in shape.plain.get(name, ())


def _unknown(name: str, shape: FieldRules, problems: int) -> Refusal:
    # The search for the nearest is dear; nobody reads its result beyond the problems shown.
    near = get_close_matches(name[:60], shape.readers, n=1, cutoff=0.7) if problems < PROBLEMS_SHOWN else []
    if near:
        return f"no field of that name is known; did you mean '{near[0]}'?", None
    return "Penstock has nothing for it", f"remove it; supported here are {', '.join(shape.readers)}"


def mapping(context: ReadContext, node: Node, path: str) -> list[tuple[Scalar, Node]]:
    if type(node) is Pairs:
        return node.items
    context.problem(f"must be a mapping, not {kind_of(node)}", node, path)
    return []


def lacks(node: Node, name: str) -> bool:
    """Tell whether a mapping does not say this key. One that says it wrongly has its problem already."""
    return isinstance(node, Pairs) and all(key.text != name or is_null(value) for key, value in node.items)


def sequence(context: ReadContext, node: Node, path: str) -> list[tuple[Node, str]]:
    """Return the items, each with its path."""
    if type(node) is Items:
        return [(item, f"{path}[{number}]") for number, item in enumerate(node.items)]
    context.problem(f"must be a list, not {kind_of(node)}", node, path)
    return []


def below(path: str, name: str) -> str:
    """Return a path such as `spec.volumes`; a name with a dot in it stands in brackets."""
    shown = shorten(name)
    if "." in shown:
        return f"{path}['{shown}']"
    return f"{path}.{shown}" if path else shown


def as_it_is(context: PlacedContext, node: Node, path: str) -> tuple[Node, str]:
    """Return the node and its path, for a field that is read together with others."""
    return node, path


def parsed(
    context: ReadContext, node: Node, path: str, parse: Callable[[str], T], example: str | None = None
) -> T | None:
    """Return a text as `parse` understands it; note a problem if it cannot."""
    found = context.text(node, path, example)
    if found is None:
        return None
    try:
        return parse(found)
    except (NotAQuantity, NotAMountPath) as error:
        context.problem(str(error), node, path, error.hint)
        return None


def matching(
    context: ReadContext,
    node: Node,
    path: str,
    is_right: Callable[[str], object],
    message: str,
    hint: str | None = None,
) -> str | None:
    """Return a text that is right; of another one, `message` says what it is not."""
    found = context.text(node, path, hint)
    if found is None or is_right(found):
        return found
    context.problem(f"'{shorten(found)}' {message}", node, path, hint)
    return None


def text(context: ReadContext, node: Node, path: str) -> str | None:
    return context.text(node, path)


def flag(context: ReadContext, node: Node, path: str) -> bool | None:
    return context.flag(node, path)


def whole(low: int, high: int) -> Callable[[ReadContext, Node, str], int | None]:
    def read(context: ReadContext, node: Node, path: str) -> int | None:
        return context.whole(node, path, low, high)

    return read


def placed(reader: Reader, *keys: str) -> Reader:
    """Make a reader that remembers the place under a task's keys, for problems found beyond the text."""

    def read(context: PlacedContext, node: Node, path: str) -> Any:
        context.says(node, path, *keys)
        return reader(context, node, path)

    return read
