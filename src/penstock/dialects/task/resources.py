"""`resources`: what each node asks for."""

from __future__ import annotations

import re

from penstock.dialects.reading import Reading
from penstock.dialects.task.accelerators import accelerators
from penstock.dialects.task.keys import IGNORED_RESOURCES, Reader, read_keys
from penstock.dialects.text import Node
from penstock.domain.names import shorten
from penstock.domain.quantities import NotAQuantity, parse_bytes, parse_cpus
from penstock.domain.workloads import Resources

IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,511}\Z")
NEARLY = re.compile(r"(?=.*[1-9])([0-9]{1,12}(?:\.[0-9]{1,6})?)(?:\+?|([KMGTPE]i|[kMGTPE])\+)\Z")
"""A number without a unit, or SkyPilot's "at least"."""
SMALLEST_MEMORY = 1024**2


def cpus(reading: Reading, node: Node, path: str) -> int | None:
    text = reading.text(node, path, "for example 4")
    if text is None:
        return None
    try:
        milli = parse_cpus(text)
    except NotAQuantity as error:
        reading.problem(str(error), node, path, error.hint)
        return None
    if text.endswith("+"):
        reading.notices.append(f"{path}: {text} is taken as {text[:-1]}")
    return milli


def memory(reading: Reading, node: Node, path: str) -> int | None:
    text = reading.text(node, path, "for example 16Gi")
    if text is None:
        return None
    try:
        amount = parse_bytes(text, bare=False)
    except NotAQuantity as error:
        found = NEARLY.match(text)
        message = f"'{text}' has no unit" if found and not found[2] else str(error)
        hint = f"write {found[1]}{found[2] or 'Gi'}" if found else error.hint
        reading.problem(message, node, path, hint)
        return None
    if amount < SMALLEST_MEMORY:
        reading.problem(f"'{shorten(text)}' is less than any program needs", node, path, "for example 512Mi")
    return amount


def image(reading: Reading, node: Node, path: str) -> str | None:
    text = reading.text(node, path, "for example python:3.13-slim")
    if text is None:
        return None
    name = text.removeprefix("docker:")
    if not IMAGE.match(name):
        reading.problem(f"'{shorten(text)}' is not an image", node, path, "for example python:3.13-slim")
    return name


READERS: dict[str, Reader] = {
    "cpus": cpus,
    "memory": memory,
    "accelerators": accelerators,
    "gpus": accelerators,
    "image_id": image,
}
"""`gpus` is SkyPilot's other word for accelerators."""


def resources(reading: Reading, node: Node, path: str) -> Resources:
    said = read_keys(
        reading, reading.pairs(node, path, "for example 'cpus: 4'"), READERS, IGNORED_RESOURCES, f"{path}."
    )
    if "gpus" in said and "accelerators" in said:
        reading.problem("is the same as 'accelerators'; say one of them", node, f"{path}.gpus")
    count, products = said.get("accelerators") or said.get("gpus") or (0, ())
    return Resources(
        cpus_milli=said.get("cpus"),
        memory_bytes=said.get("memory"),
        gpus=count,
        gpu_products=products,
        image=said.get("image_id"),
    )
