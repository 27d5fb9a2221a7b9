"""`penstock explain`: show why a workload waits, node by node."""

from __future__ import annotations

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.ui.command import command
from penstock.cli.ui.kinds import one_workload
from penstock.cli.ui.options import common_options, group_option
from penstock.cli.ui.output import as_table, echo, print_data, print_facts, print_items
from penstock.cli.ui.table import Column, Row, field, short_time


@command(
    "explain",
    examples="""
    penstock explain wk first-test -g your-group
    penstock explain train
    penstock explain train -o json""",
)
@click.argument("words", metavar="[KIND] NAME_OR_ID", nargs=-1, required=True, shell_complete=kinds_and_names)
@group_option
@common_options(short=True)
def explain(words: tuple[str, ...], group: str | None, output: str) -> None:
    """Explain why a workload waits: in one sentence, and node by node.

    Only nodes that its group may use are listed. A node that "never" fits would not do even if it were empty.
    """
    client, path = one_workload(words, group)
    found = client.get(f"{path}/explain", {"group": group})
    if not as_table(output):
        print_data(found, output)
        return
    print_facts(_facts(found))
    if found.get("nodes"):
        echo()
        print_items(found["nodes"], output, _columns(wide=output == "wide"))


def _facts(found: Row) -> list[tuple[str, str]]:
    facts = [("Task ID", found["id"]), ("Name", found["name"]), ("State", found["state"])]
    facts.append(("Since", short_time(found.get("since"))))
    facts += [("Why", found["sentence"])] if found.get("sentence") else []
    return facts + ([("Ahead", str(found["ahead"]))] if found.get("ahead") is not None else [])


def _columns(*, wide: bool) -> list[Column]:
    about = [Column("ABOUT", lambda node: _joined(node, "key", ","), drop=1, least=8)] if wide else []
    why = Column("WHY", lambda node: _joined(node, "message", "; "), least=24, wrap=True)
    return [field("NODE", "name", least=12), Column("FITS", _fits), *about, why]


def _fits(node: Row) -> str:
    if node["fits"]:
        return "yes"
    return "no" if all(each["passes"] for each in node["obstacles"]) else "never"


def _joined(node: Row, key: str, between: str) -> str:
    return between.join(str(each[key]) for each in node.get("obstacles") or ()) or "-"
