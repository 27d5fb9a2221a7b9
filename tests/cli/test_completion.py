"""Shell completion."""

from __future__ import annotations

import subprocess

import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_serves_all_names(penstock, shell):
    script = penstock("completion", shell).out
    for name in ("PENSTOCK", "K8S_CLI", "PWMCLI", "PWMADM"):
        assert f"_{name}_COMPLETE={shell}_complete" in script


def test_bash_takes_the_script(penstock):
    script = penstock("completion", "bash").out
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, timeout=10).stderr == ""


def complete(program, *words: str) -> list[str]:
    name = words[0]
    environ = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    environ[f"_{name.upper()}_COMPLETE"] = "bash_complete"
    return [line for line in program(name=name, **environ).out.splitlines() if line]


def test_the_words_of_pwm_are_completed(penstock):
    assert complete(penstock, "pwmcli", "pro") == ["plain,profile"]
    assert complete(penstock, "pwmcli", "profile", "us") == ["plain,use", "plain,using"]
    assert complete(penstock, "pwmcli", "get", "g") == ["plain,gpu", "plain,group", "plain,gpuw"]
    assert complete(penstock, "penstock", "get", "jo") == ["plain,job"]
    assert complete(penstock, "pwmadm", "to") == ["plain,token"]
    assert complete(penstock, "pwmadm", "user", "") == ["plain,apply"]
    assert complete(penstock, "pwmcli", "jo") == []


def test_profiles_are_completed_where_one_is_named(penstock, tmp_path):
    penstock.environ = penstock.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
    for name in ("lab-one", "lab-two", "other"):
        assert penstock("profile", "add", name, "--api-server", "http://127.0.0.1:1").code == 0
    for line in (["profile", "use"], ["profile", "del"], ["get", "wk", "--profile"]):
        assert complete(penstock, "pwmcli", *line, "lab") == ["plain,lab-one", "plain,lab-two"]


def test_commands_are_completed(penstock):
    assert complete(penstock, "penstock", "jobs", "st") == ["plain,status", "plain,stop"]


def test_names_and_ids_come_from_the_server(penstock):
    made = penstock("volumes", "create", "completed-volume", "1Gi", "-o", "name").out.strip()
    assert complete(penstock, "penstock", "volumes", "get", "compl") == ["plain,completed-volume"]
    assert complete(penstock, "penstock", "volumes", "delete", made) == [f"plain,{made}"]


def test_what_comes_after_a_kind_is_of_that_kind(penstock):
    penstock("volumes", "create", "kind-volume", "1Gi")
    penstock("jobs", "submit", "-", stdin="name: kind-job\nrun: 'true'\n")
    assert complete(penstock, "penstock", "get", "volumes", "kind") == ["plain,kind-volume"]
    assert complete(penstock, "penstock", "get", "jobs", "kind") == ["plain,kind-job"]
    assert complete(penstock, "penstock", "describe", "volume", "kind") == ["plain,kind-volume"]
    assert complete(penstock, "penstock", "describe", "job", "kind") == ["plain,kind-job"]
    assert complete(penstock, "penstock", "describe", "vol") == ["plain,volume", "plain,vol"]
    assert complete(penstock, "penstock", "logs", "wk", "kind") == ["plain,kind-job"]
    assert complete(penstock, "penstock", "shell", "vol", "kind") == ["plain,kind-volume"]
    assert complete(penstock, "pwmcli", "get", "vol", "kind") == ["plain,kind-volume"]
    assert complete(penstock, "pwmcli", "stop", "w") == ["plain,wk"]
    assert complete(penstock, "penstock", "exec", "kind") == []


def test_groups_are_completed_and_what_ended_is_not_offered_to_be_stopped(penstock, server):
    me = server.request("GET", "/v1/whoami")[1]["user"]
    assert f"plain,{me}" in complete(penstock, "pwmcli", "get", "wk", "-g", me[:1])
    assert complete(penstock, "pwmadm", "token", "create", "") == []  # nobody is written down
    over = server.submit("name: over-job\nrun: 'true'\n")
    server.ended(over["id"])
    server.submit("name: over-there\nrun: sleep 600\n")
    for line in (["stop", "wk"], ["stop"], ["shell", "wk"]):
        assert complete(penstock, "pwmcli", *line, "over") == ["plain,over-there"]
    assert complete(penstock, "pwmcli", "logs", "wk", "over") == ["plain,over-there", "plain,over-job"]


def test_completion_never_starts_a_server(alone):
    assert complete(alone, "penstock", "volumes", "get", "x") == []
    assert alone("server", "status").code == 1
