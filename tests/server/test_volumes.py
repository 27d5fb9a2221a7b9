"""Volumes as a user meets them over HTTP."""

import os
import shutil

import pytest

from tests.running import RunningServer, start_server


def create(server: RunningServer, name: str, size: str = "1Gi", **more):
    return server.request("POST", "/v1/volumes", {"name": name, "size": size} | more)


def directory(server: RunningServer, name: str):
    return next((server.place / "data" / "volumes").glob(f"{name}-*"))


def test_a_new_volume_is_bound_and_says_what_it_is(module_server):
    status, volume = create(module_server, "fresh", "1.5Gi", access_modes=["ReadWriteOnce", "ReadWriteMany"])
    assert status == 201
    assert len(volume["id"]) == 8
    assert volume["size"] == "1.5Gi"
    assert volume["size_bytes"] == 1610612736
    assert volume["status"] == "Bound"
    assert volume["storage_class"] == "standard"
    assert volume["access_modes"] == ["ReadWriteOnce", "ReadWriteMany"]
    assert volume["object_name"] == f"fresh-{volume['id']}"
    assert "does not enforce" in volume["notices"][-1]
    assert module_server.request("GET", "/v1/volumes/fresh")[1]["id"] == volume["id"]
    assert module_server.request("GET", f"/v1/volumes/{volume['id']}")[1]["name"] == "fresh"


def test_create_says_when_the_disk_has_less_free_than_asked(module_server):
    _, volume = create(module_server, "huge", "1Ei")
    assert volume["notices"][0].startswith("The disk has ")
    assert volume["notices"][0].endswith("less than the 1Ei asked for.")


def test_a_name_is_taken_once_and_the_answer_names_the_id(module_server):
    _, volume = create(module_server, "taken")
    status, body = create(module_server, "taken")
    assert status == 409
    assert volume["id"] in body["detail"]


def test_everything_wrong_with_a_volume_is_said_at_once(module_server):
    status, body = create(module_server, "Bad_Name", "10GB", storage_class="fast", access_modes=["ReadWrite"])
    assert status == 422
    assert [problem["field"] for problem in body["problems"]] == ["name", "size", "storage_class", "access_modes"]
    assert "bad-name" in body["problems"][0]["hint"]
    assert body["problems"][1]["hint"] == "10Gi"
    assert "standard" in body["problems"][2]["hint"]
    assert "ReadWriteMany" in body["problems"][3]["hint"]


@pytest.mark.parametrize("size", ["0", "-1Gi", "10", "ten", "", "1e999", "99999999999Ei", "1Gi\0", "Gi", "0x10"])
def test_a_size_that_is_none_is_refused(module_server, size):
    status, body = create(module_server, "sized", size)
    assert status == 422
    assert body["problems"][0]["field"] == "size"


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a" * 49, "x" * 1_000_000, "a\0b", "-a", "a-", "1a", "Ä"])
def test_a_name_that_is_none_is_refused(module_server, name):
    status, body = create(module_server, name)
    assert status == 422
    assert len(body["detail"]) < 500


def test_the_same_key_makes_one_volume(module_server):
    key = {"Idempotency-Key": "abc"}
    body = {"name": "once", "size": "1Gi"}
    first = module_server.request("POST", "/v1/volumes", body, key)
    again = module_server.request("POST", "/v1/volumes", body, key)
    assert first[0] == again[0] == 201
    assert first[1]["id"] == again[1]["id"]
    assert module_server.request("POST", "/v1/volumes", body | {"size": "2Gi"}, key)[0] == 409


def test_a_volume_whose_directory_is_gone_is_lost_and_cannot_be_used(module_server):
    create(module_server, "gone")
    shutil.rmtree(directory(module_server, "gone"))
    assert module_server.request("GET", "/v1/volumes/gone")[1]["status"] == "Lost"
    _, listed = module_server.request("GET", "/v1/volumes?status=Lost")
    assert [volume["name"] for volume in listed["items"]] == ["gone"]
    task = {"text": "volumes: {/data: gone}\nrun: 'true'\n"}
    status, body = module_server.request("POST", "/v1/workloads", task)
    assert status == 422
    assert "Lost" in body["detail"]
    _, either = module_server.request("GET", "/v1/volumes?status=Lost,Pending&limit=1")
    assert [volume["name"] for volume in either["items"]] == ["gone"]
    assert module_server.request("GET", "/v1/volumes?status=lost")[0] == 422
    assert module_server.request("DELETE", "/v1/volumes/gone")[0] == 200


def test_usage_counts_what_is_stored(module_server):
    create(module_server, "counted")
    (directory(module_server, "counted") / "file").write_bytes(b"x" * 100_000)
    _, volume = module_server.request("GET", "/v1/volumes/counted?usage=true")
    assert 100_000 <= volume["used_bytes"] < 200_000
    assert module_server.request("GET", "/v1/volumes/counted")[1]["used_bytes"] is None


def test_a_volume_in_use_is_not_deleted_and_the_answer_says_by_whom_and_what_to_do(server):
    create(server, "busy")
    job = server.submit("name: holder\nvolumes: {/data: busy}\nrun: sleep 60\n")
    status, body = server.request("DELETE", "/v1/volumes/busy")
    assert (status, body["code"]) == (409, "in_use")
    assert f"holder ({job['id']}" in body["message"]
    assert body["hint"] == f"penstock jobs stop {job['id']}"
    server.request("POST", f"/v1/workloads/{job['id']}/stop")
    server.ended(job["id"])
    assert server.request("DELETE", "/v1/volumes/busy")[0] == 200
    assert server.request("GET", "/v1/volumes/busy")[0] == 404


def test_deleting_destroys_the_data_and_nothing_outside(module_server):
    create(module_server, "linked")
    inside = directory(module_server, "linked")
    outside = module_server.place / "precious"
    outside.mkdir()
    (outside / "keep").write_text("me")
    (inside / "way-out").symlink_to(outside)
    (inside / "locked").mkdir(mode=0o000)
    assert module_server.request("DELETE", "/v1/volumes/linked")[0] == 200
    assert not inside.exists()
    assert (outside / "keep").read_text() == "me"
    assert list((module_server.place / "data" / "volumes").glob("*linked*")) == []


def test_lists_come_in_pages_that_join_without_gap_or_repeat(server):
    made = [create(server, f"v{number}")[1]["id"] for number in range(7)]
    seen, path = [], "/v1/volumes?limit=3"
    while path:
        _, page = server.request("GET", path)
        seen += [volume["id"] for volume in page["items"]]
        path = f"/v1/volumes?limit=3&cursor={page['next']}" if page["next"] else None
    assert seen == made[::-1]
    assert server.request("GET", "/v1/volumes?cursor=nonsense")[0] == 422
    assert server.request("GET", "/v1/volumes?limit=0")[0] == 422
    assert [v["name"] for v in server.request("GET", "/v1/volumes?name=v3")[1]["items"]] == ["v3"]


def test_a_class_the_admin_maps_to_a_directory_is_offered_and_used(place):
    fast = place / "fast"
    fast.mkdir(mode=0o711)
    server = start_server(place, storage_classes=f"fast-ssd={fast}")
    try:
        _, classes = server.request("GET", "/v1/storage-classes")
        assert [(c["name"], c["default"]) for c in classes["items"]] == [("standard", True), ("fast-ssd", False)]
        assert create(server, "quick", storage_class="fast-ssd")[0] == 201
        assert [path.name.split("-")[0] for path in fast.iterdir()] == ["quick"]
    finally:
        server.end()


def test_waiting_for_a_change_answers_when_it_comes(module_server):
    _, page = module_server.request("GET", "/v1/volumes?limit=1")
    seen = page["version"]
    pid = os.fork()
    if pid == 0:
        create(module_server, "news")
        os._exit(0)
    _, page = module_server.request("GET", f"/v1/volumes?limit=1&wait=60&seen={seen}")
    os.waitpid(pid, 0)
    assert page["version"] != seen


def resize(server: RunningServer, ref: str, size: str):
    return server.request("POST", f"/v1/volumes/{ref}/resize", {"size": size})


def test_a_volume_gets_larger_and_never_smaller(module_server):
    create(module_server, "growing", "1Gi")
    status, grown = resize(module_server, "growing", "3Gi")
    assert (status, grown["size"], grown["size_bytes"]) == (200, "3Gi", 3 * 2**30)
    assert module_server.request("GET", "/v1/volumes/growing")[1]["size"] == "3Gi"
    assert resize(module_server, "growing", "3072Mi")[1]["size"] == "3Gi"
    status, body = resize(module_server, "growing", "2Gi")
    assert status == 422
    assert body["problems"] == [
        {"field": "size", "message": "2Gi is less than the 3Gi it has; a volume never gets smaller"}
    ]
    assert resize(module_server, "growing", "lots")[0] == 422
    assert resize(module_server, "nowhere", "2Gi")[0] == 404


def test_what_happened_to_a_volume_is_told(module_server):
    _, volume = create(module_server, "told")
    _, events = module_server.request("GET", f"/v1/volumes/{volume['id']}/events")
    first = events["items"][0]
    assert (first["reason"], first["about"], first["at"]) == ("CREATED", "volume told", volume["created_at"])


@pytest.mark.parametrize(("outer", "readonly"), [("closed", True), ("open:ro", False)])
@pytest.mark.parametrize("inner", ["{size: 1Mi}", "{size: 1Mi, medium: memory}", "inner"])
def test_nothing_is_made_in_what_is_mounted_read_only(server, outer, readonly, inner):
    name = outer.removesuffix(":ro")
    create(server, name, readonly=readonly)
    create(server, "inner")
    kept = directory(server, name)
    (kept / "there").mkdir()
    task = f"run: touch $AT/mine\nvolumes: {{/data: '{outer}', $AT: {inner}}}\n"
    failed = server.ended(server.submit(task.replace("$AT", "/data/there/deep"))["id"])
    assert (failed["state"], failed["reason"]) == ("CRASHED", "LAUNCH_FAILED")
    assert failed["message"] == (
        f"Nothing can be mounted at '/data/there/deep': the volume '{name}' around it is mounted read-only and has no "
        "directory there/deep. Make that directory where the volume is mounted to write, or choose another path."
    )
    assert server.ended(server.submit(task.replace("$AT", "/data/there"))["id"])["state"] == "EXITED"
    assert list(kept.rglob("*")) == [kept / "there"]
