"""`penstock doctor`: show what is installed, missing and working. It must work where nothing else does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from penstock.cli.ui.command import command
from penstock.cli.ui.options import common_options, connect
from penstock.cli.ui.output import as_table, echo_styled, print_data
from penstock.cli.ui.table import Column, Row, blocks, clean, field, terminal_width, wrapped
from penstock.client.credentials import credentials_path, read_credentials
from penstock.client.profiles import VARIABLE, all_profiles, current_profile, profiles_path
from penstock.errors import PenstockError, SettingsError

OLDEST = (3, 11)


@command("doctor", examples="penstock doctor")
@common_options(short=True)
def doctor(output: str) -> int:
    """Check what is installed, what is missing, what works.

    Each problem comes with the command that fixes it. The exit code is 1 if something required is missing.
    """
    credentials = _secret("credentials", credentials_path(), lambda: read_credentials(""))
    profiles = _secret("profiles", profiles_path(), all_profiles)
    checks = [_python(), _platform(), _settings(), credentials, profiles, *_server()]
    if as_table(output):
        _show(checks)
    else:
        print_data(checks if output == "name" else {"checks": checks}, output)
    return 0 if all(check["ok"] or not check["required"] for check in checks) else 1


def _server() -> list[Row]:
    try:
        client = connect()
        facts = client.get("/v1/server")
        where = str(client.url or facts.get("socket"))
        found = [_check("server", True, f"version {facts.get('version')}, {where}")]
        return found + list(client.get("/v1/doctor")["checks"])
    except SettingsError:
        return [_check("server", False, "not checked: the settings or the credentials are wrong")]
    except PenstockError as error:
        return [_check("server", False, _detail(error), error.hint)]


def _detail(error: PenstockError) -> str:
    return "\n".join([error.message, *map(str, error.problems)])


def _show(checks: list[Row]) -> None:
    name, verdict = Column("Check", lambda row: row["name"]), Column("Result", _verdict)
    header, *rows = blocks(checks, [name, verdict, field("Detail", "detail", least=20, wrap=True)])
    room = terminal_width()
    echo_styled("\n".join(header))
    for check, lines in zip(checks, rows, strict=True):
        if not check["ok"] and check.get("fix"):
            first, *further = wrapped(clean(check["fix"]), room and max(20, room - 9))
            lines += [f"    fix: {first}", *(f"         {line}" for line in further)]
        echo_styled("\n".join(lines))


def _verdict(check: Row) -> str:
    return "ok" if check["ok"] else "missing" if check["required"] else "advisory"


def _check(name: str, ok: bool, detail: str, fix: str | None = None) -> dict[str, Any]:
    return {"name": name, "ok": ok, "detail": detail, "fix": fix, "required": True}


def _python() -> dict[str, Any]:
    version = ".".join(map(str, sys.version_info[:3]))
    return _check("python", sys.version_info >= OLDEST, f"{version} ({sys.executable})", "install Python 3.11 or newer")


def _platform() -> dict[str, Any]:
    system = os.uname()
    named = any(map(os.environ.get, ("PENSTOCK_API_URL", "K8S_CLI_API_URL", VARIABLE))) or _on_a_profile()
    detail = f"{system.sysname} {system.release} {system.machine}"
    fix = "the embedded engine needs Linux; name a server: penstock profile init NAME --api-server https://…"
    return _check("platform", system.sysname == "Linux", detail, fix) | {"required": not named}


def _on_a_profile() -> bool:
    try:
        return current_profile() is not None
    except PenstockError:
        return False


def _settings() -> dict[str, Any]:
    from penstock.config import load
    from penstock.settings import config_dir

    try:
        settings = load()
    except PenstockError as error:
        return _check("settings", False, _detail(error), "fix the file named")
    return _check("settings", True, f"{config_dir() / 'config.toml'}; data in {settings.data_dir}")


def _secret(name: str, path: str, read: Callable[[], object]) -> dict[str, Any]:
    """Check whether a file with secrets can be read, and by whom."""
    try:
        read()
        mode = os.stat(path).st_mode & 0o077  # noqa: PTH116
    except PenstockError as error:
        return _check(name, False, error.message, error.hint)
    except OSError:
        return _check(name, True, "no file")
    return _check(name, not mode, path if not mode else f"others can read {path}", f"chmod 600 {path}")
