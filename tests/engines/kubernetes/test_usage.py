"""What a container prints about itself: in every shell an image may have, whatever a program in it makes of that."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from penstock.engines.kubernetes.usage import LOOK, read_usage
from penstock.errors import Unavailable
from penstock.wire.measures import GpuMeasure

MARK = "0123456789abcdef"


def said(**second: str) -> bytes:
    """As the script prints it: one process that was busy for a quarter of a second out of half of one."""
    stat = "/proc/7/stat"
    samples = [
        {"/proc/uptime": f"{100 + half / 2} 1\n", stat: f"7 (a) b)) S 1 1 1 0 -1 0 0 0 0 0 {25 * half} 0{' 0' * 6} 9\n"}
        for half in (0, 1)
    ]
    parts = [{"self": "99\n"}, {"sample": ""} | samples[0], {"sample": ""} | samples[1] | second]
    return "".join(f"\036{MARK} {name}\n{text}" for part in parts for name, text in part.items()).encode()


def about(pid: int, **more: str) -> dict[str, str]:
    return {f"/proc/{pid}/{name}": text for name, text in more.items()}


@pytest.mark.parametrize("shell", [["bash"], ["dash"], ["busybox", "sh"]], ids=" ".join)
def test_every_shell_says_it(shell: list[str]) -> None:
    assert shutil.which(shell[0])
    with subprocess.Popen(["sleep", "619"]) as sleeping:
        done = subprocess.run([*shell, "-c", LOOK, "sh", MARK], capture_output=True, timeout=60, check=True)
        sleeping.kill()
    found = read_usage(done.stdout, MARK)
    commands = {process.pid: process.command for process in found.processes}
    assert commands[sleeping.pid] == "sleep 619"
    assert not any(LOOK[:20] in command for command in commands.values())
    assert found.memory_bytes > 0
    assert found.network_received_bytes is not None


@pytest.mark.parametrize("shell", [["bash"], ["dash"], ["busybox", "sh"]], ids=" ".join)
def test_what_is_gone_before_it_is_read_ends_nothing_and_holds_up_nothing(shell: list[str]) -> None:
    """A process that ends between the two is an error to whoever reads of it, as this file is to everyone."""
    functions = LOOK[: LOOK.index("{\n  say self")]
    script = f"{functions}\nline=before; show /proc/self/mem; line=before; words /proc/self/mem; show /proc/uptime"
    done = subprocess.run([*shell, "-c", script, "sh", MARK], capture_output=True, timeout=60, check=True)
    assert b"/proc/uptime" in done.stdout
    assert b"before" not in done.stdout


def test_a_name_full_of_brackets_changes_nothing() -> None:
    status = "Name:\ta) b)\nUid:\t1000\t1000\t1000\t1000\nVmRSS:\t   2048 kB\n"
    passwd = {"/etc/passwd": "root:x:0:0::/:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n"}
    [process] = read_usage(said(**about(7, status=status, cmdline="python train.py "), **passwd), MARK).processes
    assert (process.pid, process.user, process.command) == (7, "ada", "python train.py")
    assert (process.cpu_percent, process.memory_bytes) == (50.0, 2 << 20)


def test_control_groups_of_both_versions_are_read() -> None:
    first = {"memory/memory.usage_in_bytes": "900\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"}
    first["memory/memory.stat"] = "cache 1\ntotal_inactive_file 300\n"
    second = {"memory.current": "500\n", "memory.max": "1000\n", "memory.stat": "anon 1\ninactive_file 100\n"}
    for files, expected in ((first, (600, None)), (second, (400, 1000))):
        found = read_usage(said(**{f"/sys/fs/cgroup/{name}": text for name, text in files.items()}), MARK)
        assert (found.memory_bytes, found.memory_limit_bytes) == expected


def test_gpus_are_those_nvidia_smi_shows_and_what_it_does_not_know_stays_open() -> None:
    lines = "GPU-1, NVIDIA A10, 23028, 1024, 87\nGPU-2, NVIDIA A10, 23028, [N/A], [N/A]\nNo devices were found\n"
    assert read_usage(said(gpus=lines), MARK).gpus == (
        GpuMeasure(
            uuid="GPU-1",
            product="NVIDIA A10",
            memory_bytes=23028 << 20,
            memory_used_bytes=1 << 30,
            utilization=87,
        ),
        GpuMeasure(uuid="GPU-2", product="NVIDIA A10", memory_bytes=23028 << 20),
    )


@pytest.mark.parametrize(
    "text", [b"", b"\xff\x00", b"\036wrong sample\n", said()[:60], said().replace(b"100.5", b"soon")]
)
def test_what_cannot_be_read_is_said_to_be_so(text: bytes) -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        read_usage(text, MARK)


def test_another_mark_is_only_text() -> None:
    status = f"Name:\tx\nUid:\t0\nVmRSS:\t1 kB\n\036{'f' * 32} /proc/8/status\nName:\ty\n"
    assert [process.pid for process in read_usage(said(**about(7, status=status)), MARK).processes] == [7]
