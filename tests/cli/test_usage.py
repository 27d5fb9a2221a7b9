"""`penstock usage`: who took how much, as a table and as data."""

from __future__ import annotations

import json

import pytest

from penstock.cli.usage import usage_columns

ROW = {
    "name": "vision/ada",
    "group": "vision",
    "user": "ada",
    "workloads": 3,
    "gpu_hours": 1234.5,
    "gpu_hours_measured": 1000.0,
    "gpu_hours_used": 410.0,
    "cpu_hours": 0.25,
    "peak_memory_bytes": 3 * 2**30,
}


def cells(row: dict[str, object], by: str | None = None, *, wide: bool = False) -> dict[str, str]:
    return {column.title: column.value(row) for column in usage_columns(by, wide=wide)}


def test_a_row_says_what_was_reserved_and_how_much_of_it_worked():
    assert cells(ROW) == {
        "Group": "vision",
        "User": "ada",
        "Workloads": "3",
        "GPU Hours": "1,234.50",
        "Used": "410.00 (41%)",
        "CPU Hours": "0.25",
        "Peak Memory": "3Gi",
    }
    assert cells(ROW, wide=True)["Measured"] == "1,000.00"


def test_what_nobody_saw_is_not_shown_as_nothing():
    unseen = ROW | {"gpu_hours_measured": 0.0, "gpu_hours_used": None, "peak_memory_bytes": None}
    assert (cells(unseen)["Used"], cells(unseen)["Peak Memory"]) == ("-", "-")


@pytest.mark.parametrize("by", ["user", "group"])
def test_rows_of_one_have_no_column_of_the_other(by):
    assert cells(ROW, by).keys() & {"User", "Group"} == {by.title()}


def test_what_ran_is_counted_and_shown_in_every_form(alone):
    titles = alone("usage").out.splitlines()
    assert [title.split() for title in titles] == [
        ["Group", "User", "Workloads", "GPU", "Hours", "Used", "CPU", "Hours", "Peak", "Memory"]
    ]
    (alone.folder / "task.yaml").write_text("name: hello\nresources: {cpus: 1}\nrun: sleep 0.2\n")
    me = alone("auth", "whoami", "-o", "name").out.strip()
    assert alone("jobs", "submit", "task.yaml").code == 0
    assert alone("jobs", "wait", "hello").code == 0
    shown = alone("usage", "--since", "1h")
    assert (shown.code, shown.out.splitlines()[1].split()[:3]) == (0, [me, me, "1"])
    assert alone("usage", "-o", "name").out == f"{me}/{me}\n"
    assert alone("usage", "--by", "group", "-o", "name").out == f"{me}\n"
    [row] = json.loads(alone("usage", "-o", "json").out)
    assert (row["user"], row["group"], row["workloads"], row["gpu_hours_used"]) == (me, me, 1, None)
    assert "gpu_hours: 0.0\n" in alone("usage", "-o", "yaml").out
    assert "Measured" in alone("usage", "-o", "wide").out


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ("soon", "'soon' is neither a duration nor a time"),
        ("0d", "'0d' is neither a duration nor a time"),
        ("-1d", "'-1d' is neither a duration nor a time"),
        ("2999-01-01", "'2999-01-01' is in the future"),
    ],
)
def test_a_time_that_is_none_is_wrong_usage(alone, since, said):
    refused = alone("usage", "--since", since)
    assert refused.code == 2
    assert f"Invalid value for --since: {said} (for example 30d or 2026-11-15T21:31:15)." in refused.err
