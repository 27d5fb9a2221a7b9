"""Profiles: several servers by name, as PWM has them and under `penstock`."""

from __future__ import annotations

import getpass
import json

import pytest

ME = getpass.getuser()
NOBODY = "http://127.0.0.1:1"
SEEN = "Note: others could see the token on the command line, and your shell may keep it; next time: --token -\n"


@pytest.fixture(autouse=True)
def _own_configuration(penstock, tmp_path):
    penstock.environ = penstock.environ | {"XDG_CONFIG_HOME": str(tmp_path)}


@pytest.fixture
def token(penstock) -> str:
    return penstock("token", "create").out.strip()


@pytest.mark.parametrize("name", ["pwmcli", "penstock", "k8s-cli"])
def test_pwm_word_for_word(penstock, server, token, tmp_path, name):
    done = penstock("profile", "init", "prom", "--api-server", server.address, "--token", token, name=name)
    assert (done.code, done.out, done.err) == (
        0,
        "You are on *prom* profile\n",
        f"{SEEN}The server knows you as {ME}.\n",
    )
    second = penstock("profile", "init", "anotherprofile", "--api-server", NOBODY, "--token", "x", name=name)
    assert second.out == "You are on *anotherprofile* profile\n"
    assert f"saved, but the server did not confirm it: No server answers at {NOBODY}" in second.err
    assert penstock("profile", "use", "prom", name=name).out == "You are on *prom* profile\n"
    assert penstock("profile", "using", name=name).out == "You are on *prom* profile\n"
    assert penstock("api-version", name=name).out.startswith("v1 (server ")
    assert penstock("get", "wk", name=name).code == 0
    assert penstock("profile", "del", "prom", name=name).out == "Profile prom deleted; you are on no profile now\n"
    assert penstock("profile", "using", name=name).out == "You are on no profile\n"
    assert penstock("profile", "del", "anotherprofile", name=name).out == "Profile anotherprofile deleted\n"
    kept = tmp_path / "penstock" / "profiles.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_a_token_from_standard_input_is_seen_by_nobody(penstock, server, token):
    done = penstock("profile", "init", "prom", "--api-server", server.address, "--token", "-", stdin=f"{token}\n")
    assert (done.code, done.err) == (0, f"The server knows you as {ME}.\n")
    assert token not in penstock("profile", "list").out
    assert token not in penstock("profile", "list", "-o", "json").out


def test_the_profile_decides_who_asks_which_server(penstock, server, token):
    asked = penstock("adm", "token", "create", "alice", "-o", "json")
    for name, given in (("mine", token), ("hers", json.loads(asked.out)["token"])):
        penstock("profile", "add", name, "--api-server", server.address, "--token", "-", stdin=given)
    assert penstock("auth", "whoami", "--profile", "hers").out == "Logged in as: alice\n"
    assert penstock("auth", "whoami", PENSTOCK_PROFILE="hers").out == "Logged in as: alice\n"
    assert penstock("auth", "whoami", "--profile", "mine", PENSTOCK_PROFILE="hers").out == f"Logged in as: {ME}\n"
    assert penstock("profile", "using", PENSTOCK_PROFILE="hers").out == "You are on *hers* profile\n"
    penstock("profile", "use", "hers")
    assert penstock("auth", "whoami").out == "Logged in as: alice\n"
    assert penstock("server", "status").code == 0  # of this machine, whatever profile is used


def test_the_list_marks_the_one_in_use_and_keeps_secrets(penstock):
    penstock("profile", "init", "prom", "--api-server", NOBODY, "--token", "secret")
    penstock("profile", "add", "lab", "--api-server", "https://127.0.0.1:2/pwm")
    assert penstock("profile", "list").out == (
        "Profile  Server                   Token\n"
        "lab      https://127.0.0.1:2/pwm  none\n"
        "*prom*   http://127.0.0.1:1       kept\n"
    )
    assert penstock("profile", "list", "-o", "name").out == "lab\nprom\n"
    assert penstock("profile", "using", "-o", "name").out == "prom\n"


def test_without_any_that_is_said(penstock):
    assert penstock("profile", "list").out == "No profiles found\n"
    refused = penstock("profile", "use", "prom")
    assert refused.code == 3
    assert refused.err == (
        "Error: There is no profile prom.\nHint: make one: penstock profile init NAME --api-server URL --token TOKEN\n"
    )


def test_what_is_there_is_not_overwritten(penstock):
    penstock("profile", "init", "prom", "--api-server", NOBODY, "--token", "a")
    for word in ("init", "add"):
        refused = penstock("profile", word, "prom", "--api-server", "http://127.0.0.1:2", "--token", "b")
        assert (refused.code, refused.out) == (6, "")
        assert f"Error: Profile prom already exists, for {NOBODY}.\n" in refused.err
    forced = penstock("profile", "init", "prom", "--force", "--api-server", "http://127.0.0.1:2", "--token", "b")
    assert forced.code == 0
    assert "http://127.0.0.1:2" in penstock("profile", "list").out


def test_a_variable_that_goes_before_the_profile_is_named(penstock):
    penstock("profile", "add", "prom", "--api-server", NOBODY)
    done = penstock("profile", "use", "prom", PENSTOCK_API_URL="http://127.0.0.1:2")
    assert done.err == "Note: PENSTOCK_API_URL is set to http://127.0.0.1:2 and takes precedence; unset it.\n"


def test_a_token_over_http_to_another_machine_is_warned_of(penstock):
    done = penstock("profile", "add", "far", "--api-server", "http://host.invalid", "--token", "-", stdin="x")
    assert done.code == 0
    assert "http:// sends your token unencrypted" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("init", "prom", "--api-server", "localhost:8000"), "'localhost:8000' is not the address of a server."),
        (("init", "a b", "--api-server", NOBODY), "'a b' is not a name for a profile."),
        (("init", "prom", "--api-server", NOBODY, "--token", "a b"), "characters that no token has"),
        (("init", "prom"), "Missing option '--api-server'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_kept(penstock, tmp_path, words, said):
    done = penstock("profile", *words)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "penstock" / "profiles.json").exists()


def test_two_ways_to_name_a_server_in_one_command_are_refused(penstock):
    done = penstock("get", "wk", "--profile", "a", "--api-url", NOBODY)
    assert done.code == 2
    assert "--api-url and --profile cannot be used together." in done.err


def test_a_refused_token_says_how_to_give_another(penstock, server):
    penstock("profile", "init", "prom", "--api-server", server.address, "--token", "wrong")
    refused = penstock("get", "wk")
    assert refused.code == 4
    assert f"penstock profile init prom --force --api-server {server.address} --token -" in refused.err


def test_one_in_use_that_is_not_there_is_named_and_mended(penstock, tmp_path):
    kept = tmp_path / "penstock" / "profiles.json"
    penstock("profile", "add", "lab", "--api-server", NOBODY)
    penstock("profile", "add", "other", "--api-server", NOBODY)

    def lose() -> None:
        kept.write_text(json.dumps(json.loads(kept.read_text()) | {"current": "gone"}))

    lose()
    for words in (["get", "wk"], ["profile", "using"]):
        refused = penstock(*words)
        assert (refused.code, refused.out) == (2, "")
        assert f"{kept} says to use profile gone, which does not exist." in refused.err
        assert "penstock profile use NAME; there are: lab, other" in refused.err
    assert penstock("profile", "list", "-o", "name").out == "lab\nother\n"
    assert penstock("profile", "use", "lab").out == "You are on *lab* profile\n"
    lose()
    assert penstock("profile", "del", "gone").out == "Profile gone deleted; you are on no profile now\n"
    assert penstock("profile", "using").out == "You are on no profile\n"
    lose()
    assert penstock("profile", "del", "lab").out == "Profile lab deleted; you are on no profile now\n"
    assert json.loads(kept.read_text())["current"] is None
