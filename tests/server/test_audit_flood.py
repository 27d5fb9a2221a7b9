"""Nobody fills the audit by being refused: so many lines in a minute, and the rest counted in one."""

from __future__ import annotations

import signal
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.running import RunningServer, start_server

LAB = [{"name": "lab", "policy": {"Node": ["use"]}}]
FLOOD = 300


@pytest.fixture
def admin(server: RunningServer) -> dict[str, str]:
    status, first = server.request("POST", "/v1/adm/init", {})
    assert status == 201, first
    headers = bearer(first["token"])
    assert server.tcp("PUT", "/v1/groups/lab", {"name": "lab"}, headers)[0] == 200
    return headers


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def a_member(server: RunningServer, admin: dict[str, str], name: str, **more: Any) -> dict[str, str]:
    user = {"name": name, "groups": LAB}
    assert server.tcp("PUT", f"/v1/users/{name}", user, admin)[0] == 200
    token = server.tcp("POST", "/v1/tokens", {"user": name}, admin)[1]["token"]
    assert server.tcp("PUT", f"/v1/users/{name}", user | more, admin)[0] == 200
    return bearer(token)


def floods(server: RunningServer, headers: dict[str, str], path: str = "/v1/workloads/{}") -> None:
    """One address after the other, over one connection."""
    host, port = server.address.removeprefix("http://").split(":")
    connection = HTTPConnection(host, int(port), timeout=60)
    for number in range(FLOOD):
        connection.request("GET", path.format(f"never{number}"), headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 403
    connection.close()


def lines(server: RunningServer, admin: dict[str, str], user: str) -> list[dict[str, Any]]:
    """Oldest first."""
    found, cursor = [], ""
    while True:
        _, page = server.tcp("GET", f"/v1/audit?user={user}&limit=500{cursor}", None, admin)
        found += page["items"]
        if page["next"] is None:
            return found[::-1]
        cursor = f"&cursor={page['next']}"


def restarted(server: RunningServer) -> RunningServer:
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(30)
    return start_server(server.place)


@pytest.mark.parametrize("active", [True, False])
def test_who_is_refused_again_and_again_has_a_few_lines_and_a_count(server, admin, active):
    nosy = a_member(server, admin, "nosy", active=active)
    floods(server, nosy)
    denied = [line for line in lines(server, admin, "nosy") if line["result"] == "denied"]
    assert [line["name"] for line in denied] == [f"never{number}" for number in range(20)]
    again = restarted(server)
    *_, last = lines(again, admin, "nosy")
    assert last["result"] == "denied"
    assert (
        last["detail"]
        == f"… and {FLOOD - 20} more refused requests of nosy in this minute; the last: GET /v1/workloads/never299"
    )
    again.end()


def test_another_user_and_what_is_done_are_written_down_meanwhile(server, admin):
    nosy, other = (a_member(server, admin, name) for name in ("nosy", "other"))
    floods(server, nosy)
    assert server.tcp("GET", "/v1/workloads/one", None, other)[0] == 403
    assert [line["name"] for line in lines(server, admin, "other")] == ["one"]
    made = [server.tcp("POST", "/v1/tokens", {}, nosy)[1]["id"] for _ in range(30)]
    assert [line["id"] for line in lines(server, admin, "nosy") if line["result"] == "done"] == made


def test_a_file_of_many_documents_that_are_refused_is_counted_too(server, admin):
    nosy = a_member(server, admin, "nosy")
    group = "kind: Group\napiVersion: v1\nmetadata: {{name: mine{}}}\n"
    text = "---\n".join(group.format(number) for number in range(100))
    assert server.tcp("POST", "/v1/apply", {"text": text}, nosy)[0] == 403
    assert len(lines(server, admin, "nosy")) == 20
