"""What looks like a secret is shown as being there, never by its value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|PGPASS|CREDENTIAL|KEY|COOKIE|BEARER|AUTHORIZATION|SIGNATURE"
    r"|(^|[_.-])(AUTH|PASS|PAT|JWT)([_.-]|$)|_PWD$",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(\w://[^\s/:@]*):[^\s/@]+@")
"""`postgresql://ada:hunter2@db`: the password stands between the name and the host."""
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


def without_passwords(text: str) -> str:
    text = _IN_QUERY.sub(rf"\1{MASK}", _IN_ADDRESS.sub(rf"\1:{MASK}@", text))
    return _IN_HEADER.sub(rf"\1 {MASK}", text)


def passwords_removed(found: Any) -> Any:
    """The same for every text in something JSON can hold."""
    if isinstance(found, str):
        return without_passwords(found)
    if isinstance(found, Mapping):
        return {name: passwords_removed(value) for name, value in found.items()}
    return [passwords_removed(each) for each in found] if isinstance(found, list | tuple) else found
