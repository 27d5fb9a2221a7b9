"""Read a mapping field by field and collect every problem with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from penstock.dialects.yaml import PROBLEMS_SHOWN, Items, Node, Pairs, Scalar, is_null, place
from penstock.domain.names import shorten
from penstock.errors import Problem

WHOLE = re.compile(r"0|[1-9][0-9]{0,9}\Z")
TRUE = frozenset({"true", "yes", "on"})
FALSE = frozenset({"false", "no", "off"})
ROUND = re.compile(r"0*([0-9]{1,9})\.0+\Z")


@dataclass(slots=True)
class Reading:
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
        """A text as it was written: `no`, `1e3` and `0o17` are what they look like."""
        if type(node) is Scalar:
            return node.text
        self.problem(f"must be a text, not {kind_of(node)}", node, path, hint)
        return None

    def whole(self, node: Node, path: str, low: int, high: int) -> int | None:
        """A whole number, with or without quotes."""
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
        """`true` or `false`, and the other words YAML has for them."""
        text = self.text(node, path, "true or false")
        if text is None:
            return None
        if text.lower() in TRUE or text.lower() in FALSE:
            return text.lower() in TRUE
        self.problem(f"must be true or false, not '{shorten(text)}'", node, path)
        return None

    def pairs(self, node: Node, path: str, hint: str) -> list[tuple[Scalar, Node]]:
        if type(node) is Pairs:
            return node.items
        self.problem(f"must be lines of 'key: value', not {kind_of(node)}", node, path, hint)
        return []


def kind_of(node: Node) -> str:
    return {Pairs: "a mapping", Items: "a list", Scalar: "a single text"}[type(node)]


Refusal = tuple[str, str | None]
"""Why a field is not carried, and what to do instead."""


@dataclass(slots=True)
class PlacedReading(Reading):
    """A Reading that also remembers where the text says what a key of a task would say."""

    places: dict[tuple[str, ...], tuple[str | None, str]] = field(default_factory=dict)

    def says(self, node: Node, path: str, *keys: str) -> None:
        self.places[keys] = (self.where(node), path)


Reader = Callable[[PlacedReading, Node, str], Any]
"""Reads one field's value; None is "not said", or a problem that is noted."""


class Shape(NamedTuple):
    readers: Mapping[str, Reader]
    refused: Mapping[str, Refusal] = {}
    plain: Mapping[str, Collection[str]] = {}
    """Fields that may be there if they say what is so anyway; what else they say is refused."""


def read_fields(reading: PlacedReading, node: Node, path: str, shape: Shape) -> dict[str, Any]:
    """The values of the fields that were said; one with null is not."""
    said = {}
    for key, value in mapping(reading, node, path):
        name, here = key.text, below(path, key.text)
        if name in shape.readers:
            if not is_null(value) and (read := shape.readers[name](reading, value, here)) is not None:
                said[name] = read
        elif not _says_nothing(name, value, shape):
            why, hint = shape.refused.get(name) or _unknown(name, shape, len(reading.problems))
            reading.problem(f"is not carried: {why}", key, here, hint)
    return said


def fields_of(reading: PlacedReading, said: Mapping[str, Any], name: str, shape: Shape) -> dict[str, Any]:
    """The fields inside one that was read as it is; none if it was not said."""
    if name not in said:
        return {}
    node, path = said[name]
    return read_fields(reading, node, path, shape)


def _says_nothing(name: str, value: Node, shape: Shape) -> bool:
    if name not in shape.refused:
        return False
    if is_null(value) or (not isinstance(value, Scalar) and not value.items):
        return True
    return isinstance(value, Scalar) and value.text in shape.plain.get(name, ())


def _unknown(name: str, shape: Shape, problems: int) -> Refusal:
    # The search for the nearest is dear; nobody reads its result beyond the problems shown.
    near = get_close_matches(name[:60], shape.readers, n=1, cutoff=0.7) if problems < PROBLEMS_SHOWN else []
    if near:
        return f"no field of that name is known; did you mean '{near[0]}'?", None
    return "Penstock has nothing for it", f"remove it; carried here are {', '.join(shape.readers)}"


def mapping(reading: Reading, node: Node, path: str) -> list[tuple[Scalar, Node]]:
    if type(node) is Pairs:
        return node.items
    reading.problem(f"must be a mapping, not {kind_of(node)}", node, path)
    return []


def lacks(node: Node, name: str) -> bool:
    """Is it a mapping that does not say this? One that says it wrongly has its problem already."""
    return isinstance(node, Pairs) and all(key.text != name or is_null(value) for key, value in node.items)


def sequence(reading: Reading, node: Node, path: str) -> list[tuple[Node, str]]:
    """The items, each with its path."""
    if type(node) is Items:
        return [(item, f"{path}[{number}]") for number, item in enumerate(node.items)]
    reading.problem(f"must be a list, not {kind_of(node)}", node, path)
    return []


def below(path: str, name: str) -> str:
    """`spec.volumes`; a name with a dot in it stands in brackets."""
    shown = shorten(name)
    if "." in shown:
        return f"{path}['{shown}']"
    return f"{path}.{shown}" if path else shown


def as_it_is(reading: PlacedReading, node: Node, path: str) -> tuple[Node, str]:
    """For a field that is read together with others."""
    return node, path


def text(reading: PlacedReading, node: Node, path: str) -> str | None:
    return reading.text(node, path)


def flag(reading: PlacedReading, node: Node, path: str) -> bool | None:
    return reading.flag(node, path)


def whole(low: int, high: int) -> Reader:
    def read(reading: PlacedReading, node: Node, path: str) -> int | None:
        return reading.whole(node, path, low, high)

    return read


def placed(reader: Reader, *keys: str) -> Reader:
    """With the place remembered under a task's keys, for what is wrong beyond the text."""

    def read(reading: PlacedReading, node: Node, path: str) -> Any:
        reading.says(node, path, *keys)
        return reader(reading, node, path)

    return read
