"""Print YAML: text that YAML 1.2 would read as a number is quoted, which PyYAML (1.1) omits."""

from __future__ import annotations

import re
from typing import Any

import yaml

from penstock.cli.ui.table import UNSAFE

NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+")


class DataDumper(yaml.SafeDumper):
    """SafeDumper with our way of writing text."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if UNSAFE.search(text) else "'" if NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


DataDumper.add_representer(str, _represent_text)


def as_yaml(data: Any) -> str:
    """Write YAML; characters that a terminal would obey are escaped in double quotes."""
    written: str = yaml.dump(data, Dumper=DataDumper, sort_keys=False, allow_unicode=True)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)
