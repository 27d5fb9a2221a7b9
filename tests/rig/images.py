"""Container images, written and read without a container engine.

An image here is a directory of blobs named by their digests, and a file `manifest` that names the first of them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.rig.places import RigError

_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


class Layer:
    """A tar archive that grows entry by entry, the same from the same input."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._tar = tarfile.TarFile(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)
        self._there: set[str] = set()

    def directory(self, path: str, mode: int = 0o755) -> None:
        self._add(path, tarfile.DIRTYPE, mode)

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        self._add(path, tarfile.REGTYPE, mode, content=io.BytesIO(content), size=len(content))

    def link(self, path: str, target: str) -> None:
        self._add(path, tarfile.SYMTYPE, 0o777, target=target)

    def copy(self, source: Path, path: str | None = None) -> None:
        """One entry of this machine's file system, at the same path unless told otherwise."""
        path = path or str(source).lstrip("/")
        status = source.lstat()
        if source.is_symlink():
            self.link(path, str(source.readlink()))
        elif source.is_dir():
            self.directory(path, status.st_mode & 0o7777)
        elif source.is_file():
            with source.open("rb") as content:
                self._add(path, tarfile.REGTYPE, status.st_mode & 0o7777, content=content, size=status.st_size)

    def tree(self, source: Path, path: str) -> None:
        """A directory with all that is in it."""
        self.copy(source, path)
        for directory, subdirectories, files in os.walk(source):
            for name in sorted(subdirectories + files):
                entry = Path(directory, name)
                self.copy(entry, f"{path}/{entry.relative_to(source)}")

    def _add(self, path: str, kind: bytes, mode: int, *, content: Any = None, size: int = 0, target: str = "") -> None:
        if path in self._there:
            return
        self._there.add(path)
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.size, entry.linkname = kind, mode, size, target
        self._tar.addfile(entry, content)

    def close(self, directory: Path) -> str:
        """Write it into an image's directory; its digest."""
        self._tar.close()
        self._file.seek(0)
        with self._file:
            return _put(directory, self._file)


def write(directory: Path, layers: Iterable[Layer], config: Mapping[str, Any], base: Path | None = None) -> Path:
    """An image in a directory: these layers and this configuration, on top of those of another image."""
    return _atomically(directory, lambda new: _write(new, layers, config, base))


def with_programs(directory: Path, base: Path, *programs: Path) -> Path:
    """An image that has these programs, first in its PATH, beside those of another."""
    layer = Layer()
    for program in programs:
        layer.file(f"usr/local/sbin/{program.name}", program.read_bytes(), 0o755)
    return write(directory, [layer], {}, base)


def _write(directory: Path, layers: Iterable[Layer], config: Mapping[str, Any], base: Path | None) -> None:
    all_layers: list[str] = []
    all_config: dict[str, Any] = {}
    if base:
        manifest = json.loads((base / (base / "manifest").read_text()).read_text())
        all_config = json.loads((base / _name(manifest["config"])).read_text())["config"]
        for layer in manifest["layers"]:
            all_layers.append(_name(layer))
            _link(base / _name(layer), directory / _name(layer))
    all_layers += [layer.close(directory) for layer in layers]
    root = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in all_layers]}
    about = {"architecture": _architecture(), "os": "linux", "config": all_config | dict(config), "rootfs": root}
    _finish(directory, about, all_layers)


def _name(described: dict[str, str]) -> str:
    return described["digest"].removeprefix("sha256:")


def _link(file: Path, new: Path) -> None:
    """The same file in another place, without a copy where the file system can."""
    if new.exists():
        return
    with tempfile.TemporaryDirectory(dir=new.parent) as beside:
        copy = Path(beside, new.name)
        try:
            os.link(file, copy)
        except OSError:
            shutil.copyfile(file, copy)
        copy.replace(new)


def _finish(directory: Path, config: dict[str, Any], layers: list[str]) -> None:
    def described(kind: str, digest: str) -> dict[str, Any]:
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": (directory / digest).stat().st_size}

    described_config = described(_CONFIG, _put(directory, io.BytesIO(json.dumps(config).encode())))
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described_config}
    manifest["layers"] = [described(_LAYER, digest) for digest in layers]
    (directory / "manifest").write_text(_put(directory, io.BytesIO(json.dumps(manifest).encode())))


def unpack(archive: Path, directory: Path) -> Path:
    """The image in an archive as `docker save` writes it."""

    def read(new: Path) -> None:
        with tarfile.open(archive) as tar:

            def content(name: str) -> Any:
                if (file := tar.extractfile(name)) is None:
                    raise RigError(f"{archive} has no {name}")
                return file

            described = json.load(content("manifest.json"))[0]
            layers = [_put(new, content(name)) for name in described["Layers"]]
            _finish(new, json.load(content(described["Config"])), layers)

    return _atomically(directory, read)


def publish(registry: Path, image: Path, name: str) -> None:
    """Let an image be pulled by a full name from the registry that keeps its files there."""
    names, blobs = registry / "names", registry / "blobs"
    for directory in (names, blobs):
        directory.mkdir(parents=True, exist_ok=True)
    for blob in image.iterdir():
        if blob.name != "manifest":
            _link(blob, blobs / f"sha256:{blob.name}")
    with tempfile.TemporaryDirectory(dir=registry) as beside:
        new = Path(beside, "name")
        new.write_text("sha256:" + (image / "manifest").read_text())
        new.replace(names / quote(name, safe=""))


def _put(directory: Path, content: Any) -> str:
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=directory, delete=False) as file:
        while part := content.read(1 << 20):
            digest.update(part)
            file.write(part)
    Path(file.name).rename(directory / digest.hexdigest())
    return digest.hexdigest()


def _atomically(directory: Path, make: Any) -> Path:
    if (directory / "manifest").exists():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=directory.parent))
    try:
        make(new)
        new.rename(directory)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return directory


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
