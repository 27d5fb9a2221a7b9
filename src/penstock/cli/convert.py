"""`penstock convert`: rewrite a workload as a task, a document or a Kubernetes manifest."""

from __future__ import annotations

import sys

import click

from penstock.cli.ui.command import command
from penstock.cli.ui.documents import documents_body, optional_file
from penstock.cli.ui.options import api_url_option, connect, group_option
from penstock.cli.ui.output import echo, note

TARGETS = ("task", "document", "kubernetes")


@command(
    "convert",
    examples="""
    penstock convert job.yaml > task.yaml
    penstock convert task.yaml --to document
    penstock convert -f workload.yaml --to kubernetes | kubectl apply -f -
    penstock get wk train -o yaml | penstock convert - --to task""",
)
@click.argument("path", metavar="[FILE]", required=False, type=click.Path(dir_okay=False, allow_dash=True))
@optional_file
@click.option("--to", type=click.Choice(TARGETS), help="The format. [default: a manifest for a task, else a task]")
@group_option
@api_url_option(short=True)
def convert(path: str | None, file: str | None, to: str | None, group: str | None) -> None:
    """Rewrite what a file describes as tasks, documents or Kubernetes manifests, and print it.

    Nothing is created. What the other format cannot express is an error; what a manifest can express only in part is
    in comments above it.
    """
    if (path is None) == (file is None):
        raise click.UsageError("Name one file: penstock convert FILE.")
    body = documents_body(path or file or "-") | ({"to": to} if to else {})
    text = connect().post("/v1/convert", body, {"group": group})["text"]
    echo(text, nl=False)
    if not sys.stdout.isatty():
        _repeat_comments(text)


def _repeat_comments(text: str) -> None:
    """Repeat the comments on stderr for those who pipe the text on. Only our own comments begin a line."""
    for line in text.split("\n"):
        if line.startswith("# "):
            note(f"Note: {line.removeprefix('# ')}")
