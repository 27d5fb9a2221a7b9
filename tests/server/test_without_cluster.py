"""A cluster that does not answer when the server starts: it starts, answers, and says what it waits for."""

from __future__ import annotations

import pytest

from tests.running import StartFailed, start_server
from tests.server.test_liveness import asked

NOWHERE = """
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: x}}]
"""


@pytest.fixture
def config(place):
    (place / "kubeconfig").write_text(NOWHERE)
    return {"engine": "kubernetes", "kubernetes_config": str(place / "kubeconfig"), "kubernetes_namespace": "jobs"}


def test_it_listens_and_says_what_it_waits_for(place, config):
    server = start_server(place, **config)
    try:
        assert server.request("GET", "/healthz")[0] == 200
        assert asked(server.environ)[0] == 0
        assert server.request("GET", "/v1/workloads")[1]["items"] == []
        made = server.submit("run: 'true'\n")
        assert made["status"] == "pending"
        checks = {check["name"]: check for check in server.request("GET", "/v1/doctor")[1]["checks"]}
        assert {name: check["ok"] for name, check in checks.items()} == {"port": True, "disk": True, "cluster": False}
        assert "cannot be reached" in checks["cluster"]["detail"]
    finally:
        server.kill()


def test_rules_for_namespaces_that_it_does_not_make_are_refused(place, config):
    with pytest.raises(StartFailed, match="are for namespaces that Penstock makes"):
        start_server(place, **config, kubernetes_network="closed")


def test_a_name_that_leaves_no_room_for_those_of_users_is_refused(place, config):
    with pytest.raises(StartFailed, match="is too long"):
        start_server(place, **config | {"kubernetes_namespace": "n" * 51, "kubernetes_namespaces": "user"})
