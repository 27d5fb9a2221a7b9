"""Where a volume is on its storage: `group/path`, and never outside of it."""

from __future__ import annotations

from penstock.domain.names import shorten
from penstock.domain.volumes import Volume
from penstock.errors import Invalid, Problem


def path_inside(volume: Volume, below: str | None = None) -> str:
    """`group/path`, and nothing that could lead out of the group's directory; `below` is a directory in it."""
    path = volume.sub_path if volume.sub_path is not None else volume.name
    if volume.group in ("", ".", "..") or "/" in volume.group or "," in volume.group:
        raise _not_inside(volume.group, volume.group)
    return "/".join([volume.group, *parts_of(path, volume.group), *(parts_of(below, volume.group) if below else ())])


def parts_of(path: str, group: str) -> list[str]:
    parts = path.split("/")
    if not path.isprintable() or "," in path or any(part in ("", ".", "..") for part in parts):
        raise _not_inside(path, group)
    return parts


def _not_inside(path: str, group: str) -> Invalid:
    said = f"'{shorten(path)}' is not a path inside the directory of {group}"
    problem = Problem(said, field="subPath", hint="for example data/set")
    return Invalid(f"The volume cannot be used: {said}.", problems=[problem])
