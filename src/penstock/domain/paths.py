"""Mount paths: where inside a job a volume may appear.

A job's root is made of the system's own directories. A volume over one of them would take the job's tools away, and the
kernel's own file systems cannot be covered at all. Everything else is free, children of most system directories
included (`/usr/datasets`, `/home`, `/var/lib/data`).
"""

from __future__ import annotations

import re

from penstock.domain.names import shorten

KERNEL = ("/proc", "/sys", "/dev", "/run", "/var/run", "/var/lock")
"""Reserved with everything below them, except `/dev/shm`."""
PROGRAMS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
TOOLS = (*PROGRAMS, *(f"/usr{path}" for path in PROGRAMS), "/etc", "/boot")
"""Reserved with everything below them."""
THEMSELVES = ("/", "/usr", "/usr/local", "/usr/share", "/usr/libexec", "/usr/include", "/var", "/var/lib")
"""Reserved themselves, but not what is below them."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108  a mount path, not a file of ours
WORKDIR = "/workdir"
"""The directory inside the job that has the code of a relative workdir."""
PATH_LIMIT = 4096
PART_LIMIT = 255


class NotAMountPath(ValueError):
    """A path at which nothing can be mounted; str() says why, `hint` what would be right."""

    def __init__(self, message: str, hint: str | None = "for example /data") -> None:
        super().__init__(message)
        self.hint = hint


def mount_path(text: str) -> str:
    """Return the path in its one spelling: `/data/` and `//data/.` are `/data`."""
    shown = shorten(text)
    if not text.startswith("/"):
        raise NotAMountPath(f"'{shown}' is not an absolute path", _absolute(text))
    if not text.isprintable():
        raise NotAMountPath(f"'{shown}' has characters that cannot be printed")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise NotAMountPath(f"'{shown}' has '..' in it", "write where it leads to")
    path = "/" + "/".join(parts)
    if len(path.encode()) > PATH_LIMIT or any(len(part.encode()) > PART_LIMIT for part in parts):
        raise NotAMountPath(f"'{shown}' is too long: {PATH_LIMIT} bytes at most, {PART_LIMIT} between two '/'")
    if _systems_own(path):
        raise NotAMountPath(f"'{shown}' belongs to the system", "a path of your own, such as /data or /mnt/data")
    return path


def sub_path(text: str) -> str:
    """Return a directory below another one in its one spelling, which never leads out of it."""
    shown = shorten(text)
    if text.startswith("/"):
        raise NotAMountPath(f"'{shown}' is absolute", f"write {shorten(text.strip('/'))}" if text.strip("/") else None)
    if not text.isprintable():
        raise NotAMountPath(f"'{shown}' has characters that cannot be printed", None)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise NotAMountPath(f"'{shown}' is no directory below another one", "for example datasets/images")
    path = "/".join(parts)
    if len(path.encode()) > PATH_LIMIT or any(len(part.encode()) > PART_LIMIT for part in parts):
        raise NotAMountPath(f"'{shown}' is too long: {PATH_LIMIT} bytes at most, {PART_LIMIT} between two '/'", None)
    return path


def _systems_own(path: str) -> bool:
    if path in THEMSELVES:
        return True
    if _within(path, SHARED_MEMORY):
        return False
    return any(_within(path, own) for own in (*KERNEL, *TOOLS))


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _absolute(text: str) -> str:
    return f"/{text}" if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_./-]{0,60}", text) else "for example /data"
