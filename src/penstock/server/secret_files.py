"""Read secret settings from files that only the server's account can read.

Everyone on a machine reads its configuration, since every command needs it. So what nobody else may know stands in a
file of its own (`telegram_token_file`), or comes as a credential of systemd under the name of the setting.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import Problem, SettingsError
from penstock.settings import Settings

SECRET = ("database_url", "telegram_token", "webhook_secret")
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The directory where systemd puts what `LoadCredential=` names."""
LARGEST = 64 * 1024


def with_secrets(settings: Settings) -> Settings:
    """Return the settings with the secrets from their files; report all problems at once."""
    problems: list[Problem] = []
    found: dict[str, Any] = {key: value for key in SECRET if (value := _value(key, settings, problems))}
    if problems:
        raise SettingsError("The settings are wrong.", problems=problems)
    return replace(settings, **found)


def _value(key: str, settings: Settings, problems: list[Problem]) -> str | None:
    said, path = getattr(settings, key), getattr(settings, f"{key}_file")
    if said and path:
        hint = f"keep {key}_file, and take {key} out of the configuration"
        problems.append(Problem(f"is set twice: as {key} and as {key}_file", where=f"{key}_file", hint=hint))
        return None
    if path:
        return _read(Path(path), f"{key}_file", problems)
    given = Path(os.environ[CREDENTIALS], key) if os.environ.get(CREDENTIALS) else None
    return _read(given, f"${CREDENTIALS}", problems) if not said and given and given.exists() else None


def _read(path: Path, where: str, problems: list[Problem]) -> str | None:
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o004:
                problems.append(Problem(f"{path} can be read by everyone", where=where, hint=f"chmod 600 {path}"))
            text = file.read(LARGEST).strip()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(f"{path} cannot be read: {error}", where=where))
        return None
    if not text:
        problems.append(Problem(f"{path} is empty", where=where))
    return text
