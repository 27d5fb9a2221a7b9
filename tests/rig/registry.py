"""The registry a rig's nodes pull every image from: read-only, and it says no as real ones do.

Run as `python registry.py DIRECTORY ADDRESS PORT`, with nothing but the standard library. `names/` has a file for each
image name with the manifest's digest, `blobs/` the content; `images.publish` puts them there.
"""

from __future__ import annotations

import json
import shutil
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

PORT = 5000


class Registry(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    directory: Path

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        host = parse_qs(url.query).get("ns", ["docker.io"])[0]
        if url.path == "/token":
            return self._say(200, "application/json", b'{"token": "nobody"}')
        parts = url.path.removeprefix("/v2/").split("/")
        if len(parts) < 3 or parts[-2] not in ("manifests", "blobs"):
            return self._say(200, "application/json", b"{}")
        name, kind, reference = "/".join(parts[:-2]), parts[-2], parts[-1]
        if name.startswith("private/"):
            return self._refuse(401, "UNAUTHORIZED", "authentication required")
        if kind == "manifests" and not reference.startswith("sha256:"):
            named = self.directory / "names" / quote(f"{host}/{name}:{reference}", safe="")
            if not named.exists():
                return self._refuse(404, "MANIFEST_UNKNOWN", f"manifest unknown: {name}:{reference}")
            reference = named.read_text()
        blob = self.directory / "blobs" / reference
        if not blob.exists():
            return self._refuse(404, "BLOB_UNKNOWN", f"blob unknown: {reference}")
        manifest = kind == "manifests"
        self._send(
            blob, reference, "application/vnd.oci.image.manifest.v1+json" if manifest else "application/octet-stream"
        )

    do_HEAD = do_GET

    def _send(self, blob: Path, digest: str, kind: str) -> None:
        with blob.open("rb") as content:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Docker-Content-Digest", digest)
            self.send_header("Content-Length", str(blob.stat().st_size))
            self.end_headers()
            if self.command != "HEAD":
                shutil.copyfileobj(content, self.wfile, 1 << 20)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._say(status, "application/json", json.dumps({"errors": [{"code": code, "message": message}]}).encode())

    def _challenge(self) -> str:
        """Everyone gets a token, as from Docker Hub, and nobody's is good for what is private."""
        refused = ',error="insufficient_scope"' if "Authorization" in self.headers else ""
        return (
            f'Bearer realm="http://{self.headers["Host"]}/token",service="rig",scope="repository:private:pull"{refused}'
        )

    def _say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", self._challenge())
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


if __name__ == "__main__":
    Registry.directory = Path(sys.argv[1])
    ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Registry).serve_forever()
