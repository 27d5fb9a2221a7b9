"""Users, groups and tokens: who can be given one, and what must be gone before a group is."""

from __future__ import annotations

from typing import Any

from tests.server.test_roles import House, house

__all__ = ["house"]

EVERYTHING = [{"name": "pwm.all", "policy": "pwm.all"}]


def a_group(house: House, name: str) -> None:
    assert house.ask("admin", "PUT", f"/v1/groups/{name}", {"name": name})[0] == 200


def a_user(house: House, name: str, groups: list[dict[str, Any]]) -> None:
    assert house.ask("admin", "PUT", f"/v1/users/{name}", {"name": name, "groups": groups})[0] == 200
    house.tokens[name] = house.ask("admin", "POST", "/v1/tokens", {"user": name})[1]["token"]


def test_a_group_stays_while_something_of_it_is_alive(house):
    a_group(house, "leaving")
    job = {"text": "name: train\nrun: sleep 600\n"}
    _, running = house.ask("admin", "POST", "/v1/workloads?group=leaving", job)
    _, volume = house.ask("admin", "POST", "/v1/volumes?group=leaving", {"name": "data", "size": "1Mi"})
    status, answer = house.ask("admin", "DELETE", "/v1/groups/leaving")
    assert status == 409
    assert answer["message"] == (
        f"Group leaving has workloads that have not ended: train ({running['id']}); and volumes: data ({volume['id']})."
    )
    assert answer["hint"] == "First penstock stop NAME -g leaving, then penstock delete vol NAME -g leaving"
    house.ask("admin", "POST", f"/v1/workloads/{running['id']}/stop")
    assert house.ask("admin", "GET", f"/v1/workloads/{running['id']}/wait?timeout=60")[1]["ended_at"]
    status, answer = house.ask("admin", "DELETE", "/v1/groups/leaving")
    assert (status, answer["message"]) == (
        409,
        f"Group leaving has workloads that have ended: train ({running['id']}); and volumes: data ({volume['id']}).",
    )
    assert house.ask("admin", "DELETE", f"/v1/volumes/{volume['id']}")[0] == 200
    assert house.ask("admin", "DELETE", f"/v1/workloads/{running['id']}")[0] == 200
    assert house.ask("admin", "DELETE", "/v1/groups/leaving")[0] == 200
    assert house.ask("admin", "GET", "/v1/groups/leaving")[0] == 404


def test_a_group_stays_while_nodes_or_storages_belong_to_it(house):
    a_group(house, "hosts")
    nfs = (
        "kind: Storage\napiVersion: v1\nmetadata: {name: shelf, group: hosts}\n"
        "spec: {kind: nfs, nfs: {server: 10.0.0.1, path: /a}}\n"
    )
    node = (
        "kind: Node\napiVersion: v1\nmetadata: {name: box, group: hosts}\nspec: {address: 'unix:///no/docker.sock'}\n"
    )
    for text in (nfs, node):
        assert house.ask("admin", "POST", "/v1/apply", {"text": text})[0] == 200
    status, answer = house.ask("admin", "DELETE", "/v1/groups/hosts")
    assert (status, answer["message"]) == (409, "Group hosts has nodes: box; and storages: shelf.")
    assert answer["hint"] == "First penstock delete node NAME, then penstock delete storage NAME"
    group = "kind: Group\napiVersion: v1\nmetadata: {name: hosts}\n"
    status, answer = house.ask("admin", "POST", "/v1/delete", {"text": group})
    assert (status, answer["results"][0]["result"]) == (200, "failed")
    assert "nodes: box" in answer["results"][0]["message"]
    status, answer = house.ask("admin", "POST", "/v1/delete", {"text": "---\n".join((group, nfs, node))})
    assert [each["result"] for each in answer["results"]] == ["deleted"] * 3


def test_what_is_in_another_group_is_neither_taken_from_it_nor_deleted(house):
    storage = (
        "kind: Storage\napiVersion: v1\nmetadata: {name: rack, group: lab}\n"
        "spec: {kind: nfs, nfs: {server: 10.0.0.1, path: /a}}\n"
    )
    assert house.ask("admin", "POST", "/v1/apply", {"text": storage})[0] == 200
    group, elsewhere = "kind: Group\napiVersion: v1\nmetadata: {name: fresh}\n", storage.replace("lab", "fresh")
    body = {"text": f"{group}---\n{elsewhere}", "source": "s.yaml"}
    status, answer = house.ask("admin", "POST", "/v1/apply", body)
    assert (status, answer["message"]) == (422, "s.yaml cannot be applied; nothing was changed.")
    assert [(each["where"], each["field"], each["message"]) for each in answer["problems"]] == [
        ("s.yaml:7:31", "metadata.group", "Storage rack already exists in another group.")
    ]
    a_group(house, "fresh")
    _, answer = house.ask("admin", "POST", "/v1/delete", body)
    assert [(each["kind"], each["result"]) for each in answer["results"]] == [
        ("Storage", "not present"),
        ("Group", "deleted"),
    ]
    assert house.ask("admin", "DELETE", "/v1/storages/rack?group=other")[0] == 404
    assert house.ask("admin", "DELETE", "/v1/storages/rack?group=lab")[0] == 200


def test_a_text_that_leaves_no_admin_changes_nothing(house):
    me = house.ask("admin", "GET", "/v1/whoami")[1]["user"]
    group = "kind: Group\napiVersion: v1\nmetadata: {name: extra}\n"
    mine = (
        f"kind: User\napiVersion: v1\nmetadata: {{name: {me}}}\nspec: {{groups: [{{name: extra, policy: pwm.all}}]}}\n"
    )
    status, answer = house.ask("admin", "POST", "/v1/apply", {"text": f"{group}---\n{mine}", "source": "u.yaml"})
    assert (status, answer["message"]) == (422, "u.yaml cannot be applied; nothing was changed.")
    assert [(each["where"], each["field"], each["message"]) for each in answer["problems"]] == [
        ("u.yaml:8:16", "spec.groups", "Nobody would be an admin any more.")
    ]
    assert house.ask("admin", "GET", "/v1/groups/extra")[0] == 404


def test_one_text_makes_another_the_admin_whoever_is_first_in_it(house):
    me = house.ask("admin", "GET", "/v1/whoami")[1]["user"]
    user = "kind: User\napiVersion: v1\nmetadata: {{name: {}}}\nspec: {{groups: [{{name: {}, policy: pwm.all}}]}}\n"
    a_user(house, "heir", [])
    over = [user.format(me, "lab"), user.format("heir", "pwm.all")]
    _, answer = house.ask("admin", "POST", "/v1/apply", {"text": "---\n".join(over)})
    assert [(each["name"], each["result"]) for each in answer["results"]] == [
        ("heir", "configured"),
        (me, "configured"),
    ]
    assert house.ask("admin", "GET", "/v1/audit")[0] == 403
    back = user.format(me, "pwm.all")
    assert house.ask("heir", "POST", "/v1/apply", {"text": back})[1]["results"][0]["result"] == "configured"
    assert house.ask("admin", "DELETE", "/v1/users/heir")[0] == 200


def test_a_token_is_made_only_for_one_who_is_written_down(house):
    """Else it would be an admin's as soon as an admin of that name is."""
    status, answer = house.ask("admin", "POST", "/v1/tokens", {"user": "typo"})
    assert (status, answer["message"]) == (404, "User typo not found")
    assert "penstock adm user apply -f FILE" in answer["hint"]
    a_user(house, "typo", EVERYTHING)
    assert [token["user"] for token in house.ask("admin", "GET", "/v1/tokens?user=typo")[1]["items"]] == ["typo"]
    assert house.ask("admin", "DELETE", "/v1/users/typo")[0] == 200
    assert house.ask("typo", "GET", "/v1/whoami")[0] == 401


def test_ones_tokens_are_ones_own_business_in_a_group_or_in_none(house):
    a_group(house, "loners")
    for groups in ([], [{"name": "loners", "policy": {}}]):
        a_user(house, "loner", groups)
        status, made = house.ask("loner", "POST", "/v1/tokens", {"description": "mine"})
        assert status == 201, made
        assert made["id"] in [token["id"] for token in house.ask("loner", "GET", "/v1/tokens")[1]["items"]]
        assert house.ask("loner", "POST", f"/v1/tokens/{made['id']}/rotate")[0] == 201
        assert house.ask("loner", "DELETE", f"/v1/tokens/{made['id']}")[0] == 200
        assert house.ask("loner", "GET", "/v1/whoami")[1]["user"] == "loner"
        for path in ("/v1/workloads", "/v1/volumes", "/v1/nodes", "/v1/audit"):
            assert house.ask("loner", "GET", path)[0] == 403, path
        assert house.ask("loner", "GET", "/v1/tokens?user=has")[0] == 403
        assert house.ask("loner", "POST", "/v1/workloads", {"text": "run: 'true'\n"})[0] == 403


def test_a_text_of_people_takes_no_other_documents(house):
    text = """\
kind: Group
apiVersion: v1
metadata: {name: newcomers}
---
kind: Workload
apiVersion: v1
metadata: {name: stowaway}
spec: {driver: pwm.docker, run: sleep 60}
---
kind: Storage
apiVersion: v1
metadata: {name: hoard}
spec: {kind: nfs, nfs: {server: 10.0.0.1, path: /hoard}}
---
name: task
run: 'true'
"""
    body = {"text": text, "source": "people.yaml", "kinds": ["User", "Group"]}
    status, answer = house.ask("admin", "POST", "/v1/apply", body)
    assert (status, answer["message"]) == (422, "people.yaml cannot be applied; nothing was changed.")
    hint = "penstock apply -f FILE takes it"
    assert [(p["where"], p["message"], p["hint"]) for p in answer["problems"]] == [
        ("people.yaml:5:7", "a Workload is not taken here, only User and Group", hint),
        ("people.yaml:10:7", "a Storage is not taken here, only User and Group", hint),
        ("people.yaml:15:1", "a Task is not taken here, only User and Group", hint),
    ]
    assert house.ask("admin", "GET", "/v1/groups/newcomers")[0] == 404


def test_a_number_is_not_taken_from_a_flag(house):
    for said in (False, True):
        status, answer = house.ask("admin", "PUT", "/v1/users/flagged", {"name": "flagged", "uid": said})
        assert (status, answer["problems"][0]["field"]) == (422, "uid"), answer
    assert house.ask("admin", "GET", "/v1/users/flagged")[0] == 404


def test_an_account_that_there_cannot_be_is_refused(house):
    for said in (-1, 2**32 - 1):
        status, answer = house.ask("admin", "PUT", "/v1/users/flagged", {"name": "flagged", "uid": said})
        assert (status, answer["problems"][0]["field"]) == (422, "uid"), answer
    assert house.ask("admin", "GET", "/v1/users/flagged")[0] == 404


def test_who_runs_the_server_can_end_it_whoever_its_admin_is_and_nothing_more(server):
    _, early = server.request("POST", "/v1/tokens", {"user": "somebody"})
    bearer = {"Authorization": f"Bearer {early['token']}"}
    assert server.request("POST", "/v1/adm/init", {"user": "ada"})[0] == 201
    assert server.request("GET", "/v1/server")[0] == 200
    for method, path in (("GET", "/v1/workloads"), ("GET", "/v1/audit"), ("POST", "/v1/tokens"), ("GET", "/metrics")):
        assert server.request(method, path, {} if method == "POST" else None)[0] == 403, path
    assert server.tcp("GET", "/v1/whoami", headers=bearer)[0] == 401  # later the name may be somebody else's
    assert server.request("POST", "/v1/server/stop")[0] == 202
    server.process.wait(60)
