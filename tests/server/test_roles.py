"""Every route, asked by everyone: nobody, a bad token, a stranger, members with and without the verb, with it alone,
one in no group, another group's admin, one who sees all groups, the admin. What is asked about is there."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.policy import INFRASTRUCTURE_RIGHTS, PERSONAL_RIGHTS, SERVER_KINDS, Kind, Verb, rights_of_policy
from penstock.server.permissions import NEEDS
from penstock.services.people.tokens import hashed
from tests.running import RunningServer, start_server

ASKED = sorted(key for key, need in NEEDS.items() if need[0] is not Verb.public)
ENDS_THE_SERVER = (("POST", "/v1/server/stop"), ("POST", "/v1/server/restart"))
OF_THINGS = {"ref", "task_id", "volume_id"}
SOCKETS = ("/v1/workloads/{ref}/exec", "/v1/workloads/{ref}/connect", "/v1/volumes/{ref}/shell")
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
NODE = "kind: Node\napiVersion: v1\nmetadata: {{name: {}, group: lab}}\nspec: {{address: 'unix:///none/{}.sock'}}\n"
STORAGE = (
    "kind: Storage\napiVersion: v1\nmetadata: {{name: {}, group: lab}}\n"
    "spec: {{kind: nfs, nfs: {{server: 10.0.0.1, path: /{}}}}}\n"
)
ALONE = {
    Verb.get: "get",
    Verb.create: "apply",
    Verb.update: "apply",
    Verb.delete: "delete",
    Verb.stop: "cancel",
    Verb.logs: "logs",
    Verb.inspect: "inspect",
    Verb.exec: "shell",
}
"""The word that gives a verb and as little else as possible."""
HELLO = "name: hello\nrun: 'true'\n"
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claimed}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
BODIES: dict[str, Any] = {
    "/v1/volumes": {"name": "fresh", "size": "1Gi"},
    "/volumes/create": {"name": "fresh", "size": "1Gi"},
    "/v1/volumes/{ref}/resize": {"size": "2Gi"},
    "/v1/workloads": {"text": HELLO, "dry_run": True},
    "/v1/apply": {"text": CLAIM, "dry_run": True},
    "/v1/delete": {"text": CLAIM},
    "/v1/convert": {"text": HELLO},
    "/v1/users/{name}": {"name": "someone"},
    "/v1/groups/{name}": {"name": "someone"},
}
QUERIES = {"/v1/workloads/{ref}/connect": "?port=8888", "/v1/documents": "?kind=Workload"}
MEMBERS = {
    "has": [{"name": "lab", "policy": "pwm.all"}],
    "sees": [{"name": "lab", "policy": {"Workload": ["get"], "Volume": ["get"], "Storage": ["get"], "GPU": ["get"]}}],
    "blind": [{"name": "lab", "policy": {"Node": ["use"]}}],
    "rules-other": [{"name": "other", "policy": "pwm.all"}],
    "alone": [],
    "sees-all": [
        {"name": "other", "policy": "pwm.all"},
        {"name": "pwm.all", "policy": {kind: ["get"] for kind in ("Workload", "Volume", "Storage", "Node")}},
    ],
}


@dataclass
class House:
    """A server with an admin, two groups and people in them."""

    server: RunningServer
    tokens: dict[str, str]

    def ask(self, user: str | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.tokens[user]}"} if user else {}
        if any(path.partition("?")[0].endswith(each.rpartition("}")[2]) for each in SOCKETS):
            headers |= UPGRADE
        return self.server.tcp(method, path, body, headers)

    def filled(self, path: str, *, there: bool = True) -> str:
        """The address of a thing of the lab's that was just made, or of one that never was."""
        thing = self.made(path) if there and "{" in path else "zzzzzzzz"
        return re.sub(r"\{[a-z_]+\}", thing, path) + QUERIES.get(path, "")

    def made(self, path: str) -> str:
        """Something new that the route is about, or a kind of it: how it is named in an address."""
        name = f"thing{len(self.things)}"
        if "users" in path or "groups" in path:
            kind = "users" if "users" in path else "groups"
            status, thing = self.ask("admin", "PUT", f"/v1/{kind}/{name}", {"name": name})
        elif "nodes" in path or "storages" in path:
            text = (NODE if "nodes" in path else STORAGE).format(name, name)
            status, thing = self.ask("admin", "POST", "/v1/apply", {"text": text})
        elif "tokens" in path:
            status, thing = self.ask("has", "POST", "/v1/tokens", {})
            name = thing["id"]
        elif "volumes" in path:
            status, thing = self.ask("has", "POST", "/v1/volumes", {"name": name, "size": "1Mi"})
            name = thing["id"]
        else:
            status, thing = self.ask("has", "POST", "/v1/workloads", {"text": f"name: {name}\nrun: 'true'\n"})
            name = thing["id"]
        assert status in (200, 201), thing
        self.things.append(name)
        return str(name)

    def __post_init__(self) -> None:
        self.things: list[str] = []


def a_strangers_token(place: Path) -> str:
    """One of a name that nobody wrote down, as only a database of an older server may have it."""
    secret = "pst_of-a-stranger"
    row = ("tstranger", "stranger", False, hashed(secret), "", 0)
    with closing(sqlite3.connect(place / "data" / "penstock.db", timeout=30)) as db, db:
        columns = "id, user_name, runs_server, hash, description, created_at"
        db.execute(f"INSERT INTO tokens ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
    return secret


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    place.chmod(0o711)
    server = start_server(place)
    status, first = server.request("POST", "/v1/adm/init", {})
    assert status == 201, first
    house = House(server, {"admin": first["token"], "bad": "pst_wrong", "stranger": a_strangers_token(place)})
    for group in ("lab", "other"):
        assert house.ask("admin", "PUT", f"/v1/groups/{group}", {"name": group})[0] == 200
    for name, groups in MEMBERS.items():
        assert house.ask("admin", "PUT", f"/v1/users/{name}", {"name": name, "groups": groups})[0] == 200
    for name in MEMBERS:
        _, made = house.ask("admin", "POST", "/v1/tokens", {"user": name})
        house.tokens[name] = made["token"]
    yield house
    server.end()
    shutil.rmtree(place)


def body_of(method: str, path: str) -> Any:
    return BODIES.get(path, {}) if method in ("POST", "PUT") else None


def is_of_a_thing(path: str) -> bool:
    return any(f"{{{name}}}" in path for name in OF_THINGS)


def is_done(method: str, path: str) -> bool:
    """A policy in a group can give the right to it."""
    return NEEDS[method, path] not in INFRASTRUCTURE_RIGHTS and NEEDS[method, path][1] not in SERVER_KINDS


@pytest.mark.parametrize(("method", "path"), ASKED)
def test_nobody_and_bad_tokens_are_asked_who_they_are(house, method, path):
    for user in (None, "bad"):
        status, answer = house.ask(user, method, house.filled(path, there=False), body_of(method, path))
        assert (status, answer["code"]) == (401, "unauthenticated"), user


@pytest.mark.parametrize(("method", "path"), ASKED)
def test_a_stranger_may_nothing(house, method, path):
    status, answer = house.ask("stranger", method, house.filled(path), body_of(method, path))
    assert (status, answer["code"]) == (403, "forbidden"), answer


@pytest.mark.parametrize(("method", "path"), [key for key in ASKED if NEEDS[key] not in PERSONAL_RIGHTS])
def test_a_member_without_the_verb_is_refused(house, method, path):
    verb, _ = NEEDS[method, path]
    user = "blind" if verb is Verb.get else "sees"
    status, answer = house.ask(user, method, house.filled(path), body_of(method, path))
    assert (status, answer["code"]) == (403, "forbidden"), answer


@pytest.mark.parametrize(("method", "path"), ASKED)
def test_one_who_is_in_no_group_may_what_is_their_own_and_nothing_else(house, method, path):
    there = house.filled(path)
    status, answer = house.ask("alone", method, there, body_of(method, path))
    if NEEDS[method, path] not in PERSONAL_RIGHTS:
        assert (status, answer["code"]) == (403, "forbidden"), answer
    elif NEEDS[method, path][1] is Kind.Token:
        assert status in (200, 201, 404), answer
    else:
        assert status not in (401, 500), answer
        assert not any(thing in str(answer) for thing in house.things if thing not in there)


@pytest.mark.parametrize(("method", "path"), ASKED)
def test_a_member_with_the_verb_is_let_in(house, method, path):
    status, answer = house.ask("has", method, house.filled(path), body_of(method, path))
    if NEEDS[method, path] not in PERSONAL_RIGHTS and not is_done(method, path):
        assert (status, answer["code"]) == (403, "forbidden"), "what is the server's is no group's"
        return
    assert status not in (401, 403, 500), answer
    if is_of_a_thing(path) or "{token_id}" in path:
        assert status != 404, answer


@pytest.mark.parametrize(("method", "path"), [key for key in ASKED if is_done(*key)])
def test_the_verb_alone_is_enough_and_gives_no_other(house, method, path):
    verb, kind = NEEDS[method, path]
    user = f"only-{ALONE[verb]}-{kind}".lower()
    if user not in house.tokens:
        groups = [{"name": "lab", "policy": {kind: [ALONE[verb]]}}]
        assert house.ask("admin", "PUT", f"/v1/users/{user}", {"name": user, "groups": groups})[0] == 200
        house.tokens[user] = house.ask("admin", "POST", "/v1/tokens", {"user": user})[1]["token"]
    status, answer = house.ask(user, method, house.filled(path), body_of(method, path))
    assert status not in (401, 403, 404, 500), answer
    others = [key for key in ASKED if is_done(*key) and NEEDS[key] not in rights_of_policy({kind: [ALONE[verb]]})]
    for method, path in others:
        status, answer = house.ask(user, method, house.filled(path, there=False), body_of(method, path))
        assert (status, answer["code"]) == (403, "forbidden"), (method, path)


@pytest.mark.parametrize(("method", "path"), ASKED)
def test_to_another_groups_admin_a_thing_is_like_one_that_is_not_there(house, method, path):
    there, body = house.filled(path), body_of(method, path)
    status, answer = house.ask("rules-other", method, there, body)
    assert status != 500
    if "{" in path:
        thing = house.things[-1]
        missing = house.ask("rules-other", method, there.replace(thing, "zzzzzzzz"), body)
        assert status in (400, 403, 404), answer
        assert (status, str(answer).replace(thing, "zzzzzzzz")) == (missing[0], str(missing[1]))
    else:
        assert not any(thing in str(answer) for thing in house.things)


@pytest.mark.parametrize(("method", "path"), [key for key in ASKED if key[0] == "GET" and "{" not in key[1]])
@pytest.mark.parametrize("more", ["all_users=true", "everything=true", "group=pwm.all"])
def test_nobody_sees_more_by_asking_for_all(house, method, path, more):
    there = house.filled(path)
    asked = f"{there}{'&' if '?' in there else '?'}{more}"
    for kind in ("/v1/workloads", "/v1/volumes"):
        house.made(kind)
    for user in ("rules-other", "alone", "blind"):
        status, answer = house.ask(user, method, asked)
        assert status in (200, 403, 404), answer
        assert not any(thing in str(answer) for thing in house.things), user


@pytest.mark.parametrize(("method", "path"), [key for key in ASKED if is_done(*key)])
def test_one_who_only_sees_all_groups_does_nothing_in_them(house, method, path):
    status, answer = house.ask("sees-all", method, house.filled(path), body_of(method, path))
    if NEEDS[method, path][0] is Verb.get:
        assert status not in (401, 403, 500), answer
    elif "{" in path:
        assert status in (403, 404), answer
    everyone = house.ask("sees-all", method, f"{path}?all_users=true", body_of(method, path))
    if method == "POST" and path.endswith("/stop") and "{" not in path:
        assert everyone[0] == 403


@pytest.mark.parametrize("path", ["/v1/apply", "/v1/delete", "/v1/stop"])
def test_of_a_text_each_document_takes_its_own_verb(house, path):
    text = TOGETHER.partition("---")[0].replace("newcomers", "lab")
    if path != "/v1/apply":
        assert house.ask("has", "POST", "/v1/apply", {"text": text})[0] == 200
    for user in ("sees", "blind", "alone", "rules-other"):
        status, answer = house.ask(user, "POST", path, {"text": text})
        results = {each["result"] for each in answer.get("results", ())}
        assert status in (403, 422) or results <= {"failed", "not present"}, answer
    status, answer = house.ask("has", "POST", path, {"text": text})
    assert (status, len(answer["results"])) == (200, 1)
    assert answer["results"][0]["result"] not in ("failed", "not present")


@pytest.mark.parametrize(("method", "path"), [key for key in ASKED if key not in ENDS_THE_SERVER])
def test_the_admin_may_everything(house, method, path):
    status, answer = house.ask("admin", method, house.filled(path), body_of(method, path))
    assert status not in (401, 403, 500), answer
    if "{" in path:
        assert status != 404, answer


def test_a_group_is_named_only_to_its_members(house):
    status, listed = house.ask("has", "GET", "/v1/workloads?group=lab")
    assert status == 200
    assert all(item["group"] == "lab" for item in listed["items"])
    not_theirs = house.ask("has", "GET", "/v1/workloads?group=other")
    not_there = house.ask("has", "GET", "/v1/workloads?group=nosuch")
    assert not_theirs[0] == not_there[0] == 404
    assert str(not_theirs[1]).replace("other", "nosuch") == str(not_there[1])


def test_documents_are_written_for_those_who_may_see_the_thing(house):
    name = house.ask("admin", "GET", f"/v1/workloads/{house.made('workloads')}?group=lab")[1]["name"]
    texts = {user: house.ask(user, "GET", "/v1/documents?kind=Workload&limit=500") for user in ("sees", "rules-other")}
    assert any(f"name: {name}\n  group: lab\n" in item["text"] for item in texts["sees"][1]["items"])
    assert texts["rules-other"] == (200, texts["rules-other"][1] | {"items": []})
    not_theirs = house.ask("rules-other", "GET", f"/v1/documents?kind=Workload&name={name}")
    not_there = house.ask("rules-other", "GET", "/v1/documents?kind=Workload&name=nosuch")
    assert not_theirs[0] == not_there[0] == 404
    assert str(not_theirs[1]).replace(name, "nosuch") == str(not_there[1])
    for kind in ("Workload", "Volume", "Storage"):
        assert house.ask("blind", "GET", f"/v1/documents?kind={kind}")[0] == 403
    for kind, theirs in (("User", ["blind"]), ("Group", ["lab"])):
        _, seen = house.ask("blind", "GET", f"/v1/documents?kind={kind}")
        assert [item["name"] for item in seen["items"]] == theirs


def test_who_sees_a_thing_and_may_not_do_it_is_told_so(house):
    status, answer = house.ask("sees", "DELETE", f"/v1/workloads/{house.made('workloads')}")
    assert (status, answer["message"]) == (403, "You may not delete workloads in any of your groups.")


def test_a_deactivated_user_is_refused_everywhere_and_let_in_again(house):
    gone = {"name": "leaver", "groups": MEMBERS["has"]}
    assert house.ask("admin", "PUT", "/v1/users/leaver", gone)[0] == 200
    _, made = house.ask("admin", "POST", "/v1/tokens", {"user": "leaver"})
    house.tokens["leaver"] = made["token"]
    assert house.ask("leaver", "GET", "/v1/workloads")[0] == 200
    assert house.ask("admin", "PUT", "/v1/users/leaver", gone | {"active": False})[0] == 200
    for path in ("/v1/workloads", "/v1/whoami", "/v1/tokens"):
        status, answer = house.ask("leaver", "GET", path)
        assert (status, answer["message"]) == (403, "leaver is deactivated.")
    assert house.ask("admin", "PUT", "/v1/users/leaver", gone)[0] == 200
    assert house.ask("leaver", "GET", "/v1/workloads")[0] == 200


@pytest.mark.parametrize("words", [("exec", "{}", "sleep", "1000"), ("jobs", "logs", "{}", "--follow")])
def test_a_deactivated_user_is_shown_out(house, words):
    """Of a shell or a log they are in; what they run goes on."""
    leaver = {"name": f"gone-{words[0]}", "groups": MEMBERS["has"]}
    house.ask("admin", "PUT", f"/v1/users/{leaver['name']}", leaver)
    _, made = house.ask("admin", "POST", "/v1/tokens", {"user": leaver["name"]})
    _, job = house.ask("has", "POST", "/v1/workloads", {"text": "run: while sleep 0.1; do echo on; done\n"})
    while house.ask("has", "GET", f"/v1/workloads/{job['id']}")[1]["status"] != "running":
        time.sleep(0.1)
    known = {"PENSTOCK_API_URL": house.server.address, "PENSTOCK_TOKEN": made["token"]}
    command = [sys.executable, "-m", "penstock.cli", *(word.format(job["id"]) for word in words)]
    with subprocess.Popen(command, env=house.server.environ | known, stdout=-1, stderr=-1, text=True) as program:
        if words[0] == "exec":
            while not any(
                line["user"] == leaver["name"] for line in house.ask("admin", "GET", "/v1/audit")[1]["items"]
            ):
                assert program.poll() is None
                time.sleep(0.1)
        else:
            assert program.stdout.readline() == "on\n"
        assert house.ask("admin", "PUT", f"/v1/users/{leaver['name']}", leaver | {"active": False})[0] == 200
        _, said = program.communicate(timeout=60)
    assert program.returncode == (125 if words[0] == "exec" else 4)
    assert f"{leaver['name']} is deactivated" in said or "You may not run programs in workloads any more." in said
    assert house.ask("admin", "GET", f"/v1/workloads/{job['id']}")[1]["status"] == "running"


def test_the_last_admin_can_neither_be_deactivated_nor_deleted(house):
    _, me = house.ask("admin", "GET", "/v1/whoami")
    _, admin = house.ask("admin", "GET", f"/v1/users/{me['user']}")
    for method, body in (("PUT", admin | {"active": False}), ("PUT", admin | {"groups": []}), ("DELETE", None)):
        status, answer = house.ask("admin", method, f"/v1/users/{me['user']}", body)
        assert (status, answer["message"]) == (409, "Nobody would be an admin any more.")
    assert house.ask("admin", "GET", "/v1/audit")[0] == 200


def test_the_first_admin_is_made_once(house):
    status, answer = house.server.request("POST", "/v1/adm/init", {"user": "second"})
    assert (status, answer["message"]) == (409, "This server already has an admin.")


def test_words_nobody_knows_are_refused_all_at_once(house):
    wrong = {"name": "x", "groups": [{"name": "lab", "policy": {"Workloads": ["get"], "Volume": ["read", "get"]}}]}
    status, answer = house.ask("admin", "PUT", "/v1/users/x", wrong)
    assert status == 422
    assert [(p["field"], p["message"]) for p in answer["problems"]] == [
        ("groups.0.policy.Workloads", "'Workloads' is not a kind"),
        ("groups.0.policy.Volume", "'read' is not a verb"),
    ]
    assert house.ask("admin", "GET", "/v1/users/x")[0] == 404


def test_who_did_what_is_kept_and_only_admins_read_it(house):
    thing = house.made("volumes")
    house.ask("has", "DELETE", f"/v1/volumes/{thing}")
    looks = {"name": "looks", "groups": MEMBERS["sees"]}  # of those above so many were refused that the rest is counted
    assert house.ask("admin", "PUT", "/v1/users/looks", looks)[0] == 200
    house.tokens["looks"] = house.ask("admin", "POST", "/v1/tokens", {"user": "looks"})[1]["token"]
    house.ask("looks", "POST", "/v1/volumes", BODIES["/v1/volumes"])
    status, listed = house.ask("admin", "GET", "/v1/audit?limit=500")
    assert status == 200
    lines = [(e["user"], e["verb"], e["kind"], e["id"], e["result"]) for e in listed["items"]]
    assert lines.index(("has", "delete", "Volume", thing, "done")) < lines.index(
        ("has", "create", "Volume", thing, "done")
    )
    _, listed = house.ask("admin", "GET", "/v1/audit?user=looks")
    assert {"looks", "create", "Volume", "denied"} in [
        {e["user"], e["verb"], e["kind"], e["result"]} for e in listed["items"]
    ]
    assert house.ask("has", "GET", "/v1/audit")[0] == 403


def test_a_token_never_outlives_the_one_it_was_made_with(house):
    _, short = house.ask("admin", "POST", "/v1/tokens", {"user": "has", "expires": "1h"})
    house.tokens["short"] = short["token"]
    for asked in ({}, {"expires": "30d"}):
        _, longer = house.ask("short", "POST", "/v1/tokens", asked)
        assert longer["expires_at"] == short["expires_at"]


def test_rotating_a_token_locks_nobody_out(house):
    _, old = house.ask("admin", "POST", "/v1/tokens", {"user": "has", "description": "ci"})
    status, new = house.ask("has", "POST", f"/v1/tokens/{old['id']}/rotate")
    assert (status, new["description"]) == (201, "ci")
    house.tokens |= {"old": old["token"], "new": new["token"]}
    assert house.ask("old", "GET", "/v1/whoami")[0] == house.ask("new", "GET", "/v1/whoami")[0] == 200
    _, listed = house.ask("has", "GET", "/v1/tokens?description=ci")
    ends = {token["id"]: token["expires_at"] for token in listed["items"]}
    assert ends[old["id"]] is not None
    assert ends[new["id"]] is None
    assert house.ask("sees", "POST", f"/v1/tokens/{new['id']}/rotate")[0] == 404


TOGETHER = """\
kind: Workload
apiVersion: v1
metadata: {name: first, group: newcomers}
spec: {driver: pwm.docker, run: sleep 60}
---
kind: Volume
apiVersion: v1
metadata: {name: data, group: newcomers}
spec: {size: 1Mi}
---
kind: User
apiVersion: v1
metadata: {name: newcomer}
spec: {groups: [{name: newcomers, policy: pwm.all}]}
---
kind: Group
apiVersion: v1
metadata: {name: newcomers}
"""


def test_a_group_may_come_with_what_is_in_it_and_go_with_it(house):
    body = {"text": TOGETHER, "source": "together.yaml"}

    def done(path: str) -> list[tuple[str, str]]:
        status, answer = house.ask("admin", "POST", path, body)
        assert status == 200, answer
        return [(one["kind"], one["result"]) for one in answer["results"]]

    all_of_it = ["Group", "User", "Volume", "Workload"]
    assert done("/v1/apply") == [(kind, "created") for kind in all_of_it]
    assert done("/v1/apply") == [(kind, "not changed") for kind in all_of_it]
    assert done("/v1/delete") == [(kind, "deleted") for kind in reversed(all_of_it)]
    assert done("/v1/delete") == [(kind, "not present") for kind in reversed(all_of_it)]
    assert dict(done("/v1/stop"))["Workload"] == "not present"


def test_a_group_that_is_not_there_or_not_ones_own_is_a_problem_of_its_document(house):
    body = {"text": TOGETHER.partition("---\nkind: User")[0], "source": "together.yaml"}
    status, answer = house.ask("has", "POST", "/v1/apply", body)
    assert status == 422
    assert [(p["where"], p["field"], p["message"]) for p in answer["problems"]] == [
        ("together.yaml:3:32", "metadata.group", "Group newcomers not found"),
        ("together.yaml:8:31", "metadata.group", "Group newcomers not found"),
    ]
    of_another = house.ask("has", "POST", "/v1/apply", body | {"text": body["text"].replace("newcomers", "other")})
    assert str(of_another[1]).replace("other", "newcomers") == str(answer)
