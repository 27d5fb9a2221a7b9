"""Environment variables of a workload: legal names, the kernel's limits and the names Penstock sets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.domain.names import shorten
from penstock.errors import Problem

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
ENTRIES_LIMIT = 1000
ENTRY_LIMIT = 128 * 1024
"""`NAME=value` and the byte that ends it: Linux starts no program with a longer one."""
TOTAL_LIMIT = 1024 * 1024
OURS = frozenset(
    {
        "NODE_RANK",
        "NUM_NODES",
        "MASTER_ADDR",
        "MASTER_PORT",
        "GPUS_PER_NODE",
        "CUDA_VISIBLE_DEVICES",
        "JOB_COMPLETION_INDEX",  # which of an array's indexes this is; elsewhere the same as NODE_RANK
    }
)
OUR_PREFIXES = ("PENSTOCK_", "SKYPILOT_")


def is_ours(name: str) -> bool:
    """Does Penstock set this variable for every node, whatever the user says?"""
    return name in OURS or name.startswith(OUR_PREFIXES)


def name_problem(name: str, *, field: str, where: str | None = None) -> Problem | None:
    if len(name) <= 255 and VARIABLE.match(name):
        return None
    guess = re.sub(r"[^A-Za-z0-9_]", "_", name[:255])
    guess = f"_{guess}" if guess[:1].isdigit() else guess
    return Problem(
        f"'{shorten(name)}' is not a variable's name: letters, digits and '_', no digit first, 255 characters at most",
        field=field,
        where=where,
        hint=f"for example {shorten(guess)}" if guess.strip("_") else None,
    )


def value_problem(name: str, value: str, *, field: str, where: str | None = None) -> Problem | None:
    if "\0" in value:
        return Problem("has a NUL character, which no variable can hold", field=field, where=where)
    try:
        size = _size(name, value)
    except UnicodeEncodeError:
        return Problem("is not valid Unicode: it has half of a surrogate pair", field=field, where=where)
    if size > ENTRY_LIMIT:
        return Problem("is longer than 128 KiB", field=field, where=where, hint="put long values in a file in a volume")
    return None


def total_problem(envs: Mapping[str, str], *, field: str, where: str | None = None) -> Problem | None:
    """Check the number and size of all variables, each of which is legal by itself."""
    if len(envs) > ENTRIES_LIMIT:
        return Problem(f"has {len(envs):,} entries; {ENTRIES_LIMIT:,} at most", field=field, where=where)
    if sum(_size(name, value) for name, value in envs.items()) > TOTAL_LIMIT:
        return Problem("is longer than 1 MiB in all", field=field, where=where)
    return None


def _size(name: str, value: str) -> int:
    return len(name) + len(value.encode()) + 2
