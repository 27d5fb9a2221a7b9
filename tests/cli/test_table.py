"""Tables."""

from __future__ import annotations

import pytest

from penstock.cli.jobs.list import job_columns
from penstock.cli.jobs.status import HISTORY, UNITS
from penstock.cli.ui.output import print_data
from penstock.cli.ui.table import Column, field, moment, table
from penstock.cli.volumes import volume_columns

ROWS = [
    {
        "id": "abcdefgh",
        "name": "train",
        "at": "2026-11-15T21:31:15.123456Z",
        "why": "4 GPUs asked, 2 free on this machine",
    },
    {"id": "bcdefghi", "name": "a-long-name-for-a-job", "at": None, "why": ""},
]
COLUMNS = [
    field("ID", "id"),
    field("Name", "name", least=12),
    moment("At", "at", drop=1),
    Column("Why", lambda row: row["why"], drop=2, least=12),
]


def test_a_table_is_as_wide_as_it_is_where_no_person_looks(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert table(ROWS, COLUMNS) == [
        "ID        Name                   At                   Why",
        "abcdefgh  train                  2026-11-15T21:31:15  4 GPUs asked, 2 free on this machine",
        "bcdefghi  a-long-name-for-a-job  -",
    ]


def test_the_widest_column_is_shortened_to_fit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "76")
    assert table(ROWS, COLUMNS) == [
        "ID        Name                   At                   Why",
        "abcdefgh  train                  2026-11-15T21:31:15  4 GPUs asked, 2 free …",
        "bcdefghi  a-long-name-for-a-job  -",
    ]


def test_columns_are_left_out_the_least_important_first_and_only_then_names_are_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "52")
    assert table(ROWS, COLUMNS) == [
        "ID        Name                   At",
        "abcdefgh  train                  2026-11-15T21:31:15",
        "bcdefghi  a-long-name-for-a-job  -",
    ]
    monkeypatch.setenv("COLUMNS", "26")
    assert table(ROWS, COLUMNS) == ["ID        Name", "abcdefgh  train", "bcdefghi  a-long-name-for…"]


def test_a_text_that_may_go_on_is_never_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    assert table(ROWS[:1], [field("ID", "id"), field("Why", "why", least=12, wrap=True)], indent=2) == [
        "ID        Why",
        "abcdefgh  4 GPUs asked, 2",
        "          free on this",
        "          machine",
    ]


def test_rows_that_come_later_stand_below_the_first_ones():
    columns = [field("ID", "id"), field("Name", "name"), field("Status", "status")]
    rows = [{"id": "abcdefgh", "name": name, "status": "running"} for name in ("a", "a-much-longer-name")]
    header = table([], columns, more_come=True)[0]
    assert {table([row], columns, more_come=True)[1].index("running") for row in rows} == {header.index("Status")}


JOB = {
    "id": "abcdefgh",
    "name": "a-name-of-forty-characters-is-rather-lon",
    "status": "completed",
    "created_at": "2026-11-15T21:31:15.123456Z",
    "started_at": "2026-11-15T21:31:15.123456Z",
    "ended_at": "2026-11-15T21:31:15.123456Z",
    "user": "alexandra",
    "group": "alexandra",
    "nodes": 16,
    "cpus": "127.5",
    "memory": "1000Gi",
    "accelerators": "A100-80GB:8",
    "message": "4 GPUs asked, 2 free on this machine; the others are in use",
    "reason": "OUT_OF_MEMORY",
}
VOLUME = JOB | {
    "status": "Pending",
    "size": "1.5Ti",
    "size_bytes": 10**12,
    "used_bytes": 999 * 10**9,
    "storage_class": "fast-local-ssd",
    "access_modes": ["ReadWriteOnce", "ReadWriteMany"],
    "object_name": f"{JOB['name']}-abcdefgh",
}
UNIT = {"rank": 0, "state": "OUT_OF_MEMORY", "exit_code": 137, "at": JOB["created_at"]} | JOB


@pytest.mark.parametrize("width", [72, 80, 100, 120, 200])
@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (JOB, job_columns([JOB], details=False, all_users=True, wide=False)),
        (JOB, job_columns([JOB], details=True, all_users=True, wide=False)),
        (JOB, job_columns([JOB], details=True, all_users=True, wide=True)),
        (JOB | {"status": "pending"}, job_columns(None, details=False, all_users=False, wide=False)),
        (VOLUME, volume_columns(details=True, all_users=True)),
        (VOLUME, volume_columns(details=False, all_users=False)),
    ],
    ids=["jobs", "jobs details", "jobs wide", "jobs waiting", "volumes details", "volumes"],
)
def test_no_list_is_wider_than_its_terminal_and_ids_names_and_statuses_can_be_read(monkeypatch, width, row, columns):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = table([row], columns)
    assert len(lines) == 2
    assert max(map(len, lines)) <= width
    assert row["id"] in lines[1]
    assert row["name"][:15] in lines[1]
    assert row["status"] in lines[1]
    assert "2026-11-15T…" not in lines[1]


@pytest.mark.parametrize("columns", [UNITS, HISTORY], ids=["units", "history"])
def test_the_tables_of_a_status_fit_with_their_indent_and_lose_no_word(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", "80")
    lines = table([UNIT], columns, indent=2)
    assert max(map(len, lines)) <= 78
    words = " ".join(lines).split()
    assert all(word in words for word in JOB["message"].split())


def test_control_characters_do_not_reach_the_terminal():
    assert table([{"id": "a\x1b[31m\nb"}], [field("ID", "id")]) == ["ID", r"a\x1b[31m b"]


def test_the_same_data_as_json_yaml_and_ids(capsys):
    data = [{"id": "abcdefgh", "name": "no", "size": None, "amount": "1e3", "mode": "0o17"}]
    for output in ("json", "yaml", "name"):
        print_data(data, output)
    assert capsys.readouterr().out == (
        '[\n  {\n    "id": "abcdefgh",\n    "name": "no",\n    "size": null,\n'
        '    "amount": "1e3",\n    "mode": "0o17"\n  }\n]\n'
        "- id: abcdefgh\n  name: 'no'\n  size: null\n  amount: '1e3'\n  mode: '0o17'\n"
        "abcdefgh\n"
    )
