"""Write YAML as people do: blocks for scripts, one line for what is short."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

LINE = 100
TURNING = re.compile("[\x85\u202a-\u202e\u2066-\u2069]")
"""Characters that make a text look like another one, which YAML does not escape by itself."""


class FlowMapping(dict[str, Any]):
    """A mapping written as `{a: b}`."""


class FlowList(list[Any]):
    """A list written as `[a, b]`, where it is short and no text in it has several lines."""


class QuotedText(str):
    """A text in quotes, whatever it looks like."""

    __slots__ = ()


class BlockDumper(yaml.CSafeDumper):
    """Texts of several lines as a block, the way people write scripts."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a value that occurs twice twice."""
        return True


def _text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text, None))


def _quoted(dumper: yaml.CSafeDumper, text: QuotedText) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=_style(text, "'"))


def _style(text: str, usual: str | None) -> str | None:
    if TURNING.search(text):
        return '"'
    return "|" if "\n" in text else usual


def _mapping(dumper: yaml.CSafeDumper, value: FlowMapping) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=True)


def _words(dumper: yaml.CSafeDumper, value: FlowList) -> yaml.SequenceNode:
    texts = [str(item) for item in value]
    short = sum(map(len, texts)) < LINE and not any("\n" in text for text in texts)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=short)


BlockDumper.add_representer(str, _text)
BlockDumper.add_representer(QuotedText, _quoted)
BlockDumper.add_representer(FlowMapping, _mapping)
BlockDumper.add_representer(FlowList, _words)


def dump(value: Mapping[str, Any]) -> str:
    written = yaml.dump(dict(value), Dumper=BlockDumper, sort_keys=False, allow_unicode=True, width=10**6)
    return TURNING.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def only_said(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in values if value is not None and value not in ({}, [])}
