"""As whom a node runs, and who binds its mounts. Never root.

A server that is not root can only be itself. A root server hands other people's work to their own account before
bubblewrap starts, so that the kernel checks every path as theirs. Root's own work runs as an unprivileged account, but
what it mounts may lie below /root: there bubblewrap stays root and the account is taken on inside, by setpriv.
"""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass

from penstock.domain.users import Account
from penstock.engines.local.sandbox import setpriv_prefix
from penstock.errors import Forbidden, Unavailable
from penstock.settings import Settings


@dataclass(frozen=True)
class Identity:
    account: Account
    drop: dict[str, object] | None = None
    """uid, gid and groups to take on before bubblewrap starts."""
    setpriv: tuple[str, ...] = ()
    """The command that takes them on inside it."""


def identity(account: Account, settings: Settings) -> Identity:
    if account.uid == 0:
        raise Forbidden("Work never runs as root.", hint="the setting root_account names the account it runs as")
    me = os.geteuid()
    if me != 0:
        if account.uid != me:
            raise Forbidden(f"This server can run work only as its own account, not as '{account.user}'.")
        return Identity(account)
    groups = _groups(account)
    if account.user == settings.root_account and settings.sandbox == "bubblewrap":
        return Identity(account, setpriv=setpriv_prefix(_setpriv(), account.uid, account.gid, groups))
    return Identity(account, drop={"uid": account.uid, "gid": account.gid, "groups": groups})


def _groups(account: Account) -> list[int]:
    try:
        name = pwd.getpwuid(account.uid).pw_name
    except KeyError:
        return [account.gid]
    return [group for group in os.getgrouplist(name, account.gid) if group != 0]


def _setpriv() -> str:
    found = shutil.which("setpriv")
    if found is None:
        raise Unavailable("setpriv is not installed.", hint="sudo apt-get install -y util-linux")
    return found
