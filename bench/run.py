"""`make bench`: runs every measurement and prints the table; `python -m bench.run kubernetes` only those of a file."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable

from bench import command, docker, first_line, inventory, kubernetes, policy, scheduling, serving, submits
from bench.table import Line, show

MEASUREMENTS = (
    command.lines,
    serving.start_lines,
    serving.list_lines,
    submits.lines,
    serving.stored_lines,
    first_line.lines,
    policy.lines,
    scheduling.lines,
    inventory.lines,
    docker.lines,
    kubernetes.lines,
)


def main() -> None:
    chosen = _chosen(sys.argv[1:])
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}, Linux {platform.release()}")
    print("Times are medians; files are in memory, Python's code is compiled; commands run as typed.\n", flush=True)
    lines: list[Line] = []
    for measure in chosen:
        fresh = measure()
        print(f"measured: {'; '.join(line.what for line in fresh)}", flush=True)
        lines += fresh
    print("\n" + show(lines))


def _chosen(files: list[str]) -> list[Callable[[], list[Line]]]:
    of = [(measure.__module__.removeprefix("bench."), measure) for measure in MEASUREMENTS]
    if unknown := set(files).difference(file for file, _ in of):
        known = ", ".join(dict.fromkeys(file for file, _ in of))
        sys.exit(f"nothing is measured in {', '.join(sorted(unknown))}, but in {known}")
    return [measure for file, measure in of if file in files or not files]


if __name__ == "__main__":
    main()
