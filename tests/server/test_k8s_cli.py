"""The REST API of k8s-cli: same paths, bodies and errors, asked as its curl line does."""

import pytest

from tests.running import start_server

USER = {"X-User": "myuser"}


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    import shutil
    import tempfile
    from pathlib import Path

    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    place.chmod(0o711)
    server = start_server(place, auth="header")
    yield lambda method, path, body=None, user=USER: server.tcp(method, path, body, user)
    server.end()
    shutil.rmtree(place)


def ended(ask, task_id):
    status, view = ask("GET", f"/v1/workloads/{task_id}/wait?timeout=60")
    assert status == 200
    assert view["ended_at"]


def test_the_root_names_the_service(ask):
    status, body = ask("GET", "/")
    assert status == 200
    assert (body["status"], body["service"]) == ("ok", "k8s-cli-api")


def test_the_life_of_a_volume(ask):
    status, made = ask("POST", "/volumes/create", {"name": "training-data", "size": "10Gi"})
    assert status == 200
    volume_id = made["volume_id"]
    assert made == {
        "volume_id": volume_id,
        "status": "created",
        "message": f"Volume created successfully with ID: {volume_id}",
    }
    status, volume = ask("GET", f"/volumes/{volume_id}")
    assert volume | {"created_at": "?"} == {
        "volume_id": volume_id,
        "name": "training-data",
        "size": "10Gi",
        "storage_class": "standard",
        "access_modes": ["ReadWriteOnce"],
        "status": "Bound",
        "created_at": "?",
        "username": "myuser",
        "metadata": {"pvc_name": f"training-data-{volume_id}", "namespace": "myuser"},
    }
    assert ask("GET", "/volumes")[1] == {"volumes": [volume]}
    status, gone = ask("DELETE", f"/volumes/{volume_id}")
    assert gone == {
        "volume_id": volume_id,
        "status": "deleted",
        "message": f"Volume {volume_id} deleted successfully",
    }
    assert ask("GET", f"/volumes/{volume_id}") == ask("GET", f"/volumes/{volume_id}", user={"X-User": "other"})
    assert ask("GET", f"/volumes/{volume_id}")[1]["detail"] == f"Volume {volume_id} not found"


def test_the_life_of_a_task(ask):
    status, made = ask("POST", "/tasks/submit", {"name": "hello", "num_nodes": 2, "run": "echo hello"})
    assert status == 200
    task_id = made["task_id"]
    assert made["status"] == "submitted"
    assert made["message"] == f"Task submitted successfully with ID: {task_id}"
    status, log = ask("GET", f"/tasks/{task_id}/logs")
    assert sorted(log.splitlines()) == ["node-0 | hello", "node-1 | hello"]
    ended(ask, task_id)
    status, task = ask("GET", f"/tasks/{task_id}")
    assert (task["name"], task["status"], task["username"]) == ("hello", "completed", "myuser")
    metadata = task["metadata"]
    assert metadata["job_name"] == f"hello-{task_id}"
    assert metadata["node_jobs"] == [f"hello-{task_id}-node-0", f"hello-{task_id}-node-1"]
    assert (metadata["num_nodes"], metadata["succeeded_nodes"], metadata["failed_nodes"]) == (2, 2, 0)
    assert [each["task_id"] for each in ask("GET", "/tasks")[1]["tasks"]] == [task_id]
    assert ask("GET", f"/tasks/{task_id}", user={"X-User": "other"})[0] == 404


def test_a_long_list_can_be_had_in_pages(ask):
    user = {"X-User": "many"}
    for number in range(3):
        ask("POST", "/volumes/create", {"name": f"v{number}", "size": "1Gi"}, user)
    first = ask("GET", "/volumes?limit=2", user=user)[1]
    rest = ask("GET", f"/volumes?limit=2&cursor={first['next']}", user=user)[1]
    assert [volume["name"] for volume in first["volumes"] + rest["volumes"]] == ["v2", "v1", "v0"]
    assert rest["next"] is None
    assert len(ask("GET", "/volumes", user=user)[1]["volumes"]) == 3
    assert ask("GET", "/volumes?name=v1&status=Bound", user=user)[1]["volumes"][0]["name"] == "v1"
    assert ask("GET", "/tasks?status=failed&limit=5", user=user)[1] == {"tasks": [], "next": None}


def test_stopping_one_and_all(ask):
    first, second = (ask("POST", "/tasks/submit", {"run": "sleep 60"})[1]["task_id"] for _ in range(2))
    status, body = ask("POST", f"/tasks/{first}/stop")
    assert (status, body["task_id"], body["status"]) == (200, first, "stopped")
    status, body = ask("POST", "/tasks/stop")
    assert body == {"count": 1, "status": "stopped", "message": "Stopped 1 tasks"}
    for task_id in (first, second):
        ended(ask, task_id)
        assert ask("GET", f"/tasks/{task_id}")[1]["status"] == "stopped"


def test_a_wrong_task_is_refused_with_all_that_is_wrong(ask):
    status, body = ask("POST", "/tasks/submit", {"name": "Hello", "resources": {"memory": 16}, "rum": "x"})
    assert status == 422
    for part in ("Hello", "16Gi", "rum", "run"):
        assert part in body["detail"]
    assert ask("POST", "/tasks/submit", {"workdir": "./code", "run": "ls"})[0] == 428
    assert ask("POST", "/volumes/create", {"name": "x"})[0] == 422
