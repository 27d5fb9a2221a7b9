"""`penstock volumes …` as a person sees it."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import steady


def made(penstock, name: str, size: str = "10Gi", *more: str) -> dict:
    created = penstock("volumes", "create", name, size, *more, "-o", "json")
    assert created.code == 0, created.err
    return json.loads(created.out)


@pytest.mark.parametrize("name", ["penstock", "k8s-cli"])
def test_a_volume_is_created_listed_and_deleted_as_k8s_cli_shows(penstock, name):
    created = penstock("volumes", "create", "first", "10Gi", name=name)
    assert created.code == 0, created.err
    volume = json.loads(penstock("volumes", "get", "first", "-o", "json").out)
    assert created.out == f"Volume created successfully with ID: {volume['id']}\nStatus: Bound\n"
    listed = penstock("volumes", "list", "--name", "first", name=name)
    assert steady(listed.out, volume) == (
        "Volume ID  Name   Size  Status  Created\n<id>      first  10Gi  Bound   <created_at>\n\nTotal volumes: 1\n"
    ).replace("<id>      ", "<id>       ").replace("<created_at>", "<created_at>       ")
    deleted = penstock("volumes", "delete", volume["id"], "--force", name=name)
    assert (deleted.code, deleted.out) == (0, f"Volume {volume['id']} deleted successfully\n")
    assert penstock("volumes", "list", "--name", "first", name=name).out == "No volumes found\n"


def test_details_show_class_modes_claim_and_use(penstock):
    volume = made(penstock, "detailed", "1Mi", "-a", " ReadWriteOnce , ReadWriteMany ")
    header, row = penstock("volumes", "list", "--name", "detailed", "--details").out.splitlines()[:2]
    assert header.split("  ")[-1].strip() == "Used"
    assert [cell.strip() for cell in row.split("  ") if cell.strip()] == [
        volume["id"],
        "detailed",
        "1Mi",
        "Bound",
        volume["created_at"][:19],
        "standard",
        "ReadWriteOnce,ReadWriteMany",
        f"detailed-{volume['id']}",
        "0B (0 %)",
    ]


UNSIZED = """
apiVersion: v1
kind: Storage
metadata: {name: disk}
spec: {local: {node: here}}
---
apiVersion: v1
kind: Volume
metadata: {name: nest}
spec: {storage: disk}
"""


def test_a_volume_without_a_size_has_a_use_and_no_share(penstock):
    assert penstock("apply", "-f", "-", stdin=UNSIZED).code == 0
    listed = penstock("volumes", "list", "--name", "nest", "--details")
    assert listed.out.splitlines()[1].split()[-1] == "0B"
    row = penstock("volumes", "df", "nest").out.splitlines()[1].split()
    free = row[3]  # of the disk, which is all that bounds it
    assert row == ["nest", "-", "0B", free, free, "-", "Bound"]
    described = penstock("describe", "vol", "nest")
    assert described.code == 0, described.err
    assert "on the storage disk, asked for by" in described.out
    assert [line.split() for line in described.out.splitlines() if line.startswith(("Size", "Storage"))] == [
        ["Size:", "-"],
        ["Storage:", "disk"],
    ]


def test_all_users_adds_who_made_it(penstock):
    volume = made(penstock, "seen-by-all")
    header, row = penstock("volumes", "list", "--name", "seen-by-all", "-u").out.splitlines()[:2]
    assert header.split()[-1] == "User"
    assert row.split()[-1] == volume["user"]


def test_one_volume_with_everything_known_of_it(penstock):
    volume = made(penstock, "single")
    shown = penstock("volumes", "get", "single").out
    assert steady(shown, volume) == (
        "Volume ID:      <id>    \n"
        "Name:           single\n"
        "Status:         Bound\n"
        "Size:           10Gi\n"
        "Used:           0B (0 %)\n"
        "Used By:        -\n"
        "Storage Class:  standard\n"
        "Access Modes:   ReadWriteOnce\n"
        f"User:           {volume['user']}\n"
        f"Namespace:      {volume['group']}\n"
        "PVC Name:       single-<id>    \n"
        "Created:        <created_at>       \n"
    )


def test_a_name_that_is_taken_names_the_one_that_has_it(penstock):
    volume = made(penstock, "taken")
    again = penstock("volumes", "create", "taken", "1Gi")
    assert again.code == 6
    assert again.out == ""
    assert volume["id"] in again.err


def test_a_wrong_size_is_refused_with_the_right_one(penstock):
    refused = penstock("volumes", "create", "sized", "10GB")
    assert refused.code == 2
    assert refused.err.startswith("Error: ")
    assert "10Gi" in refused.err


def test_what_is_not_there_is_said_to_be_not_there(penstock):
    missing = penstock("volumes", "delete", "nothing", "--force")
    assert (missing.code, missing.out) == (3, "")
    assert "nothing" in missing.err


def test_where_nobody_can_be_asked_force_is_asked_for(penstock):
    volume = made(penstock, "guarded")
    refused = penstock("volumes", "delete", "guarded")
    assert refused.code == 2
    assert refused.err.endswith(
        f"Error: Delete volume guarded ({volume['id']}, 10Gi) and all its data? "
        "There is no terminal to ask on: use --force.\n"
    )
    assert penstock("volumes", "list", "--name", "guarded", "-o", "name").out == f"{volume['id']}\n"


def test_an_answer_may_be_piped_in(penstock):
    volume = made(penstock, "piped")
    assert penstock("volumes", "delete", "piped", stdin="n\n").out == "Cancelled\n"
    assert penstock("volumes", "delete", "piped", stdin="y\n").out == f"Volume {volume['id']} deleted successfully\n"


def test_deleting_asks_and_no_means_no(penstock):
    volume = made(penstock, "asked")
    code, shown = penstock.on_terminal("volumes", "delete", "asked", typed="n\n")
    assert code == 0
    assert f"Delete volume asked ({volume['id']}, 10Gi) and all its data? [y/N]:" in shown
    assert shown.endswith("Cancelled\n")
    code, shown = penstock.on_terminal("volumes", "delete", "asked", typed="y\n")
    assert code == 0
    assert shown.endswith(f"Volume {volume['id']} deleted successfully\n")


def test_a_volume_in_use_stays_and_the_way_out_is_named(penstock):
    made(penstock, "busy")
    job = json.loads(penstock("run", "--volume", "busy:/data", "-o", "json", "--", "sleep", "100").out)
    refused = penstock("volumes", "delete", "busy", "--force")
    assert refused.code == 6
    assert f"penstock jobs stop {job['id']}" in refused.err
    assert penstock("jobs", "stop", job["id"]).code == 0
    assert penstock("jobs", "wait", job["id"]).code == 1
    assert penstock("volumes", "delete", "busy", "--force").code == 0


def test_colours_are_for_terminals_that_want_them(penstock):
    made(penstock, "colourful")
    line = ("volumes", "list", "--name", "colourful")
    assert "\x1b[32mBound\x1b[0m" in penstock.on_terminal(*line, TERM="xterm")[1]
    assert "\x1b" not in penstock.on_terminal(*line, TERM="xterm", NO_COLOR="1")[1]
    assert "\x1b" not in penstock(*line).out


def test_a_limit_says_that_there_is_more(penstock):
    for number in range(3):
        made(penstock, f"many-{number}")
    listed = penstock("volumes", "list", "--limit", "2", "-o", "name")
    assert len(listed.out.splitlines()) == 2
    assert listed.err == "These are the newest 2; see all with: --limit 0\n"
    as_table = penstock("volumes", "list", "--limit", "2")
    assert (as_table.out.splitlines()[-1], as_table.err) == ("Total volumes: 2 (more with --limit 0)", "")
    everything = penstock("volumes", "list", "--limit", "0", "-o", "name")
    assert len(everything.out.splitlines()) >= 3
    assert everything.err == ""


def test_storage_classes_are_listed(penstock):
    assert penstock("volumes", "classes", "-o", "name").out == "standard\n"
    head, line = penstock("volumes", "classes").out.splitlines()
    assert line.startswith("standard (default)")
    assert line[head.index("Can grow") :].startswith("yes ")


def test_one_that_is_missing_does_not_keep_the_others(penstock):
    ids = [made(penstock, f"several-{number}")["id"] for number in range(2)]
    deleted = penstock("volumes", "delete", "--force", "several-0", "several-none", "several-1")
    assert deleted.code == 3
    assert deleted.out == "".join(f"Volume {each} deleted successfully\n" for each in ids)
    assert "several-none" in deleted.err


def test_what_was_deleted_can_be_read_by_a_program(penstock):
    volume = made(penstock, "read-by-a-program")
    assert json.loads(penstock("volumes", "delete", "-f", volume["id"], "-o", "json").out)["id"] == volume["id"]


def test_a_list_fits_a_terminal_of_80_columns(penstock):
    volume = made(penstock, "a-name-of-thirty-two-characters-x")
    shown = penstock("volumes", "list", "--name", volume["name"], "--details", "-u", COLUMNS="80").out
    header, row = shown.splitlines()[:2]
    assert max(len(header), len(row)) <= 80
    assert header.split()[-1] == "Used"
    assert row.startswith(f"{volume['id']}   a-name-of-thirty-two")
