"""`make bench`: runs every measurement and prints the table."""

from __future__ import annotations

import os
import platform

from bench import command, first_line, kubernetes, serving, submits
from bench.table import Line, show

MEASUREMENTS = (
    command.lines,
    serving.start_lines,
    serving.list_lines,
    submits.lines,
    serving.stored_lines,
    first_line.lines,
    kubernetes.lines,
)


def main() -> None:
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}, Linux {platform.release()}\n", flush=True)
    lines: list[Line] = []
    for measure in MEASUREMENTS:
        fresh = measure()
        print(f"measured: {'; '.join(line.what for line in fresh)}", flush=True)
        lines += fresh
    print("\n" + show(lines))


if __name__ == "__main__":
    main()
