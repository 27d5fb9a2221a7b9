"""Writes docs/reference from the code: commands, routes, settings and modules. A test fails when it is out of date."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

REFERENCE = Path("docs/reference")
SOURCE = Path(__file__).parents[1] / "src" / "penstock"
NOTE = "<!-- Written by `make docs`; change the code, not this file. -->\n"
WIDTH = 100


def pages() -> dict[str, str]:
    """Every generated file's text by its name."""
    api = openapi()
    return {
        "cli.md": cli_page(),
        "rest.md": rest_page(api),
        "openapi.json": json.dumps(api, indent=1, ensure_ascii=False) + "\n",
        "settings.md": settings_page(),
        "map.md": map_page(),
    }


# The map of the modules


def map_page() -> str:
    """Every module with the first line of its docstring, folder by folder."""
    parts = [NOTE, "# The map\n", "Every module and what it is for. [How they work together](../architecture.md).\n"]
    folders = sorted({path.parent for path in SOURCE.rglob("*.py")})
    for folder in folders:
        parts += [f"## {folder.relative_to(SOURCE.parent)}\n", f"{purpose(folder / '__init__.py')}\n"]
        modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        if modules:
            parts += [
                "| module | purpose |\n|---|---|",
                *(f"| `{path.name}` | {_cell(purpose(path))} |" for path in modules),
                "",
            ]
    return "\n".join(parts)


def purpose(path: Path) -> str:
    """The first line of a module's docstring."""
    if not path.exists():
        return ""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


# The command line


def commands() -> Iterator[tuple[str, click.Context]]:
    """Every visible command and group with its full name."""
    from penstock.cli.main import cli

    wide: dict[str, Any] = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    yield from _below(cli, click.Context(cli, info_name="penstock", **wide, **cli.context_settings))


def _below(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    yield context.command_path, context
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is None or child.hidden:
            continue
        yield from _below(child, click.Context(child, parent=context, info_name=name, **child.context_settings))


def cli_page() -> str:
    names = "`k8s-cli` is a second name of it; `pwmcli` has [a part](../profiles.md), `pwmadm` is `penstock adm`.\n"
    parts = [NOTE, "# Commands\n", names]
    for name, context in commands():
        parts += [f"## {name}\n", f"```text\n{context.get_help().rstrip()}\n```\n"]
    return "\n".join(parts)


# The HTTP API


def openapi() -> dict[str, Any]:
    from penstock.server.app import create_app
    from penstock.settings import Settings

    return dict(create_app(Settings()).openapi())


def rest_page(api: dict[str, Any]) -> str:
    intro = "The same as [OpenAPI](openapi.json); a running server shows it at `/docs`. Every error is an "
    parts = [NOTE, "# HTTP API\n", f"{intro}[ErrorBody](#errorbody).\n"]
    for tag, operations in _by_tag(api).items():
        parts.append(f"## {tag}\n")
        for method, path, operation in operations:
            parts += _operation(method, path, operation)
    parts.append("## Bodies and answers\n")
    for name, schema in sorted(api.get("components", {}).get("schemas", {}).items()):
        parts += _schema(name, schema)
    return "\n".join(parts)


def _by_tag(api: dict[str, Any]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    found: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["server"])[0]
            found.setdefault(tag, []).append((method.upper(), path, operation))
    return found


def _operation(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    parts = [f"### {method} {path}\n"]
    if text := operation.get("description") or operation.get("summary"):
        parts.append(f"{text.strip()}\n")
    rows = [
        (f"`{p['name']}` ({p['in']})", _type(p.get("schema", {})), _default(p.get("schema", {})), p.get("description"))
        for p in operation.get("parameters", [])
    ]
    if rows:
        parts.append(_table(("parameter", "type", "default", "meaning"), rows))
    for body in operation.get("requestBody", {}).get("content", {}).values():
        parts.append(f"Body: {_type(body.get('schema', {}))}\n")
    for status, answer in operation.get("responses", {}).items():
        if status == "default":
            continue
        kinds = [_type(content.get("schema", {})) for content in answer.get("content", {}).values()]
        parts.append(f"- {status}: {' or '.join(filter(None, kinds)) or answer.get('description', '')}")
    return [*parts, ""]


def _schema(name: str, schema: dict[str, Any]) -> list[str]:
    parts = [f"### {name}\n"]
    if text := schema.get("description"):
        parts.append(f"{text.strip()}\n")
    if values := schema.get("enum"):
        parts.append(", ".join(f"`{value}`" for value in values) + "\n")
    needed = schema.get("required", [])
    rows = [
        (f"`{field}`", _type(about), "required" if field in needed else _default(about), about.get("description"))
        for field, about in schema.get("properties", {}).items()
    ]
    if rows:
        parts.append(_table(("field", "type", "default", "meaning"), rows))
    return parts


def _type(schema: dict[str, Any]) -> str:
    if ref := schema.get("$ref"):
        name = str(ref).rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf"):
        return " or ".join(_type(choice) for choice in choices)
    if values := schema.get("enum"):
        return ", ".join(f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    if schema.get("type") == "object" and isinstance(extra := schema.get("additionalProperties"), dict):
        return f"map of {_type(extra) or 'anything'}"
    return str(schema.get("type", ""))


def _default(schema: dict[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


# Settings


def settings() -> list[tuple[str, str, str, str]]:
    """Name, type, default and text of each setting; the text is the docstring below its field."""
    import penstock.settings

    tree = ast.parse(inspect.getsource(penstock.settings))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Settings").body
    texts = {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }
    known = dataclasses.fields(penstock.settings.Settings)
    return [(field.name, str(field.type), _default_of(field), texts.get(field.name, "")) for field in known]


def _default_of(field: dataclasses.Field[Any]) -> str:
    if field.name == "data_dir":
        return "`~/.local/share/penstock` (`XDG_DATA_HOME` is honoured), in system mode `/var/lib/penstock`"
    if field.default is dataclasses.MISSING or field.default in ((), ""):
        return "empty"
    return f"`{field.default}`"


def settings_page() -> str:
    rows = []
    for name, kind, default, text in settings():
        rows += [f"## {name}\n", f"{text}\n"]
        rows += [f"- type: `{kind}`", f"- default: {default}", f"- variable: `PENSTOCK_{name.upper()}`\n"]
    intro = (
        "Read in this order, later over earlier: `/etc/penstock/config.toml`, `~/.config/penstock/config.toml` "
        "(`XDG_CONFIG_HOME` is honoured), `PENSTOCK_*` variables, flags of the command. "
        "A wrong value stops the start and names its place. "
        "In a variable, a list is `a,b` and a table `name=a,name=b`.\n"
    )
    return "\n".join([NOTE, "# Settings\n", intro, *rows])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str | None, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


def write(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in pages().items():
        (directory / name).write_text(content)
        print(directory / name)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else REFERENCE)
