"""Recognise secrets and mask their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
NOT_A_VALUE = f"'{MASK}' is what is shown in place of a value, and is none"
"""The message for whoever sends back what they were shown."""
KEPT_OR_NEW = "leave it empty where the value is kept already, or write the value"
LONG_ENOUGH = 6
"""The fewest characters of a value that is looked for in texts: a shorter one may be part of any word."""
_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|PGPASS|CREDENTIAL|KEY|COOKIE|BEARER|AUTHORIZATION|SIGNATURE"
    r"|(^|[_.-])(AUTH|PASS|PAT|JWT)([_.-]|$)|_PWD$",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(\w://[^\s/:@]*):[^\s/]+@")
"""`postgresql://ada:hunter2@db`: the password stands between the name and the host, and may contain `@` itself."""
_IN_QUERY = re.compile(
    r"([?&][^\s=&?#]{0,40}(?:token|secret|passw|key|signature|sig|auth)[^\s=&?#]{0,40}=)[^\s&#]+", re.IGNORECASE
)
_IN_HEADER = re.compile(r"\b(Bearer|Basic) +(?=\S*[0-9.=])[A-Za-z0-9._~+/=-]{6,}")


def looks_secret(name: str) -> bool:
    return _NAME.search(name) is not None


def masked(name: str, value: str) -> str:
    return MASK if value and looks_secret(name) else without_passwords(value)


def masked_all(envs: Mapping[str, str]) -> dict[str, str]:
    return {name: masked(name, value) for name, value in envs.items()}


def mask_secrets(found: Any, secrets: Mapping[str, str]) -> Any:
    """Return the same without these variables' values, in every way in which engines and programs write them."""
    if isinstance(found, str):
        return _without(found, secrets)
    if isinstance(found, Mapping):
        name = found.get("name")
        if isinstance(name, str) and name in secrets and "value" in found:
            return {**found, "value": MASK}
        return {key: MASK if key in secrets else mask_secrets(value, secrets) for key, value in found.items()}
    return [mask_secrets(each, secrets) for each in found] if isinstance(found, list | tuple) else found


def _without(text: str, secrets: Mapping[str, str]) -> str:
    name, equals, _ = text.partition("=")
    if equals and name in secrets:
        return f"{name}={MASK}"
    for value in sorted(secrets.values(), key=len, reverse=True):
        text = text.replace(value, MASK) if len(value) >= LONG_ENOUGH else text
    return text


def without_passwords(text: str) -> str:
    text = _IN_QUERY.sub(rf"\1{MASK}", _IN_ADDRESS.sub(rf"\1:{MASK}@", text))
    return _IN_HEADER.sub(rf"\1 {MASK}", text)


def passwords_removed(found: Any) -> Any:
    """Remove passwords from every text in something JSON can hold."""
    if isinstance(found, str):
        return without_passwords(found)
    if isinstance(found, Mapping):
        return {name: passwords_removed(value) for name, value in found.items()}
    return [passwords_removed(each) for each in found] if isinstance(found, list | tuple) else found
