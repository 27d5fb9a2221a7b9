"""profiles.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client.address import parse_url
from penstock.client.api import Client
from penstock.client.profiles import (
    add_profile,
    all_profiles,
    current_profile,
    delete_profile,
    named_profile,
    use_profile,
)
from penstock.errors import Conflict, NotFound, SettingsError

PROM, LAB = parse_url("https://pwm.example.org"), parse_url("http://lab.example.org:8000")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable in ("PENSTOCK_PROFILE", "PENSTOCK_API_URL", "K8S_CLI_API_URL", "PENSTOCK_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "penstock" / "profiles.json"


@pytest.fixture
def two(kept: Path) -> Path:
    add_profile("prom", PROM, "pst_prom", use=True)
    add_profile("lab", LAB, "pst_lab", use=False)
    return kept


def names() -> list[str]:
    return [profile.name for profile in all_profiles()]


def test_they_stand_side_by_side_for_their_owner_only(two):
    assert [(each.name, each.server, each.token, each.current) for each in all_profiles()] == [
        ("lab", "http://lab.example.org:8000", "pst_lab", False),
        ("prom", "https://pwm.example.org:443", "pst_prom", True),
    ]
    assert two.stat().st_mode & 0o777 == 0o600
    assert two.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in two.parent.iterdir()] == ["profiles.json"]


def test_init_keeps_the_others_and_what_is_there_under_its_name(two):
    add_profile("third", PROM, "pst_3", use=True)
    assert names() == ["lab", "prom", "third"]
    with pytest.raises(Conflict, match="Profile prom already exists, for https://pwm") as caught:
        add_profile("prom", LAB, "other", use=True)
    assert caught.value.hint
    assert "--force" in caught.value.hint
    assert named_profile("prom").token == "pst_prom"
    assert named_profile("third").current


def test_the_same_init_again_only_uses_it(two):
    use_profile("lab")
    add_profile("prom", PROM, "pst_prom", use=True)
    assert named_profile("prom").current


def test_a_profile_is_replaced_where_that_is_asked_for(two):
    add_profile("prom", LAB, None, use=True, replace=True)
    assert named_profile("prom")[1:3] == ("http://lab.example.org:8000", None)
    assert named_profile("lab").token == "pst_lab"


def test_add_refuses_what_is_there_even_the_same(two):
    with pytest.raises(Conflict):
        add_profile("lab", LAB, "pst_lab", use=False)


def test_the_deleted_one_is_not_used_any_more(two):
    assert delete_profile("lab") is False
    assert delete_profile("prom") is True
    assert current_profile() is None
    assert "pst_" not in two.read_text()


@pytest.mark.parametrize("act", [use_profile, delete_profile, named_profile])
def test_an_unknown_name_is_told_with_those_there_are(two, act):
    with pytest.raises(NotFound, match="There is no profile nosuch") as caught:
        act("nosuch")
    assert caught.value.hint == "there are: lab, prom"


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "x" * 65, "a\n"])
def test_a_name_that_is_none_is_refused(kept, name):
    with pytest.raises(SettingsError, match="is not a name for a profile"):
        add_profile(name, PROM, "t", use=True)
    assert not kept.exists()


@pytest.mark.parametrize("token", ["", "two words", "line\r\nX-User: root", "grüße"])
def test_a_token_that_could_not_be_sent_is_refused(kept, token):
    with pytest.raises(SettingsError, match="The token is empty or has"):
        add_profile("prom", PROM, token, use=True)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"profiles": []}', '{"profiles": {"a": {}}}', '{"current": {}}'],
)
def test_a_damaged_file_is_named_with_the_way_out(kept, text):
    kept.parent.mkdir()
    kept.write_text(text)
    with pytest.raises(SettingsError, match=r"profiles\.json") as caught:
        all_profiles()
    assert caught.value.hint == f"mv {kept} {kept}.old, then penstock profile init"


def test_many_commands_at_once_lose_nothing(kept):
    script = (
        "import sys; from penstock.client.profiles import add_profile; from penstock.client.address import parse_url;"
        "add_profile(sys.argv[1], parse_url('http://h'), 't', use=False)"
    )
    wanted = [f"p{number}" for number in range(8)]
    processes = [subprocess.Popen([sys.executable, "-c", script, name], env=os.environ) for name in wanted]
    assert [process.wait(60) for process in processes] == [0] * len(wanted)
    assert names() == wanted


# whose server a command talks to


def server_and_token(client: Client) -> tuple[str | None, str | None]:
    sent = client._headers().get("Authorization")
    return str(client.url) if client.url else None, sent.removeprefix("Bearer ") if sent else None


LOCAL = (None, None)
PROM_S = ("https://pwm.example.org:443", "pst_prom")
LAB_S = ("http://lab.example.org:8000", "pst_lab")


def test_without_a_profile_it_is_the_machines_own():
    assert server_and_token(Client()) == LOCAL


@pytest.mark.parametrize(
    ("flags", "environ", "expected"),
    [
        ({}, {}, PROM_S),
        ({"profile": "lab"}, {}, LAB_S),
        ({}, {"PENSTOCK_PROFILE": "lab"}, LAB_S),
        ({"profile": "prom"}, {"PENSTOCK_PROFILE": "lab"}, PROM_S),
        ({}, {"PENSTOCK_API_URL": "http://other:1"}, ("http://other:1", None)),
        ({"profile": "lab"}, {"PENSTOCK_API_URL": "http://other:1", "PENSTOCK_TOKEN": "pst_env"}, LAB_S),
        ({"api_url": "http://other:1"}, {"PENSTOCK_PROFILE": "lab"}, ("http://other:1", None)),
        ({"api_url": "http://other:1"}, {"PENSTOCK_TOKEN": "pst_env"}, ("http://other:1", "pst_env")),
        ({}, {"PENSTOCK_TOKEN": "pst_env"}, PROM_S),
        ({"as_account": True}, {}, LOCAL),
    ],
    ids=lambda value: json.dumps(value),
)
def test_the_nearest_word_decides_and_no_token_goes_to_another_server(two, monkeypatch, flags, environ, expected):
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    assert server_and_token(Client(**flags)) == expected


def test_a_profile_without_a_token_takes_that_of_the_environment(kept, monkeypatch):
    add_profile("open", LAB, None, use=True)
    monkeypatch.setenv("PENSTOCK_TOKEN", "pst_env")
    assert server_and_token(Client()) == ("http://lab.example.org:8000", "pst_env")


def test_two_variables_that_name_two_servers_are_refused(two, monkeypatch):
    monkeypatch.setenv("PENSTOCK_PROFILE", "lab")
    monkeypatch.setenv("PENSTOCK_API_URL", "http://other:1")
    with pytest.raises(SettingsError, match="PENSTOCK_PROFILE and PENSTOCK_API_URL both name a server"):
        Client()
