"""Node and GPU: what there is to run on."""

from __future__ import annotations

from penstock.domain.model import Model


class Gpu(Model):
    uuid: str
    product: str
    memory_bytes: int
    minor: int
    taken_elsewhere: bool = False
    """Another Penstock on this machine holds it."""


class Node(Model):
    name: str
    cpus_milli: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    limits_enforced: bool
    """False: CPU and memory limits are advisory here, and everyone is told so."""


def product_matches(wanted: str, product: str) -> bool:
    """`A10`, `nvidia-a10` and `NVIDIA A10` all mean the product `NVIDIA A10`, and none means `NVIDIA A100`."""
    asked, there = _words(wanted), _words(product)
    return any(there[start : start + len(asked)] == asked for start in range(len(there) - len(asked) + 1))


def _words(text: str) -> list[str]:
    return [word for word in text.lower().replace("_", "-").replace(" ", "-").split("-") if word]
