"""Check a request for a volume and report everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.model import now
from penstock.domain.names import name_problem, new_id, shorten
from penstock.domain.paths import NotAMountPath, sub_path
from penstock.domain.quantities import NotAQuantity, parse_bytes
from penstock.domain.users import Caller
from penstock.domain.volumes import AccessMode, Storage, StorageClass, Volume
from penstock.errors import Conflict, Invalid, Problem
from penstock.wire.requests import NewVolume

SHARED = (AccessMode.ReadWriteMany,)
ALONE = (AccessMode.ReadWriteOnce,)


def new_volume(caller: Caller, asked: NewVolume, classes: Sequence[StorageClass], storage: Storage | None) -> Volume:
    problems = [problem for problem in [name_problem(asked.name)] if problem]
    size_bytes = _size(asked, problems)
    on_host = storage is not None and asked.storage_class is None
    wanted = "" if on_host else _storage_class(asked.storage_class, classes, problems)
    modes = _modes(asked.access_modes, problems) if storage is None else SHARED if storage.shared else ALONE
    below = _below(asked, problems)
    if problems:
        raise Invalid("The volume cannot be created.", problems=problems)
    return Volume(
        id=new_id(),
        name=asked.name,
        group=caller.group,
        user=caller.user,
        size=asked.size or "",
        size_bytes=size_bytes,
        storage_class=wanted,
        access_modes=modes,
        storage=storage.name if storage else None,
        sub_path=below if storage else None,
        readonly=asked.readonly,
        created_at=now(),
    )


def _below(asked: NewVolume, problems: list[Problem]) -> str:
    """Return the volume's directory on a storage."""
    try:
        return sub_path(asked.name if asked.sub_path is None else asked.sub_path)
    except NotAMountPath as error:
        problems.append(Problem(str(error), field="sub_path", hint=error.hint))
        return ""


def class_of(storage: Storage, classes: Sequence[StorageClass]) -> str:
    """Return the storage class for a storage where the engine has classes: the one of the storage's name, or for a disk
    the usual one."""
    named = next((each.name for each in classes if each.name == storage.name), None)
    usual = next((each.name for each in classes if each.default and not storage.shared), None)
    if found := named or usual:
        return found
    there = ", ".join(each.name for each in classes)
    problem = Problem(f"{storage.name} is NFS, which this engine does not mount", field="storage", hint=f"use {there}")
    raise Invalid("The volume cannot be created.", problems=[problem])


def no_directories(storage: Storage) -> Invalid:
    """Refuse a directory of a storage in a cluster, where each volume is a whole, new claim."""
    said = f"on Kubernetes each volume on {storage.name} is a claim of its own, and no directory of it"
    hint = "leave it out; data that are there are mounted as the claim they are"
    return Invalid("The volume cannot be created.", problems=[Problem(said, field="sub_path", hint=hint)])


def _size(asked: NewVolume, problems: list[Problem]) -> int:
    if asked.size is None:
        if asked.storage is None:
            problems.append(Problem("is missing", field="size", hint="for example 10Gi"))
        return 0
    try:
        return parse_bytes(asked.size)
    except NotAQuantity as error:
        problems.append(Problem(str(error), field="size", hint=error.hint))
        return 0


def _storage_class(asked: str | None, classes: Sequence[StorageClass], problems: list[Problem]) -> str:
    names = [each.name for each in classes]
    wanted = asked or next((each.name for each in classes if each.default), None)
    if wanted in names:
        return str(wanted)
    said = f"'{shorten(wanted)}' is not a storage class" if wanted else "has no default here: name one"
    there = f"there are: {', '.join(names)}" if names else "there is none"
    problems.append(Problem(said, field="storage_class", hint=there))
    return ""


def larger_volume(volume: Volume, size: str, classes: Sequence[StorageClass]) -> Volume:
    """Return the volume with its new size, or itself if that is the one it has. Raises everything that forbids it."""
    try:
        size_bytes = parse_bytes(size)
    except NotAQuantity as error:
        raise _not_resized(volume, Problem(str(error), field="size", hint=error.hint)) from None
    if size_bytes == volume.size_bytes:
        return volume
    if size_bytes < volume.size_bytes:
        said = f"{shorten(size)} is less than the {volume.size} it has; a volume never gets smaller"
        raise _not_resized(volume, Problem(said, field="size"))
    able = [each.name for each in classes if each.resizable]
    if volume.storage_class not in able:
        named = ", ".join(able)
        raise Conflict(
            f"Volume {volume.name} cannot be resized: its storage class {volume.storage_class} does not allow it.",
            hint=f"classes that do: {named}" if named else "no storage class here does",
        )
    return volume.model_copy(update={"size": size, "size_bytes": size_bytes})


def _not_resized(volume: Volume, problem: Problem) -> Invalid:
    return Invalid(f"Volume {volume.name} cannot be resized.", problems=[problem])


def _modes(asked: Sequence[str] | None, problems: list[Problem]) -> tuple[AccessMode, ...]:
    words = ["ReadWriteOnce"] if asked is None else [word.strip() for word in asked if word.strip()]
    unknown = [word for word in words if word not in AccessMode.__members__]
    if unknown or not words:
        said = f"'{shorten(unknown[0])}' is not an access mode" if unknown else "no access mode is named"
        problems.append(Problem(said, field="access_modes", hint=f"use {', '.join(AccessMode)}"))
        return ()
    return tuple(dict.fromkeys(AccessMode(word) for word in words))
