"""What a job finds last on its PATH: `python` and `pip`, for systems that have only `python3`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from penstock.engines.local.scripts import DEFAULT_PATH

PIP = """#!/bin/sh
# Where Python comes without pip, a private environment lends it; what it installs goes to ~/.local all the same.
if ! python3 -c 'import pip' 2>/dev/null; then
    lender="$HOME/.cache/penstock-pip"
    if [ ! -e "$lender/ready" ]; then
        rm -rf "$lender"
        if ! python3 -m venv "$lender" >/dev/null 2>&1; then
            echo "pip: Python on this machine has no pip. Fix: sudo apt-get install -y python3-pip" >&2
            exit 127
        fi
        touch "$lender/ready"
    fi
    PYTHONPATH=$(echo "$lender"/lib/python3*/site-packages)${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
fi
exec python3 -m pip "$@"
"""


def write_programs(directory: Path) -> None:
    """Each is replaced in one step: a job may just be looking for it."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    fresh = directory / ".new"
    fresh.unlink(missing_ok=True)
    fresh.write_text(PIP)
    fresh.chmod(0o755)
    fresh.rename(directory / "pip")
    if python := shutil.which("python3", os.X_OK, DEFAULT_PATH):
        fresh.symlink_to(python)
        fresh.rename(directory / "python")
