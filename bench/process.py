"""Time and memory of processes, as the kernel counts them.

A child's largest resident size is never less than that of the process it was forked from, so a program is measured
from a bare interpreter: this file, started as a program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def run(line: list[str], environ: dict[str, str]) -> tuple[float, float]:
    """Wall time in milliseconds and the largest resident size in MB of one run, which must succeed."""
    small = [sys.executable, "-I", "-S", __file__, *line]
    done = subprocess.run(small, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    took, size = done.stdout.split()
    return float(took), float(size)


def resident(pid: int) -> tuple[float, int]:
    """Resident megabytes of a process and all its children, and how many processes that are."""
    family = [pid]
    for parent in family:
        for task in Path(f"/proc/{parent}/task").iterdir():
            family += map(int, (task / "children").read_text().split())
    return sum(_resident_kib(member) for member in family) / 1024, len(family)


def wait_until_idle(pid: int, most: float = 0.1) -> None:
    """Until a process that has much to do when it starts has done it: one CPU hardly used for two seconds."""
    used = cpu_seconds(pid)
    while True:
        time.sleep(2)
        before, used = used, cpu_seconds(pid)
        if used - before < most:
            return


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def _main(line: list[str]) -> int:
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    began = time.perf_counter()
    pid = os.posix_spawn(line[0], line, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    print((time.perf_counter() - began) * 1000, usage.ru_maxrss / 1024)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
