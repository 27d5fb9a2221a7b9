"""An authorization plugin as hardened hosts have them: it lets no container share the host's processes.

Run as `python -m tests.hosts.denying` on a host; the engine uses it with `"authorization-plugins": ["denying"]`.
"""

from __future__ import annotations

import base64
import json
import socketserver
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

NAME = "denying"
SOCKET = Path("/run/docker/plugins", f"{NAME}.sock")
SAID = "no container may see the processes of this host"


class Plugin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = json.dumps(self._answer(json.loads(asked or b"{}"))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.path == "/Plugin.Activate":
            return {"Implements": ["authz"]}
        created = self.path == "/AuthZPlugin.AuthZReq" and asked["RequestUri"].partition("?")[0].endswith("/create")
        body = json.loads(base64.b64decode(asked.get("RequestBody") or "") or "{}") if created else {}
        denied = body.get("HostConfig", {}).get("PidMode") == "host"
        return {"Allow": not denied, "Msg": SAID if denied else ""}

    def address_string(self) -> str:
        return "the engine"


def main() -> None:
    SOCKET.parent.mkdir(parents=True, exist_ok=True)
    SOCKET.unlink(missing_ok=True)
    socketserver.ThreadingUnixStreamServer(str(SOCKET), Plugin).serve_forever()


if __name__ == "__main__":
    main()
