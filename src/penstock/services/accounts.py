"""Which Unix account a caller's work runs as and their volumes belong to. Never root."""

from __future__ import annotations

import os
import pwd
from functools import lru_cache

from penstock.domain.users import Account, Caller
from penstock.errors import Forbidden, StartRefused
from penstock.settings import Settings

NOGROUP = 65534
NOBODY = Account(uid=65534, gid=NOGROUP, user="nobody")


def account_of(caller: Caller, settings: Settings) -> Account:
    """A user's server works as that user, a system server as each caller; root becomes the unprivileged account.
    In a cluster and on other hosts there are no accounts of this machine: all are nobody."""
    if settings.engine != "local":
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
    """The account in `root_account`, checked: it must exist and must not be root again."""
    try:
        account = _named(settings.root_account)
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
    """What a Unix account is called here."""
    try:
        return _known(uid).user
    except KeyError:
        return f"uid-{uid}"


@lru_cache
def _known(uid: int) -> Account:
    """Looked up once: the system's answer costs more than the rest of a request. A failure is not remembered."""
    return _account(pwd.getpwuid(uid))


@lru_cache
def _named(name: str) -> Account:
    return _account(pwd.getpwnam(name))


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, user=entry.pw_name)
