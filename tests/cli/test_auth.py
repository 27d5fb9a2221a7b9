"""Who one is, over the socket, by token and by header."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest

ME = getpass.getuser()


@pytest.fixture(autouse=True)
def _own_configuration(penstock, tmp_path):
    penstock.environ = penstock.environ | {"XDG_CONFIG_HOME": str(tmp_path)}


def test_the_server_of_this_machine_knows_the_account(penstock):
    assert penstock("auth", "whoami").out == f"Logged in as: {ME}\n"
    assert penstock("auth", "whoami", "-o", "name").out == f"{ME}\n"


def test_another_name_than_the_accounts_is_told_plainly(penstock):
    done = penstock("auth", "login", "alice")
    said = f"Note: this server knows you by your Unix account as {ME}, not as alice; what you make belongs to {ME}.\n"
    assert (done.code, done.out, done.err) == (0, "Logged in as: alice\n", said)
    shown = penstock("auth", "whoami")
    assert (shown.out, shown.err) == (f"Logged in as: {ME}\n", said)


def test_over_tcp_without_a_token_nobody_is_logged_in(penstock, server):
    shown = penstock("auth", "whoami", "--api-url", server.address)
    assert (shown.code, shown.out) == (0, "Not logged in\n")
    assert shown.err.startswith("Hint: ")
    listed = penstock("jobs", "list", "--api-url", server.address)
    assert listed.code == 4
    assert "penstock token create" in listed.err
    assert "--auth header" in listed.err
    assert f"Hint: penstock auth login NAME --api-url {server.address}, with --token -" in listed.err
    assert "export PENSTOCK_TOKEN=…" in listed.err


def test_a_token_is_shown_once_kept_by_login_and_refused_when_deleted(penstock, server, tmp_path):
    made = penstock("token", "create", "--description", "laptop", "--expires", "30d")
    assert made.out.startswith("pst_")
    token_id = made.err.split()[1]
    listed = penstock("token", "list").out
    assert token_id in listed
    assert "laptop" in listed
    assert made.out.strip() not in listed
    done = penstock("auth", "login", ME, "-u", server.address, "--token", "-", stdin=made.out)
    assert (done.code, done.out, done.err) == (0, f"Logged in as: {ME}\n", "")
    assert (tmp_path / "penstock" / "credentials.json").stat().st_mode & 0o777 == 0o600
    assert penstock("auth", "whoami", PENSTOCK_API_URL=server.address).out == f"Logged in as: {ME}\n"
    assert penstock("token", "delete", token_id).out == f"Token {token_id} deleted successfully\n"
    assert penstock("auth", "whoami", K8S_CLI_API_URL=server.address).out == "Not logged in\n"


def test_a_token_of_the_environment_is_enough(penstock, server):
    token = penstock("token", "create").out.strip()
    shown = penstock("jobs", "list", "-o", "json", PENSTOCK_API_URL=server.address, PENSTOCK_TOKEN=token)
    assert (shown.code, shown.err) == (0, "")
    assert isinstance(json.loads(shown.out), list)


def test_a_token_as_a_name_is_its_id(penstock):
    made = penstock("token", "create", "-o", "name")
    assert made.out.strip() in penstock("token", "list").out
    assert "it is shown only once: pst_" in made.err


def test_a_token_is_rotated_without_locking_anybody_out(penstock, server):
    old = penstock("token", "create", "--description", "laptop")
    new = penstock("token", "rotate", old.err.split()[1])
    assert new.code == 0
    assert new.out != old.out
    for token in (old.out, new.out):
        shown = penstock("auth", "whoami", PENSTOCK_API_URL=server.address, PENSTOCK_TOKEN=token.strip())
        assert shown.out == f"Logged in as: {ME}\n"


def test_in_header_mode_the_login_name_is_believed(alone):
    assert alone("server", "start", "--auth", "header").code == 0
    address = json.loads(alone("server", "status", "-o", "json").out)["address"]
    assert alone("auth", "login", "alice", "--api-url", address).err == ""
    assert alone("auth", "whoami", "--api-url", address).out == "Logged in as: alice\n"
    made = alone("volumes", "create", "mine", "1Gi", "--api-url", address, "-o", "json")
    assert json.loads(made.out)["user"] == "alice"


def test_the_account_stays_admin_of_its_server_whoever_logged_in(alone):
    assert alone("server", "start", "--auth", "header").code == 0
    assert alone("auth", "login", "alice").err == ""
    assert alone("auth", "whoami").out == "Logged in as: alice\n"
    assert alone("server", "stop").err == "Stopped the server. Running jobs go on.\n"
    Path(alone.environ["XDG_CONFIG_HOME"], "penstock", "credentials.json").unlink()


def test_a_name_that_is_none_is_refused(penstock):
    assert penstock("auth", "login", "a b").code == 2
