"""Who may do what, before any policy is written."""

from __future__ import annotations

import pytest

from penstock.domain.policy import ADMIN_VERBS, OWN_GROUP, Kind, Verb, allowed, is_admin
from penstock.domain.users import Caller, Proof

ALICE = Caller(user="alice", proof=Proof.socket, uid=1000)
ADMIN = Caller(user="root", proof=Proof.socket, uid=0, runs_server=True)
SAID = Caller(user="root", proof=Proof.header, uid=0, runs_server=True)


def test_every_kind_has_a_rule():
    assert set(OWN_GROUP) == set(Kind)


@pytest.mark.parametrize("verb", [Verb.get, Verb.create, Verb.delete, Verb.stop, Verb.logs])
def test_everyone_may_run_jobs_in_their_own_group(verb):
    assert allowed(ALICE, verb, Kind.Workload)


def test_nobody_may_make_nodes_or_storage_by_default():
    for kind in (Kind.Node, Kind.Storage, Kind.Server, Kind.User):
        assert allowed(ALICE, Verb.get, kind)
        assert not any(allowed(ALICE, verb, kind) for verb in (Verb.create, Verb.delete, Verb.stop))


@pytest.mark.parametrize("kind", Kind)
def test_only_the_one_who_runs_the_server_sees_what_belongs_to_others(kind):
    for verb in ADMIN_VERBS:
        assert allowed(ADMIN, verb, kind)
        assert not allowed(ALICE, verb, kind)


@pytest.mark.parametrize("kind", Kind)
def test_a_name_in_a_header_is_never_an_admin(kind):
    assert not is_admin(SAID)
    assert not any(allowed(SAID, verb, kind) for verb in ADMIN_VERBS)


def test_a_name_in_a_header_cannot_be_turned_into_a_token():
    assert allowed(ALICE, Verb.create, Kind.Token)
    assert not allowed(SAID, Verb.create, Kind.Token)


def test_each_user_has_a_group_of_their_own_name():
    assert ALICE.group == "alice"
