"""Start one program inside a running node from outside, and end it when whoever asked for it is gone.

The server starts one of these for each `exec`. It joins the node's control groups, takes on its account and forks into
its PID namespace. The child goes on into the other namespaces, gives up every privilege that this takes, says `ready`
and becomes the program. The parent stays outside, where no job sees it, and waits for the end of the program, or for
that of the server, which is a hang-up on the control socket. Then it kills all that the program started.

The child brings nothing along: it cannot be traced (not dumpable), has no descriptor but the program's three, and turns
into the program by way of a shell that the job cannot write: a program that names /proc/self/exe as its interpreter
gets that shell, never the interpreter this runs in.
"""

# ruff: noqa: PTH116
from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself imports enum, which is slow
import _socket
import ctypes
import errno
import fcntl
import os
import select
import stat
import struct
import sys
import termios

from penstock.engines.shared.processes import all_processes, first_child, read_process, with_descendants

from .processes import KILL, STOP, exit_code, signal
from .start import write_word

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it is slow
    from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
CAPABILITY_VERSION_3 = 0x20080522
NS_GET_USERNS = 0xB701
OTHERS = ("mnt", "ipc", "uts", "net", "cgroup")
"""Namespaces the child joins by itself, where the node has its own."""
PTMX = (5, 2)
ROUNDS = 100
HUP = 1
HANGUP_SECONDS = 1.0
libc = ctypes.CDLL(None, use_errno=True)


def main(asked: dict[str, Any]) -> NoReturn:
    control = _socket.socket(fileno=asked["control"])
    try:
        check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
        if _parent(asked["pid"]) != asked["supervisor"]:
            raise ProcessLookupError
        shell = _untouchable(asked["shell"])
        if asked["kept"]:
            check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))  # its orphans come to us
        spaces = {} if asked["kept"] else open_namespaces(asked["pid"])
        unit = os.pidfd_open(asked["pid"])
        for path in asked["cgroups"]:
            write_word(path, "0")
        become(asked["identity"])
        if spaces:
            _join_outer(spaces)
        child = _fork(asked, control, shell, spaces)
        for fd in [shell, *spaces.values(), *(asked["stdio"] or ())]:
            os.close(fd)
        _watch(child, control, unit, kept=asked["kept"])
    except BaseException as error:
        _fail(control, error)


def _fail(control: _socket.socket, error: BaseException) -> NoReturn:
    gone = isinstance(error, ProcessLookupError | FileNotFoundError) or getattr(error, "errno", None) == errno.ENOMEM
    said = getattr(error, "strerror", None) or error
    try:
        control.send(b"gone" if gone else f"failed {said}".encode(errors="replace")[:1000])
    finally:
        os._exit(125)


# -- going in ----------------------------------------------------------------------------------------------------


def open_namespaces(pid: int) -> dict[str, int]:
    """Open the namespaces of the sandbox's PID 1, and the user namespace that owns its mounts: bubblewrap puts a second
    one inside that."""
    init = first_child(pid)
    if not init:
        raise ProcessLookupError
    handle = os.pidfd_open(init)
    names = ("user", "pid", *OTHERS)
    spaces = {name: os.open(f"/proc/{init}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names}
    spaces["outer"] = fcntl.ioctl(spaces["mnt"], NS_GET_USERNS)
    if _parent(init) != pid or select.select([handle], [], [], 0)[0]:
        raise ProcessLookupError  # the number may be another's by now
    os.close(handle)
    return spaces


def _parent(pid: int) -> int:
    """Return the parent, which identifies the node: its program's name is chosen by the job."""
    process = read_process(pid)
    return process.parent if process else 0


def _join_outer(spaces: dict[str, int]) -> None:
    if not is_ours(spaces["outer"], "user"):
        check(libc.setns(spaces["outer"], 0))
    check(libc.setns(spaces["pid"], 0))  # for children only


def is_ours(space: int, name: str) -> bool:
    ours, its = os.stat(f"/proc/self/ns/{name}"), os.fstat(space)
    return (ours.st_dev, ours.st_ino) == (its.st_dev, its.st_ino)


def _fork(asked: dict[str, Any], control: _socket.socket, shell: int, spaces: dict[str, int]) -> int:
    others = [spaces[name] for name in OTHERS if name in spaces and not is_ours(spaces[name], name)]
    nested = bool(spaces) and not os.path.sameopenfile(spaces["user"], spaces["outer"])
    parent = os.pidfd_open(os.getpid())
    child = os.fork()
    if child:
        os.close(parent)
        return child
    try:
        for space in others:
            check(libc.setns(space, 0))
        if nested:
            check(libc.setns(spaces["user"], 0))
        if spaces:
            _give_up_all(asked["inside"])
            _filter_calls(asked["filter"])
        os.setsid()
        master = _open_terminal(asked) if asked["size"] else None
        for place, fd in enumerate(() if asked["size"] else asked["stdio"]):
            os.dup2(fd, place)
        _die_with(parent)
        _say_ready(control, master)
        _turn_into(asked, shell)
    except BaseException as error:
        _fail(control, error)


def _give_up_all(identity: dict[str, Any] | None) -> None:
    """Give up every capability for good, and root where bubblewrap itself runs as root."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
            continue
        if ctypes.get_errno() == errno.EINVAL:  # there are no more
            break
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")
    become(identity)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, (ctypes.c_uint32 * 6)()))
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _filter_calls(program: bytes) -> None:
    """Filter system calls as bubblewrap does, so that what is started later can do no more."""
    if program:
        kept = ctypes.create_string_buffer(program, len(program))
        steps = struct.pack("HP", len(program) // 8, ctypes.addressof(kept))
        check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(steps), 0, 0))


def become(identity: dict[str, Any] | None) -> None:
    if identity:
        os.setgroups(identity["groups"])
        os.setresgid(*[identity["gid"]] * 3)
        os.setresuid(*[identity["uid"]] * 3)


def _open_terminal(asked: dict[str, Any]) -> int:
    """Open a terminal of the node's own, so that programs find theirs in /dev/pts. A job may put anything elsewhere in
    /dev."""
    place, follow = ("/dev/ptmx", 0) if asked["kept"] else ("/dev/pts/ptmx", os.O_NOFOLLOW)
    master = os.open(place, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK | follow)
    about = os.fstat(master)
    if not stat.S_ISCHR(about.st_mode) or (os.major(about.st_rdev), os.minor(about.st_rdev)) != PTMX:
        raise OSError(errno.ENODEV, "the node has no terminals")
    check(libc.unlockpt(master))
    name = ctypes.create_string_buffer(64)
    if number := libc.ptsname_r(master, name, len(name)):
        raise OSError(number, os.strerror(number))
    slave = os.open(name.value, os.O_RDWR | os.O_NOCTTY | os.O_NOFOLLOW)
    modes = termios.tcgetattr(slave)
    modes[0] |= 0x4000  # IUTF8: erasing takes a whole character away
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, asked["size"])
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for standard in range(3):
        os.dup2(slave, standard)
    return master


def _die_with(parent: int) -> None:
    """Die with the parent; set after the last change of account, which would undo it."""
    check(libc.prctl(PR_SET_PDEATHSIG, KILL, 0, 0, 0))
    if select.select([parent], [], [], 0)[0]:
        os._exit(125)


def _say_ready(control: _socket.socket, master: int | None) -> None:
    rights = [] if master is None else [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, master.to_bytes(4, sys.byteorder))]
    control.sendmsg([b"ready"], rights)


def _turn_into(asked: dict[str, Any], shell: int) -> NoReturn:
    for name in ("SIGPIPE", "SIGXFSZ"):
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
    os.umask(0o022)
    if shell != 3:
        os.dup2(shell, 3, inheritable=False)
    os.closerange(4, 65536)
    os.execve(3, asked["argv"], asked["env"])  # noqa: S606


def _untouchable(path: str) -> int:
    """Open the shell to turn into, or a copy: one that is not root's could be written by what it turns into next."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if os.fstat(fd).st_uid == 0:
        return fd
    copy = os.memfd_create("shell", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    while os.sendfile(copy, fd, None, 1 << 20):
        pass
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(copy, fcntl.F_ADD_SEALS, seals)
    os.close(fd)
    return copy


def check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# -- staying outside ---------------------------------------------------------------------------------------------


def _watch(child: int, control: _socket.socket, unit: int, *, kept: bool) -> NoReturn:
    """Wait until the program, its node or the server has ended."""
    handle = os.pidfd_open(child)
    poll = select.poll()
    for fd in (handle, control.fileno(), unit):
        poll.register(fd, select.POLLIN)
    while handle not in {fd for fd, _ in poll.poll()}:
        _kill_all(child)
    _, status = os.waitpid(child, 0)
    code = exit_code(status)
    if _hung_up(control, HANGUP_SECONDS if code == 128 + HUP else 0):
        _kill_all(child)
        os._exit(0)
    try:
        control.send(b"exit %d" % code)
        control.close()
    except OSError:
        _kill_all(child)
    if kept:
        _keep_the_rest(unit)
    os._exit(0)


def _hung_up(control: _socket.socket, seconds: float) -> bool:
    """Has the server gone? When it is killed, the terminal may be gone an instant before the rest."""
    return bool(select.select([control], [], [], seconds)[0])


def _keep_the_rest(unit: int) -> None:
    """Kill what the program left in the background once the node has ended: without a sandbox nothing else does."""
    poll = select.poll()
    poll.register(unit, select.POLLIN)
    while _reap():
        if poll.poll(1000):
            _kill_all(os.getpid())


def _reap() -> bool:
    """Reap children that have ended; is one left?"""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _kill_all(leader: int) -> None:
    """Kill all that the program started. Each is stopped first: what is stopped starts nothing that we would miss."""
    stopped: set[int] = set()
    for _ in range(ROUNDS):
        fresh = _members(leader) - stopped
        if not fresh:
            break
        for pid in fresh:
            signal(pid, STOP)
        stopped |= fresh
    for pid in stopped:
        signal(pid, KILL)


def _members(leader: int) -> set[int]:
    """Return the processes the program started: below us, or in the session it leads."""
    processes, ours = all_processes(), os.getpid()
    session = [process.pid for process in processes if process.session == leader]
    return set(with_descendants([ours, *session], processes)) - {ours}
