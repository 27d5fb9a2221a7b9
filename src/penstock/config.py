"""Read the settings: config.toml, PENSTOCK_* variables over it, and a command's own flags over both."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from penstock.domain.names import shorten
from penstock.domain.quantities import NotAQuantity, parse_bytes, parse_cpus, parse_duration
from penstock.errors import Problem, SettingsError
from penstock.settings import Settings, config_dir

SYSTEM_CONFIG = Path("/etc/penstock/config.toml")
SYSTEM_DATA = Path("/var/lib/penstock")
OWN_VARIABLES = ("PENSTOCK_API_URL", "PENSTOCK_TOKEN", "PENSTOCK_DEBUG", "PENSTOCK_READY_FD", "PENSTOCK_TASK_ID")
"""Variables that are no settings."""
BYTES = ("body_limit", "documents_limit", "workdir_limit", "log_limit", "memory", "min_free")
CPUS = ("cpus", "default_cpus")
DURATIONS = (
    "disk_scan",
    "stop_grace",
    "retention",
    "gpu_sample",
    "placement_timeout",
    "pull_patience",
    "launch_pause",
)
MAY_BE_EMPTY = ("cpus", "memory", "min_free")


def load(overrides: dict[str, Any] | None = None) -> Settings:
    """Read the files over the defaults, PENSTOCK_* over both and flags over all. Raises with all mistakes at once."""
    problems: list[Problem] = []
    values = _from_file(SYSTEM_CONFIG, problems) | _own(problems)
    for key, raw in (overrides or {}).items():
        if raw is not None and (value := _typed(key, raw, f"--{key.replace('_', '-')}", problems)) is not None:
            values[key] = value
    if problems:
        raise SettingsError("The settings are wrong.", problems=problems)
    if values.get("mode") == "system" and "data_dir" not in values:
        values["data_dir"] = SYSTEM_DATA
    return Settings(**values)


def _own(problems: list[Problem]) -> dict[str, Any]:
    """Return what a person has set, in their own file or by variables."""
    return _from_file(config_dir() / "config.toml", problems) | _from_environment(problems)


def is_set(key: str) -> bool:
    """Has anybody set it, in a file or by a variable?"""
    return key in _from_file(SYSTEM_CONFIG, []) | _own([])


def wants_own_server() -> bool:
    """Has this person said that a server of their own is meant, whatever the machine has?"""
    return _own([]).get("mode") == "user"


def machine_port(settings: Settings) -> int | None:
    """Return the port that belongs to the machine's own server and to no other; None where there is no such server."""
    machine = _from_file(SYSTEM_CONFIG, [])
    configured = machine.get("mode") == "system" or settings.system_socket.exists()
    if settings.mode == "system" or not configured:
        return None
    port: int = machine.get("port", Settings.port)
    return port


def _from_file(path: Path, problems: list[Problem]) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(f"cannot be read: {error}", where=str(path)))
        return {}
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(Problem(f"is not TOML: {error}", where=str(path)))
        return {}
    return {key: value for key, raw in table.items() if (value := _typed(key, raw, str(path), problems)) is not None}


def _from_environment(problems: list[Problem]) -> dict[str, Any]:
    values = {}
    _find_misspelt(problems)
    for known in fields(Settings):
        variable = f"PENSTOCK_{known.name.upper()}"
        raw = os.environ.get(variable)
        if raw is not None and (value := _typed(known.name, raw, variable, problems)) is not None:
            values[known.name] = value
    return values


def _find_misspelt(problems: list[Problem]) -> None:
    """Report variables that are nearly a setting; PENSTOCK_* of other programs are none of our business."""
    known = [f"PENSTOCK_{known.name.upper()}" for known in fields(Settings)]
    for variable in os.environ:
        if not variable.startswith("PENSTOCK_") or variable in known or variable in OWN_VARIABLES:
            continue
        if near := _nearest(variable, known, 0.9):
            problems.append(Problem("is not a setting", where=shorten(variable), hint=f"did you mean {near}?"))


def _nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    from difflib import get_close_matches  # slow to import, and seldom needed

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=likeness)), None)


def _typed(key: str, raw: Any, source: str, problems: list[Problem]) -> Any:
    """Return `raw` as the type the setting has, or None and a problem that names file, key and what is allowed."""
    hints = get_type_hints(Settings)
    if key not in hints:
        near = _nearest(key, hints)
        hint = f"did you mean '{near}'?" if near else f"the settings are {', '.join(sorted(hints))}"
        problems.append(Problem(f"'{key}' is not a setting", where=source, hint=hint))
        return None
    try:
        value = _coerce(hints[key], raw)
        _check_amount(key, value)
        return value
    except NotAQuantity as error:
        problems.append(Problem(str(error), where=source, field=key, hint=error.hint))
    except ValueError as error:
        problems.append(Problem(f"{error}, not {shorten(repr(raw))}", where=source, field=key))
    return None


def _coerce(wanted: Any, raw: Any) -> Any:
    if get_origin(wanted) is Literal:
        if raw in get_args(wanted):
            return raw
        raise ValueError("must be " + " or ".join(f'"{choice}"' for choice in get_args(wanted)))
    if wanted is int:
        if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw <= 65535:
            return raw
        if isinstance(raw, str) and raw.isascii() and raw.isdigit() and int(raw) <= 65535:
            return int(raw)
        raise ValueError("must be a whole number from 0 to 65535")
    if wanted is Path:
        if isinstance(raw, Path):
            return raw
        if isinstance(raw, str) and raw.startswith("/") and "\0" not in raw:
            return Path(raw)
        raise ValueError("must be an absolute path")
    if get_origin(wanted) is tuple:
        items = [part.strip() for part in raw.split(",") if part.strip()] if isinstance(raw, str) else raw
        if isinstance(items, list | tuple) and all(isinstance(item, str) for item in items):
            return tuple(items)
        raise ValueError("must be a list of text")
    if get_origin(wanted) is dict:
        return _table(raw)
    if isinstance(raw, str):
        return raw
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return str(raw)
    raise ValueError("must be text")


def _table(raw: Any) -> dict[str, str]:
    """Read a table of name = text; in a variable, `name=text,name=text`."""
    if isinstance(raw, str):
        parts = [part.strip() for part in raw.split(",") if part.strip()]
        raw = {name: text for name, _, text in (part.partition("=") for part in parts)}
    if isinstance(raw, dict) and all(isinstance(item, str | int) for item in raw.values()):
        return {name: str(text) for name, text in raw.items()}
    raise ValueError("must be a table of name = text")


def _check_amount(key: str, value: Any) -> None:
    if key in BYTES and (value or key not in MAY_BE_EMPTY):
        parse_bytes(value, bare=False)
    elif key in CPUS and (value or key not in MAY_BE_EMPTY):
        parse_cpus(value)
    elif key in DURATIONS:
        parse_duration(value)
    elif key == "storage_classes" and not all(path.startswith("/") for path in value.values()):
        raise ValueError("must be a table of name = absolute directory")
    elif key == "webhooks" and not all(address.startswith(("http://", "https://")) for address in value):
        raise ValueError("must be addresses that begin with http:// or https://")
