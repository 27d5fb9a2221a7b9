"""Who is who, for TLS: an authority of the rig's own, and a certificate and kubeconfig for each who needs one."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

from tests.rig.processes import run

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = "3650"


class Certificates:
    def __init__(self, directory: Path, server: str) -> None:
        self.directory = directory / "pki"
        self.homes = directory
        self.server = server
        """Where the API server is."""

    @property
    def authority(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def account_key(self) -> Path:
        """What the tokens of service accounts are signed with."""
        return self.directory / "sa.key"

    def certificate(self, name: str) -> Path:
        return self.directory / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.directory / f"{name}.key"

    def begin(self) -> None:
        self.directory.mkdir(mode=0o700)
        ca_key = self.directory / "ca.key"
        run(
            "openssl",
            "req",
            "-x509",
            *_KEY,
            "-days",
            _DAYS,
            "-subj",
            "/CN=rig",
            "-keyout",
            ca_key,
            "-out",
            self.authority,
        )
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.account_key)

    def make(self, name: str, subject: str, *alternatives: str) -> None:
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(alternatives or (f'DNS:{name}',))}\n")
        run("openssl", "req", *_KEY, "-subj", subject, "-keyout", self.key(name), "-out", request)
        authority = ("-CA", self.authority, "-CAkey", self.directory / "ca.key", "-CAcreateserial")
        run(
            "openssl",
            "x509",
            "-req",
            "-in",
            request,
            *authority,
            "-days",
            _DAYS,
            "-extfile",
            extensions,
            "-out",
            self.certificate(name),
        )

    def kubeconfig(self, name: str, subject: str, *alternatives: str) -> Path:
        """A certificate and the file that has all a client needs."""
        self.make(name, subject, *alternatives)
        return self.write_kubeconfig(
            self.homes / f"{name}.kubeconfig",
            {"client-certificate": str(self.certificate(name)), "client-key": str(self.key(name))},
        )

    def client_context(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.certificate(name), self.key(name))
        return context

    def write_kubeconfig(self, path: Path, user: dict[str, str], namespace: str = "default") -> Path:
        cluster = {"server": self.server, "certificate-authority": str(self.authority)}
        context = {"cluster": "rig", "user": "user", "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "rig",
            "clusters": [{"name": "rig", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "rig", "context": context}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1))
        return path
