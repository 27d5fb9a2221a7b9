"""Who we are to the cluster, where that is written down, and what happens when it is not accepted any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.connection import read_kubeconfig
from penstock.engines.kubernetes.api.errors import CredentialsExpired, KubernetesUnreachable
from penstock.engines.kubernetes.api.resources import KubernetesNode
from penstock.errors import SettingsError


@pytest.fixture(scope="module")
def token(rig, namespace):
    """Of an account that may read nodes."""
    account = f"--serviceaccount={namespace}:default"
    rig.kubectl("create", "clusterrole", namespace, "--verb=list", "--resource=nodes")
    rig.kubectl("create", "clusterrolebinding", namespace, f"--clusterrole={namespace}", account)
    yield rig.token("default", namespace)
    rig.kubectl("delete", "clusterrolebinding,clusterrole", namespace)


@pytest.fixture
def config(rig, tmp_path):
    """Writes a kubeconfig of a user, and gives its path."""

    def write(user: dict, **cluster: object) -> Path:
        certificates = rig.control.certificates
        where = {"server": certificates.server, "certificate-authority": str(certificates.authority)} | cluster
        context = {"cluster": "c", "user": "u"}
        path = tmp_path / "config"
        path.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": where}],
                    "users": [{"name": "u", "user": user}],
                    "contexts": [{"name": "x", "context": context | {"namespace": "home"}}],
                    "current-context": "x",
                }
            )
        )
        return path

    return write


@pytest.fixture
async def opened():
    """Opens a kubeconfig; closed in the end."""
    apis: list[KubernetesApi] = []

    def open_(path: Path, context: str | None = None) -> KubernetesApi:
        apis.append(KubernetesApi.open(path, context, patience=0))
        return apis[-1]

    yield open_
    for api in apis:
        await api.close()


async def test_a_token_in_the_file_lets_us_in_and_the_context_names_our_namespace(config, token, opened):
    api = opened(config({"token": token}))
    assert await api.list(KubernetesNode)
    assert api.namespace == "home"


async def test_a_rotated_token_file_is_read_anew_when_the_old_token_is_refused(config, token, opened, tmp_path):
    file = tmp_path / "token"
    file.write_text("expired")
    api = opened(config({"tokenFile": "token"}))
    with pytest.raises(CredentialsExpired, match="Unauthorized") as refused:
        await api.list(KubernetesNode)
    assert "renew the credentials" in refused.value.shown().hint
    file.write_text(token + "\n")
    assert await api.list(KubernetesNode)


async def test_credentials_replaced_in_the_kubeconfig_are_used_without_a_restart(config, token, opened, rig):
    api = opened(config({"token": "expired"}))
    with pytest.raises(CredentialsExpired):
        await api.list(KubernetesNode)
    config({"token": token})
    assert await api.list(KubernetesNode)
    config({"token": "expired again"})
    assert await api.list(KubernetesNode), "what is accepted is kept"


async def test_a_certificate_put_into_the_kubeconfig_is_used_without_a_restart(config, opened, rig):
    api = opened(config({"token": "expired"}))
    with pytest.raises(CredentialsExpired):
        await api.list(KubernetesNode)
    pki = rig.control.certificates
    config({"client-certificate": str(pki.certificate("admin")), "client-key": str(pki.key("admin"))})
    assert await api.list(KubernetesNode)


async def test_a_refusal_after_the_kubeconfig_vanished_says_so(config, opened):
    path = config({"token": "expired"})
    api = opened(path)
    path.unlink()
    with pytest.raises(CredentialsExpired, match=r"cannot be read anew: .*No such file"):
        await api.list(KubernetesNode)


PLUGIN = """#!/bin/sh
echo "$KUBERNETES_EXEC_INFO" > {here}/info
echo run >> {here}/runs
printf '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{"token": "%s"}}}}' \
    "$(cat {here}/$WHICH)"
"""


@pytest.fixture
def plugin(tmp_path):
    """A credential program beside the kubeconfig that prints the token in the file `say`."""
    (tmp_path / "login").write_text(PLUGIN.format(here=tmp_path))
    (tmp_path / "login").chmod(0o755)
    env = [{"name": "WHICH", "value": "say"}]
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "env": env}


async def test_a_credential_program_is_run_once_and_again_when_refused(config, token, opened, plugin, tmp_path):
    (tmp_path / "say").write_text(token)
    api = opened(config({"exec": plugin}))
    assert await api.list(KubernetesNode)
    assert await api.list(KubernetesNode)
    assert (tmp_path / "runs").read_text() == "run\n"
    info = json.loads((tmp_path / "info").read_text())
    assert (info["kind"], info["spec"]["interactive"]) == ("ExecCredential", False)
    assert info["spec"]["cluster"]["server"] == api.server


async def test_a_credential_program_whose_token_is_refused_is_run_again(config, token, opened, plugin, tmp_path):
    (tmp_path / "say").write_text("expired")
    api = opened(config({"exec": plugin}))
    with pytest.raises(CredentialsExpired):
        await api.list(KubernetesNode)
    (tmp_path / "say").write_text(token)
    assert await api.list(KubernetesNode)


@pytest.mark.parametrize(
    ("command", "args", "said"),
    [
        ("there-is-no-such-program", [], "cannot be run: No such file or directory; get it from example.org"),
        ("sh", ["-c", "echo please log in >&2; exit 3"], "ended with 3: please log in"),
        ("echo", ["hello"], "prints no credential"),
        ("echo", ['{"status": {}}'], "prints no token"),
    ],
)
async def test_a_credential_program_that_fails_is_quoted(config, opened, command, args, said):
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": command, "args": args}
    api = opened(config({"exec": exec_ | {"installHint": "get it from example.org"}}))
    with pytest.raises(CredentialsExpired) as failed:
        await api.list(KubernetesNode)
    assert f"the credential program {command} {said}" in failed.value.message


async def test_a_certificate_of_another_authority_is_not_trusted(config, opened):
    api = opened(config({}, **{"certificate-authority": None}))
    with pytest.raises(KubernetesUnreachable, match="shows a certificate that is not trusted"):
        await api.version()


async def test_the_name_in_the_servers_certificate_can_be_given(config, token, opened):
    assert await opened(config({"token": token}, **{"tls-server-name": "localhost"})).list(KubernetesNode)
    api = opened(config({"token": token}, **{"tls-server-name": "elsewhere.example"}))
    with pytest.raises(KubernetesUnreachable, match=r"elsewhere\.example"):
        await api.list(KubernetesNode)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"exec": {"apiVersion": "v9", "command": "x"}}, "exec.apiVersion is v9; supported: client.auth"),
        ({"auth-provider": {"name": "gcp"}}, "auth-provider is gone from Kubernetes since 1.26"),
        ({"client-certificate": "missing.crt", "client-key": "missing.key"}, "missing.crt"),
        ({"token": 7}, "Expected `str"),
    ],
)
async def test_credentials_we_cannot_use_are_a_wrong_setting(config, opened, user, said):
    with pytest.raises(SettingsError) as wrong:
        opened(config(user))
    assert said in wrong.value.message
    assert wrong.value.hint == "check the settings kubernetes_config and kubernetes_context"


@pytest.mark.parametrize(
    ("text", "context", "said"),
    [
        (None, None, "No such file or directory"),
        ("just words", None, "is no kubeconfig"),
        ("a: [", None, "while parsing"),
        ("{}", None, "'clusters' is missing or wrong"),
        ("{clusters: [], contexts: []}", None, "No current context"),
        ("{clusters: [], contexts: []}", "other", "Context 'other' not found"),
        ("{clusters: [], contexts: [{name: a, context: {cluster: b}}]}", "a", "'b' is missing or wrong"),
    ],
)
def test_a_kubeconfig_that_leads_nowhere_is_a_wrong_setting(tmp_path, text, context, said):
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError) as wrong:
        read_kubeconfig(path, context)
    assert said in wrong.value.message


def test_without_a_setting_the_file_is_found_as_kubectl_finds_it(config, token, monkeypatch, tmp_path):
    path = config({"token": token})
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'not-there'}:{path}")
    assert read_kubeconfig(None, None).config.context_name == "x"
    monkeypatch.setenv("KUBECONFIG", f"{path}:{path}")
    with pytest.raises(SettingsError, match="names several files"):
        read_kubeconfig(None, None)
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SettingsError, match=r"\.kube/config: No such file"):
        read_kubeconfig(None, None)


async def test_inside_a_pod_the_service_account_is_used(rig, token, monkeypatch, tmp_path, opened):
    """A pod's own files and variables, laid out as the kubelet does."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(token)
    (account / "namespace").write_text("mine")
    (account / "ca.crt").write_bytes(rig.control.certificates.authority.read_bytes())
    monkeypatch.setattr("penstock.engines.kubernetes.api.connection.SERVICE_ACCOUNT", str(account))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", rig.addresses.control)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    api = KubernetesApi.open(None)
    assert api.namespace == "mine"
    assert await api.list(KubernetesNode)
    await api.close()
