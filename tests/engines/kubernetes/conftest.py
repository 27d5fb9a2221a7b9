"""A real cluster, a way to it, and a worse way to it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from httpcore2 import AsyncNetworkStream
from httpcore2._backends.anyio import AnyIOStream

from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.engine import KubernetesEngine
from tests.engines import launches
from tests.engines.kubernetes.deployed import Deployed, deployed
from tests.engines.kubernetes.opening import opened
from tests.engines.kubernetes.proxy import Proxy
from tests.rig.cluster import Rig


@pytest.fixture(scope="session", autouse=True)
def whole_handshakes() -> Iterator[None]:
    """httpcore closes a connection whose TLS handshake fails, but not one whose request is cancelled in it: that is
    found later, by whichever test runs when the garbage is collected."""
    start_tls = AnyIOStream.start_tls

    async def closing(self: AnyIOStream, *args: Any, **more: Any) -> AsyncNetworkStream:
        try:
            return await start_tls(self, *args, **more)
        except asyncio.CancelledError:
            await self.aclose()
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnyIOStream, "start_tls", closing)
        yield


@pytest.fixture
async def api(rig: Rig) -> AsyncIterator[KubernetesApi]:
    api = KubernetesApi.open(rig.kubeconfig)
    yield api
    await api.close()


@pytest.fixture(scope="module")
def namespace(rig: Rig) -> Iterator[str]:
    """One for the file's tests, which use names of their own."""
    name = f"test-{secrets.token_hex(4)}"
    rig.make_namespace(name)
    yield name
    rig.delete_namespace(name)


@pytest.fixture
async def proxy(rig: Rig) -> AsyncIterator[Proxy]:
    certificates = rig.control.certificates
    proxy = Proxy(certificates.server, certificates.client_context("admin"))
    await proxy.up()
    yield proxy
    await proxy.close()


@pytest.fixture
async def shaky(proxy: Proxy, tmp_path: Path) -> AsyncIterator[KubernetesApi]:
    """The API through the proxy."""
    api = KubernetesApi.open(proxy.kubeconfig(tmp_path / "shaky"), patience=20)
    yield api
    await api.close()


@pytest.fixture(scope="module")
def account(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The server's account, with the rights that deploy/kubernetes gives it and a namespace of its own for jobs."""
    with deployed(rig, tmp_path_factory.mktemp("account")) as made:
        yield made


@pytest.fixture
async def engine(account: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubernetesEngine]:
    """An engine under the server's account."""
    monkeypatch.setattr(launches, "STORAGE_CLASS", "shared")  # the rig's `standard` class is for one node
    async with opened(account.settings(tmp_path)) as engine:
        yield engine
