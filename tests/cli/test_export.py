"""What there is, read back: `get -o yaml` gives documents that `apply` finds not changed, `convert` the other way."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.dialects.test_convert import EVERYTHING
from tests.server.test_apply import JOB

FULL = """\
name: full
resources: {cpus: 1, memory: 64Mi, disk_size: 1Gi, image_id: python:3.13-slim, requests: {memory: 32Mi}}
envs: {EPOCHS: '010', GREETING: 'a: b # c'}
volumes:
  /data: kept:ro
  /scratch: {size: 10Mi}
setup: echo set up
run: |
  echo "begun"  # with a comment
  sleep 600
max_duration: 1h
stop_grace: 1s
retries: 2
ports: 8888
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: as-pod}
spec:
  containers:
    - name: main
      image: busybox:1
      command: [sh, -c, 'exec sleep 600']
      env: [{name: A, value: '1'}]
      resources: {limits: {cpu: 500m, memory: 64Mi}, requests: {cpu: 250m}}
      volumeMounts: [{name: ram, mountPath: /ram}]
  volumes: [{name: ram, emptyDir: {medium: Memory, sizeLimit: 16Mi}}]
"""
LAB = """\
apiVersion: v1
kind: Group
metadata: {name: lab}
spec: {limits: {gpus: 8, cpus: 2.5, volume_size: 10Ti}, limits_each: {workloads: 3}, defaults: {max_duration: 24h}}
---
apiVersion: v1
kind: User
metadata: {name: ada}
spec: {groups: [{name: lab, policy: {Workload: [get, apply], Volume: get}}, {name: pwm.resource, policy: pwm.all}]}
---
apiVersion: v1
kind: Storage
metadata: {name: nfs01}
spec: {nfs: {server: 10.0.0.5, path: /export}}
---
apiVersion: v1
kind: Node
metadata: {name: gpu01}
spec: {address: 'ssh://lab@gpu01', maintenance: true, gpus: [{product_name: A10, memory: 24Gi}]}
"""


def documents(text: str) -> list[dict]:
    return list(yaml.safe_load_all(text))


def again(penstock, text: str) -> list[str]:
    """What became of each when it was applied again."""
    done = penstock("apply", "-f", "-", "-o", "json", stdin=text)
    assert done.code == 0, done.err
    return [each["result"] for each in json.loads(done.out)]


@pytest.mark.parametrize("name", ["penstock", "pwmcli"])
def test_a_task_is_read_back_as_a_document_that_changes_nothing(penstock, name):
    penstock("volumes", "create", "kept", "1Gi")
    assert penstock("apply", "-f", "-", stdin=FULL).code == 0
    shown = penstock("get", "wk", "full", "-o", "yaml", name=name).out
    [document] = documents(shown)
    mine = json.loads(penstock("auth", "whoami", "-o", "json").out)["group"]
    assert (document["kind"], document["metadata"]) == ("Workload", {"name": "full", "group": mine})
    assert document["spec"]["config"]["env"] == {"EPOCHS": "010", "GREETING": "a: b # c"}
    assert again(penstock, shown) == ["not changed"]
    assert penstock("get", "job", "full", "-o", "yaml").out == shown
    changed = penstock("apply", "-f", "-", stdin=shown.replace("retries: 2", "retries: 3"))
    assert changed.code == 2
    assert "retries: 2 → 3" in changed.err


def test_a_manifest_is_read_back_as_a_document_that_changes_nothing(penstock):
    for name, manifest in (("as-job", JOB % ("as-job", "sleep 600", "kept")), ("as-pod", POD)):
        penstock("volumes", "create", "kept", "1Gi")
        assert penstock("apply", "-f", "-", stdin=manifest).code == 0
        assert again(penstock, penstock("get", "wk", name, "-o", "yaml").out) == ["not changed"]
        penstock("jobs", "stop", name)


def test_one_that_was_given_its_name_is_found_by_it(penstock, server):
    made = server.submit("run: sleep 600\n")
    shown = penstock("get", "wk", made["id"], "-o", "yaml").out
    assert documents(shown)[0]["metadata"]["name"] == f"task-{made['id']}"
    assert again(penstock, shown) == ["not changed"]
    penstock("jobs", "stop", made["id"])


def test_all_workloads_at_once_and_of_several_runs_of_one_the_newest(penstock, server):
    for number in (1, 2):
        server.ended(server.submit(f"name: twice\nrun: echo {number}\n")["id"])
    server.submit("name: asks\nresources: {cpus: 1}\nrun: sleep 600\n")
    shown = documents(penstock("get", "wk", "-o", "yaml").out)
    names = [each["metadata"]["name"] for each in shown]
    assert len(names) == len(set(names))
    assert next(each for each in shown if each["metadata"]["name"] == "twice")["spec"]["run"] == "echo 2"
    assert documents(penstock("get", "cpuw", "-o", "yaml").out) == shown
    assert yaml.safe_load(penstock("get", "gpuw", "-o", "yaml").out) == []
    few = penstock("get", "wk", "-o", "yaml", "--limit", "1")
    assert (len(documents(few.out)), few.err) == (1, "The newest 1 are shown; see all with: --limit 0\n")
    penstock("jobs", "stop", "asks")


def test_volumes_people_and_places_are_read_back(penstock):
    penstock("volumes", "create", "wide", "2Gi", "--access-modes", "ReadWriteMany,ReadOnlyMany")
    mine = documents(penstock("get", "vol", "wide", "-o", "yaml").out)[0]
    assert mine["spec"]["access_modes"] == ["ReadWriteMany", "ReadOnlyMany"]
    assert penstock("adm", "init").code == 0
    assert again(penstock, LAB) == ["created"] * 4
    for kind, name in (("group", "lab"), ("user", "ada"), ("storage", "nfs01"), ("node", "gpu01"), ("vol", "wide")):
        shown = penstock("get", kind, name, "-o", "yaml").out
        assert len(documents(shown)) == 1, (kind, shown)
        assert again(penstock, shown) == ["not changed"], (kind, shown)
        everything = penstock("get", kind, "-o", "yaml").out
        assert shown in everything
        assert set(again(penstock, everything)) == {"not changed"}, (kind, everything)
    assert json.loads(penstock("get", "user", "ada", "-o", "json").out)[0]["groups"][0]["name"] == "lab"


def test_what_no_document_made_is_shown_as_the_server_answers_it(penstock):
    for kind in ("gpu", "cpu"):
        shown = yaml.safe_load(penstock("get", kind, "-o", "yaml").out)
        assert shown == json.loads(penstock("get", kind, "-o", "json").out)


@pytest.mark.parametrize("kind", ["wk", "vol", "user", "group", "storage", "node"])
def test_one_that_is_not_there_is_said(penstock, kind):
    done = penstock("get", kind, "none-such", "-o", "yaml")
    assert (done.code, done.out) == (3, "")
    assert "none-such not found" in done.err


# convert


def test_a_task_goes_to_a_document_and_back(penstock):
    (penstock.folder / "task.yaml").write_text(EVERYTHING)
    document = penstock("convert", "task.yaml", "--to", "document")
    assert (document.code, documents(document.out)[0]["kind"]) == (0, "Workload")
    assert penstock("convert", "-", "--to", "task", stdin=document.out).out == EVERYTHING
    assert penstock("convert", "-f", "-", stdin=document.out).out == EVERYTHING


def test_what_runs_is_read_back_as_a_task(penstock):
    penstock("volumes", "create", "kept", "1Gi")
    penstock("apply", "-f", "-", stdin=FULL)
    task = penstock("convert", "-", "--to", "task", stdin=penstock("get", "wk", "full", "-o", "yaml").out)
    assert task.code == 0, task.err
    assert task.out.startswith("name: full\nresources:\n")
    assert again(penstock, task.out) == ["not changed"]
    penstock("jobs", "stop", "full")


def test_what_the_other_way_has_no_word_for_is_an_error_that_names_it(penstock):
    theirs = "apiVersion: v1\nkind: Workload\nmetadata: {name: a, group: vision}\nspec: {driver: pwm.docker, run: b}\n"
    refused = penstock("convert", "-", "--to", "task", stdin=theirs)
    assert (refused.code, refused.out) == (2, "")
    assert "metadata.group: 'vision' cannot be said in a task" in refused.err
    assert "kind: a Group cannot be said as a manifest" in penstock("convert", "-", "--to", "kubernetes", stdin=LAB).err


def test_what_a_manifest_says_only_in_part_is_told_beside_it(penstock):
    done = penstock("convert", "-", "--to", "kubernetes", stdin="name: a\nresources: {image_id: b}\nafter: c\nrun: d\n")
    assert done.out.startswith("# after: kubectl starts it at once; first must complete c\n")
    assert done.err == "Note: after: kubectl starts it at once; first must complete c\n"


def test_one_file_is_named(penstock):
    for words in ([], ["a.yaml", "-f", "b.yaml"]):
        refused = penstock("convert", *words)
        assert (refused.code, "Name one file" in refused.err) == (2, True)
