"""Who is asking: the kernel, a token, or (only where chosen) a header; and what nobody believes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import StartFailed, start_server

SPEAK = """
import http.client, os, socket, sys
c = http.client.HTTPConnection("localhost")
c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(sys.argv[1])
c.request(sys.argv[2], sys.argv[3], headers={"Content-Type": "application/json"}, body=sys.argv[4] or None)
a = c.getresponse(); print(a.status, a.read().decode(), end="")
"""
HANDS_ON = """
import http.client, socket, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1])); c.connect()
outside = socket.socket(fileno=int(sys.argv[2])); socket.send_fds(outside, [b"!"], [c.sock.fileno()]); outside.recv(1)
c.request("GET", "/v1/whoami", headers={"X-User": "root"}); print(c.getresponse().status)
"""


def speak_as(uid: int, at: Path, method: str, path: str, body: str = "", gid: int | None = None) -> tuple[int, str]:
    """A request over the Unix socket from a process of another account."""
    done = subprocess.run(
        ["/usr/bin/python3", "-c", SPEAK, str(at), method, path, body],
        user=uid, group=gid or uid, extra_groups=[], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    status, _, answer = done.stdout.partition(" ")
    return int(status), answer


def test_on_the_socket_the_kernel_says_who_calls(module_server):
    status, me = module_server.request("GET", "/v1/whoami")
    assert status == 200
    assert me["proof"] == "socket"
    assert me["uid"] == os.geteuid()
    assert me["admin"] is True
    assert me["group"] == me["user"]


def test_a_name_in_a_header_changes_nothing_on_the_socket(module_server):
    _, me = module_server.request("GET", "/v1/whoami", headers={"X-User": "somebody"})
    assert me["proof"] == "socket"
    assert me["user"] != "somebody"


def test_a_token_works_until_it_is_revoked_and_is_kept_only_as_a_hash(module_server):
    status, made = module_server.request("POST", "/v1/tokens", {"description": "laptop"})
    assert status == 201
    bearer = {"Authorization": f"Bearer {made['token']}"}
    status, me = module_server.tcp("GET", "/v1/whoami", headers=bearer)
    assert (status, me["proof"]) == (200, "token")
    _, listed = module_server.request("GET", "/v1/tokens")
    kept = next(item for item in listed["items"] if item["id"] == made["id"])
    assert kept["description"] == "laptop"
    assert "token" not in kept
    data = module_server.place / "data"
    files = [path for path in data.glob("penstock.db*") if path.is_file()]
    assert files
    assert not any(made["token"].encode() in path.read_bytes() for path in files)
    assert module_server.request("DELETE", f"/v1/tokens/{made['id']}")[0] == 200
    status, body = module_server.tcp("GET", "/v1/whoami", headers=bearer)
    assert status == 401, body


def test_an_admin_gives_a_person_a_token_and_takes_it_back(module_server):
    status, made = module_server.request("POST", "/v1/tokens", {"user": "alice", "description": "new laptop"})
    assert (status, made["user"]) == (201, "alice")
    bearer = {"Authorization": f"Bearer {made['token']}"}
    _, me = module_server.tcp("GET", "/v1/whoami", headers=bearer)
    assert (me["user"], me["group"], me["admin"], me["uid"]) == ("alice", "alice", False, None)
    _, hers = module_server.request("GET", "/v1/tokens?user=alice")
    assert [token["id"] for token in hers["items"]] == [made["id"]]
    assert made["id"] not in [token["id"] for token in module_server.request("GET", "/v1/tokens")[1]["items"]]
    for path, body in (("/v1/tokens", {"user": "bob"}), ("/v1/tokens?user=bob", None)):
        status, refused = module_server.tcp("POST" if body else "GET", path, body, bearer)
        assert (status, refused["code"]) == (403, "forbidden")
    assert module_server.tcp("POST", "/v1/tokens", {"user": "alice"}, bearer)[0] == 201
    assert module_server.request("POST", "/v1/tokens", {"user": "no name"})[0] == 422
    assert module_server.request("DELETE", f"/v1/tokens/{made['id']}")[0] == 200
    assert module_server.tcp("GET", "/v1/whoami", headers=bearer)[0] == 401


def test_a_token_that_expired_is_refused(module_server):
    _, made = module_server.request("POST", "/v1/tokens", {"expires": "1s"})
    bearer = {"Authorization": f"Bearer {made['token']}"}
    status = 200
    while status == 200:
        status, body = module_server.tcp("GET", "/v1/whoami", headers=bearer)
    assert status == 401
    assert "expired" in body["message"]
    assert "Ask an admin for another: penstock adm token create USER" in body["hint"]


def test_a_request_under_another_host_name_is_refused(module_server):
    for host in ("attacker.example", "attacker.example:8000", "", "127.0.0.1.attacker.example"):
        status, body = module_server.tcp("GET", "/healthz", headers={"Host": host})
        assert (status, body["code"]) == (400, "bad_request"), host
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]:8000"):
        assert module_server.tcp("GET", "/healthz", headers={"Host": host})[0] == 200


def test_no_page_of_another_site_is_let_in(module_server):
    """No CORS: a preflight is refused and no answer allows an origin."""
    status, _ = module_server.tcp("OPTIONS", "/v1/volumes", headers={"Origin": "http://attacker.example"})
    assert status == 405


class TestHeaderMode:
    @pytest.fixture
    def server(self, place):
        running = start_server(place, auth="header")
        yield running
        running.end()

    def test_x_user_is_believed_and_never_an_admin(self, server):
        status, me = server.tcp("GET", "/v1/whoami", headers={"X-User": "myuser"})
        assert status == 200
        assert me == {"user": "myuser", "group": "myuser", "admin": False, "proof": "header", "uid": None}
        for path in ("/volumes?all_users=true", "/tasks?all_users=true", "/v1/workloads?all_users=true"):
            assert server.tcp("GET", path, headers={"X-User": "root"})[0] == 403
        assert server.tcp("POST", "/v1/server/stop", headers={"X-User": "root"})[0] == 403
        assert server.tcp("POST", "/v1/tokens", {}, {"X-User": "root"})[0] == 403

    def test_each_name_has_its_own_things_and_cannot_see_the_others(self, server):
        alice, bob = {"X-User": "alice"}, {"X-User": "bob"}
        _, made = server.tcp("POST", "/volumes/create", {"name": "data", "size": "1Gi"}, alice)
        assert server.tcp("GET", f"/volumes/{made['volume_id']}", headers=alice)[0] == 200
        theirs = server.tcp("GET", f"/volumes/{made['volume_id']}", headers=bob)
        missing = server.tcp("GET", "/volumes/zzzzzzzz", headers=bob)
        assert theirs[0] == missing[0] == 404
        assert theirs[1]["detail"].replace(made["volume_id"], "X") == missing[1]["detail"].replace("zzzzzzzz", "X")
        assert server.tcp("POST", "/volumes/create", {"name": "data", "size": "1Gi"}, bob)[0] == 200

    def test_a_job_that_names_itself_in_a_header_is_not_believed(self, server):
        port = server.address.rsplit(":", 1)[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /v1/whoami HTTP/1.0\\r\\nHost: localhost\\r\\n"
        script += "X-User: root\\r\\n\\r\\n' >&3; cat <&3"
        made = server.submit(f"run: |\n  {script}\n")
        assert server.ended(made["id"])["status"] == "completed"
        _, log = server.request("GET", f"/v1/workloads/{made['id']}/logs")
        assert "401" in log
        assert "never from inside a job" in log

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a PID namespace like that of a job")
    def test_a_job_whose_socket_somebody_else_holds_too_is_not_believed(self, server):
        """It hands a copy to a process of the account, which need do nothing with it."""
        port = int(server.address.rsplit(":", 1)[1])
        ours, theirs = socket.socketpair()
        line = ["unshare", "--pid", "--fork", sys.executable, "-c", HANDS_ON, str(port), str(theirs.fileno())]
        with ours, theirs, subprocess.Popen(line, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE) as job:
            ours.settimeout(60)
            _, (copy,), _, _ = socket.recv_fds(ours, 1, 1)
            ours.send(b"!")
            status, _ = job.communicate(timeout=60)
            os.close(copy)
        assert status.strip() == b"401"

    def test_another_account_is_not_believed(self, server):
        port = int(server.address.rsplit(":", 1)[1])
        script = (
            "import http.client as h, sys\n"
            "c = h.HTTPConnection('127.0.0.1', int(sys.argv[1]))\n"
            "c.request('GET', '/v1/whoami', headers={'X-User': 'root'}); print(c.getresponse().status)"
        )
        done = subprocess.run(
            ["/usr/bin/python3", "-c", script, str(port)], user=65534, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "401"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"host": "0.0.0.0"}, "loopback only"),
        ({"sandbox": "none"}, "needs the sandbox"),
        ({"mode": "system"}, "server of one user"),
    ],
)
def test_header_mode_refuses_to_start_where_it_would_be_unsafe(place, settings, said):
    with pytest.raises(StartFailed, match=said):
        start_server(place, auth="header", **settings)


class TestSystemMode:
    """Root's server for everyone: the caller's own account, and nobody where they do not belong."""

    @pytest.fixture
    def server(self, place):
        running = start_server(place, mode="system")
        yield running
        running.end()

    def test_each_account_works_as_itself_and_sees_only_its_own(self, server):
        one, other = 2, 3
        task = '{"text": "name: who\\nrun: id -u\\n"}'
        status, text = speak_as(one, server.socket, "POST", "/v1/workloads", task)
        assert status == 201, text
        made = json.loads(text)
        status, text = speak_as(one, server.socket, "GET", f"/v1/workloads/{made['id']}/wait?timeout=60")
        assert json.loads(text)["status"] == "completed", text
        assert speak_as(one, server.socket, "GET", f"/v1/workloads/{made['id']}/logs") == (200, f"{one}\n")
        for path in (f"/v1/workloads/{made['id']}", f"/v1/workloads/{made['id']}/logs", "/v1/workloads/who"):
            assert speak_as(other, server.socket, "GET", path)[0] == 404
        assert speak_as(other, server.socket, "GET", "/v1/workloads?all_users=true")[0] == 403
        assert speak_as(other, server.socket, "POST", "/v1/server/stop")[0] == 403
        _, everyone = server.request("GET", "/v1/workloads?all_users=true")
        assert [item["id"] for item in everyone["items"]] == [made["id"]]

    def test_an_account_without_a_name_keeps_its_own_group(self, server):
        """Not the group that happens to have the same number: 27 is sudo's."""
        _, text = speak_as(27, server.socket, "POST", "/v1/workloads", '{"text": "run: id -g"}', gid=65534)
        made = json.loads(text)
        speak_as(27, server.socket, "GET", f"/v1/workloads/{made['id']}/wait?timeout=60")
        assert speak_as(27, server.socket, "GET", f"/v1/workloads/{made['id']}/logs") == (200, "65534\n")

    def test_a_volume_belongs_to_the_account_that_made_it(self, server):
        status, text = speak_as(2, server.socket, "POST", "/v1/volumes", '{"name": "data", "size": "1Gi"}')
        assert status == 201, text
        assert speak_as(3, server.socket, "GET", "/v1/volumes/data")[0] == 404
        assert speak_as(3, server.socket, "DELETE", "/v1/volumes/data")[0] == 404
        directory = next((server.place / "data" / "volumes").glob("data-*"))
        assert directory.stat().st_uid == 2
        assert directory.stat().st_mode & 0o077 == 0


@pytest.fixture(autouse=True)
def _root_only(request):
    if request.cls is TestSystemMode and os.geteuid() != 0:
        pytest.skip("needs root: a server for everyone on the machine")


def test_until_somebody_is_written_down_each_name_is_a_group_to_the_admin_alone(server):
    _, made = server.request("POST", "/v1/tokens", {"user": "alice"})
    alice = {"Authorization": f"Bearer {made['token']}"}
    status, job = server.tcp("POST", "/v1/workloads", {"text": "name: hers\nrun: sleep 600\n"}, alice)
    assert status == 201, job
    assert server.request("POST", "/v1/workloads/hers/stop?group=alice")[0] == 200
    assert server.tcp("GET", "/v1/workloads?group=bob", None, alice)[1]["message"] == "Group bob not found"
    assert server.request("POST", "/v1/workloads?group=pwm.all", {"text": "run: 'true'\n"})[0] == 404
