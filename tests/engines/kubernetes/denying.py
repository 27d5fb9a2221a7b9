"""An admission webhook that refuses every pod (or Job) of a namespace: a real one, which the API server asks."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.rig.cluster import Rig

NAME = "deny.penstock.test"
GROUPS = {"pods": "", "jobs": "batch"}


@contextmanager
def denying_webhook(rig: Rig, namespace: str, message: str, kind: str = "pods") -> Iterator[None]:
    with tempfile.TemporaryDirectory() as place:
        address = rig.addresses.host
        certificate, key = _certificate(Path(place), address)
        server = _server(address, certificate, key, message)
        port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        rig.apply(_configuration(namespace, f"https://{address}:{port}/", certificate.read_bytes(), kind))
        try:
            yield
        finally:
            rig.kubectl("delete", "validatingwebhookconfiguration", NAME)
            server.shutdown()
            thread.join()
            server.server_close()


def _server(address: str, certificate: Path, key: Path, message: str) -> ThreadingHTTPServer:
    class Denying(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = {"code": 403, "message": message}
            review["response"] = {"uid": review["request"]["uid"], "allowed": False, "status": status}
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer((address, 0), Denying)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def _certificate(place: Path, address: str) -> tuple[Path, Path]:
    certificate, key = place / "certificate", place / "key"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    about = ["-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}"]
    command = ["openssl", "req", *kind, *about, "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def _configuration(namespace: str, url: str, authority: bytes, kind: str) -> dict[str, Any]:
    made = {"apiGroups": [GROUPS[kind]], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [kind]}
    webhook = {
        "name": NAME,
        "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
        "rules": [made],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [webhook],
    }
