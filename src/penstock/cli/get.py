"""`penstock get`: one table for each kind of thing."""

from __future__ import annotations

import click

from penstock.cli.completion import names_of_kind
from penstock.cli.kinds import Kind
from penstock.cli.options import api_url_option, connect, output_option
from penstock.cli.output import note, print_data, print_items
from penstock.cli.tree import command
from penstock.client.address import quote
from penstock.errors import NotFound

SHOWN = 100
PATHS = {"jobs": "/v1/workloads", "volumes": "/v1/volumes"}


@command(
    "get",
    examples="""
    penstock get gpus
    penstock get nodes -o wide
    penstock get job train -o yaml""",
)
@click.argument("kind", type=Kind("jobs", "volumes", "nodes", "gpus"))
@click.argument("ref", metavar="[NAME_OR_ID]", required=False, shell_complete=names_of_kind)
@output_option
@api_url_option(short=True)
def get(kind: str, ref: str | None, output: str, api_url: str | None) -> None:
    """Show what there is: jobs, volumes, nodes or GPUs; what is free of them, and who has the rest."""
    client = connect(api_url)
    if kind in PATHS and ref is not None and output not in ("table", "wide"):
        print_data(client.get(f"{PATHS[kind]}/{quote(ref)}"), output)
        return
    if kind in ("nodes", "gpus"):
        from penstock.cli.nodes import gpu_columns, node_columns

        items = client.get(f"/v1/{kind}")["items"]
        items = [item for item in items if ref is None or ref in (item.get("name"), item.get("node"))]
        if ref is not None and not items:
            raise NotFound(f"Node {ref} not found", hint=f"penstock get {kind}")
        wide = output == "wide"
        print_items(items, output, node_columns(wide=wide) if kind == "nodes" else gpu_columns(items, wide=wide))
        return
    if ref is not None:
        items, more = [client.get(f"{PATHS[kind]}/{quote(ref)}")], False
    else:
        listing = client.list(PATHS[kind], {}, SHOWN)
        items, more = listing.items, listing.more
    if kind == "jobs":
        from penstock.cli.jobs.listing import job_columns

        columns = job_columns(items, details=False, all_users=False, wide=output == "wide")
    else:
        from penstock.cli.volumes import volume_columns

        columns = volume_columns(details=output == "wide", all_users=False)
    print_items(items, output, columns)
    if more:
        note(f"The newest {SHOWN}; all with: penstock {kind} list --limit 0")
