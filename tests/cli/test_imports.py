"""What a command imports decides how fast it is, so that is what is tested, not the clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

DEAR = {
    *("pydantic", "fastapi", "sqlalchemy", "alembic", "uvicorn", "rich", "yaml", "pathspec", "httpx"),
    *("http", "ssl", "asyncio", "urllib", "email", "logging", "subprocess", "tempfile", "dataclasses", "pathlib"),
    *("shutil", "decimal", "secrets", "concurrent", "multiprocessing", "importlib.metadata"),
    *("penstock.config", "penstock.settings", "penstock.domain", "penstock.server", "penstock.store"),
    "penstock.services",
}
SCRIPT = """
import sys
sys.argv = ["penstock", *sys.argv[1:]]
from penstock.cli.main import main
code = main()
print("\\n".join(sys.modules), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    "line", [["jobs", "list"], ["volumes", "list"], ["jobs", "list", "-d", "-o", "json"], ["--version"]], ids=" ".join
)
def test_a_plain_list_imports_nothing_dear(penstock, line):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *line], env=penstock.environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert DEAR & set(done.stderr.splitlines()) == set()


@pytest.mark.parametrize(
    "line", [["get", "wk"], ["get", "gpu"], ["get", "vol", "-o", "json"], ["profile", "using"]], ids=" ".join
)
def test_the_lists_of_pwmcli_import_nothing_dear(penstock, line):
    script = SCRIPT.replace('["penstock"', '["pwmcli"')
    done = subprocess.run(
        [sys.executable, "-c", script, *line], env=penstock.environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = set(done.stderr.splitlines())
    assert DEAR & found == {"penstock.domain"}
    assert {name for name in found if name.startswith("penstock.domain.")} <= {
        *("penstock.domain.kinds", "penstock.domain.names", "penstock.domain.quantities"),
    }


@pytest.mark.parametrize("line", [["--help"], ["jobs", "--help"], ["jobs", "submit", "--help"]], ids=" ".join)
def test_help_imports_nothing_of_the_server(penstock, line):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *line], env=penstock.environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    heavy = {"pydantic", "fastapi", "sqlalchemy", "penstock.server", "penstock.store", "penstock.services"}
    assert heavy & set(done.stderr.splitlines()) == set()
