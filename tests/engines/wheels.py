"""The smallest package pip takes."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(directory: Path) -> None:
    """`added`: a module, and a script `say-added`."""
    info = "added-1.0.dist-info"
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: added\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "[console_scripts]\nsay-added = added:say\n",
        "RECORD": f"added.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/entry_points.txt,,\n{info}/RECORD,,\n",
    }
    with zipfile.ZipFile(directory / "added-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("added.py", "NAME = 'the job'\ndef say():\n    print(NAME)\n")
        for name, text in about.items():
            archive.writestr(f"{info}/{name}", text)
