"""Read a mapping field by field and collect every problem with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from penstock.dialects.yaml import PROBLEMS_SHOWN, Items, Node, Pairs, Scalar, is_null, place
from penstock.domain.names import shorten
from penstock.domain.paths import NotAMountPath
from penstock.domain.quantities import NotAQuantity
from penstock.errors import Problem

WHOLE = re.compile(r"0|-?[1-9][0-9]{0,9}\Z")
ROUND = re.compile(r"0*([0-9]{1,9})\.0+\Z")
T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
Place = tuple[str | None, str]
"""A place in the text, and the full name of the field there."""


def nearest(places: Mapping[tuple[str, ...], Place], keys: tuple[str, ...]) -> Place | None:
    """Return the place of a key, or of the nearest above it."""
    ways = (keys[:length] for length in range(len(keys), -1, -1))
    return next((places[way] for way in ways if way in places), None)


@dataclass(slots=True)
class ReadContext:
    source: str
    problems: list[Problem] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    places: dict[tuple[str, ...], Place] = field(default_factory=dict)
    """Where the text says what a key of a task would say, for problems found beyond the text."""

    def where(self, node: Node) -> str | None:
        return place(self.source, node.mark)

    def says(self, node: Node, path: str, *keys: str) -> None:
        self.places[keys] = (self.where(node), path)

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

    def require(self, node: Node, path: str, key: str, hint: str | None = None) -> None:
        """Note a problem if the mapping does not say this key."""
        if lacks(node, key):
            self.problem("is missing", node, below(path, key), hint)

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


ReaderOf = Callable[[ReadContext, Node, str], T | None]
"""Reads one field's value; None if it is not set, or if a problem was noted."""
Reader = ReaderOf[Any]
Refusal = tuple[str, str | None]
"""Why a field is not supported, and what to do instead."""


class FieldRules(NamedTuple):
    readers: Mapping[str, Reader]
    refused: Mapping[str, Refusal] = {}
    plain: Mapping[str, Collection[str]] = {}
    """Refused fields that may be set to what is true anyway."""
    required: Mapping[str, str | None] = {}
    """Fields that must be there, and what one might look like."""


def read_fields(context: ReadContext, node: Node, path: str, shape: FieldRules) -> dict[str, Any]:
    """Return the values of the fields that are set; null is not set."""
    said = {}
    for key, value in mapping(context, node, path):
        name, here = key.text, below(path, key.text)
        if name in shape.readers:
            if not is_null(value) and (read := shape.readers[name](context, value, here)) is not None:
                said[name] = read
        elif not _says_nothing(name, value, shape):
            why, hint = shape.refused.get(name) or _unknown(name, shape, context)
            context.problem(f"is not supported: {why}", key, here, hint)
    for name, example in shape.required.items():
        context.require(node, path, name, example)
    return said


def fields(shape: FieldRules) -> ReaderOf[dict[str, Any]]:
    """Make a reader of a mapping with these fields."""
    return lambda context, node, path: read_fields(context, node, path, shape)


def fields_of(context: ReadContext, said: Mapping[str, Any], name: str, shape: FieldRules) -> dict[str, Any]:
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


def _unknown(name: str, shape: FieldRules, context: ReadContext) -> Refusal:
    if near := nearest_word(context, name, shape.readers, 0.7):
        return f"no field of that name is known; did you mean '{near}'?", None
    return "Penstock has nothing for it", f"remove it; supported here are {', '.join(shape.readers)}"


def nearest_word(context: ReadContext, word: str, known: Iterable[str], cutoff: float) -> str | None:
    # The search is dear; nobody reads its result beyond the problems shown.
    if len(context.problems) >= PROBLEMS_SHOWN:
        return None
    return next(iter(get_close_matches(word[:60], list(known), n=1, cutoff=cutoff)), None)


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
        return one_or_more(node, path)
    context.problem(f"must be a list, not {kind_of(node)}", node, path)
    return []


def one_or_more(node: Node, path: str) -> list[tuple[Node, str]]:
    """Return the items of a list, each with its path, or what stands in the place of a list of one."""
    if type(node) is Items:
        return [(item, f"{path}[{number}]") for number, item in enumerate(node.items)]
    return [(node, path)]


def each_once(context: ReadContext, items: Iterable[tuple[Node, str]], read: ReaderOf[T]) -> tuple[T, ...]:
    """Return what the items are read as, without those that are wrong or say the same again."""
    found = (read(context, item, here) for item, here in items)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def below(path: str, name: str) -> str:
    """Return a path such as `spec.volumes`; a name with a dot in it stands in brackets."""
    shown = shorten(name)
    if "." in shown:
        return f"{path}['{shown}']"
    return f"{path}.{shown}" if path else shown


# readers of one field


def as_it_is(context: ReadContext, node: Node, path: str) -> tuple[Node, str]:
    """Return the node and its path, for a field that is read together with others."""
    return node, path


def text(context: ReadContext, node: Node, path: str) -> str | None:
    return context.text(node, path)


def parsed(parse: Callable[[str], T], example: str | None = None) -> ReaderOf[T]:
    """Make a reader of a text as `parse` understands it."""

    def read(context: ReadContext, node: Node, path: str) -> T | None:
        found = context.text(node, path, example)
        if found is None:
            return None
        try:
            return parse(found)
        except (NotAQuantity, NotAMountPath) as error:
            context.problem(str(error), node, path, error.hint)
            return None

    return read


def matching(is_right: Callable[[str], object], message: str, hint: str | None = None) -> ReaderOf[str]:
    """Make a reader of a text that is right; of another one, `message` says what it is not."""

    def read(context: ReadContext, node: Node, path: str) -> str | None:
        found = context.text(node, path, hint)
        if found is None or is_right(found):
            return found
        context.problem(f"'{shorten(found)}' {message}", node, path, hint)
        return None

    return read


def one_of(known: Mapping[str, T], hint: str | None = None) -> ReaderOf[T]:
    """Make a reader of one of a few words, in any case."""

    def read(context: ReadContext, node: Node, path: str) -> T | None:
        found = context.text(node, path, hint or " or ".join(known))
        if found is None:
            return None
        if found not in known and found.lower() not in known:
            context.problem(f"must be {' or '.join(known)}, not '{shorten(found)}'", node, path, hint)
            return None
        return known[found if found in known else found.lower()]

    return read


def member(known: type[E], what: str) -> ReaderOf[E]:
    """Make a reader of one of an enumeration's words."""

    def read(context: ReadContext, node: Node, path: str) -> E | None:
        found = context.text(node, path)
        if found is None or found in known.__members__:
            return None if found is None else known(found)
        near = next((f"did you mean {each}?" for each in known if each.lower() == found.lower()), None)
        context.problem(f"'{shorten(found)}' is not {what}", node, path, near or f"one of {', '.join(known)}")
        return None

    return read


def flag(context: ReadContext, node: Node, path: str) -> bool | None:
    found = context.text(node, path, "true or false")
    if found is None or found.lower() in FLAGS:
        return None if found is None else FLAGS[found.lower()]
    context.problem(f"must be true or false, not '{shorten(found)}'", node, path)
    return None


FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def whole(low: int, high: int) -> ReaderOf[int]:
    """Make a reader of a whole number, written with or without quotes."""

    def read(context: ReadContext, node: Node, path: str) -> int | None:
        found = context.text(node, path)
        if found is None:
            return None
        if WHOLE.fullmatch(found) and low <= int(found) <= high:
            return int(found)
        even = ROUND.match(found)
        hint = f"write {int(even[1])}" if even and low <= int(even[1]) <= high else None
        context.problem(f"must be a whole number from {low:,} to {high:,}, not '{shorten(found)}'", node, path, hint)
        return None

    return read


def or_zero(reader: ReaderOf[int]) -> ReaderOf[int]:
    """Make a reader of an amount that may be nothing at all."""
    return lambda context, node, path: 0 if type(node) is Scalar and node.text == "0" else reader(context, node, path)


def placed(reader: ReaderOf[T], *keys: str) -> ReaderOf[T]:
    """Make a reader that remembers the place under a task's keys, for problems found beyond the text."""

    def read(context: ReadContext, node: Node, path: str) -> T | None:
        context.says(node, path, *keys)
        return reader(context, node, path)

    return read
