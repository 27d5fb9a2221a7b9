"""Images as `docker load` takes them: made of the same directories as the rig's (`tests/rig/images.py`)."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import IO, Any


def identity(image: Path) -> str:
    """What the engine calls an image once it has it."""
    digest: str = _manifest(image)["config"]["digest"]
    return digest


def write(image: Path, stream: IO[bytes]) -> None:
    """The archive of an image without a name."""
    manifest = _manifest(image)
    config = f"{_file(manifest['config'])}.json"
    layers = [_file(layer) for layer in manifest["layers"]]
    with tarfile.open(fileobj=stream, mode="w") as tar:
        tar.add(image / config.removesuffix(".json"), config)
        for layer in layers:
            tar.add(image / layer, f"{layer}.tar")
        listed = [{"Config": config, "RepoTags": None, "Layers": [f"{layer}.tar" for layer in layers]}]
        content = json.dumps(listed).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))


def _manifest(image: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((image / (image / "manifest").read_text()).read_text())
    return manifest


def _file(described: dict[str, str]) -> str:
    return described["digest"].removeprefix("sha256:")
