"""Parse and format Kubernetes quantities, CPUs and durations, exactly and without floating point."""

from __future__ import annotations

import re

from penstock.domain.names import shorten

BINARY = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
DECIMAL = {"": 1} | {unit: 1000**power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)}
QUANTITY = re.compile(
    r"([+-]?)(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:([KMGTPE]i|[kMGTPE])|[eE]([+-]?\d{1,3}))?\Z", re.ASCII
)
LARGEST = 2**63 - 1
SMALLEST_BARE = 1024**2
CPUS = re.compile(r"(\d{1,6})(?:\.(\d{1,3})|(m))?\+?\Z", re.ASCII)
DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?\Z", re.ASCII)


class NotAQuantity(ValueError):
    """A text that is no amount; str() says why, `hint` what would be right."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def parse_bytes(text: str, *, bare: bool = True) -> int:
    """Return the bytes of `1Ti`, `500Mi`, `1.5Gi` or `1e3`; parts of a byte round up, as Kubernetes does.

    A small number without a unit is refused: nobody means a volume of 10 bytes. With `bare=False` every one is.
    """
    found = QUANTITY.match(text)
    if not found:
        raise NotAQuantity(f"'{shorten(text)}' is not a size", _nearest_size(text))
    sign, digits, unit, exponent = found.groups()
    plain = unit is None and exponent is None
    amount = _scaled(digits, BINARY.get(unit or "") or DECIMAL[unit or ""], int(exponent or 0))
    if sign == "-" and amount:
        raise NotAQuantity(f"'{shorten(text)}' is negative; a size must be more than zero")
    if not amount:
        raise NotAQuantity("a size must be more than zero", "for example 10Gi")
    if plain and (not bare or amount < SMALLEST_BARE):
        raise NotAQuantity(f"'{shorten(text)}' has no unit", f"{digits}Gi or {digits}Mi")
    if amount > LARGEST:
        raise NotAQuantity(f"'{shorten(text)}' is larger than any disk", "at most 8Ei - 1")
    return amount


def _scaled(digits: str, factor: int, exponent: int) -> int:
    """Return digits × factor × 10^exponent, rounded up, in whole numbers, which are exact at any length."""
    whole, _, part = digits.partition(".")
    amount: int = int(whole + part) * factor * 10 ** max(0, exponent)
    divisor: int = 10 ** (len(part) + max(0, -exponent))
    return -(-amount // divisor)


def _nearest_size(text: str) -> str:
    """Suggest `10Gi` for `10GB`, `10 gi` or `10g`, and an example for anything else."""
    found = re.match(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([kmgtpe])i?b?\s*\Z", text, re.IGNORECASE)
    return f"{found[1]}{found[2].upper()}i" if found else "a number with a unit, such as 500Mi, 10Gi or 1Ti"


def parse_cpus(text: str) -> int:
    """Return thousandths of a CPU for `4`, `0.5` or `500m`; SkyPilot's `4+` (at least) counts as 4."""
    found = CPUS.match(text)
    if not found:
        raise NotAQuantity(f"'{shorten(text)}' is not a number of CPUs", "for example 4, 0.5 or 500m")
    whole, part, thousandths = found.groups()
    milli = int(whole) if thousandths else int(whole + (part or "").ljust(3, "0"))
    if not milli:
        raise NotAQuantity("the number of CPUs must be more than zero", "for example 1 or 500m")
    return milli


def parse_duration(text: str) -> int:
    """Return the seconds of `12h`, `30m`, `1h30m`, `2d` or `90s`."""
    found = DURATION.match("0s" if text == "0" else text)
    if not text or not found:
        bare = re.fullmatch(r"[0-9]{1,6}", text)
        hint = f"{text}s, {text}m or {text}h" if bare else "for example 12h, 30m or 1h30m"
        raise NotAQuantity(f"'{shorten(text)}' is not a duration", hint)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if not total:
        raise NotAQuantity("a duration must be more than zero", "for example 30m")
    return total


def show_bytes(amount: int) -> str:
    """Format bytes for tables, such as `1.5Gi`; exact amounts are kept as they were written."""
    for unit, factor in reversed(BINARY.items()):
        if amount >= factor:
            number = f"{amount / factor:.1f}".removesuffix(".0")
            return f"{number}{unit}"
    return f"{amount}B"


def show_cpus(milli: int) -> str:
    """Format thousandths of a CPU: `4`, `0.5`, `1.25`."""
    return f"{milli // 1000}.{milli % 1000:03d}".rstrip("0").rstrip(".")


def count_cpus(milli: int) -> str:
    """Format them with the word: `1 CPU`, `0.5 CPUs`."""
    return f"{show_cpus(milli)} CPU{'' if milli == 1000 else 's'}"


def show_duration(seconds: int) -> str:
    """Format seconds as `1h30m` or `45s`, in two parts at most."""
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    shown = [f"{number}{unit}" for number, unit in parts if number]
    return "".join(shown[:2]) or "0s"
