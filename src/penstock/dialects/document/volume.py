"""Read a Volume: its size and the storage it comes from."""

from __future__ import annotations

from penstock.dialects.document.metadata import DocumentMetadata
from penstock.dialects.document.types import AskedVolume
from penstock.dialects.document.volumes import policy
from penstock.dialects.reader import FieldRules, PlacedContext, ReadContext, Refusal, placed, read_fields
from penstock.dialects.task.mounts import access_modes, made_on, size_as_written, storage, sub_path
from penstock.dialects.yaml import Items, Node
from penstock.domain.volumes import AccessMode


def volume(context: PlacedContext, about: DocumentMetadata, node: Node, path: str) -> AskedVolume | None:
    said = read_fields(context, node, path, VOLUME)
    if "storage" in said and "storage_class" in said:
        message = "cannot be together with 'storage': it is made on one or by the other"
        context.problem(message, node, f"{path}.storage_class", "say one of them")
    if context.problems or about.name is None:
        return None
    renamed = {"subPath": "sub_path", "policy": "readonly"}
    return AskedVolume(name=about.name, **{renamed.get(key, key): value for key, value in said.items()})


def _modes(context: ReadContext, node: Node, path: str) -> tuple[AccessMode, ...]:
    items = node.items if isinstance(node, Items) else [node]
    return access_modes(context, [(item, path) for item in items])


ELSEWHERE: dict[str, Refusal] = {
    "target": ("a workload says where it mounts it", "write it in the workload's spec.volumes"),
    "storageClassName": ("the storage class has our own word here", "write storage_class"),
    "accessModes": ("the access modes have our own word here", "write access_modes"),
    "status": ("the server wrote it", "remove it"),
}
VOLUME = FieldRules(
    {
        "storage": placed(made_on, "storage"),
        "subPath": placed(sub_path, "sub_path"),
        "policy": placed(policy, "readonly"),
        "size": placed(size_as_written, "size"),
        "storage_class": placed(storage, "storage_class"),
        "access_modes": placed(_modes, "access_modes"),
    },
    ELSEWHERE,
)
