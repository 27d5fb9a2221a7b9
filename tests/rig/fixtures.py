"""Rigs for tests: `rig`, which all share, and `own_rig` for those that break things."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.rig import cluster, places, versions
from tests.rig.cluster import Rig


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """The Kubernetes that is up (`make rig`), or one for this run. Shared: whoever breaks things takes `own_rig`."""
    _needed()
    with places.used(places.DEFAULT_NAME):
        yield Rig.up(temporary=True)


@pytest.fixture(scope="module")
def own_rig() -> Iterator[Rig]:
    """A Kubernetes that nobody else uses, ended after the file's last test: its parts may be stopped and killed."""
    with brought_up(f"own-{os.getpid()}") as own:
        yield own


@contextmanager
def brought_up(name: str, cpus: int | None = None) -> Iterator[Rig]:
    """A Kubernetes for as long as the block lasts; see `Rig.up`."""
    _needed()
    try:
        with places.used(name):
            Rig.down(name)
            yield Rig.up(name, cpus=cpus, temporary=True)
    finally:
        Rig.down(name)


@pytest.fixture
def rig_namespace(rig: Rig) -> Iterator[str]:
    """An empty namespace of the shared rig, deleted afterwards with all that is in it."""
    name = f"test-{secrets.token_hex(4)}"
    rig.make_namespace(name)
    yield name
    rig.delete_namespace(name)


def _needed() -> None:
    if said := cluster.fault():
        pytest.skip(said)
    if versions.missing():
        pytest.skip("the programs of a Kubernetes for tests are not built: .venv/bin/python -m tests.rig build")


def end_unused() -> None:
    """End what test runs brought up and nobody uses now, this run's and those of runs that were killed."""
    if os.geteuid() != 0:
        return
    for name in places.names():
        if (places.home(name) / "temporary").exists():
            with places.unused(name) as nobody:
                if nobody:
                    Rig.down(name)
