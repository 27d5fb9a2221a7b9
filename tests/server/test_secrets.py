"""The value of a secret goes into the job and never out of the server again, whoever asks and however."""

from __future__ import annotations

import json
import sqlite3
from itertools import product
from typing import Any

import pytest

from penstock.server.app import create_app
from penstock.settings import Settings
from tests.server.test_attempts import until
from tests.server.test_people import a_user
from tests.server.test_roles import CLAIM, ENDS_THE_SERVER, QUERIES, SOCKETS, House, house

__all__ = ["house"]

VALUE = "hunter2-and-nobody-knows"
TASK = f"name: {{}}\nsecrets: {{{{LICENCE: {VALUE}}}}}\nrun: {{}}\n"
DOCUMENT = """apiVersion: v1
kind: Workload
metadata: {name: NAME, group: lab}
spec: {driver: pwm.docker, config: {secrets: {LICENCE: VALUE}}, run: sleep 600}
"""
ROUTES = sorted(
    (method.upper(), path) for path, found in create_app(Settings()).openapi()["paths"].items() for method in found
)
LOOKS = {"Workload": ["describe", "apply", "cancel"], "Volume": ["get", "apply"], "GPU": ["get"], "Storage": ["get"]}


@pytest.fixture(scope="module")
def vault(house: House) -> dict[str, str]:
    """Workloads with a secret, by name: one that runs and one that has failed."""
    a_user(house, "colleague", [{"name": "lab", "policy": LOOKS}])
    ids = {}
    for name, run in (("vault", "sleep 600"), ("spent", "'false'")):
        status, made = house.ask("has", "POST", "/v1/workloads", {"text": TASK.format(name, run)})
        assert status == 201, made
        ids[name] = made["id"]
    until(house.server, ids["vault"], lambda found: found["state"] == "RUNNING")
    until(house.server, ids["spent"], lambda found: found["state"] == "CRASHED")
    return ids


def bodies(method: str, path: str) -> list[Any]:
    """What is sent to a route that takes texts: the same again, another value, and a file of many."""
    if method not in ("POST", "PUT"):
        return [None]
    texts = [TASK.format("vault", "sleep 600"), TASK.format("vault", "sleep 601"), DOCUMENT.replace("NAME", "vault")]
    texts += [text.replace(VALUE, f"{VALUE}-2").replace("VALUE", f"{VALUE}-2") for text in texts]
    if path == "/v1/workloads":
        return [{"text": text, "dry_run": True} for text in texts[:2]] + [{"text": "run: [", "envs": {"A": VALUE}}]
    if path in ("/v1/apply", "/v1/stop", "/v1/delete", "/v1/convert"):
        gone = [text.replace("vault", "never") for text in texts]
        asked = [{"text": text} for text in (gone if path in ("/v1/stop", "/v1/delete") else texts)]
        if path == "/v1/apply":
            asked += [{"text": text.replace("vault", "fresh"), "dry_run": True} for text in texts]
        if path == "/v1/convert":
            asked += [each | {"to": to} for each in asked for to in ("task", "document", "kubernetes")]
        return asked
    if path == "/tasks/submit":
        return [{"name": "json", "secrets": {"LICENCE": VALUE}, "run": "true", "nodes": VALUE}]
    return [{"text": CLAIM} if path == "/v1/delete" else {}]


def tells(method: str, path: str) -> bool:
    """Neither takes the thing away nor gives what its program writes."""
    takes = method == "DELETE" or path.endswith(("tasks/stop", "workloads/stop")) or (method, path) in ENDS_THE_SERVER
    return not takes and path not in SOCKETS and not path.endswith(("/logs", "}/stop"))


@pytest.mark.parametrize(("method", "path"), [each for each in ROUTES if tells(*each)])
def test_no_route_gives_out_the_value_of_a_secret(house, vault, method, path):
    more = QUERIES.get(path, "") or ("?timeout=0" if path.endswith("/wait") else "")
    for id_ in vault.values():
        address = path.replace("{ref}", id_).replace("{task_id}", id_)
        for user, body in product(("has", "colleague", "sees", "sees-all", "admin"), bodies(method, path)):
            _, answer = house.ask(user, method, address + more, body)
            assert VALUE not in (answer if isinstance(answer, str) else json.dumps(answer)), (body, answer)


def applied(house: House, user: str, text: str, **more: Any) -> tuple[int, Any]:
    return house.ask(user, "POST", "/v1/apply", {"text": text, "source": "a.yaml"} | more)


def written(house: House, name: str) -> str:
    status, answer = house.ask("has", "GET", f"/v1/documents?kind=Workload&name={name}")
    assert status == 200, answer
    return str(answer["items"][0]["text"])


def test_what_is_written_back_names_the_secret_and_keeps_its_value(house, vault):
    text = written(house, "vault")
    assert "secrets:\n      LICENCE: null\n" in text
    for user in ("has", "colleague"):
        status, answer = applied(house, user, text)
        assert (status, answer["results"][0]["result"]) == (200, "not changed"), answer


def test_a_secret_without_a_value_is_an_error_where_none_is_kept(house, vault):
    text = written(house, "vault")
    status, answer = applied(house, "has", text.replace("LICENCE", "OTHER"))
    assert status == 422, answer
    [problem] = answer["problems"]
    assert (problem["field"], problem["message"]) == ("spec.config.secrets.OTHER", "has no value, and none is kept")
    for name in ("name: another\n", "name: vault\n"):
        task = f"{name}secrets: {{LICENCE: }}\nrun: sleep 600\n"
        status, answer = house.ask("has", "POST", "/v1/workloads", {"text": task, "source": "t.yaml"})
        assert status == 422, answer
        [problem] = answer["problems"]
        assert (problem["where"], problem["field"]) == ("t.yaml:2:11", "secrets.LICENCE")
    assert applied(house, "has", "name: another\nsecrets: {LICENCE: }\nrun: 'true'\n")[0] == 422


@pytest.mark.parametrize(
    "text",
    [
        "name: vault\nsecrets: {LICENCE: '***'}\nrun: sleep 600\n",
        DOCUMENT.replace("NAME", "vault").replace("VALUE", "'***'"),
    ],
)
def test_a_mask_that_is_sent_back_does_not_become_the_value(house, vault, text):
    for name in ("vault", "a-new-one"):
        status, answer = applied(house, "has", text.replace("vault", name))
        assert status == 422, answer
        assert answer["problems"][0]["field"].endswith("secrets.LICENCE")
        assert "is what is shown in place of a value" in answer["problems"][0]["message"]


def test_the_value_may_come_with_the_command_line_and_is_as_secret(house):
    text = "name: given\nsecrets: {LICENCE: }\nrun: test $LICENCE = hunter2-and-nobody-knows\n"
    status, job = house.ask("has", "POST", "/v1/workloads", {"text": text, "envs": {"LICENCE": VALUE}})
    assert status == 201, job
    assert job["spec"]["envs"] == {"LICENCE": "***"}
    assert house.server.ended(job["id"])["state"] == "EXITED"
    masked = {"text": text, "envs": {"LICENCE": "***"}}
    assert house.ask("has", "POST", "/v1/workloads", masked)[0] == 422


def test_another_attempt_has_the_value_again(house):
    text = f'name: twice\nsecrets: {{LICENCE: {VALUE}}}\nrun: test "$LICENCE" = hunter2-and-n"obody-knows" && exit 7\n'
    _, job = house.ask("has", "POST", "/v1/workloads", {"text": text})
    assert house.server.ended(job["id"])["exit_code"] == 7
    status, again = house.ask("has", "POST", f"/v1/workloads/{job['id']}/retry", {})
    assert status == 200, again
    until(house.server, job["id"], lambda found: found["attempt"] == 2 and found["ended_at"])
    assert house.server.ended(job["id"])["exit_code"] == 7


def test_what_has_ended_lends_its_value_to_its_owner_alone(house, vault):
    """Else who may only run jobs in a group would have a program of theirs print what a colleague's job was given."""
    steals = "name: spent\nsecrets: {LICENCE: }\nrun: echo $LICENCE\n"
    status, answer = applied(house, "colleague", steals)
    assert (status, answer["problems"][0]["field"]) == (422, "secrets.LICENCE"), answer
    status, answer = applied(house, "has", "name: spent\nsecrets: {LICENCE: }\nrun: test -n $LICENCE\n")
    assert status == 200, answer
    assert house.server.ended(answer["results"][0]["id"])["state"] == "EXITED"


def test_no_message_or_event_repeats_the_value(house, vault):
    """What an engine says of a job may quote what the job was started with."""
    data = house.ask("admin", "GET", "/v1/server")[1]["data_dir"]
    with sqlite3.connect(f"{data}/penstock.db", timeout=30) as database:
        said = f"could not be started with LICENCE={VALUE}"
        database.execute("UPDATE history SET message = ? WHERE workload_id = ?", (said, vault["spent"]))
    database.close()
    for path in ("", "/events"):
        _, answer = house.ask("colleague", "GET", f"/v1/workloads/{vault['spent']}{path}")
        assert "could not be started with LICENCE=***" in json.dumps(answer)
        assert VALUE not in json.dumps(answer)
