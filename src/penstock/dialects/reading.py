"""What is found while a file is read: every problem with its place, and what the user should be told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.dialects.text import Items, Node, Pairs, Scalar, place
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
