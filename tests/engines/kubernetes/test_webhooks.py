"""A cluster whose admin has put a webhook before what is made."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock import errors
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import AdmissionDenied, KubernetesUnreachable
from tests.engines.kubernetes.making import ConfigMap, config_map
from tests.rig.cluster import Rig


class Webhook(BaseHTTPRequestHandler):
    """Lets in what is named `good`."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        answer = {"uid": request["uid"], "allowed": request["name"] == "good"}
        answer["status"] = {"code": 403, "message": "every config map here is called good"}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def webhook(rig: Rig, rig_namespace: str, tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """A webhook on this machine that the API server asks about config maps in the namespace."""
    key, certificate = tmp_path / "key", tmp_path / "crt"
    make = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    )
    name = ("-subj", "/CN=webhook", "-addext", f"subjectAltName=IP:{rig.addresses.host}")
    subprocess.run([*make, *name, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer((rig.addresses.host, 0), Webhook)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "name": "names.example.org",
        "clientConfig": {
            "url": f"https://{rig.addresses.host}:{server.server_port}/",
            "caBundle": base64.b64encode(certificate.read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": rig_namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    rig.apply(kind | {"metadata": {"name": rig_namespace}, "webhooks": [config]})
    yield server
    server.shutdown()
    server.server_close()
    rig.kubectl("delete", "validatingwebhookconfiguration", rig_namespace)


async def until_asked(api: KubernetesApi, namespace: str) -> AdmissionDenied:
    """The API server learns of a new webhook after a moment; until then everything is let in."""
    number = 0
    while True:
        number += 1
        try:
            await api.create(ConfigMap, config_map(f"bad-{number}"), namespace)
        except AdmissionDenied as error:
            return error


async def test_a_denial_keeps_the_words_of_the_webhook(api, webhook, rig_namespace):
    denied = await until_asked(api, rig_namespace)
    said = 'admission webhook "names.example.org" denied the request: every config map here is called good'
    assert denied.message == said
    assert isinstance(denied.shown(), errors.Forbidden)
    assert (await api.create(ConfigMap, config_map("good"), rig_namespace)).name == "good"


async def test_a_webhook_that_does_not_answer_is_waited_for_and_named(rig, webhook, rig_namespace):
    api = KubernetesApi.open(rig.kubeconfig, patience=1)
    await until_asked(api, rig_namespace)
    webhook.shutdown()
    webhook.server_close()
    with pytest.raises(KubernetesUnreachable, match=r'failed calling webhook "names\.example\.org"'):
        await api.create(ConfigMap, config_map("good"), rig_namespace)
    assert "names.example.org" in api.trouble
    await api.close()
