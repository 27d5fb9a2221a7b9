"""Parse amounts as Kubernetes writes them (`100m`, `1536Mi`, `1e3`); an unreadable one counts as 0."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from penstock.domain.quantities import BINARY, DECIMAL

_SMALL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_FACTORS: dict[str, Decimal] = {unit: Decimal(factor) for unit, factor in (BINARY | DECIMAL).items()} | _SMALL


@lru_cache(4096)
def amount(text: str) -> Decimal:
    number = text.rstrip("KMGTPEikmun") if not text[-1:].isdigit() else text
    try:
        return Decimal(number) * _FACTORS[text[len(number) :]]
    except (InvalidOperation, KeyError):
        return Decimal(0)


def milli(text: str) -> int:
    return int(amount(text) * 1000)


def whole(text: str) -> int:
    """Bytes, or pieces."""
    return int(amount(text))


def add(total: dict[str, Decimal], more: Mapping[str, str]) -> None:
    for name, text in more.items():
        total[name] = total.get(name, Decimal(0)) + amount(text)
