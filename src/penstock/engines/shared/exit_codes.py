"""Describe the end of a unit in words: `code 137 (signal KILL)`, and the memory it used."""

from __future__ import annotations

SIGNALS = {
    1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1",
    11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 24: "XCPU", 25: "XFSZ", 31: "SYS",
}  # fmt: skip
MEANINGS = {126: "cannot be executed", 127: "command not found"}
"""The meaning that shells give a code."""
NEVER_STARTED = "never started"


def describe(code: int) -> str:
    name = SIGNALS.get(code - 128)
    meaning = f"signal {name}" if name else MEANINGS.get(code)
    return f"code {code} ({meaning})" if meaning else f"code {code}"


def mebibytes(amount: int) -> str:
    return f"{amount / (1 << 20):.0f}Mi" if amount < 10 << 30 else f"{amount / (1 << 30):.1f}Gi"
