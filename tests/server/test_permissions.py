"""Every route is in the one table, and the table is what decides."""

from typing import Any

import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute

from penstock.domain.policy import Verb
from penstock.server.app import NOUNS, create_app, methods
from penstock.server.permissions import NEEDS
from penstock.settings import Settings
from tests.running import RunningServer


def walked() -> set[tuple[str, str]]:
    routes = [route for noun in NOUNS for route in noun.router.routes]
    assert all(isinstance(route, APIRoute | APIWebSocketRoute) for route in routes)
    return {(method, route.path_format) for route in routes for method in methods(route)}


def test_the_table_names_every_route_and_no_other():
    assert walked() == set(NEEDS)


def test_nothing_is_served_that_is_not_a_route_of_ours():
    included = [route.original_router for route in create_app(Settings()).routes]
    assert included == [noun.router for noun in NOUNS]


def filled(path: str) -> str:
    for name in ("ref", "task_id", "volume_id", "token_id", "name", "file"):
        path = path.replace(f"{{{name}}}", "aaaaaaaa")
    return path


@pytest.fixture(scope="module")
def answers(module_server: RunningServer) -> dict[tuple[str, str], tuple[int, Any]]:
    return {
        (method, path): module_server.tcp(method, filled(path), body={} if method in ("POST", "PUT") else None)
        for method, path in NEEDS
    }


@pytest.mark.parametrize(("method", "path"), sorted(NEEDS))
def test_without_an_identity_only_public_routes_answer(answers, method, path):
    status, body = answers[method, path]
    if NEEDS[method, path][0] is Verb.public:
        assert status in (200, 404)
    else:
        assert status == 401, body
        assert "penstock token create" in body["detail"]
        assert "--auth header" in body["detail"]


@pytest.mark.parametrize(("method", "path"), sorted(key for key, need in NEEDS.items() if need[0] is not Verb.public))
def test_a_bad_token_opens_nothing(module_server, method, path):
    body = {} if method in ("POST", "PUT") else None
    status, answer = module_server.tcp(method, filled(path), body, {"Authorization": "Bearer pst_wrong"})
    assert status == 401, answer


def test_every_list_has_pages_and_a_filter():
    paths = create_app(Settings()).openapi()["paths"]
    lists = [operation["get"] for path, operation in paths.items() if _is_list(path, operation)]
    assert len(lists) == 12
    for operation in lists:
        names = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"}
        assert {"limit", "cursor"} < names
        assert names & {"name", "description"}


def test_a_group_can_be_named_wherever_one_is_asked_who_one_is():
    for path, operations in create_app(Settings()).openapi()["paths"].items():
        for method, operation in operations.items():
            named = [each["name"] for each in operation.get("parameters", [])]
            public = NEEDS[method.upper(), path][0] is Verb.public
            assert named.count("group") == (0 if public else 1), (method, path)


def _is_list(path: str, operation: dict[str, Any]) -> bool:
    if not path.startswith("/v1/") or "get" not in operation:
        return False
    answer = operation["get"]["responses"].get("200", {}).get("content", {}).get("application/json", {})
    return answer.get("schema", {}).get("$ref", "").endswith("Page")


@pytest.mark.parametrize("kind", ["get", "websocket"])
def test_a_route_that_forgets_to_ask_keeps_the_server_from_starting(monkeypatch, kind):
    from fastapi import APIRouter

    router = APIRouter()

    @getattr(router, kind)("/v1/volumes/{ref}/shell")
    async def forgetful() -> None: ...

    monkeypatch.setattr("penstock.server.app.NOUNS", [type("Noun", (), {"router": router})])
    with pytest.raises(RuntimeError, match="shell does not ask"):
        create_app(Settings())


@pytest.mark.parametrize("path", ["/v1/workloads/{ref}/exec", "/v1/workloads/{ref}/connect", "/v1/volumes/{ref}/shell"])
def test_a_websocket_asks_as_its_plain_request_does(path):
    found = [route for noun in NOUNS for route in noun.router.routes if route.path_format == path]
    assert {type(route) for route in found} == {APIRoute, APIWebSocketRoute}
