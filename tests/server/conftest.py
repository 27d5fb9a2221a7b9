"""One server for the tests of a file that do not disturb each other."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import RunningServer, start_server


@pytest.fixture(scope="module")
def module_server() -> Iterator[RunningServer]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    place.chmod(0o711)
    running = start_server(place)
    yield running
    running.end()
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def module_token(module_server: RunningServer) -> tuple[str, dict[str, str]]:
    """The TCP address and the header that opens it."""
    _, made = module_server.request("POST", "/v1/tokens", {})
    return module_server.address, {"Authorization": f"Bearer {made['token']}"}
