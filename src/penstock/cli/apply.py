"""`penstock apply`: create or update everything a file of documents describes."""

from __future__ import annotations

import click

from penstock.cli.jobs.submit import active_venv, folder_of, send
from penstock.cli.ui.command import command
from penstock.cli.ui.documents import documents_body, file_option, show_results
from penstock.cli.ui.options import common_options, connect, group_option
from penstock.cli.ui.output import note


@command(
    "apply",
    examples="""
    penstock apply -f pvc.yaml
    penstock apply -f sweep.yaml --dry-run
    penstock apply -f - < sweep.yaml""",
)
@file_option
@click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")
@group_option
@common_options(short=True)
def apply(file: str, dry_run: bool, group: str | None, output: str) -> int:
    """Create or update what a file describes: documents of any kind, tasks and Kubernetes manifests.

    The whole file is checked before anything is changed. Volumes and live jobs that match it already are left as they
    are; a job that has ended is started again.
    """
    base = folder_of(file)
    client = connect()
    body = documents_body(file) | active_venv(client) | {"dry_run": dry_run}
    answer = send(client, body, base, path="/v1/apply", query={"group": group})
    if dry_run:
        from penstock.cli.ui.workdir import sent_along

        for sent in sent_along(body["text"], base, answer.get("upload_limit_bytes")):
            note(f"Would send {sent}")
    return show_results(answer["results"], output, " (dry run)" if dry_run else "")
