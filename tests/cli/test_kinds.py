"""The words for kinds, and that their tables stand whatever the server leaves out."""

from __future__ import annotations

import re

import pytest

from penstock.cli.nodes import node_columns
from penstock.cli.pwm.nodes import age, cpus, gpus, last_seen, short_uuid
from penstock.cli.pwm.volumes import storage_columns
from penstock.cli.ui.kinds import KindChoice, kind_of, view_of
from penstock.cli.ui.table import table
from penstock.domain.kinds import ALIASES

DOCUMENT = """
| Workload      | wk,workload,Workload     |
| GPU           | gpu,gpus,GPU             |
| CPU           | cpu,cpus,CPU             |
| Node          | node,nodes,Node          |
| Group         | group,groups,Group       |
| User          | user,users,User          |
| Volume        | vol,vols,Volume          |
| Storage       | storage,storages,Storage |
"""
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOCUMENT.split("\n") if line]
WORDS = [(kind, word) for kind, words in ROWS for word in words.split(",")]


@pytest.mark.parametrize(("kind", "word"), WORDS)
def test_the_alias_table_of_pwm(kind, word):
    assert kind_of(word, pwm=True) == KindChoice(kind)
    assert kind_of(word.upper(), pwm=True) == KindChoice(kind)
    meant = kind_of(word, pwm=False)
    assert meant
    assert meant.noun == kind


def test_workloads_by_what_they_ask_for():
    assert kind_of("gpuw", pwm=True) == KindChoice("Workload", asking="gpu")
    assert kind_of("cpuw", pwm=False) == KindChoice("Workload", asking="cpu")


@pytest.mark.parametrize("word", ["jobs", "Job", "pods", "task", "pvc", "volumes", "gpus", "nodes"])
def test_our_own_words_have_our_own_columns(word):
    meant = kind_of(word, pwm=False)
    assert meant
    assert not meant.pwm


@pytest.mark.parametrize("word", ["wk", "workload", "vol", "vols", "GPU", "Node", "Volume", "cpu", "user"])
def test_pwm_words_have_its_columns_under_every_name(word):
    meant = kind_of(word, pwm=False)
    assert meant
    assert meant.pwm


def test_a_word_of_no_kind_is_told_with_those_there_are(penstock):
    done = penstock("get", "nothing", name="pwmcli")
    assert (done.code, done.out) == (2, "")
    for word in ("wk (workload, workloads)", "gpu (gpus)", "storage (storages)", "gpuw", "cpuw"):
        assert word in done.err
    assert "'vol' is not one of: wk (workload, workloads), gpuw, cpuw." in penstock("stop", "vol", "x").err


@pytest.mark.parametrize("command", ["describe", "stop", "delete", "shell", "logs", "inspect"])
def test_a_kind_alone_is_no_name(penstock, command):
    for word in ("wk", "gpuw"):
        done = penstock(command, word, name="pwmcli")
        assert (done.code, done.out) == (2, "")
        assert f"Error: '{word}' is a kind; name one: pwmcli {command} {word} NAME." in done.err


HEADERS = {
    "GPU": "kind name product_name minor_number fb_memory node lastSeen",
    "Workload": "kind name group gpu_type gpu_id gpu_usage node c_id locked status reason time",
    "Storage": "kind name type mount",
    "Volume": "kind group name storage subPath policy",
    "Node": "kind group name product_name address allow cpus cpusLoad mem memLoad gpus gpusLoad version lastSeen "
    "status",
    "CPU": "kind name product_name count free node lastSeen",
    "Group": "kind name limits limits_each",
    "User": "kind name groups active",
}


@pytest.mark.parametrize("noun", ALIASES)
def test_the_columns_are_the_documents_and_stand_without_any_value(monkeypatch, noun):
    monkeypatch.delenv("COLUMNS", raising=False)
    bare = {"name": "bare", "id": "abcdefgh"}
    header, rule, row = table([bare], view_of(KindChoice(noun), wide=False).columns([bare]), ruled=True)
    assert header.split() == HEADERS[noun].split()
    assert set(rule) == {"-"}
    assert row.split()[0] == noun
    assert "bare" in row
    assert len(table([bare], view_of(KindChoice(noun), wide=True).columns([bare]))) == 2


def test_the_load_of_a_node_is_what_is_taken_though_nothing_can_be_had(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    away = {"name": "away", "ready": False, "message": "ssh: connection refused", "cpus": "8", "cpus_free": "0"}
    away |= {"cpus_taken": "2", "memory_bytes": 16 << 30, "memory_free_bytes": 0, "memory_taken_bytes": 8 << 30}
    header, row = table([away], view_of(KindChoice("Node"), wide=False).columns([away]))
    shown = dict(zip(header.split(), row.split(), strict=True))
    assert (shown["cpusLoad"], shown["memLoad"], shown["status"]) == ("25%", "50%", "NOT_READY")


def test_of_a_node_that_never_answered_nothing_is_counted(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    dark = {"name": "dark", "ready": False, "message": "no route to host", "cpus": "0", "cpus_free": "0"}
    dark |= {"memory_bytes": 0, "memory_free_bytes": 0, "gpu_pools": [], "gpus": [], "limits_enforced": False}
    header, row = table([dark], view_of(KindChoice("Node"), wide=False).columns([dark]))
    shown = dict(zip(header.split(), row.split(), strict=True))
    assert (shown["cpus"], shown["mem"], shown["gpus"]) == ("-", "-", "-")
    header, row = table(cpus([dark]), view_of(KindChoice("CPU"), wide=False).columns([dark]))
    assert row.split() == ["CPU", "dark", "-", "-", "-", "dark", "-"]
    assert table([dark], node_columns(wide=False))[1].split()[-4:] == ["-", "-", "-", "advisory"]


def test_limits_are_counted_in_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    lab = {"name": "lab", "limits": {"gpus": 1, "cpus_milli": 1000}, "limits_each": {"gpus": 2, "workloads": 1}}
    _, row = table([lab], view_of(KindChoice("Group"), wide=False).columns([lab]))
    assert re.split(r"  +", row) == ["Group", "lab", "1 GPU, 1 CPU", "2 GPUs, 1 workload"]


@pytest.mark.parametrize("width", [72, 80, 120])
@pytest.mark.parametrize("noun", ALIASES)
def test_no_table_is_wider_than_its_terminal(monkeypatch, noun, width):
    monkeypatch.setenv("COLUMNS", str(width))
    long = {"name": "a-name-of-forty-characters-is-rather-lon", "id": "abcdefgh", "state": "REQUESTED_PULLING"}
    long |= {"reason": "NO_AVAILABLE_RESOURCES", "product": "NVIDIA A100-SXM4-80GB", "memory_bytes": 10**11}
    for wide in (False, True):
        lines = table([long], view_of(KindChoice(noun), wide=wide).columns([long]), ruled=True)
        assert max(map(len, lines)) <= width
        assert "a-name-o" in "".join(lines)


def test_nodes_without_fields_have_no_cpus_and_gpus_to_show():
    assert gpus([{"name": "n1"}]) == []
    assert [row["node"] for row in cpus([{"name": "n1"}])] == ["n1"]


def test_gpus_a_cluster_only_counts_are_shown_by_product(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    pool = {"product": "NVIDIA A10", "total": 8, "taken": 3, "free": 5}
    [row] = gpus([{"name": "n1", "gpu_pools": [pool], "gpus": []}])
    assert row["name"] == "n1/NVIDIA A10"
    shown = table([row], view_of(KindChoice("GPU"), wide=True).columns([row]))[1]
    assert "3 of 8" in shown


@pytest.mark.parametrize(
    ("row", "type_", "mount"),
    [
        ({"name": "a", "kind": "nfs", "server": "10.0.0.1", "path": "/x"}, "nfs", "10.0.0.1:/x"),
        ({"name": "a", "kind": "local", "server": "", "path": "", "node": "jakku"}, "local", "jakku"),
        ({"name": "a", "kind": "nfs", "mount_point": "h:/p"}, "nfs", "h:/p"),
    ],
)
def test_a_storage_says_where_it_is(row, type_, mount):
    assert table([row], storage_columns(wide=False))[1].split() == ["Storage", "a", type_, mount]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0:00"), (5, "0:05"), (125.9, "2:05"), (3600, "1 h"), (7300, "2 h"), (86400 * 3, "3 d")]
)
def test_times_are_written_as_in_the_document(seconds, said):
    assert age(seconds) == said


def test_who_was_seen_just_now_is_here_now():
    from datetime import UTC, datetime, timedelta

    moment = datetime.now(UTC)
    assert last_seen({"last_seen": moment.isoformat()}) == "now"
    assert last_seen({"last_seen": (moment - timedelta(hours=2)).isoformat()}) == "2 h"
    assert last_seen({"ready": False}) == "-"


def test_a_gpus_short_name_is_that_of_the_document():
    assert short_uuid("GPU-9a4f8123-aaaa-bbbb-cccc-dddff4a98f3e") == "GPU-9a4f8-f4a98f3e"
    assert short_uuid("node/NVIDIA A10") == "node/NVIDIA A10"
