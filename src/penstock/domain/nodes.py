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
    """`A10`, `nvidia-a10` and `NVIDIA A10` all mean the product `NVIDIA A10`, and none means `NVIDIA A100`.

    Words may be left out and written together, as SkyPilot's names do: `A100-80GB` is a `NVIDIA A100-SXM4-80GB`,
    `RTX4090` a `NVIDIA GeForce RTX 4090`.
    """
    words = _words(product)
    for asked in _words(wanted):
        end = _end_of(asked, words)
        if end is None:
            return False
        words = words[end:]
    return True


def _end_of(asked: str, words: list[str]) -> int | None:
    """Where the first run of words that together read `asked` ends."""
    for start in range(len(words)):
        joined = ""
        for end in range(start, len(words)):
            joined += words[end]
            if joined == asked:
                return end + 1
    return None


def _words(text: str) -> list[str]:
    return [word for word in text.lower().replace("_", "-").replace(" ", "-").split("-") if word]
