"""Ask kubelets on their own ports what their nodes do, and read their two pages.

Through the API server that would need `get nodes/proxy`, which is the right to enter every pod; a kubelet itself lets
those read its numbers who have `get nodes/stats` and `get nodes/metrics`. What it is shown is the token of an account
that has these two rights and no other, never our own: whoever has taken over one node is not to get into all.

One is JSON: what the node and each pod use of CPUs, which is a rate already, and of memory. The other has lines as
Prometheus wants them, those with `id="/"` for the node: what disks and networks have moved so far, and when that was.

    container_fs_writes_bytes_total{container="",device="/dev/sda",id="/",image="",…} 8.17e+09 1763418174438

Both tell of the same measurements, of which there is one about every ten seconds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from ipaddress import ip_address
from time import monotonic
from typing import NamedTuple

import httpx2
import msgspec

from penstock import __version__
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import (
    AdmissionDenied,
    KubernetesError,
    KubernetesForbidden,
    KubernetesNotFound,
    Trouble,
    certificate_error,
    describe_failure,
)
from penstock.engines.kubernetes.api.objects import ObjectPart
from penstock.engines.kubernetes.api.requests import lines
from penstock.engines.kubernetes.api.resources import KubernetesNode
from penstock.engines.shared.counters import Traffic, total
from penstock.errors import SettingsError

TIMEOUT, PATIENCE = httpx2.Timeout(3, connect=2, pool=None), 5.0
AT_ONCE, MOST_BYTES = 200, 32 << 20
"""How many answers are awaited at the same time, and the most bytes of one."""
REST_SECONDS = 20.0
"""Seconds for which a kubelet that did not answer is left alone: callers that ask often are not to wait each time."""
TOKEN_SECONDS = 600
"""The shortest life Kubernetes gives a token; it is renewed after half of it."""
ACCOUNT_PATIENCE, ACCOUNT_REST = 3.0, 10.0
OTHER_NAME = (62, 64)
"""OpenSSL's codes of a certificate of another name or another address."""
LOG, APPLY = "look into the log of its kubelet", "kubectl apply -k deploy/kubernetes/base"


class NotMeasured(Exception):
    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.why)
        self.trouble = trouble


class Kubelets:
    def __init__(self, api: KubernetesApi, account: str, authority: str) -> None:
        """`account` is NAMESPACE/NAME. SettingsError if it is not, or if there is no such file of authorities."""
        self._token = _AccountToken(api.hurried(ACCOUNT_PATIENCE), account)
        self._client = httpx2.AsyncClient(
            verify=api.tls_to_kubelets(authority),
            timeout=TIMEOUT,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=AT_ONCE, keepalive_expiry=30),
            headers={"User-Agent": f"penstock/{__version__}", "Accept-Encoding": "identity"},
            trust_env=False,
        )
        self._places = asyncio.Semaphore(AT_ONCE)
        self._resting: dict[str, tuple[float, Trouble]] = {}
        """By node, until when it is not asked again, and why."""

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, node: KubernetesNode, path: str, keep: Callable[[bytes], bool] = lambda _: True) -> bytes:
        """Ask a kubelet for a page, of which only lines to be kept are ever held; NotMeasured if there is no answer."""
        until, trouble = self._resting.get(node.name, (0.0, None))
        if trouble and monotonic() < until:
            raise NotMeasured(trouble)
        address = _address(node)
        async with self._places:
            authorization = f"Bearer {await self._token.get()}"
            try:
                async with asyncio.timeout(PATIENCE), self._answer(node.name, address + path, authorization) as answer:
                    return await _kept(answer, keep)
            except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, TimeoutError) as error:
                raise NotMeasured(self._failed(node.name, address, error)) from error

    @asynccontextmanager
    async def _answer(self, node: str, url: str, authorization: str) -> AsyncGenerator[httpx2.Response, None]:
        try:
            response = await self._send(url, authorization, None)
        except httpx2.ConnectError as error:
            wrong = certificate_error(error)
            if wrong is None or wrong.verify_code not in OTHER_NAME:
                raise
            response = await self._send(url, authorization, node)  # many have a certificate of their name only
        try:
            if response.status_code != 200:
                raise NotMeasured(await self._refused(response))
            yield response
        finally:
            await response.aclose()

    async def _send(self, url: str, authorization: str, name: str | None) -> httpx2.Response:
        request = self._client.build_request("GET", url, headers={"Authorization": authorization})
        if name:
            request.extensions["sni_hostname"] = name  # what the certificate is verified for, too
        return await self._client.send(request, stream=True)

    async def _refused(self, response: httpx2.Response) -> Trouble:
        said = (await _kept(response, lambda _: True))[:300].decode(errors="replace").strip()
        if response.status_code == 401:
            self._token.forget()
            return Trouble("its kubelet accepts no token", "set authentication.webhook.enabled in its configuration")
        if response.status_code == 403:
            return Trouble(f"its kubelet refuses: {said}", APPLY)
        return Trouble(f"its kubelet answers {response.status_code}: {said}", LOG)

    def _failed(self, node: str, address: str, error: Exception) -> Trouble:
        said = f"its kubelet at {address} {describe_failure(error)}"
        if certificate_error(error):
            return Trouble(said, "name the authority of the kubelets' certificates in kubernetes_kubelet_ca")
        trouble = Trouble(said, "let the server reach that port")
        self._resting[node] = (monotonic() + REST_SECONDS, trouble)
        return trouble


class _AccountToken:
    """The token kubelets are shown; however many ask for it, it is requested once."""

    def __init__(self, api: KubernetesApi, account: str) -> None:
        self._api, self._account = api, account
        self._namespace, _, self._name = account.partition("/")
        if not self._namespace or not self._name:
            raise SettingsError(f"kubernetes_kubelet_account: {account!r} is no NAMESPACE/NAME of a service account.")
        self._getting = asyncio.Lock()
        self._until = 0.0
        self._got: str | Trouble = ""

    async def get(self) -> str:
        async with self._getting:
            if monotonic() >= self._until:
                self._got = await self._new()
                self._until = monotonic() + (TOKEN_SECONDS / 2 if isinstance(self._got, str) else ACCOUNT_REST)
            if isinstance(self._got, Trouble):
                raise NotMeasured(self._got)
            return self._got

    def forget(self) -> None:
        self._until = 0.0

    async def _new(self) -> str | Trouble:
        try:
            return await self._api.token(self._name, self._namespace, TOKEN_SECONDS)
        except KubernetesNotFound:
            return Trouble(f"the service account {self._account} is not there, whose token kubelets are shown", APPLY)
        except (KubernetesForbidden, AdmissionDenied) as error:
            return Trouble(error.message, APPLY)
        except KubernetesError as error:
            return Trouble(error.message, error.hint or "penstock doctor")


def _address(node: KubernetesNode) -> str:
    """Return a kubelet's address, `https://10.0.0.7:10250`. Whoever may write nodes may write anything there, so only
    IP addresses are taken."""
    port = node.status.daemon_endpoints.kubelet_endpoint.port
    for each in node.status.addresses:
        if each.type == "InternalIP" and port:
            try:
                address = ip_address(each.address)
            except ValueError:
                continue
            return f"https://[{address}]:{port}" if address.version == 6 else f"https://{address}:{port}"
    raise NotMeasured(Trouble("it does not say where its kubelet is", f"kubectl get node {node.name} -o yaml"))


async def _kept(answer: httpx2.Response, keep: Callable[[bytes], bool]) -> bytes:
    async with aclosing(_bounded(answer)) as chunks, aclosing(lines(chunks)) as said:
        return b"".join([line async for line in said if keep(line)])


async def _bounded(answer: httpx2.Response) -> AsyncGenerator[bytes, None]:
    size = 0
    async with aclosing(answer.aiter_raw()) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > MOST_BYTES:
                raise NotMeasured(Trouble(f"its kubelet says more than {MOST_BYTES} bytes", LOG))
            yield chunk


USE, NUMBERS = "/stats/summary?only_cpu_and_memory=true", "/metrics/cadvisor"
"""The paths of the two pages. The second is long: it is asked for only when the first has a new measurement."""
NANO_PER_PERCENT = 10_000_000


class ContainerUsage(NamedTuple):
    at: str
    """When it was measured, by the node's clock; only compared."""
    cpu_percent: float | None
    """None until the kubelet has measured twice."""
    memory_bytes: int


class _Cpu(ObjectPart, frozen=True):
    time: str
    usage_nano_cores: int | None = None


class _Memory(ObjectPart, frozen=True):
    working_set_bytes: int = 0


class _Node(ObjectPart, frozen=True):
    cpu: _Cpu
    memory: _Memory


class _Summary(ObjectPart, frozen=True):
    node: _Node


_summary = msgspec.json.Decoder(_Summary)


def read_use(page: bytes) -> ContainerUsage | None:
    """Read what the node uses; None if the page does not tell."""
    try:
        found = _summary.decode(page)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    used = found.node.cpu.usage_nano_cores
    cpu = None if used is None else round(used / NANO_PER_PERCENT, 1)
    return ContainerUsage(found.node.cpu.time, cpu, found.node.memory.working_set_bytes)


_READ, _WRITTEN = "container_fs_reads_bytes_total", "container_fs_writes_bytes_total"
_RECEIVED, _SENT = "container_network_receive_bytes_total", "container_network_transmit_bytes_total"
_BEGINNINGS = tuple(name.encode() for name in (_READ, _WRITTEN, _RECEIVED, _SENT))
_LINE = re.compile(r"(\w+)\{(.*)\} (\S+) (\d{1,15})$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class TrafficSample(NamedTuple):
    at: float
    """Seconds, by the node's clock."""
    traffic: Traffic


def is_wanted(line: bytes) -> bool:
    """Keep this line? It is asked of tens of thousands of lines of a node with a hundred pods, so it is cheap."""
    return line.startswith(_BEGINNINGS) and b'id="/"' in line


def read_sample(lines: Iterable[str]) -> TrafficSample | None:
    """Read what disks and networks have moved from the lines that were kept; None if nothing is told of the node."""
    numbers: dict[str, dict[str, int]] = {name: {} for name in (_READ, _WRITTEN, _RECEIVED, _SENT)}
    at = 0.0
    for line in lines:
        found = _LINE.match(line)
        labels = dict(_LABEL.findall(found[2])) if found else {}
        if found and found[1] in numbers and labels.get("id") == "/":
            at = max(at, int(found[4]) / 1000)
            with suppress(ValueError, OverflowError):
                numbers[found[1]][labels.get("interface") or _disk(labels.get("device", ""))] = int(float(found[3]))
    disks, wires = _pairs(numbers[_READ], numbers[_WRITTEN]), _pairs(numbers[_RECEIVED], numbers[_SENT])
    disks.pop("", None)
    return TrafficSample(at, total(disks, wires)) if at else None


def _disk(device: str) -> str:
    """Name a disk as the kernel does; empty for a device made of disks that are counted themselves."""
    name = device.removeprefix("/dev/")
    return "" if "/" in name else name


def _pairs(first: dict[str, int], second: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (first.get(name, 0), second.get(name, 0)) for name in first | second}
