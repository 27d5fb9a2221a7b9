"""What a fresh machine lacks is installed after it was said what and why, or named with the line that does it.

`apt-get` is a stand-in that notes how it was called, and others do nothing: real ones would change this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "install-packages"
PROGRAMS = ("bash", "env", "setpriv", "id")
STAND_INS = {
    "python3": "exit 0",
    "install": "exit 0",
    "rm": "exit 0",
    "apt-get": 'echo "$*" >>"${BASH_SOURCE%/*}/../asked"',
}
LACKS = "This machine lacks:\n  - bubblewrap: the sandbox jobs run in\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be root and somebody else")


@pytest.fixture
def fresh() -> Iterator[Path]:
    """A directory of programs without bubblewrap, for the PATH; everyone can look into it."""
    home = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    home.chmod(0o755)
    place = home / "bin"
    place.mkdir(mode=0o755)
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found, name
        (place / name).symlink_to(Path(found).resolve())
    for name, does in STAND_INS.items():
        (place / name).write_text(f"#!/bin/bash\n{does}\n")
        (place / name).chmod(0o755)
    yield place
    shutil.rmtree(home)


def install(fresh: Path, *, account: int = 0, **environ: str) -> tuple[int, str, str]:
    """Its code, what it said, and what apt-get was asked."""
    prefix = ["setpriv", f"--reuid={account}", "--clear-groups", "--"] if account else []
    done = subprocess.run(
        [*prefix, "bash", "-c", SCRIPT.read_text(), "install-packages", "run"],
        env={"PATH": str(fresh)} | environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    asked = fresh.parent / "asked"
    return done.returncode, done.stderr, asked.read_text() if asked.exists() else ""


@needs_root
@pytest.mark.parametrize("environ", [{"CI": "true"}, {"YES": "1"}, {}])
def test_root_gets_what_is_missing_after_a_word(fresh: Path, environ: dict[str, str]) -> None:
    code, said, asked = install(fresh, **environ)
    assert (code, said) == (0, LACKS)
    assert asked.splitlines() == ["update -qq", "install -y -qq --no-install-recommends bubblewrap"]


@needs_root
def test_without_root_or_sudo_the_line_is_named(fresh: Path) -> None:
    code, said, asked = install(fresh, account=65534, YES="1")
    assert code == 1
    line = "apt-get update && apt-get install -y bubblewrap"
    assert said == f"{LACKS}Install with:\n  {line}   (as root)\n"
    assert asked == ""


def test_where_nothing_is_missing_nothing_is_said_or_done(fresh: Path) -> None:
    (fresh / "bwrap").symlink_to("/bin/true")
    assert install(fresh) == (0, "", "")
    (fresh / "bwrap").unlink()
    assert install(fresh, PENSTOCK_SANDBOX="none") == (0, "", "")
