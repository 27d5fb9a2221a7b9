"""Find the Unix account that a caller's work runs as and their volumes belong to. It is never root."""

from __future__ import annotations

import os
import pwd
import time

from penstock.domain.engines import ENGINES
from penstock.domain.users import Account, Caller
from penstock.errors import Forbidden, StartRefused
from penstock.settings import Settings

NOGROUP = 65534
NOBODY = Account(uid=65534, gid=NOGROUP, user="nobody")
REMEMBERED = 1.0
"""Seconds: the system's answer costs more than the rest of a request, and a number may be given to another account."""
_remembered: dict[int | str, tuple[float, Account]] = {}


def account_of(caller: Caller, settings: Settings) -> Account:
    """Return the account of a caller's work. A user's server works as that user, a system server as each caller; root
    becomes the unprivileged account. In a cluster and on other hosts there are no accounts of this machine: all are
    nobody."""
    if not ENGINES[settings.engine].here:
        return NOBODY
    uid, gid = os.geteuid(), os.getegid()
    if settings.mode == "system":
        if caller.uid is None:
            raise Forbidden("This server runs work under the caller's Unix account, and you have none here.")
        uid, gid = caller.uid, NOGROUP if caller.gid is None else caller.gid
    if uid == 0:
        return root_account(settings)
    try:
        return _known(uid)
    except KeyError:
        return Account(uid=uid, gid=gid, user=f"uid-{uid}")


def root_account(settings: Settings) -> Account:
    """Return the account in the setting `root_account`, which must exist and not be root again."""
    try:
        account = _known(settings.root_account)
    except KeyError:
        raise StartRefused(
            f"The account '{settings.root_account}' does not exist, and work never runs as root.",
            hint="Set root_account to an existing unprivileged account.",
        ) from None
    if account.uid == 0:
        raise StartRefused(
            f"The account '{settings.root_account}' is root, and work never runs as root.",
            hint="Set root_account to an unprivileged account, such as nobody.",
        )
    return account


def user_name(uid: int) -> str:
    try:
        return _known(uid).user
    except KeyError:
        return f"uid-{uid}"


def _known(key: int | str) -> Account:
    """Look an account up by number or name. A failure is not remembered."""
    moment, known = time.monotonic(), _remembered.get(key)
    if known and moment - known[0] < REMEMBERED:
        return known[1]
    entry = pwd.getpwnam(key) if isinstance(key, str) else pwd.getpwuid(key)
    account = Account(uid=entry.pw_uid, gid=entry.pw_gid, user=entry.pw_name)
    _remembered[key] = (moment, account)
    return account
