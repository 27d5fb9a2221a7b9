"""Who may do what: before any user is written down, and by the words of a policy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.policy import (
    EVERYTHING,
    IMPLIED,
    INFRASTRUCTURE_RIGHTS,
    NOBODY,
    OWN_GROUP_RIGHTS,
    PERSONAL_RIGHTS,
    SERVER_KINDS,
    WORDS,
    Kind,
    Rights,
    Verb,
    rights_of_policy,
)
from penstock.domain.users import Caller, Proof

ALICE = Caller(user="alice", proof=Proof.socket, uid=1000)
ADMIN = Caller(user="root", proof=Proof.socket, uid=0, runs_server=True)
SAID = Caller(user="root", proof=Proof.header, uid=0, runs_server=True)

SAMPLE = (
    (
        "yourUserName",
        {"Workload": ["get", "getOne", "apply", "delete", "describe", "shell", "cancel"], "Volume": ["get"]},
    ),
    ("pwm.resource", {"Storage": ["get"], "CPU": ["get"], "GPU": ["get"]}),
)
"""The user of PWM."""


@pytest.mark.parametrize("verb", [Verb.get, Verb.create, Verb.delete, Verb.stop, Verb.logs])
def test_everyone_may_run_jobs_in_their_own_group(verb):
    assert ALICE.may(verb, Kind.Workload)
    assert not ALICE.may(verb, Kind.Workload, "bob")


def test_nobody_may_make_nodes_storages_or_users_by_default():
    for kind in (Kind.Node, Kind.Storage, Kind.User, Kind.Group, Kind.Audit, Kind.Server):
        assert not any(ALICE.may(verb, kind) for verb in (Verb.create, Verb.update, Verb.delete, Verb.stop))
    assert not ALICE.may(Verb.get, Kind.Audit)


def test_the_one_who_runs_the_server_may_everything_everywhere():
    assert ADMIN.admin
    assert all(ADMIN.everywhere(verb, kind) and ADMIN.may(verb, kind, "bob") for verb in Verb for kind in Kind)
    assert not any(ALICE.everywhere(verb, kind) for verb in Verb for kind in Kind)


def test_a_name_in_a_header_is_never_an_admin():
    assert not SAID.admin
    assert not any(SAID.everywhere(verb, kind) for verb in Verb for kind in Kind)


def test_a_name_in_a_header_cannot_be_turned_into_a_token():
    assert ALICE.may(Verb.create, Kind.Token)
    assert not SAID.may(Verb.create, Kind.Token)
    written = Rights.of("root", [(EVERYTHING, EVERYTHING)]).by_name()
    assert not any(written.may(verb, Kind.Token) for verb in Verb)
    assert not written.admin


def test_the_same_caller_is_known_again():
    """What is remembered of callers would otherwise grow with every request."""
    assert Caller(user="alice", proof=Proof.token) == Caller(user="alice", proof=Proof.token)
    assert len({Caller(user="alice", proof=Proof.token) for _ in range(3)}) == 1


def test_each_user_has_a_group_of_their_own_name():
    assert ALICE.group == "alice"


def test_the_sample_user_may_what_the_document_shows():
    rights = Rights.of("yourUserName", SAMPLE)
    assert rights.home == "yourUserName"
    for verb in (Verb.get, Verb.create, Verb.update, Verb.delete, Verb.stop, Verb.exec, Verb.logs, Verb.inspect):
        assert rights.where(verb, Kind.Workload) == ("yourUserName",)
    assert rights.where(Verb.get, Kind.Volume) == ("yourUserName", "pwm.resource")
    for kind in (Kind.Node, Kind.GPU, Kind.CPU, Kind.Storage):
        assert rights.where(Verb.get, kind) == ("pwm.resource",)
    assert rights.where(Verb.use, Kind.Node) == rights.where(Verb.use, Kind.Storage) == ("pwm.resource",)


def test_the_sample_user_may_nothing_else():
    rights = Rights.of("yourUserName", SAMPLE)
    assert not rights.may(Verb.create, Kind.Workload, "pwm.resource")
    assert not rights.may(Verb.create, Kind.Volume)
    for kind in (Kind.Node, Kind.Storage, Kind.Group, Kind.User, Kind.Audit):
        assert not any(rights.may(verb, kind) for verb in (Verb.create, Verb.update, Verb.delete))
    assert not rights.admin


def test_whoever_is_in_no_group_may_only_what_is_their_own_business():
    rights = Rights.of("alice", [])
    assert {(verb, kind) for verb in Verb for kind in Kind if rights.may(verb, kind)} == PERSONAL_RIGHTS
    assert not any(rights.may(verb, kind, "alice") for verb in Verb for kind in Kind)
    assert not any(NOBODY.may(verb, kind) for verb in Verb for kind in Kind)


def test_everything_in_one_group_is_nothing_in_another():
    rights = Rights.of("alice", [("lab", EVERYTHING)])
    inside = {(verb, kind) for verb in Verb for kind in set(Kind) - SERVER_KINDS}
    assert {right for right in inside if rights.may(*right, "lab")} == inside - INFRASTRUCTURE_RIGHTS
    assert not any(rights.may(verb, kind, "other") for verb in Verb for kind in Kind)
    assert not rights.admin


def test_everything_in_one_group_is_nothing_on_the_whole_server():
    rights = Rights.of("alice", [("lab", EVERYTHING)])
    assert {(verb, kind) for verb in Verb for kind in SERVER_KINDS if rights.may(verb, kind)} == PERSONAL_RIGHTS


def test_some_verbs_in_all_groups_are_an_operators():
    rights = Rights.of("oper", [("oper", EVERYTHING), (EVERYTHING, {"Workload": ["get", "cancel"]})])
    assert rights.may(Verb.stop, Kind.Workload, "anyone")
    assert not rights.may(Verb.delete, Kind.Workload, "anyone")
    assert not rights.admin


def test_a_request_about_one_group_reaches_no_other():
    rights = Rights.of("alice", [("alice", EVERYTHING), ("lab", {"Workload": ["get"]})])
    alice = Caller(user="alice", proof=Proof.token, written=rights, chosen="lab")
    assert alice.where(Verb.get, Kind.Workload) == ("lab",)
    assert alice.where(Verb.delete, Kind.Workload) == ()
    assert not alice.may(Verb.delete, Kind.Workload)
    assert alice.group == "lab"


WRITTEN = st.dictionaries(st.sampled_from([*Kind]), st.lists(st.sampled_from([*WORDS]), max_size=4), max_size=4)


@given(WRITTEN, WRITTEN)
def test_a_policy_gives_only_what_its_words_and_what_follows_from_them_say(first, second):
    rights = rights_of_policy(first)
    said = {(verb, kind) for kind, words in first.items() for word in words for verb in WORDS[word]}
    assert said <= rights
    assert all(right in said or any(right in IMPLIED.get(other, ()) for other in rights) for right in rights)
    assert rights_of_policy({**first, **second}) >= rights_of_policy(second)


@given(st.dictionaries(st.text(max_size=5), st.lists(st.text(max_size=5), max_size=3), max_size=3))
def test_words_that_mean_nothing_give_nothing(written):
    known = {
        kind: [word for word in words if word in WORDS] for kind, words in written.items() if kind in Kind.__members__
    }
    assert rights_of_policy(written) == rights_of_policy(known)


def test_what_an_own_group_gives_stays_inside_it():
    assert not any(kind in (Kind.User, Kind.Audit) for _, kind in OWN_GROUP_RIGHTS)
