"""Shell completion."""

from __future__ import annotations

import subprocess

import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_serves_both_names(penstock, shell):
    script = penstock("completion", shell).out
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in script
    assert f"_K8S_CLI_COMPLETE={shell}_complete" in script


def test_bash_takes_the_script(penstock):
    script = penstock("completion", "bash").out
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, timeout=10).stderr == ""


def complete(program, *words: str) -> list[str]:
    environ = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    return [line for line in program(**environ).out.splitlines() if line]


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
    assert complete(penstock, "penstock", "describe", "vol") == ["plain,volume"]
    assert complete(penstock, "penstock", "exec", "kind") == []


def test_completion_never_starts_a_server(alone):
    assert complete(alone, "penstock", "volumes", "get", "x") == []
    assert alone("server", "status").code == 1
