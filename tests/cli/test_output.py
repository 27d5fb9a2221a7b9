"""Tables."""

from __future__ import annotations

from penstock.cli.output import Column, field, moment, print_data, table

ROWS = [
    {
        "id": "abcdefgh",
        "name": "train",
        "at": "2026-11-15T21:31:15.123456Z",
        "why": "4 GPUs asked, 2 free on this machine",
    },
    {"id": "bcdefghi", "name": "a-long-name-for-a-job", "at": None, "why": ""},
]
COLUMNS = [field("ID", "id"), field("Name", "name"), moment("At", "at"), Column("Why", lambda row: row["why"], True)]


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


def test_what_is_optional_is_left_out_before_the_rest_says_nothing(monkeypatch):
    monkeypatch.setenv("COLUMNS", "36")
    assert table(ROWS, COLUMNS) == [
        "ID        Name          At",
        "abcdefgh  train         2026-11-15T…",
        "bcdefghi  a-long-name…  -",
    ]


def test_control_characters_do_not_reach_the_terminal():
    assert table([{"id": "a\x1b[31m\nb"}], [field("ID", "id")]) == ["ID", "a [31m b"]


def test_the_same_data_as_json_yaml_and_ids(capsys):
    data = [{"id": "abcdefgh", "name": "no", "size": None}]
    for output in ("json", "yaml", "name"):
        print_data(data, output)
    assert capsys.readouterr().out == (
        '[\n  {\n    "id": "abcdefgh",\n    "name": "no",\n    "size": null\n  }\n]\n'
        "- id: abcdefgh\n  name: 'no'\n  size: null\n"
        "abcdefgh\n"
    )
