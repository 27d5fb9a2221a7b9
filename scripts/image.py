"""`python -m scripts.image`: a container image of Penstock, made of this Debian machine's Python, without Docker.

The archive is as `docker save` writes it: `ctr -n k8s.io images import`, `docker load` and `skopeo copy` take it.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.rig import images, system

ROOT = Path(__file__).parents[1]
EXTRAS = "kubernetes,postgresql"
INSIDE = "opt/penstock"
USER = "penstock:x:10001:10001:Penstock:/var/lib/penstock:/bin/sh"
COMMAND = "#!/bin/sh\nexec python3 -c 'from penstock.cli.main import main; main()' \"$@\"\n"
ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\n{USER}\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n",
    "etc/group": "root:x:0:\npenstock:x:10001:\nnogroup:x:65534:\n",
}
CONFIG = {
    "Cmd": ["python3", "-m", "penstock.server"],
    "Env": [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"PYTHONPATH=/{INSIDE}",
        "PYTHONDONTWRITEBYTECODE=1",
        "HOME=/var/lib/penstock",
    ],
    "User": "10001:10001",
    "WorkingDir": "/var/lib/penstock",
    "ExposedPorts": {"8000/tcp": {}},
}


def build(directory: Path) -> Path:
    """The image as a directory of blobs, made in `directory`."""
    packages = directory / "packages"
    _install(packages)
    layer = images.Layer()
    layer.directory("opt")
    layer.tree(packages, INSIDE)
    layer.directory("var/lib/penstock", 0o777)
    for path in ("usr/local", "usr/local/bin"):
        layer.directory(path)
    for name in ("penstock", "k8s-cli", "pwmcli", "pwmadm"):
        layer.file(f"usr/local/bin/{name}", COMMAND.encode(), 0o755)
    for path, text in ACCOUNTS.items():
        layer.file(path, text.encode())
    return images.write(directory / "image", [layer], CONFIG, base=system.standard()[system.TEST])


def _install(target: Path) -> None:
    """Penstock and what it needs, for the Python of the system, in the versions that the tests run with."""
    python = _version()
    wheels = target.parent / "wheels"
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT))
    (wheel,) = wheels.glob("penstock-*.whl")
    pins = target.parent / "pins.txt"
    pinned = re.findall(r"^[A-Za-z0-9._-]+(?:\[[a-z,]+\])?==[^\s;\\]+", _read("requirements/dev.txt"), re.M)
    pins.write_text("\n".join(re.sub(r"\[.*?\]", "", pin) for pin in pinned))
    asked = f"penstock[{EXTRAS}] @ {wheel.as_uri()}"
    chosen = ["--target", str(target), "--python-version", python, "--only-binary", ":all:"]
    _pip("install", "--no-compile", *chosen, "--constraint", str(pins), asked)
    shutil.rmtree(target / "bin", ignore_errors=True)


def _read(name: str) -> str:
    return (ROOT / name).read_text()


def _version() -> str:
    said = subprocess.run(["/usr/bin/python3", "--version"], check=True, capture_output=True, text=True).stdout
    return ".".join(said.split()[1].split(".")[:2])


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments], check=True)


def save(image: Path, archive: Path, name: str) -> None:
    """As `docker save` does."""
    manifest = json.loads((image / (image / "manifest").read_text()).read_text())
    config = _digest(manifest["config"])
    layers = [_digest(layer) for layer in manifest["layers"]]
    described = [{"Config": f"{config}.json", "RepoTags": [name], "Layers": [f"{digest}.tar" for digest in layers]}]
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w") as tar:
        tar.add(image / config, f"{config}.json")
        for digest in layers:
            tar.add(image / digest, f"{digest}.tar")
        text = json.dumps(described).encode()
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))


def _digest(described: dict[str, Any]) -> str:
    return str(described["digest"]).removeprefix("sha256:")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "penstock-image.tar")
    parser.add_argument("--name", default="docker.io/library/penstock:0.1.0")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        save(build(Path(place)), given.output, given.name)
    print(given.output)


if __name__ == "__main__":
    main()
