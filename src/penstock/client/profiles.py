"""Servers under names of the user's own, each with its token, in profiles.json."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from penstock.client.address import Url, config_dir, parse_url
from penstock.client.credentials import Document, change_private, read_private
from penstock.errors import Conflict, NotFound, SettingsError

VARIABLE = "PENSTOCK_PROFILE"


class Profile(NamedTuple):
    name: str
    server: str
    token: str | None
    current: bool = False

    @property
    def url(self) -> Url:
        return parse_url(self.server)


def profiles_path() -> str:
    return f"{config_dir()}/profiles.json"


def all_profiles() -> list[Profile]:
    known = _read()
    return [_profile(known, name) for name in sorted(known["profiles"])]


def named_profile(name: str) -> Profile:
    known = _read()
    _require(known, name)
    return _profile(known, name)


def current_profile() -> Profile | None:
    """Return the profile for commands that name no server."""
    known = _read()
    name = known["current"]
    if name and name not in known["profiles"]:
        others = _those(known)
        hint = f"penstock profile use NAME; {others}" if others else f"penstock profile del {name}"
        raise SettingsError(f"{profiles_path()} says to use profile {name}, which does not exist.", hint=hint)
    return _profile(known, name) if name else None


def add_profile(name: str, server: Url, token: str | None, *, use: bool, replace: bool = False) -> None:
    """Add a profile. One of the same name stays, unless it is equal or is to be replaced."""
    _check(name, token)
    entry = {"server": str(server)} | ({"token": token} if token else {})

    def add(known: Document) -> None:
        there = known["profiles"].get(name)
        if there is not None and not replace and not (use and there == entry):
            raise Conflict(f"Profile {name} already exists, for {there['server']}.", hint=_instead(name, use))
        known["profiles"][name] = entry
        known["current"] = name if use else known["current"]

    change_private(profiles_path(), _read, add)


def use_profile(name: str) -> None:
    def use(known: Document) -> None:
        _require(known, name)
        known["current"] = name

    change_private(profiles_path(), _read, use)


def delete_profile(name: str) -> bool:
    """Delete a profile, and tell whether none is in use now."""
    was_used = False

    def delete(known: Document) -> None:
        nonlocal was_used
        if name != known["current"]:  # which may be one that is not there, and is forgotten so
            _require(known, name)
        known["profiles"].pop(name, None)
        was_used = known["current"] is not None and known["current"] not in known["profiles"]
        known["current"] = None if was_used else known["current"]

    change_private(profiles_path(), _read, delete)
    return was_used


def chosen_profile(flag: str | None, *, named: bool) -> Profile | None:
    """Return the chosen profile: by flag, by variable, else the one in use; `named`: a variable has an address."""
    if flag:
        return named_profile(flag)
    variable = os.environ.get(VARIABLE)
    if variable and named:
        raise SettingsError(
            f"{VARIABLE} and PENSTOCK_API_URL both name a server.", hint="unset one of them, or use --profile"
        )
    if variable:
        return named_profile(variable)
    return None if named else current_profile()


def _profile(known: Document, name: str) -> Profile:
    entry = known["profiles"][name]
    return Profile(name, entry["server"], entry.get("token"), name == known["current"])


def _require(known: Document, name: str) -> None:
    if name in known["profiles"]:
        return
    make = "make one: penstock profile init NAME --api-server URL --token TOKEN"
    raise NotFound(f"There is no profile {name}.", hint=_those(known) or make)


def _those(known: Document) -> str:
    there = ", ".join(sorted(known["profiles"]))
    return f"there are: {there}" if there else ""


def _instead(name: str, use: bool) -> str:
    replaced = f"penstock profile init {name} --force … replaces it" if use else f"penstock profile use {name}"
    return f"{replaced}; penstock profile del {name} removes it"


def _check(name: str, token: str | None) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", name):
        raise SettingsError(f"'{name}' is not a name for a profile.", hint="letters, digits and . _ @ -")
    if token is not None and not re.fullmatch(r"[\x21-\x7e]+", token):
        raise SettingsError("The token is empty or has characters that no token has.", hint="is it whole, on one line?")


def _read() -> Document:
    known = read_private(profiles_path(), _is_ours, "penstock profile init")
    return {"current": known.get("current"), "profiles": known.get("profiles", {})}


def _is_ours(known: dict[str, Any]) -> bool:
    profiles = known.get("profiles", {})
    if not isinstance(profiles, dict) or not all(map(_is_profile, profiles.values())):
        return False
    current = known.get("current")
    return current is None or isinstance(current, str)


def _is_profile(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("server"), str):
        return False
    return isinstance(entry.get("token", ""), str)
