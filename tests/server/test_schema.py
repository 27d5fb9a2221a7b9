"""The OpenAPI document is true, for everyone: schemathesis sends what it allows and what it forbids, as nobody, as a
member and as an admin, to a server that has something of everything. No answer is a 5xx or has another shape than the
document says, and none gives what belongs to others.

The seed is fixed. `PENSTOCK_FUZZ=1000 .venv/bin/pytest tests/server/test_schema.py` sends so many to each route.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.domain.policy import Verb
from penstock.server.app import create_app
from penstock.server.permissions import NEEDS
from penstock.settings import Settings
from tests.running import RunningServer, start_server

EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ", "14"))
ROLES = ("anonymous", "user", "admin")
MARK = "zqxmark"
"""Part of every name in the group that is not the user's."""
SECRET = "zqxsecret-and-nobody-is-told"
TRUE = [content_type_conformance, response_headers_conformance, response_schema_conformance, status_code_conformance]
ENDS_THE_SERVER = ("POST /v1/server/stop", "POST /v1/server/restart")
TAKES_AWAY = ("DELETE", "/stop", "/delete")
UNREAD = (400, 413, 415)
"""What is said of a request before anybody asks whose it is."""


def takes_away(operation: Any) -> bool:
    return any(word in operation.label for word in TAKES_AWAY)


schema = schemathesis.openapi.from_dict(create_app(Settings()).openapi())
OPERATIONS = sorted(
    (found.ok() for found in schema.get_all_operations()),
    key=takes_away,
)
"""What takes things away comes last."""
MODES = (GenerationMode.POSITIVE, GenerationMode.POSITIVE, GenerationMode.NEGATIVE)

TASK = "name: {0}\nresources: {{cpus: 50m}}\nsecrets: {{TOKEN: {2}}}\nenvs: {{OF: {1}}}\nrun: {3}\n"
TEXTS = """\
kind: User
apiVersion: v1
metadata: {{name: {0}-user}}
spec: {{groups: [{{name: {1}, policy: {{Workload: [get]}}}}]}}
===
kind: Group
apiVersion: v1
metadata: {{name: {0}-group}}
===
kind: Volume
apiVersion: v1
metadata: {{name: {0}-volume-0, group: {1}}}
spec: {{size: 1Mi}}
===
kind: Storage
apiVersion: v1
metadata: {{name: {0}-storage, group: {1}}}
spec: {{kind: nfs, nfs: {{server: 10.0.0.1, path: /{0}}}}}
===
kind: Node
apiVersion: v1
metadata: {{name: {0}-node, group: {1}}}
spec: {{address: 'unix:///none/{0}.sock'}}
===
kind: Workload
apiVersion: v1
metadata: {{name: {0}-job-0, group: {1}}}
spec: {{driver: pwm.docker, config: {{secrets: {{TOKEN: }}, env: {{OF: {0}}}}}, run: sleep 600}}
===
kind: PersistentVolumeClaim
apiVersion: v1
metadata: {{name: a-claim}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}
===
kind: Pod
apiVersion: v1
metadata: {{name: a-pod}}
spec: {{restartPolicy: Never, containers: [{{name: a, image: b, command: ['true']}}]}}
===
name: a-task
after: {0}-job-0
volumes: {{/data: {0}-volume-0}}
run: 'true'
"""


@dataclass
class Town:
    """A server with something of everything: of the lab, where the user is a member, and of others."""

    server: RunningServer
    headers: dict[str, str]
    names: dict[str, list[str]] = field(default_factory=dict)
    """By what an address calls it, all that is there."""
    marks: set[str] = field(default_factory=lambda: {MARK})
    """What only the others may be told: ids, and the one word in all their names."""

    def texts(self) -> list[str]:
        both = (("lab", "lab"), (MARK, f"{MARK}-group"))
        documents = [text.format(*names) for names in both for text in TEXTS.split("===\n")]
        return [*documents, TASK.format("lab-job-0", "lab", SECRET, "sleep 600")]

    def pool(self, path: str, parameter: str) -> list[str]:
        """What may stand in this place of an address. Of the logs, only those that come to an end."""
        if path.endswith("/logs"):
            return self.names["ended"]
        if parameter in ("ref", "name"):
            parameter = path.removeprefix("/v1/").partition("/")[0]
        return self.names.get(
            {"task_id": "workloads", "volume_id": "volumes", "token_id": "tokens"}.get(parameter, parameter), []
        )


def built(server: RunningServer, role: str) -> Town:
    def ask(method: str, path: str, body: Any, token: str | None = None) -> Any:
        status, answer = server.request(method, path, body, {"Authorization": f"Bearer {token}"} if token else {})
        assert status in (200, 201), answer
        return answer

    admin = ask("POST", "/v1/adm/init", {})
    town = Town(server, {}, {"tokens": [], "workloads": [], "volumes": [], "ended": [], "file": ["swagger-ui.css"]})
    tokens = {"admin": admin["token"]}
    for name, group in (("lab", "lab"), (MARK, f"{MARK}-group")):
        user = f"{name}-user"
        ask("PUT", f"/v1/groups/{group}", {"name": group})
        ask("PUT", f"/v1/users/{user}", {"name": user, "groups": [{"name": group, "policy": "pwm.all"}]})
        token = tokens[name] = ask("POST", "/v1/tokens", {"user": user, "description": f"{name} first"})["token"]
        made: dict[str, list[str]] = {"tokens": [], "workloads": [], "volumes": [], "ended": []}
        for number in range(3):
            body = {"description": f"{name} {number}"}
            made["tokens"].append(ask("POST", "/v1/tokens", body, token)["id"])
            body = {"name": f"{name}-volume-{number}", "size": "1Mi"}
            made["volumes"].append(ask("POST", "/v1/volumes", body, token)["id"])
            for kind, run in (("job", "sleep 600"), ("past", f"'echo {name}; exit 3'")):
                text = TASK.format(f"{name}-{kind}-{number}", name, SECRET, run)
                job = ask("POST", "/v1/workloads", {"text": text}, token)["id"]
                made["workloads" if kind == "job" else "ended"].append(job)
        for kind in ("Storage", "Node"):
            [text] = [text for text in town.texts() if f"kind: {kind}\n" in text and f"{name}-" in text]
            ask("POST", "/v1/apply", {"text": text})
        for job in made["ended"]:
            server.ended(job)
        made["workloads"] += made["ended"]
        town.marks |= {each for ids in made.values() for each in ids} if name == MARK else set()
        for kind, ids in made.items():
            town.names[kind] += ids
        town.names["workloads"].append(f"{name}-job-0")
        town.names["volumes"].append(f"{name}-volume-0")
        for kind, there in (
            ("users", user),
            ("groups", group),
            ("storages", f"{name}-storage"),
            ("nodes", f"{name}-node"),
        ):
            town.names.setdefault(kind, []).append(there)
    if role != "anonymous":
        town.headers = {"Authorization": f"Bearer {tokens['admin' if role == 'admin' else 'lab']}"}
    return town


@pytest.fixture(scope="module", params=ROLES)
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def town(role: str) -> Iterator[Town]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    place.chmod(0o711)
    server = start_server(place)
    yield built(server, role)
    server.end()
    shutil.rmtree(place)


def filled(case: Any, town: Town, draw: Callable[[Any], Any]) -> None:
    """Often what is there in the place of what was made up, and nothing that waits."""
    path = case.operation.path
    for name in case.path_parameters or ():
        if (pool := town.pool(path, name)) and draw(st.integers(0, 3)):
            case.path_parameters[name] = draw(st.sampled_from(pool))
    if path.endswith("/wait"):
        case.query = {**(case.query or {}), "timeout": 0}
    for name in ("wait", "timeout", "follow"):
        if case.query and name in case.query:
            case.query[name] = "false" if name == "follow" else 0
    choices = {"group": town.names["groups"], "user": town.names["users"], "name": town.pool(path, "name")}
    for name, pool in choices.items():
        if case.query and name in case.query and pool:
            if there := draw(st.sampled_from([None, *pool])):
                case.query[name] = there
            elif name == "group":
                del case.query[name]
    if isinstance(case.body, dict):
        if "text" in case.body and draw(st.integers(0, 3)):
            case.body["text"] = draw(st.sampled_from(town.texts()))
        if "size" in case.body and draw(st.booleans()):
            case.body["size"] = "2Mi"
        if "name" in case.body and case.path_parameters and draw(st.booleans()):
            case.body["name"] = case.path_parameters.get("name", "new")


def refuse_leaks(role: str, town: Town, case: Any, answer: Any) -> None:
    """What the caller named themselves may be repeated to them."""
    sent = unquote_plus(answer.request.url) + json.dumps(case.body, default=str, ensure_ascii=False)
    told = [mark for mark in town.marks if mark in answer.text and mark not in sent]
    assert role == "admin" or not told, (told, answer.text)
    assert SECRET not in answer.text, answer.text


# Not schemathesis' own way to make a test of each: those have all the same name, and beside others only one is run.
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_answer_is_what_the_document_says_and_nothing_of_others(operation, town, role):
    if role == "admin" and operation.label in ENDS_THE_SERVER:
        return  # it would do so
    public = NEEDS[operation.method.upper(), operation.path][0] is Verb.public
    seen: set[int] = set()

    with requests.Session() as session:

        @given(case=st.one_of(operation.as_strategy(generation_mode=mode) for mode in MODES), data=st.data())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Any, data: Any) -> None:
            filled(case, town, data.draw)
            answer = case.call(base_url=town.server.address, session=session, headers=town.headers, timeout=60)
            seen.add(answer.status_code)
            assert answer.status_code < 500, (answer.status_code, answer.text)
            refuse_leaks(role, town, case, answer)
            if role == "anonymous" and not public:
                assert answer.status_code in (401, *UNREAD), (answer.status_code, answer.text)
            case.validate_response(answer, checks=TRUE)

        ask()
    if role != "anonymous" and "{" in operation.path and not takes_away(operation):
        assert seen - {404, 422}, "what is there was never met"


@pytest.mark.parametrize("path", sorted({path for _, path in NEEDS}))
def test_a_method_that_an_address_does_not_take_is_refused_with_those_it_takes(module_server, path):
    takes = {method for method, known in NEEDS if known == path}
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - takes:
        answer = requests.request(method, module_server.address + path.replace("{", "").replace("}", ""), timeout=60)
        if answer.status_code != 401:  # where another address has the same shape, it is that one's
            assert answer.status_code == 405, (method, answer.text)
            assert answer.json()["code"] == "bad_request"
            assert answer.headers["Allow"], method
