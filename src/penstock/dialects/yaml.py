"""Parse YAML from untrusted text into nodes with positions, within limits of size and depth.

The parser's events are taken one by one and every limit is checked as they come (size before, depth and the number of
nodes during, aliases counted as often as they repeat), so a small file never becomes a large tree. Scalars stay as
they were written: what a text means is decided by the field it stands in, never by YAML's guesses.

Of several documents each has its own limits, and one that cannot be read hides none of the others: a line that begins
with '---' is the start of a document wherever it stands, so reading goes on there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from penstock.domain.names import shorten
from penstock.errors import Invalid, Problem

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


def syntax_problem(error: yaml.YAMLError, text: str, source: str) -> Problem:
    """Put the YAML parser's complaint into plain words."""
    complaint = str(getattr(error, "problem", None) or error)
    mark = getattr(error, "problem_mark", None)
    message, hint = _in_words(complaint)
    if "tab character" in complaint or (mark and _at(text, mark) == "\t"):
        message, hint = TAB
    elif "quote is opened" in message or "is not closed" in message:
        # Where it was opened helps; where the file ended does not.
        mark = getattr(error, "context_mark", None) or mark
    return Problem(message, where=place(source, mark), hint=hint)


def _in_words(complaint: str) -> tuple[str, str | None]:
    for begin, message, hint in WORDS:
        if begin in complaint:
            return message, hint
    return f"is not YAML: {complaint}", None


def _at(text: str, mark: Any) -> str:
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[mark.column : mark.column + 1]


MIB = 1024 * 1024
SIZE_LIMIT = MIB
DEPTH_LIMIT = 40
NODES_LIMIT = 25_000
"""Values in one document."""
FILE_LIMIT = 16 * MIB
FILE_NODES_LIMIT = 40 * NODES_LIMIT
UNREADABLE_LIMIT = 20
"""Parsing stops after this many documents that cannot be read."""
PROBLEMS_SHOWN = 100
BREAK = "\r\n|[\n\r\x85\u2028\u2029]"
START = re.compile(rf"(?:\A|{BREAK})(---(?=\s|\Z))")
NAME = re.compile(r"\bname[\"']?:[ \t]*[\"']?([\w.@-]+)")
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
FORBIDDEN = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)", re.IGNORECASE | re.DOTALL)
LINE_AND_COLUMN = re.compile(r":([0-9]+):([0-9]+)\Z")
CORE_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
SEVERAL = "remove the '---'; penstock apply -f takes several"
EXAMPLE = "a task is at least 'run: echo hello'"
SPLIT = "split it into several files"


@dataclass(slots=True)
class Scalar:
    text: str
    quoted: bool
    mark: yaml.Mark | None = None


@dataclass(slots=True)
class Pairs:
    items: list[tuple[Scalar, Node]]
    mark: yaml.Mark | None = None


@dataclass(slots=True)
class Items:
    items: list[Node]
    mark: yaml.Mark | None = None


Node = Scalar | Pairs | Items


def is_null(node: Node) -> bool:
    return type(node) is Scalar and not node.quoted and node.text in NULLS


def invalid(source: str, problems: list[Problem]) -> Invalid:
    count = "1 problem" if len(problems) == 1 else f"{len(problems):,} problems"
    return Invalid(f"{shorten(source, 200)} has {count}.", problems=in_order(problems))


def in_order(problems: Sequence[Problem]) -> list[Problem]:
    """Sort problems by their place in the file, and keep as many as a person would read."""
    shown = sorted(problems, key=_order)[:PROBLEMS_SHOWN]
    if len(problems) > PROBLEMS_SHOWN:
        shown.append(Problem(f"and {len(problems) - PROBLEMS_SHOWN:,} more"))
    return shown


def _order(problem: Problem) -> tuple[int, ...]:
    found = LINE_AND_COLUMN.search(problem.get("where", ""))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def place(source: str, mark: yaml.Mark | None) -> str | None:
    """Write a place: `train.yaml:7:3`, counted from 1 as editors do."""
    return f"{shorten(source, 200)}:{mark.line + 1}:{mark.column + 1}" if mark else None


class YamlDocuments(NamedTuple):
    tops: list[Pairs]
    problems: list[Problem]
    doubtful: set[str]
    """Names in documents that could not be read."""


def read_mapping(text: str | bytes, source: str) -> tuple[Pairs, list[Problem]]:
    """Read the one mapping in a YAML text, and the problems that do not stop the parser; raise Invalid for others."""
    composer = YamlComposer(_decoded(text, source, SIZE_LIMIT), source)
    try:
        if (node := composer.following()) is not None:
            composer.refuse_another()
    except (yaml.YAMLError, _UnreadableError) as error:
        composer.note(error)
        raise invalid(source, composer.problems) from None
    if node is None or is_null(node):
        raise _empty(source)
    if type(node) is not Pairs:
        raise invalid(source, [*composer.problems, _no_mapping(node, source)])
    return node, composer.problems


def read_mappings(text: str | bytes, source: str) -> YamlDocuments:
    """Read a text of several documents, skipping empty ones; raise Invalid only for problems of the text as a whole."""
    composer = YamlComposer(_decoded(text, source, FILE_LIMIT), source)
    nodes: list[Node] = []
    doubtful: set[str] = set()
    while True:
        try:
            nodes.extend(filter(None, iter(composer.following, None)))
            break
        except (yaml.YAMLError, _UnreadableError) as error:
            composer.note(error)
            doubtful.update(NAME.findall(composer.skip()))
    nodes = [node for node in nodes if not is_null(node)]
    if not nodes and not composer.problems:
        raise _empty(source)
    composer.problems += [_no_mapping(node, source) for node in nodes if type(node) is not Pairs]
    return YamlDocuments([node for node in nodes if type(node) is Pairs], composer.problems, doubtful)


def _empty(source: str) -> Invalid:
    return invalid(source, [Problem("the file is empty", where=shorten(source, 200), hint=EXAMPLE)])


def _no_mapping(node: Node, source: str) -> Problem:
    kind = "a list" if type(node) is Items else "a single text"
    return Problem(f"must be lines of 'key: value', not {kind}", where=place(source, node.mark), hint=EXAMPLE)


def _decoded(text: str | bytes, source: str, limit: int) -> str:
    name = shorten(source, 200)
    hint = SPLIT if limit == FILE_LIMIT else None
    too_large = Problem(f"is larger than {limit // MIB} MiB", where=name, hint=hint)
    if len(text) > limit:
        raise invalid(source, [too_large])
    try:
        raw = text if isinstance(text, bytes) else text.encode()
        decoded = raw.decode()
    except UnicodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1 if isinstance(error, UnicodeDecodeError) else None
        where = f"{name}:{line}" if line else name
        raise invalid(source, [Problem("is not UTF-8 text", where=where, hint="save it as UTF-8")]) from None
    if len(raw) > limit:
        raise invalid(source, [too_large])
    decoded = decoded.removeprefix("\ufeff")
    if found := FORBIDDEN.search(decoded):
        character = "NUL" if found[0] == "\0" else f"U+{ord(found[0]):04X}"
        line = decoded.count("\n", 0, found.start()) + 1
        where = f"{name}:{line}:{found.start() - decoded.rfind(chr(10), 0, found.start())}"
        raise invalid(source, [Problem(f"the control character {character} is not allowed here", where=where)])
    return ESCAPE.sub(_one_escape, decoded) if decoded.startswith("{") else decoded


def _one_escape(found: re.Match[str]) -> str:
    """Join the two escapes of a character beyond U+FFFF in JSON, which the YAML parser does not."""
    if not found[1]:
        return found[0]
    pair = bytes.fromhex(found[1] + found[2]).decode("utf-16-be")
    return f"\\U{ord(pair):08X}"


class _UnreadableError(Exception):
    """Stops reading a document, whose problem is noted."""


class YamlComposer:
    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.problems: list[Problem] = []
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        self._count = 0
        self._before = 0
        """Nodes of the documents before this one."""
        self._unreadable = 0
        self._begin(0, 0)

    def _begin(self, at: int, line: int) -> None:
        """Parse the text from here on. Empty lines in the place of those before it keep positions right."""
        self._at, self._shift = at, at - line
        self._next: Callable[[], Any] = yaml.CBaseLoader("\n" * line + self.text[at:]).get_event
        self._next()

    def following(self) -> Node | None:
        """Return the next of several documents; None at the end."""
        event = self._next()
        if type(event) is yaml.StreamEndEvent:
            return None
        self._at = event.start_mark.index + self._shift
        self._before += self._count
        self._count = 0
        self._anchors.clear()
        if self._before > FILE_NODES_LIMIT:
            self._problem(f"has more than {FILE_NODES_LIMIT:,} values in all", event.start_mark, SPLIT)
            raise invalid(self.source, self.problems)
        node = self._node(self._next(), 0)
        end = self._next().start_mark
        if end.index + self._shift - self._at > SIZE_LIMIT:
            self._problem(f"this document is larger than {SIZE_LIMIT // MIB} MiB", event.start_mark)
        return node

    def refuse_another(self) -> None:
        event = self._next()
        if type(event) is not yaml.StreamEndEvent:
            raise self._stop("a second document begins here; a file has one", event.start_mark, SEVERAL)

    def note(self, error: yaml.YAMLError | _UnreadableError) -> None:
        if isinstance(error, yaml.YAMLError):
            problem = syntax_problem(error, self.text, self.source)
            self.problems += [problem] if problem not in self.problems[-1:] else []

    def skip(self) -> str:
        """Skip a document that cannot be read, and return its text."""
        self._unreadable += 1
        found = START.search(self.text, self._at + 1) if self._unreadable < UNREADABLE_LIMIT else None
        until = found.start(1) if found else len(self.text)
        skipped = self.text[self._at : until]
        self._begin(until, len(re.findall(BREAK, self.text[:until])))
        return skipped

    def _node(self, event: Any, depth: int) -> Node:
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._alias(event)
        start = self._count
        self._add(1, event.start_mark)
        if event.anchor:
            self._anchors[event.anchor] = None
        if event.tag:
            self._check_tag(event)
        node: Node
        if kind is yaml.ScalarEvent:
            node = Scalar(event.value, bool(event.style or event.tag), event.start_mark)
        elif depth >= DEPTH_LIMIT:
            raise self._stop(f"is nested more than {DEPTH_LIMIT} levels deep", event.start_mark)
        elif kind is yaml.MappingStartEvent:
            node = Pairs(self._pairs(depth + 1), event.start_mark)
        else:
            node = Items(self._items(depth + 1), event.start_mark)
        if event.anchor:
            self._anchors[event.anchor] = (node, self._count - start)
        return node

    def _pairs(self, depth: int) -> list[tuple[Scalar, Node]]:
        pairs: list[tuple[Scalar, Node]] = []
        seen: dict[str, yaml.Mark] = {}
        following = self._next
        while type(event := following()) is not yaml.MappingEndEvent:
            key = self._node(event, depth)
            value = self._node(following(), depth)
            mark = event.start_mark
            if type(key) is not Scalar:
                self._problem("a key must be a text, not a list or a mapping", mark)
            elif key.text == "<<" and not key.quoted:
                self._problem("merging with '<<' is not supported", mark, "write the keys out")
            elif key.text in seen:
                first = seen[key.text].line + 1
                self._problem(f"the key '{shorten(key.text)}' appears twice; it is first on line {first}", mark)
            else:
                seen[key.text] = mark
                pairs.append((key, value))
        return pairs

    def _items(self, depth: int) -> list[Node]:
        items = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            items.append(self._node(event, depth))
        return items

    def _alias(self, event: Any) -> Node:
        name = shorten(event.anchor)
        if event.anchor not in self._anchors:
            raise self._stop(f"'*{name}' stands for nothing: there is no '&{name}' before it", event.start_mark)
        anchored = self._anchors[event.anchor]
        if anchored is None:
            raise self._stop(f"'*{name}' is inside what it stands for", event.start_mark)
        node, size = anchored
        self._add(size, event.start_mark)
        return node

    def _add(self, nodes: int, mark: yaml.Mark) -> None:
        self._count += nodes
        if self._count > NODES_LIMIT:
            hint = "write the items of a list as documents, with '---' between them"
            raise self._stop(f"this document has more than {NODES_LIMIT:,} values, repeated ones counted", mark, hint)

    def _check_tag(self, event: Any) -> None:
        if event.tag != "!" and event.tag not in CORE_TAGS:
            self._problem(f"the tag '{shorten(event.tag)}' means nothing here", event.start_mark, "leave it out")

    def _problem(self, message: str, mark: yaml.Mark, hint: str | None = None) -> None:
        self.problems.append(Problem(message, where=place(self.source, mark), hint=hint))

    def _stop(self, message: str, mark: yaml.Mark, hint: str | None = None) -> _UnreadableError:
        self._problem(message, mark, hint)
        return _UnreadableError()


def from_values(value: Any, depth: int = 0) -> Node:
    """Return JSON values as nodes, without positions."""
    if isinstance(value, str):
        return _json_text(value)
    if value is None or isinstance(value, bool):
        return Scalar({None: "null", True: "true", False: "false"}[value], quoted=False)
    if isinstance(value, int | float):
        return Scalar(repr(value), quoted=False)
    if depth >= DEPTH_LIMIT:
        raise Invalid(f"The body is nested more than {DEPTH_LIMIT} levels deep.")
    if isinstance(value, Mapping):
        return Pairs([(_json_text(str(key)), from_values(item, depth + 1)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return Items([from_values(item, depth + 1) for item in value])
    raise Invalid(f"The body has a {type(value).__name__} in it, which is not JSON.")


def _json_text(text: str) -> Scalar:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid("The body has half of a surrogate pair in it, which is not text.") from None
    return Scalar(text, quoted=True)
