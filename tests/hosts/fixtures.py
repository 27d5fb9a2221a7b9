"""Docker hosts for tests: `hosts`, which all of a run share, `gpu_hosts`, and `own_hosts` for who wants others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.hosts import programs
from tests.hosts.lot import Hosts
from tests.hosts.registry import Registry


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Two Docker hosts: those that are up (`python -m tests.hosts up`) if no other worker could want them, or some for
    this run. Shared: whoever uses them removes what it made and mends what it broke."""
    if "PYTEST_XDIST_WORKER" not in os.environ and Hosts.find():
        yield Hosts.up()
        return
    with brought_up(f"tests-{os.getpid()}") as shared:
        yield shared


@pytest.fixture(scope="module")
def gpu_hosts() -> Iterator[Hosts]:
    """Two that seem to have two GPUs each, for all tests of a file: whoever uses them leaves the GPUs idle."""
    with brought_up(f"gpus-{os.getpid()}", gpus=("NVIDIA A10", "NVIDIA A10")) as shared:
        yield shared


@pytest.fixture
def own_hosts() -> Iterator[Callable[..., Hosts]]:
    """Brings up hosts that nobody else uses, with the options of `Hosts.up`, and ends them after the test."""
    with ExitStack() as stack:
        number = iter(range(1, 100))
        yield lambda **options: stack.enter_context(brought_up(f"own-{os.getpid()}-{next(number)}", **options))


@pytest.fixture
def registry(hosts: Hosts) -> Registry:
    """The open one."""
    return hosts.registry


@contextmanager
def brought_up(name: str, **options: Any) -> Iterator[Hosts]:
    """Docker hosts for as long as the block lasts; see `Hosts.up`."""
    if said := programs.fault():
        pytest.skip(said)
    try:
        with Hosts.used(name):
            Hosts.down(name)
            yield Hosts.up(name, temporary=True, **options)
    finally:
        Hosts.down(name)
