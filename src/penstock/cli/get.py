"""`penstock get`: one table for each kind of thing."""

from __future__ import annotations

import click

from penstock.cli.kinds import Kind
from penstock.cli.options import api_url_option, connect, output_option
from penstock.cli.output import print_data, print_items
from penstock.cli.tree import command
from penstock.client.address import quote

PATHS = {"jobs": "/v1/workloads", "volumes": "/v1/volumes"}


@command(
    "get",
    examples="""
    penstock get gpus
    penstock get nodes -o wide
    penstock get job train -o yaml""",
)
@click.argument("kind", type=Kind("jobs", "volumes", "nodes", "gpus"))
@click.argument("ref", metavar="[NAME_OR_ID]", required=False)
@output_option
@api_url_option(short=True)
def get(kind: str, ref: str | None, output: str, api_url: str | None) -> None:
    """Show what there is: jobs, volumes, nodes or GPUs; what is free of them, and who has the rest."""
    client = connect(api_url)
    if kind in PATHS and ref is not None:
        print_data(client.get(f"{PATHS[kind]}/{quote(ref)}"), "yaml" if output in ("table", "wide") else output)
        return
    if kind in ("nodes", "gpus"):
        from penstock.cli.nodes import gpu_columns, node_columns

        items = client.get(f"/v1/{kind}")["items"]
        items = [item for item in items if ref is None or ref in (item.get("name"), item.get("node"))]
        wide = output == "wide"
        print_items(items, output, node_columns(wide=wide) if kind == "nodes" else gpu_columns(wide=wide))
        return
    listing = client.list(PATHS[kind], {}, 100)
    if kind == "jobs":
        from penstock.cli.jobs.listing import job_columns

        columns = job_columns(listing.items, details=False, all_users=False, wide=output == "wide")
    else:
        from penstock.cli.volumes import volume_columns

        columns = volume_columns(details=output == "wide", all_users=False)
    print_items(listing.items, output, columns)
