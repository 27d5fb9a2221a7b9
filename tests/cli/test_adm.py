"""`pwmadm` and `penstock adm`: the first admin, users, tokens, and who did what."""

from __future__ import annotations

import json
import re

import pytest

USERS = """
---
apiVersion: v1
kind: Group
metadata:
  name: ada

---
apiVersion: v1
kind: User
metadata:
  name: ada
spec:
  groups:
    - name: ada
      policy:
        Workload: [get, getOne, apply, delete, describe, shell, cancel]
        Volume: [get]
    - name: pwm.resource
      policy:
        Storage: [get]
        CPU: [get]
        GPU: [get]
"""


def test_the_words_are_the_same_under_both_names(alone):
    words = ["init", "user", "token", "users", "groups", "audit"]
    for line, name in ((["--help"], "pwmadm"), (["adm", "--help"], "penstock")):
        shown = alone(*line, name=name).out.partition("Commands:\n")[2]
        assert [line.split()[0] for line in shown.splitlines()] == words
    assert "\n  pwmadm user apply -f users.yaml\n" in alone("user", "apply", "--help", name="pwmadm").out
    assert "\n  penstock adm user apply -f users.yaml\n" in alone("adm", "user", "apply", "--help").out


def test_the_first_admin_is_made_once_and_lets_others_in(alone):
    me = alone("auth", "whoami", "-o", "name").out.strip()
    address = json.loads(alone("server", "status", "-o", "json").out)["address"]
    made = alone("init", name="pwmadm")
    assert (made.code, made.out[:4]) == (0, "pst_")
    assert f"{me} is the admin of this server; the token is shown only once:\n" in made.err
    again = alone("init", name="pwmadm")
    assert again.code == 6
    assert "already has an admin" in again.err

    (alone.folder / "users.yaml").write_text(USERS)
    applied = alone("user", "apply", "-f", "users.yaml", name="pwmadm")
    assert applied.code == 0, applied.err
    assert [line.split()[:2] for line in applied.out.splitlines()] == [["Group", "ada"], ["User", "ada"]]
    assert all(
        line.endswith(" not changed") for line in alone("adm", "user", "apply", "-f", "users.yaml").out.splitlines()
    )

    token = alone("token", "create", "ada", "--description", "laptop", name="pwmadm")
    assert token.out.startswith("pst_")
    begun = alone(
        "profile", "init", "prom", "--api-server", address, "--token", token.out.strip(), name="pwmcli",
        XDG_CONFIG_HOME=str(alone.folder / "ada"),
    )  # fmt: skip
    assert "The server knows you as ada.\n" in begun.err
    for kind in ("wk", "gpu", "cpu", "vol", "storage"):
        shown = alone("get", kind, name="pwmcli", XDG_CONFIG_HOME=str(alone.folder / "ada"))
        assert (shown.code, shown.err) == (0, ""), kind
    refused = alone("audit", name="pwmadm", XDG_CONFIG_HOME=str(alone.folder / "ada"))
    assert refused.code == 4
    assert "You may not read the audit on this server" in refused.err

    users = alone("users", name="pwmadm").out
    assert re.search(r"^User  ada +ada,pwm.resource +true$", users, re.MULTILINE)
    assert "ada: Workload get,getOne,apply" in alone("adm", "users", "-o", "wide").out
    assert "\n         pwm.resource: Storage get" in alone("describe", "user", "ada").out
    assert "pwm.resource" in alone("adm", "groups", "-o", "name").out.split()
    assert [row["name"] for row in json.loads(alone("get", "user", "ada", "-j").out)] == ["ada"]

    done = alone("audit", "--name", "ada", name="pwmadm").out
    assert re.search(rf"{me} +create +User ada +done", done)
    denied = json.loads(alone("adm", "audit", "--user", "ada", "-o", "json").out)
    assert {entry["result"] for entry in denied} == {"denied"}


STOWAWAY = """
---
apiVersion: v1
kind: Workload
metadata: {name: stowaway}
spec: {driver: pwm.docker, run: sleep 60}
"""


def test_users_and_groups_alone_are_taken_and_tokens_made_for_them_alone(alone):
    assert alone("init", name="pwmadm").code == 0
    typo = alone("token", "create", "ada", name="pwmadm")
    assert (typo.code, typo.out) == (3, "")
    assert "User ada not found" in typo.err

    (alone.folder / "users.yaml").write_text(USERS + STOWAWAY)
    refused = alone("user", "apply", "-f", "users.yaml", name="pwmadm")
    assert refused.code == 2
    assert "users.yaml:27:7: kind: a Workload is not taken here, only User and Group" in refused.err
    assert "penstock apply -f FILE takes it" in refused.err
    assert alone("get", "user", "ada").code == 3
    assert "stowaway" not in alone("get", "wk").out
    (alone.folder / "users.yaml").write_text(USERS)
    assert alone("user", "apply", "-f", "users.yaml", name="pwmadm").code == 0

    made = alone("token", "create", "ada", "--description", "laptop", name="pwmadm")
    token_id = made.err.split()[1]
    listed = alone("token", "list", "--user", "ada").out
    assert token_id in listed
    assert "laptop" in listed
    assert token_id not in alone("token", "list").out
    refused = alone("token", "delete", token_id)
    assert refused.code == 2
    assert "not yours" in refused.err
    assert token_id in alone("token", "list", "--user", "ada").out
    assert alone("token", "delete", token_id, "--yes").code == 0
    assert alone("token", "list", "--user", "ada").out == "No tokens found\n"


@pytest.mark.parametrize("words", [("user", "apply"), ("token", "create")])
def test_what_is_missing_is_told(alone, words):
    done = alone(*words, name="pwmadm")
    assert done.code == 2
    assert "Missing" in done.err
