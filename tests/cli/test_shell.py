"""`pwmcli shell wk NAME`: a real terminal, with all that people do at one."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.cli.test_exec import PROMPT, Open, job, open_terminal, sleeping, wait_for

__all__ = ["job", "open_terminal"]


def test_a_shell_as_large_as_the_terminal_that_ends_with_its_own_code(penstock, job, open_terminal: Open):
    terminal = open_terminal(penstock, "shell", "wk", "train", name="pwmcli")
    terminal.until(PROMPT)
    terminal.type("test -t 0 && stty size; echo $0\n")
    terminal.until(r"[\r\n]30 90\r\n.*bash")
    terminal.resize(132, 50)
    terminal.type("while test \"$(stty size)\" = '30 90'; do sleep 0.05; done; stty size\n")  # typing may overtake it
    terminal.until(r"[\r\n]50 132\r\n")
    terminal.type("printf '%s\\n' 'grüße ☃ 日本'\n")
    terminal.until("[\r\n]grüße ☃ 日本\r\n")
    terminal.type("exit 9\n")
    assert terminal.ended() == 9
    assert terminal.is_as_it_was


def test_ctrl_c_is_the_programs(penstock, job, open_terminal: Open):
    terminal = open_terminal(penstock, "shell", "wk", "train", name="pwmcli")
    terminal.until(PROMPT)
    terminal.type("sleep 600.303\n")
    wait_for(lambda: sleeping("600.303"))
    terminal.type("\x03")
    terminal.until(r"\^C(.|\n)*[$#] $")
    assert not sleeping("600.303")
    terminal.type("echo still $((40 + 2)); exit\n")
    terminal.until(r"[\r\n]still 42\r\n")
    assert terminal.ended() == 0
    assert terminal.is_as_it_was


@pytest.mark.skipif(not shutil.which("busybox"), reason="busybox is not installed")
def test_an_editor_that_takes_the_whole_screen_keeps_what_is_typed(penstock, job, open_terminal: Open):
    terminal = open_terminal(penstock, "shell", "wk", "train", name="pwmcli")
    terminal.until(PROMPT)
    terminal.type("busybox vi /tmp/poem\n")
    terminal.until(re.escape("\x1b[?1049h"))
    terminal.until(r"~(.|\n)*/tmp/poem")
    terminal.type("ia line of vi\x1b")
    terminal.until("a line of vi")
    terminal.resize(100, 40)
    terminal.type(":wq\r")
    terminal.until(re.escape("\x1b[?1049l"))
    terminal.until(PROMPT)
    terminal.type("cat /tmp/poem; stty size; exit\n")
    terminal.until(r"[\r\n]a line of vi\r\n40 100\r\n")
    assert terminal.ended() == 0
    assert terminal.is_as_it_was


@pytest.mark.skipif(not shutil.which("less"), reason="less is not installed")
def test_a_pager_in_a_shell(penstock, job, open_terminal: Open):
    terminal = open_terminal(penstock, "shell", "train")
    terminal.until(PROMPT)
    terminal.type("less /etc/services\n")
    terminal.until(re.escape("\x1b[?1049h"))
    terminal.type("G")
    terminal.until("END")
    terminal.type("q")
    terminal.until(re.escape("\x1b[?1049l"))
    terminal.type("exit\n")
    assert terminal.ended() == 0


def test_in_a_pipe_the_shell_reads_what_comes_in(penstock, job):
    done = penstock("shell", "wk", "train", stdin="echo here; exit 4\n", name="pwmcli")
    assert (done.code, done.out, done.err) == (4, "here\n", "")


def test_a_shell_on_a_volume(penstock):
    penstock("volumes", "create", "shelled", "1Gi")
    assert penstock("shell", "vol", "shelled", stdin="pwd\n", name="pwmcli").out == "/volume\n"


def test_what_cannot_be_entered_is_said(penstock, server):
    over = server.submit("name: shell-over\nrun: true\n")
    server.ended(over["id"])
    refused = penstock("shell", "wk", "shell-over", name="pwmcli")
    assert (refused.code, refused.err.splitlines()[0]) == (
        125,
        f"Error: shell-over ({over['id']}) is not running: completed",
    )
    assert penstock("shell", "wk", "none-such", name="pwmcli").code == 125
    assert "'gpu' is not one of: wk" in penstock("shell", "gpu", "x", name="pwmcli").err
    assert "Name one thing: pwmcli shell KIND NAME." in penstock("shell", "a", "b", "c", name="pwmcli").err
