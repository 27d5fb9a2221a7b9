"""Write the bubblewrap command line of one node and its system call filter.

The root is a fresh tmpfs with the host's system directories bound read-only, because a bind of the whole host root
could not get a mount at a path that does not exist there. Where a mount lies below a system directory at a path the
host does not have (/usr/datasets), that directory is made anew and its entries are bound one by one.

In a user namespace a job would have every capability over what it makes there, and reach far more of the kernel.
Bubblewrap can forbid that by itself only where it makes such a namespace for the job; not for root's own work.
"""

from __future__ import annotations

import errno
import functools
import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.engines.local.supervisor.start import FILTER, HELD

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/sys")
SHARED_MEMORY = "/dev/shm"  # noqa: S108  (a path inside a job)
LOCK_FD = "5"
INSIDE = "/run/penstock/inside"
"""The directory of the sandbox from which the supervisor moves mounts into volumes."""


@dataclass(frozen=True)
class BindMount:
    """A directory of the machine at a path of the job. Without a source it is an empty one."""

    source: str
    dest: str
    option: str = "--bind"
    below: str = ""
    """A directory around the source that only the server or its admin can exchange. If it is named, the supervisor
    opens the source from there, follows no link, and lets nothing run unless exactly that is mounted."""

    def words(self) -> tuple[str, ...]:
        return (self.option, self.source, self.dest)

    def words_by_descriptor(self, number: int) -> tuple[str, ...]:
        return ("--ro-bind-fd" if self.option.startswith("--ro") else "--bind-fd", str(number), self.dest)


@dataclass(frozen=True)
class MaskMount(BindMount):
    """An empty directory that cannot be written, over what is not to be seen."""

    source: str = ""
    dest: str = ""

    def words(self) -> tuple[str, ...]:
        return ("--tmpfs", self.dest)


@dataclass(frozen=True)
class MemoryMount(BindMount):
    """A file system in memory of a limited size; None is the kernel's own limit."""

    source: str = ""
    dest: str = ""
    size: int | None = None
    mode: int = 0o1777

    def words(self) -> tuple[str, ...]:
        return ("--perms", f"{self.mode:04o}", *(("--size", str(self.size)) if self.size else ()), "--tmpfs", self.dest)


@dataclass(frozen=True)
class SandboxMounts:
    """The mounts in the order of bubblewrap's options, and what the supervisor does about them."""

    binds: list[BindMount]
    inside: list[tuple[str, str]]
    """Pairs of paths: bubblewrap mounts at the first, and the supervisor moves it to the second, inside a volume. By
    its path bubblewrap would follow any link that a job put there meanwhile, and as root make directories behind it."""
    by_descriptor: bool

    @property
    def held(self) -> list[tuple[str, str, str]]:
        """A directory, the path from there to what is mounted, and where that is mounted."""
        held = [bind for bind in self.binds if bind.below]
        return [(bind.below, os.path.relpath(bind.source, bind.below), bind.dest) for bind in held]

    def words(self) -> Iterator[tuple[BindMount, tuple[str, ...]]]:
        number = HELD
        for bind in self.binds:
            if bind.below and self.by_descriptor:
                yield bind, bind.words_by_descriptor(number)
                number += 1
            else:
                yield bind, bind.words()


def arrange_mounts(bwrap: str, binds: Sequence[BindMount], volumes: Sequence[BindMount]) -> SandboxMounts:
    """Put outer mounts first, and those inside volumes aside."""
    around = [canonical(volume.dest).rstrip("/") + "/" for volume in volumes]
    placed: list[BindMount] = []
    inside: list[tuple[str, str]] = []
    for bind in sorted((replace(bind, dest=canonical(bind.dest)) for bind in binds), key=_depth):
        if bind.dest.startswith(tuple(around)):
            inside.append((f"{INSIDE}/{len(inside)}", bind.dest))
            placed.append(replace(bind, dest=inside[-1][0]))
        else:
            placed.append(bind)
    return SandboxMounts(sorted(placed, key=_depth), inside, can_bind_by_descriptor(bwrap))


def empty_sandbox(bwrap: str, setpriv: Sequence[str] = ()) -> list[str]:
    """Return the command of a sandbox without mounts, in which nothing is done."""
    nothing = SandboxMounts([], [], by_descriptor=False)
    return [bwrap, *bwrap_options(bwrap, nothing, hold=None, as_root=bool(setpriv)), "--", *setpriv, "/bin/true"]


def bwrap_options(bwrap: str, mounts: SandboxMounts, *, as_root: bool, hold: str | None = LOCK_FD) -> list[str]:
    """Return bubblewrap's options. It needs a user namespace unless it stays root, so that setpriv inside takes the
    account on. `hold` is a descriptor that stays open as long as anything runs inside."""
    binds = mounts.binds
    return [
        *("--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try", "--die-with-parent", "--new-session"),
        *(("--sync-fd", hold) if hold else ()),
        *_privileges(bwrap, as_root=as_root),
        *(("--seccomp", str(FILTER)) if hold and call_filter(bwrap, as_root=as_root) else ()),
        *system_directories([bind.dest for bind in binds]),
        *("--proc", "/proc", "--dev", "/dev", "--dir", "/run"),
        *_resolver(),
        *_mounts(mounts),
        *(word for bind in binds if isinstance(bind, MaskMount) for word in ("--remount-ro", bind.dest)),
        *("--remount-ro", "/", "--chdir", "/"),
    ]


def _privileges(bwrap: str, *, as_root: bool) -> list[str]:
    if not as_root:
        return ["--unshare-user", *(["--disable-userns"] if _can_disable_userns(bwrap) else [])]
    needed = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
    return ["--cap-drop", "ALL", *(word for cap in needed for word in ("--cap-add", cap))]


def call_filter(bwrap: str, *, as_root: bool) -> bytes:
    """Return the filter that keeps a job from making user namespaces, where bubblewrap cannot prevent that itself."""
    return no_user_namespaces() if as_root or not _can_disable_userns(bwrap) else b""


@functools.cache
def _can_disable_userns(bwrap: str) -> bool:
    """Versions before 0.8 cannot, nor can any in some containers: it is tried."""
    argv = [bwrap, "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc", "/bin/true"]
    return subprocess.run(argv, capture_output=True, check=False, timeout=30).returncode == 0


def can_size_memory(bwrap: str) -> bool:
    """Versions before 0.7 cannot say how large a file system in memory may grow."""
    return b"--size" in _options_of(bwrap)


def can_bind_by_descriptor(bwrap: str) -> bool:
    """Versions before 0.10 bind by path alone."""
    return b"--bind-fd" in _options_of(bwrap)


@functools.cache
def _options_of(bwrap: str) -> bytes:
    return subprocess.run([bwrap, "--help"], capture_output=True, check=False, timeout=30).stdout


def setpriv_prefix(setpriv: str, uid: int, gid: int, groups: Sequence[int]) -> tuple[str, ...]:
    members = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    nothing = ("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs")
    return (setpriv, f"--reuid={uid}", f"--regid={gid}", members, *nothing, "--")


def canonical(path: str) -> str:
    """Return the path that bubblewrap must be told: a mount below /bin is one below /usr/bin where /bin is a link."""
    return os.path.realpath(path) if in_system(path) else path


def in_system(path: str) -> bool:
    return any(within(path, top) for top in SYSTEM)


def within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _depth(bind: BindMount) -> tuple[int, str]:
    return bind.dest.count("/"), bind.dest


def _mounts(mounts: SandboxMounts) -> Iterator[str]:
    """Write the options of all mounts. Directories on the way are named: those bubblewrap makes itself are closed to
    all but its user."""
    made = {"/"}
    for bind, words in mounts.words():
        for parent in reversed(Path(bind.dest).parents):
            if str(parent) not in made:
                made.add(str(parent))
                yield from ("--dir", str(parent))
        yield from words


def system_directories(dests: Sequence[str]) -> list[str]:
    missing = [dest for dest in dests if in_system(dest) and not Path(dest).is_dir()]
    return [word for top in SYSTEM if os.path.lexists(top) for word in _system_entry(top, missing)]


def _system_entry(path: str, missing: Sequence[str]) -> Iterator[str]:
    if Path(path).is_symlink():
        yield from ("--symlink", str(Path(path).readlink()), path)
    elif not any(dest.startswith(path + "/") for dest in missing) or not Path(path).is_dir():
        yield from ("--ro-bind-try", path, path)
    else:
        yield from ("--perms", f"{Path(path).stat().st_mode & 0o7777:04o}", "--dir", path)
        for entry in sorted(Path(path).iterdir()):
            yield from _system_entry(str(entry), missing)


def _resolver() -> list[str]:
    """Show the file behind /etc/resolv.conf, which systemd-resolved keeps in /run."""
    real = os.path.realpath("/etc/resolv.conf")
    return ["--ro-bind-try", real, real] if real.startswith("/run/") else []


CLONE_NEWUSER = 0x10000000
CLONE3 = 435
X32 = 0x40000000
"""A bit of the number that says how the arguments are passed, and nothing else."""
CALLS = {
    "x86_64": [(0xC000003E, 56, 272), (0x40000003, 120, 310)],
    "aarch64": [(0xC00000B7, 220, 97), (0x40000028, 120, 337)],
}
"""For each kind of program that such a machine runs: how the kernel calls it, and its numbers of clone and unshare."""
LOAD, AND, EQUAL, BITS, RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
NUMBER, KIND, FIRST_ARGUMENT = 0, 4, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


def no_user_namespaces() -> bytes:
    """Return the filter; empty on a machine whose system calls we do not know. A filter cannot see what clone3 is asked
    for: it is reported missing, and every C library then uses clone."""
    kinds = CALLS.get(os.uname().machine)
    if kinds is None:
        return b""
    program = [(LOAD, 0, 0, KIND)]
    for kind, clone, unshare in kinds:
        program += [
            (EQUAL, 0, 10, kind),
            (LOAD, 0, 0, NUMBER),
            (AND, 0, 0, ~X32 & 0xFFFFFFFF),
            (EQUAL, 6, 0, CLONE3),
            (EQUAL, 1, 0, clone),
            (EQUAL, 0, 2, unshare),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (BITS, 1, 0, CLONE_NEWUSER),
            (RETURN, 0, 0, ALLOW),
            (RETURN, 0, 0, REFUSE | errno.EPERM),
            (RETURN, 0, 0, REFUSE | errno.ENOSYS),
        ]
    program.append((RETURN, 0, 0, REFUSE | errno.ENOSYS))
    return b"".join(struct.pack("=HBBI", *step) for step in program)
