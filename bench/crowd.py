"""A cluster full of things: copies of real objects, written into its etcd.

Through the API a small machine would take far longer to make them. Who reads the cluster sees no
difference: the originals were made by the API server and a kubelet, and it reads JSON as well as its own encoding. What
would act on the copies (the controllers, the scheduler) must not run.

Only a process inside the rig reaches etcd: this file, started as a program, writes there what it reads.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.rig.cluster import Rig

ETCD = ("127.0.0.1", 2379)
AT_ONCE = 100
"""etcd takes 128 writes and 1.5 MB in one request."""
_PLACES = {"job": "jobs", "node": "minions", "pod": "pods"}


@dataclass(frozen=True)
class Original:
    fields: dict[str, Any]
    line: str
    """Its key in etcd, a space, and all of it as JSON."""

    @classmethod
    def of(cls, rig: Rig, kind: str, name: str, namespace: str | None = None) -> Original:
        place = ("-n", namespace) if namespace else ()
        fields = json.loads(rig.kubectl("get", kind, name, *place, "-o", "json", "--show-managed-fields"))
        del fields["metadata"]["resourceVersion"]
        key = "/".join(filter(None, ("/registry", _PLACES[kind], namespace, name)))
        return cls(fields, f"{key} {json.dumps(fields)}\n")

    @property
    def uid(self) -> str:
        return str(self.fields["metadata"]["uid"])

    def copy(self, instead: Mapping[str, str]) -> str:
        """The same under another name: words and what stands instead of them."""
        return replaced(self.line, instead)


def replaced(text: str, instead: Mapping[str, str]) -> str:
    for old, new in instead.items():
        text = text.replace(old, new)
    return text


def write(rig: Rig, copies: Iterable[str]) -> None:
    line = ["nsenter", f"--target={rig.processes.holder}", "--net", sys.executable, "-I", __file__]
    with subprocess.Popen(line, stdin=subprocess.PIPE, text=True) as program:
        assert program.stdin
        for copy in copies:
            program.stdin.write(copy)
    if program.returncode:
        raise subprocess.CalledProcessError(program.returncode, line)


def _main() -> None:
    etcd = HTTPConnection(*ETCD)
    while lines := list(islice(sys.stdin.buffer, AT_ONCE)):
        etcd.request("POST", "/v3/kv/txn", json.dumps({"success": [_put(line) for line in lines]}))
        answer = etcd.getresponse()
        said = answer.read().decode()
        if answer.status != 200:
            sys.exit(f"etcd: {said}")


def _put(line: bytes) -> dict[str, dict[str, str]]:
    key, _, value = line.rstrip(b"\n").partition(b" ")
    return {"requestPut": {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}}


if __name__ == "__main__":
    _main()
