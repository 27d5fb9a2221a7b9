"""Choose the account a node runs as. It is never root.

A server that is not root can only be itself. A root server hands other people's work to their own account before
bubblewrap starts, so that the kernel checks every path as theirs. Root's own work runs as an unprivileged account, but
what it mounts may lie below /root: there bubblewrap stays root and the account is taken on inside, by setpriv.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from penstock.domain.users import Account
from penstock.engines.local.spec.sandbox import setpriv_prefix
from penstock.errors import Forbidden, Unavailable
from penstock.settings import Settings

SETGROUPS = {"x86_64": 116, "aarch64": 159}
"""The number of the system call; the C library's own function changes the groups of all threads."""
T = TypeVar("T")


@dataclass(frozen=True)
class Identity:
    account: Account
    drop: dict[str, object] | None = None
    """The uid, gid and groups to take on before bubblewrap starts."""
    setpriv: tuple[str, ...] = ()
    """The command that takes the account on inside it."""


def choose_identity(account: Account, settings: Settings) -> Identity:
    if account.uid == 0:
        raise Forbidden("Work never runs as root.", hint="the setting root_account names the account it runs as")
    me = os.geteuid()
    if me != 0:
        if account.uid != me:
            raise Forbidden(f"This server can run work only as its own account, not as '{account.user}'.")
        return Identity(account)
    groups = _groups(account)
    if account.user == settings.root_account and settings.sandbox == "bubblewrap":
        return Identity(account, setpriv=setpriv_prefix(find_setpriv(), account.uid, account.gid, groups))
    return Identity(account, drop={"uid": account.uid, "gid": account.gid, "groups": groups})


def _groups(account: Account) -> list[int]:
    try:
        name = pwd.getpwuid(account.uid).pw_name
    except KeyError:
        return [account.gid]
    return [group for group in os.getgrouplist(name, account.gid) if group != 0]


def find_setpriv() -> str:
    found = shutil.which("setpriv")
    if found is None:
        raise Unavailable("setpriv is not installed.", hint="sudo apt-get install -y util-linux")
    return found


def with_rights_of(who: Identity, look: Callable[[], T]) -> T:
    """Call `look` with the rights of the account that bubblewrap will have: root's server may see far more."""
    if who.drop is None:
        return look()
    with ThreadPoolExecutor(1, "penstock-look", _take_rights, (who,)) as thread:
        return thread.submit(look).result()


def _take_rights(who: Identity) -> None:
    """Take on the rights of an account in this thread alone, which ends afterwards."""
    groups, number = _groups(who.account), SETGROUPS.get(os.uname().machine)
    libc = ctypes.CDLL(None, use_errno=True)
    listed = (ctypes.c_uint32 * len(groups))(*groups)
    if number is None or libc.syscall(ctypes.c_long(number), ctypes.c_long(len(groups)), listed) != 0:
        raise Unavailable("This server cannot look at files with the rights of another account.")
    libc.setfsgid(who.account.gid)
    libc.setfsuid(who.account.uid)
    if libc.setfsuid(-1) != who.account.uid or libc.setfsgid(-1) != who.account.gid:
        raise Unavailable("This server cannot look at files with the rights of another account.")


JOIN_SESSION_KEYRING = 1
KEYCTL = {"x86_64": 250, "aarch64": 219}
"""The number of the system call; the C library has no name for it."""

_libc = ctypes.CDLL(None)


def new_session_keyring() -> None:
    """Give this thread, and what it starts from now on, an empty keyring. Where there are no keyrings, nothing
    happens."""
    if number := KEYCTL.get(os.uname().machine):
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(JOIN_SESSION_KEYRING), None)
