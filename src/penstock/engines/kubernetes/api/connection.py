"""Connect to an API server with its certificates and Penstock's credentials, from a kubeconfig or inside a pod.

The only file that knows lightkube, which reads kubeconfigs and builds their TLS. Requests go through httpx2, in two
pools: calls that are answered at once, and streams (watches, logs, terminals), so that thousands of streams do not
stand in the way of a call. Credentials are a token, a file with one, or a program that prints one; those that are
refused (401) are read anew from where they came from, once a request: a rotated file is found then.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import User, UserExec
from lightkube.core.exceptions import ConfigError
from msgspec.structs import replace

from penstock import __version__
from penstock.engines.kubernetes.api.errors import CredentialsExpired
from penstock.errors import SettingsError

PROGRAM_SECONDS = 30
BEFORE_END = timedelta(seconds=30)


class ExecCredentialStatus(msgspec.Struct):
    """`status` of what a credential program prints."""

    token: str = ""
    ends: datetime | None = msgspec.field(name="expirationTimestamp", default=None)


class ExecCredential(msgspec.Struct):
    status: ExecCredentialStatus


class CredentialPlugin:
    """An exec plug-in. It is run when there is no token, when the token is about to end, and anew after a refusal."""

    def __init__(
        self, api_version: str, command: list[str], env: dict[str, str], server: str, install_hint: str | None
    ) -> None:
        spec = {"interactive": False, "cluster": {"server": server}}
        info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": spec}
        self._command = command
        self._env = {**os.environ, **env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        self._install_hint = install_hint
        self._printed: ExecCredentialStatus | None = None
        self._running = asyncio.Lock()

    async def token(self) -> str:
        async with self._running:
            if self._printed is None or _ending(self._printed):
                self._printed = await self._run()
            return self._printed.token

    async def _run(self) -> ExecCredentialStatus:
        output = await self._output()
        try:
            printed = msgspec.json.decode(output, type=ExecCredential).status
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._failed(f"prints no credential: {error}") from error
        if not printed.token:
            raise self._failed("prints no token; client certificates from programs are not supported")
        return printed

    async def _output(self) -> bytes:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, env=self._env, stdin=null, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            hint = f"; {self._install_hint.strip()}" if self._install_hint else ""
            raise self._failed(f"cannot be run: {error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(PROGRAM_SECONDS):
                output, said = await process.communicate()
        except TimeoutError as error:
            raise self._failed(f"did not end within {PROGRAM_SECONDS}s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise self._failed(f"ended with {process.returncode}: {said.decode(errors='replace').strip()}")
        return output

    def _failed(self, what: str) -> CredentialsExpired:
        return CredentialsExpired(f"the credential program {self._command[0]} {what}", status=401)


def _ending(printed: ExecCredentialStatus) -> bool:
    return printed.ends is not None and datetime.now(UTC) > printed.ends - BEFORE_END


CALL_TIMEOUT = httpx2.Timeout(30, connect=5)
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
UNVERIFIED = "none"
"""The setting that turns verification of kubelets off: whoever answers at a node's address is believed."""
HINT = "check the settings kubernetes_config and kubernetes_context"


@dataclass(frozen=True)
class ApiServer:
    """The API server that a kubeconfig and a context name, and how to connect to it."""

    config: SingleConfig
    proxy: str | None
    tls_name: str | None
    token: str | CredentialPlugin | None
    """None where a client certificate is enough."""

    @property
    def user(self) -> User:
        return self.config.user or User()

    def material(self) -> tuple[object, ...]:
        """Everything a connection is made with: while it is the same, open connections can stay."""
        cluster, user = self.config.cluster, self.user
        files = [self._bytes(path) for path in (cluster.certificate_auth, user.client_cert, user.client_key)]
        inline = (cluster.certificate_auth_data, user.client_cert_data, user.client_key_data)
        return (cluster.server, cluster.insecure, self.proxy, *files, *inline)

    def _bytes(self, path: str | None) -> bytes | None:
        return Path(self.config.abs_file(path)).read_bytes() if path else None

    def tls(self) -> ssl.SSLContext:
        context = verify_cluster(self.config.cluster, self.user, self.config.abs_file)
        # Many clusters' own authorities lack fields that Python asks for since 3.13, and kubectl does not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def tls_to_kubelets(self, authority: str) -> ssl.SSLContext:
        """Verify against the cluster's own authority, or those in a file; never less because the API server is not
        verified. No client certificate is shown there."""
        if authority == UNVERIFIED:
            unverified = ssl.create_default_context()
            unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
            return unverified
        if authority:
            context = ssl.create_default_context(cafile=Path(authority).expanduser())
        else:
            context = verify_cluster(replace(self.config.cluster, insecure=False), User(), self.config.abs_file)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def read_kubeconfig(kubeconfig: Path | None, context: str | None) -> ApiServer:
    """Read a kubeconfig; without one, inside a pod its service account, otherwise $KUBECONFIG or ~/.kube/config, as
    kubectl does."""
    try:
        if kubeconfig is None and context is None and _in_cluster():
            return _server_of(KubeConfig.from_service_account(SERVICE_ACCOUNT), None, {})
        path = (kubeconfig or _usual_file()).expanduser()
        text = yaml.safe_load(path.read_text())
        if not isinstance(text, dict):
            raise SettingsError(f"{path} is no kubeconfig.", hint=HINT)
        return _server_of(KubeConfig.from_dict(text, fname=path.absolute()), context, text)
    except OSError as error:
        raise SettingsError(f"{error.filename}: {error.strerror}.", hint=HINT) from error
    except (ConfigError, ValueError, msgspec.MsgspecError, yaml.YAMLError) as error:
        raise SettingsError(f"{kubeconfig or 'The kubeconfig'}: {error}", hint=HINT) from error
    except (KeyError, TypeError) as error:
        raise SettingsError(f"{kubeconfig or 'The kubeconfig'}: {error} is missing or wrong.", hint=HINT) from error


def _in_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and Path(SERVICE_ACCOUNT, "token").exists()


def _usual_file() -> Path:
    named = [Path(name) for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    there = [path for path in named if path.exists()]
    if len(there) > 1:
        raise SettingsError("$KUBECONFIG names several files.", hint="name one in the setting kubernetes_config")
    return (there or named or [Path(DEFAULT_KUBECONFIG)])[0]


def _server_of(kubeconfig: KubeConfig, context: str | None, text: Mapping[str, Any]) -> ApiServer:
    config = kubeconfig.get(context)
    if config is None:
        raise ConfigError("no context is chosen")
    clusters = {entry["name"]: entry["cluster"] for entry in text.get("clusters", ())}
    cluster = clusters.get(config.context.cluster, {})
    return ApiServer(config, cluster.get("proxy-url"), cluster.get("tls-server-name"), _token(config))


def _token(config: SingleConfig) -> str | CredentialPlugin | None:
    user = config.user or User()
    if user.token_file:
        return Path(config.abs_file(user.token_file)).read_text().strip()
    if user.token:
        return user.token
    if user.exec:
        return _program(user.exec, config)
    if user.auth_provider:
        raise ConfigError("auth-provider is gone from Kubernetes since 1.26; use the exec plug-in of your cluster")
    return None


def _program(wanted: UserExec, config: SingleConfig) -> CredentialPlugin:
    if wanted.apiVersion not in EXEC_VERSIONS:
        raise ConfigError(f"exec.apiVersion is {wanted.apiVersion}; supported: {', '.join(EXEC_VERSIONS)}")
    # As kubectl: a path is meant relative to the kubeconfig, a bare name is looked for in PATH.
    command = str(config.abs_file(wanted.command)) if os.sep in wanted.command else wanted.command
    env = {variable.name: variable.value for variable in wanted.env or ()}
    arguments = [command, *(wanted.args or ())]
    return CredentialPlugin(wanted.apiVersion, arguments, env, config.cluster.server, wanted.installHint)


class Connection:
    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._from = (kubeconfig, context)
        self._target = read_kubeconfig(kubeconfig, context)
        self._renewing = asyncio.Lock()
        self._closing: list[httpx2.AsyncClient] = []
        self._connect()

    @property
    def server(self) -> str:
        return self._target.config.cluster.server

    @property
    def namespace(self) -> str:
        return self._target.config.namespace

    def tls_to_kubelets(self, authority: str) -> ssl.SSLContext:
        try:
            return self._target.tls_to_kubelets(authority)
        except OSError as error:
            what = f"kubernetes_kubelet_ca: {authority}" if authority else self.server
            raise SettingsError(f"{what}: {error.strerror}", hint="name a file of certificates in PEM") from error

    async def close(self) -> None:
        for client in self._closing:
            await client.aclose()

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        stream: bool = False,
    ) -> httpx2.Response:
        """Send a request and return its answer, whatever it is; with `stream` the caller reads and closes the body."""
        for last in (False, True):
            target = self._target
            client = self._streams if stream else self._calls
            request = client.build_request(
                method, path, params=params, content=body, headers=headers, timeout=timeout or CALL_TIMEOUT
            )
            if target.tls_name:
                request.extensions["sni_hostname"] = target.tls_name
            if token := await target.token.token() if isinstance(target.token, CredentialPlugin) else target.token:
                request.headers["Authorization"] = f"Bearer {token}"
            response = await client.send(request, stream=stream)
            if response.status_code != 401 or last:
                break
            await response.aclose()
            await self._renew(target)
        return response

    async def _renew(self, refused: ApiServer) -> None:
        """Read the credentials anew, once for all requests that were refused at the same time."""
        async with self._renewing:
            if self._target is not refused:
                return
            try:
                target = read_kubeconfig(*self._from)
                changed = target.material() != self._material
            except (SettingsError, OSError) as error:
                raise CredentialsExpired(
                    f"the credentials were refused and cannot be read anew: {error}", status=401
                ) from error
            self._target = target
            if changed:
                self._connect()

    def _connect(self) -> None:
        """Connect anew; old pools stay until the end, since streams on them go on."""
        target = self._target
        try:
            self._material = target.material()
            tls = target.tls()
            self._calls = self._pool(tls, httpx2.Limits(max_connections=100, max_keepalive_connections=20))
            self._streams = self._pool(tls, httpx2.Limits(max_connections=None, max_keepalive_connections=5))
        except (OSError, ValueError, ImportError) as error:
            raise SettingsError(f"No connection to {self.server} can be made: {error}", hint=HINT) from error
        self._closing += [self._calls, self._streams]

    def _pool(self, tls: ssl.SSLContext, limits: httpx2.Limits) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=self.server,
            verify=tls,
            proxy=self._target.proxy,
            limits=limits,
            timeout=CALL_TIMEOUT,
            headers={"User-Agent": f"penstock/{__version__}"},
        )
