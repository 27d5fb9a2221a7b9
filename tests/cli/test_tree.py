"""The tree of commands: help, usage, mistakes."""

from __future__ import annotations

import click
import pytest

from penstock.cli import main
from penstock.cli.main import cli
from penstock.cli.ui.command import Command


def commands(group: click.Group, ctx: click.Context) -> list[tuple[str, click.Command]]:
    found = []
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        path = f"{ctx.command_path} {name}"
        if isinstance(command, click.Group):
            found += commands(command, click.Context(command, info_name=name, parent=ctx))
        else:
            found.append((path, command))
    return found


ALL = commands(cli, click.Context(cli, info_name="penstock"))


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_every_command_has_help_and_an_example_that_names_it(path, command):
    assert command.help
    assert isinstance(command, Command)
    assert any(path in line for line in command.examples), command.examples


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_u_means_what_k8s_cli_says(path, command):
    meaning = {option: param.name for param in command.params for option in param.opts}.get("-u")
    expected = {
        "penstock jobs submit": "api_url",
        "penstock jobs status": "api_url",
        "penstock jobs logs": "api_url",
        "penstock jobs list": "all_users",
        "penstock jobs stop": "all_users",
        "penstock volumes list": "all_users",
        "penstock volumes create": None,
        "penstock volumes delete": None,
    }
    if path in expected:
        assert meaning == expected[path]


def test_help_shows_the_name_the_program_was_called_by(penstock):
    shown = penstock("jobs", "wait", "--help", name="k8s-cli")
    assert shown.code == 0
    assert shown.out.startswith("Usage: k8s-cli jobs wait [OPTIONS] NAME_OR_ID...\n")
    assert shown.out.endswith(
        "Examples:\n  k8s-cli jobs wait train && echo trained\n  k8s-cli jobs wait train evaluate --timeout 2h\n"
    )


@pytest.mark.parametrize("name", ["pwmcli", "pwmadm"])
def test_the_programs_of_pwm_show_their_own_name_in_examples(name):
    root = main.program(name)
    for path, command in commands(root, click.Context(root, info_name=name)):
        parent = click.Context(root, info_name=name)
        shown = command.get_help(click.Context(command, info_name=path.partition(" ")[2], parent=parent))
        examples = [line.strip() for line in shown.partition("Examples:")[2].splitlines()]
        assert any(f"{line} ".startswith(f"{path} ") for line in examples), shown
        assert not any("penstock" in line for line in examples)


def test_a_mistyped_command_is_guessed(penstock):
    shown = penstock("jobs", "lsit")
    assert shown.code == 2
    assert shown.out == ""
    assert shown.err == (
        "Usage: penstock jobs [OPTIONS] COMMAND [ARGS]...\n"
        "Try 'penstock jobs --help' for help.\n\n"
        "Error: No such command 'lsit'. Did you mean 'list'?\n"
    )


def test_the_version_is_that_of_the_program_and_of_the_server(penstock):
    from penstock import __version__

    assert penstock("--version").out == f"penstock {__version__}\n"
    assert penstock("-v").out == f"penstock {__version__}\n"
    assert penstock("version").out == f"penstock {__version__}\nserver   {__version__}\n"


def test_a_reader_that_goes_away_is_no_error(penstock):
    import subprocess

    line = f"{' '.join(penstock.line('--help'))} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], env=penstock.environ, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


def test_a_traceback_is_only_for_those_who_ask(penstock):
    without = penstock("jobs", "status", "nothing")
    assert without.code == 3
    assert without.err.startswith("Error: ")
    assert "Traceback" not in without.err
    assert "Traceback" in penstock("jobs", "status", "nothing", PENSTOCK_DEBUG="1").err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("volumes", "get", "nope"), 3),
        (("jobs", "status", "nope"), 3),
        (("jobs", "logs", "nope"), 3),
        (("get", "wk", "nope"), 3),
        (("profile", "use", "nope"), 3),
        (("jobs", "list", "--api-url", "http://127.0.0.1:1"), 5),
        (("volumes", "create", "v", "10GB"), 2),
        (("jobs", "list", "--no-such-option"), 2),
        (("exec", "nope", "--", "true"), 125),
        (("jobs", "wait", "nope"), 125),
        (("run", "--cpus", "none", "--", "true"), 125),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_the_exit_code_says_what_went_wrong(penstock, words, code):
    assert penstock(*words).code == code
