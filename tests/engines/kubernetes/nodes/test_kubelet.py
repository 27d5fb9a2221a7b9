"""Who is asked what nodes do, and shown what: real kubelets, and listeners that are none."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from penstock.engines.kubernetes import doctor
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import KubernetesForbidden
from penstock.engines.kubernetes.api.resources import KubernetesNode
from penstock.engines.kubernetes.nodes import kubelet as module
from penstock.engines.kubernetes.nodes.kubelet import (
    NUMBERS,
    USE,
    Kubelets,
    NotMeasured,
    is_wanted,
    read_sample,
    read_use,
)
from penstock.errors import SettingsError
from tests.engines.kubernetes.deployed import Deployed
from tests.engines.kubernetes.rights import FOR_ITS_TOKEN, FOR_KUBELETS
from tests.rig.cluster import Rig

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


@pytest.fixture
async def server(account: Deployed) -> AsyncIterator[KubernetesApi]:
    """The API, with the rights of the server's account."""
    api = KubernetesApi.open(account.kubeconfig)
    yield api
    await api.close()


@asynccontextmanager
async def asking(api: KubernetesApi, account: str, authority: str = "") -> AsyncIterator[Kubelets]:
    made = Kubelets(api, account, authority)
    try:
        yield made
    finally:
        await made.close()


def nodes_account(account: Deployed) -> str:
    return f"{account.server}/penstock-nodes"


async def trouble(kubelets: Kubelets, node: KubernetesNode, path: str = USE) -> str:
    with pytest.raises(NotMeasured) as raised:
        await kubelets.ask(node, path)
    return str(raised.value.trouble)


def a_node(name: str, address: str, port: int) -> KubernetesNode:
    addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]
    status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, KubernetesNode)


# -- real ones --------------------------------------------------------------------------------------------------------


async def test_a_kubelet_tells_what_its_node_uses_and_moves(account: Deployed, server: KubernetesApi) -> None:
    async with asking(server, nodes_account(account)) as kubelets:
        for node in await server.list(KubernetesNode):
            use = read_use(await kubelets.ask(node, USE))
            sample = read_sample((await kubelets.ask(node, NUMBERS, is_wanted)).decode().splitlines())
            assert use
            assert use.memory_bytes > 0
            assert sample
            assert None not in sample.traffic


async def test_it_is_shown_a_token_that_opens_nothing_else(account: Deployed, server: KubernetesApi) -> None:
    """Not the server's own: what the server may do, somebody who reads what comes to a node must not."""
    token = await server.token("penstock-nodes", account.server, 600)
    path = account.kubeconfig.parent / "nodes"
    shown = KubernetesApi.open(account.rig.control.certificates.write_kubeconfig(path, {"token": token}))
    try:
        for verb, kind, part in FOR_KUBELETS:
            assert await shown.may(verb, kind, subresource=part)
        assert not await shown.may("get", KubernetesNode, subresource="proxy")
        for verb, kind, part in doctor.IN_NAMESPACE + doctor.IN_CLUSTER + FOR_ITS_TOKEN:
            assert not await shown.may(verb, kind, account.jobs, subresource=part)
    finally:
        await shown.close()
    with pytest.raises(KubernetesForbidden):
        await server.token("default", account.server, 600)


async def test_a_token_without_the_right_is_refused_and_that_is_said(
    rig: Rig, account: Deployed, api: KubernetesApi
) -> None:
    [node, *_] = await api.list(KubernetesNode)
    async with asking(api, f"{account.server}/default") as kubelets:
        said = await trouble(kubelets, node)
        assert said.startswith("its kubelet refuses: Forbidden (user=system:serviceaccount:")
        assert said.endswith("subresource(s)=[stats]) (kubectl apply -k deploy/kubernetes/base)")
        assert "subresource(s)=[metrics]" in await trouble(kubelets, node, NUMBERS)


async def test_an_account_that_is_not_there_or_not_ours_to_use_is_said(
    account: Deployed, server: KubernetesApi, api: KubernetesApi
) -> None:
    [node, *_] = await api.list(KubernetesNode)
    async with asking(api, f"{account.server}/nobody") as kubelets:
        said = await trouble(kubelets, node)
        assert said.startswith(f"the service account {account.server}/nobody is not there")
        assert said.endswith("(kubectl apply -k deploy/kubernetes/base)")
    async with asking(server, f"{account.server}/penstock") as kubelets:
        assert 'cannot create resource "serviceaccounts/token"' in await trouble(kubelets, node)
        mark = account.rig.request_mark()
        await trouble(kubelets, node)
        assert account.requests(mark) == []  # it is not asked for again at once


async def test_many_who_ask_get_one_token(account: Deployed, server: KubernetesApi) -> None:
    [node, *_] = await server.list(KubernetesNode)
    mark = account.rig.request_mark()
    async with asking(server, nodes_account(account)) as kubelets:
        await asyncio.gather(*(kubelets.ask(node, USE) for _ in range(20)))
    assert account.requests(mark).count("create serviceaccounts/token") == 1


@pytest.mark.parametrize("wrong", ["nodes", "/nodes", "penstock/"])
async def test_what_is_no_account_is_refused_at_the_start(api: KubernetesApi, wrong: str) -> None:
    with pytest.raises(SettingsError, match="kubernetes_kubelet_account"):
        Kubelets(api, wrong, "")


@pytest.mark.parametrize("text", [None, "", "no certificate"])
async def test_what_is_no_file_of_authorities_is_refused_at_the_start(
    api: KubernetesApi, tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "ca").write_text(text)
    with pytest.raises(SettingsError, match=r"kubernetes_kubelet_ca: .*/ca"):
        Kubelets(api, "penstock/penstock-nodes", str(tmp_path / "ca"))


# -- who is believed ---------------------------------------------------------------------------------------------------


class Listener:
    """Whoever listens where a kubelet should, with a certificate of the cluster's own authority or of nobody's."""

    def __init__(self, rig: Rig, *alternatives: str, answer: Handler | None = None) -> None:
        self._certificates, self._alternatives = rig.control.certificates, alternatives
        self._answers = answer or self._hello
        self.heard = b""

    @asynccontextmanager
    async def up(self) -> AsyncIterator[KubernetesNode]:
        name = f"listener-{secrets.token_hex(4)}"
        self._certificates.make(name, f"/CN={name}", *self._alternatives)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificates.certificate(name), self._certificates.key(name))
        server = await asyncio.start_server(self._hears, "127.0.0.1", 0, ssl=context)
        async with server:
            yield a_node("node-7", "127.0.0.1", server.sockets[0].getsockname()[1])

    async def _hears(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heard += await reader.readuntil(b"\r\n\r\n")
            await self._answers(reader, writer)  # type: ignore[misc]
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"hello")
        await writer.drain()


@pytest.mark.parametrize("alternative", ["IP:127.0.0.1", "DNS:node-7"])
async def test_a_certificate_is_that_of_the_nodes_address_or_of_its_name(
    rig: Rig, account: Deployed, server: KubernetesApi, alternative: str
) -> None:
    listener = Listener(rig, alternative)
    async with listener.up() as node, asking(server, nodes_account(account)) as kubelets:
        assert await kubelets.ask(node, USE) == b"hello"
    assert b"Authorization: Bearer ey" in listener.heard


async def test_another_nodes_certificate_is_not_believed_and_no_token_is_sent(
    rig: Rig, account: Deployed, server: KubernetesApi
) -> None:
    listener = Listener(rig, "DNS:node-8", "IP:127.0.0.2")
    async with listener.up() as node, asking(server, nodes_account(account)) as kubelets:
        said = await trouble(kubelets, node)
    assert "shows a certificate that is not trusted" in said
    assert said.endswith("(name the authority of the kubelets' certificates in kubernetes_kubelet_ca)")
    assert listener.heard == b""


async def test_one_nobody_vouches_for_is_not_believed_and_no_token_is_sent(
    rig: Rig, account: Deployed, server: KubernetesApi, tmp_path: Path
) -> None:
    """Here because another authority is named than that of the cluster."""
    other = type(rig.control.certificates)(tmp_path, "https://nowhere")
    other.begin()
    listener = Listener(rig, "IP:127.0.0.1")
    async with (
        listener.up() as node,
        asking(server, nodes_account(account), str(other.authority)) as kubelets,
    ):
        said = await trouble(kubelets, node)
        assert "shows a certificate that is not trusted: unable to get local issuer certificate" in said
        assert listener.heard == b""
        [real, *_] = await server.list(KubernetesNode)
        assert "not trusted" in await trouble(kubelets, real)
    async with listener.up() as node, asking(server, nodes_account(account), "none") as kubelets:
        assert await kubelets.ask(node, USE) == b"hello"  # an admin wanted it so


async def test_a_lax_way_to_the_api_server_makes_none_to_kubelets(
    rig: Rig, account: Deployed, server: KubernetesApi, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "lax"
    text = account.kubeconfig.read_text().replace(
        f'"certificate-authority": "{rig.control.certificates.authority}"', '"insecure-skip-tls-verify": true'
    )
    kubeconfig.write_text(text)
    listener, lax = Listener(rig, "IP:127.0.0.1"), KubernetesApi.open(kubeconfig)
    try:
        async with listener.up() as node, asking(lax, nodes_account(account)) as kubelets:
            assert "not trusted" in await trouble(kubelets, node)
    finally:
        await lax.close()
    assert listener.heard == b""


# -- what is borne -----------------------------------------------------------------------------------------------------


async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def dripping(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)
    while True:
        writer.write(b"x\n")
        await writer.drain()
        await asyncio.sleep(0.1)


async def elsewhere(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nConnection: close\r\n\r\n")
    await writer.drain()


async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello\r\n\r\n")
    await writer.drain()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (endless, "its kubelet says more than "),
        (dripping, "does not answer in time"),
        (elsewhere, "its kubelet answers 302"),
        (nonsense, "broke off"),
    ],
)
async def test_an_answer_that_is_none_is_said_and_holds_up_nobody_for_long(
    rig: Rig, account: Deployed, server: KubernetesApi, answer: Handler, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 1.5)
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    listener = Listener(rig, "IP:127.0.0.1", answer=answer)
    async with listener.up() as node, asking(server, nodes_account(account)) as kubelets, asyncio.timeout(10):
        assert said in await trouble(kubelets, node)


async def test_where_nobody_listens_that_is_said_and_not_tried_again_at_once(
    account: Deployed, server: KubernetesApi
) -> None:
    async with asking(server, nodes_account(account)) as kubelets:
        said = await trouble(kubelets, a_node("node-7", "127.0.0.1", 9))
        assert said == (
            "its kubelet at https://127.0.0.1:9 cannot be reached: Connection refused (let the server reach that port)"
        )
        assert await trouble(kubelets, a_node("node-7", "127.0.0.1", 10)) == said


@pytest.mark.parametrize("address", ["", "example.org", "127.0.0.1/../x", "fe80::1%lo", "::1"])
async def test_an_address_that_is_none_leads_nowhere(account: Deployed, server: KubernetesApi, address: str) -> None:
    async with asking(server, nodes_account(account)) as kubelets:
        said = await trouble(kubelets, a_node("node-7", address, 9))
    assert ("where its kubelet is" in said) == (":" not in address)
