"""A fake: just enough of the Kubernetes API for `kubectl get` to list N jobs or nodes. No cluster stands behind it."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CELLS = {
    "jobs": {"Name": "", "Status": "Complete", "Completions": "1/1", "Duration": "5s", "Age": "3d"},
    "nodes": {"Name": "", "Status": "Ready", "Roles": "<none>", "Age": "3d", "Version": "v1.33.0"},
}


def _table(kind: str, count: int) -> bytes:
    rows = [
        {
            "cells": [f"{kind[:-1]}-{i:05d}", *list(CELLS[kind].values())[1:]],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {
                    "name": f"{kind[:-1]}-{i:05d}",
                    **({"namespace": "default"} if kind == "jobs" else {}),
                    "uid": f"00000000-0000-0000-0000-{i:012d}",
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"task-id": f"{i:08d}", "username": "someone"},
                },
            },
        }
        for i in range(count)
    ]
    columns = [{"name": name, "type": "string", "format": "", "description": "", "priority": 0} for name in CELLS[kind]]
    of_all = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}
    return json.dumps(of_all | {"metadata": {}, "columnDefinitions": columns, "rows": rows}).encode()


VERSION = {"groupVersion": "batch/v1", "version": "v1"}
JOBS = {"name": "jobs", "singularName": "job", "namespaced": True, "kind": "Job", "verbs": ["get", "list"]}
NODES = {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get", "list"]}
DISCOVERY = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [NODES]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [{"name": "batch", "versions": [VERSION], "preferredVersion": VERSION}],
    },
    "/apis/batch/v1": {"kind": "APIResourceList", "groupVersion": "batch/v1", "resources": [JOBS]},
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers: dict[str, bytes]

    def do_GET(self) -> None:
        body = self.answers.get(self.path.partition("?")[0])
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body or b"{}")))
        self.end_headers()
        self.wfile.write(body or b"{}")

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    Handler.answers = {path: json.dumps(about).encode() for path, about in DISCOVERY.items()}
    Handler.answers["/apis/batch/v1/namespaces/default/jobs"] = _table("jobs", int(sys.argv[1]))
    Handler.answers["/api/v1/nodes"] = _table("nodes", int(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
