"""Read a Volume: its size and the storage it comes from."""

from __future__ import annotations

from penstock.dialects.document.metadata import Metadata
from penstock.dialects.document.types import AskedVolume
from penstock.dialects.document.volumes import policy
from penstock.dialects.reader import PlacedReading, Reading, Refusal, Shape, placed, read_fields
from penstock.dialects.task.mounts import made_on, storage, sub_path
from penstock.dialects.yaml import Items, Node
from penstock.domain.names import shorten
from penstock.domain.quantities import NotAQuantity, parse_bytes
from penstock.domain.volumes import AccessMode

MODES = ", ".join(AccessMode)


def volume(reading: PlacedReading, about: Metadata, node: Node, path: str) -> AskedVolume | None:
    said = read_fields(reading, node, path, VOLUME)
    if "storage" in said and "storage_class" in said:
        message = "cannot be together with 'storage': it is made on one or by the other"
        reading.problem(message, node, f"{path}.storage_class", "say one of them")
    if reading.problems or about.name is None:
        return None
    renamed = {"subPath": "sub_path", "policy": "readonly"}
    return AskedVolume(name=about.name, **{renamed.get(key, key): value for key, value in said.items()})


def _modes(reading: Reading, node: Node, path: str) -> tuple[AccessMode, ...]:
    items = node.items if isinstance(node, Items) else [node]
    found: dict[AccessMode, None] = {}
    for item in items:
        mode = reading.text(item, path)
        if mode is None:
            continue
        if mode in AccessMode.__members__:
            found[AccessMode(mode)] = None
        else:
            reading.problem(f"'{shorten(mode)}' is not an access mode", item, path, f"one of {MODES}")
    return tuple(found)


def _size(reading: Reading, node: Node, path: str) -> str | None:
    """As it was asked for."""
    text = reading.text(node, path, "for example 10Gi")
    if text is None:
        return None
    try:
        parse_bytes(text)
    except NotAQuantity as error:
        reading.problem(str(error), node, path, error.hint)
    return text


ELSEWHERE: dict[str, Refusal] = {
    "target": ("a workload says where it mounts it", "write it in the workload's spec.volumes"),
    "storageClassName": ("the storage class has our own word here", "write storage_class"),
    "accessModes": ("the access modes have our own word here", "write access_modes"),
    "status": ("the server wrote it", "remove it"),
}
VOLUME = Shape(
    {
        "storage": placed(made_on, "storage"),
        "subPath": placed(sub_path, "sub_path"),
        "policy": placed(policy, "readonly"),
        "size": placed(_size, "size"),
        "storage_class": placed(storage, "storage_class"),
        "access_modes": placed(_modes, "access_modes"),
    },
    ELSEWHERE,
)
