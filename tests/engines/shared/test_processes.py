"""Processes as /proc has them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from penstock.engines.shared.processes import (
    all_processes,
    descriptors,
    first_child,
    pids,
    read_count,
    read_process,
    read_values,
    sockets_of,
    tcp_sockets,
    with_descendants,
)


def test_a_name_with_brackets_does_not_confuse_the_reader(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as child:
        found = read_process(child.pid)
        child.kill()
    assert found
    assert (found.pid, found.parent, found.ended) == (child.pid, os.getpid(), False)
    assert read_process(child.pid) is None


def test_one_that_has_ended_is_there_until_its_parent_takes_note() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    found = read_process(child)
    assert found
    assert found.ended
    os.waitpid(child, 0)
    assert child not in pids()


def test_descendants_are_found_through_all_generations() -> None:
    line = ["sh", "-c", "sh -c 'sleep 600 & echo up; wait'; true"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout
        shell.stdout.readline()
        inner = first_child(shell.pid)
        assert inner
        found = with_descendants([shell.pid], all_processes())
        assert found[:2] == [shell.pid, inner]
        assert len(found) > 2
        os.killpg(shell.pid, 9)


def test_a_listening_socket_is_found_with_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        inode = os.fstat(listener.fileno()).st_ino
        assert inode in sockets_of(os.getpid())
        assert f"/proc/{os.getpid()}/fd/{listener.fileno()}" in descriptors(os.getpid())
        found = [fields for fields in tcp_sockets() if int(fields[9]) == inode]
    assert [int(fields[1].rpartition(":")[2], 16) for fields in found] == [port]


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("4096\n", "", 4096),
        ("max\n", "", None),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", "oom_kill", 2),
        ("usage_usec 12\nuser_usec 7\n", "system_usec", None),
        ("read_bytes: 8192\n", "read_bytes", 8192),
    ],
)
def test_counters_are_numbers_alone_or_after_a_name(tmp_path: Path, text: str, name: str, count: int | None) -> None:
    file = tmp_path / "counter"
    file.write_text(text)
    assert read_count(str(file), name) == count


def test_values_keep_all_their_words_and_a_missing_file_has_none(tmp_path: Path) -> None:
    file = tmp_path / "status"
    file.write_text("Name:\tbash\nSigCgt:\t0000000000004002\nGroups:\t4 20 27\nempty:\n")
    assert read_values(str(file)) == {"Name": "bash", "SigCgt": "0000000000004002", "Groups": "4 20 27"}
    assert read_values(str(tmp_path / "nothing")) == {}
