"""`penstock apply`, `delete` and `convert`: whole files of documents, Kubernetes' manifests among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.cli.jobs.submit import active_venv, read_file, send
from penstock.cli.options import api_url_option, connect, output_option
from penstock.cli.output import note, print_data
from penstock.cli.table import Row
from penstock.cli.tree import command


def file_option(function: Any) -> Any:
    kind = click.Path(dir_okay=False, allow_dash=True)
    return click.option("-f", "--file", required=True, type=kind, help="The file; - is standard input.")(function)


def _body(file: str) -> dict[str, Any]:
    return {"text": read_file(file), "source": "<stdin>" if file == "-" else file}


@command(
    "apply",
    examples="""
    penstock apply -f pvc.yaml
    penstock apply -f sweep.yaml --dry-run
    penstock apply -f - < sweep.yaml""",
)
@file_option
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@output_option
@api_url_option(short=True)
def apply(file: str, dry_run: bool, output: str, api_url: str | None) -> int:
    """Make what a file describes: Pod, Job and PersistentVolumeClaim manifests, or tasks.

    Everything in it is checked before anything is made. A volume and a job that is alive are left as they are where the
    file says the same; a job that has ended is started anew.
    """
    base = Path() if file == "-" else Path(file).parent
    client = connect(api_url)
    answer = send(client, _body(file) | active_venv(client) | {"dry_run": dry_run}, base, path="/v1/apply")
    return _show(answer["results"], output, " (dry run)" if dry_run else "")


@command(
    "delete",
    examples="""
    penstock delete -f sweep.yaml
    penstock delete -f pvc.yaml --force""",
)
@file_option
@click.option("--force", is_flag=True, help="Do not ask, although volumes lose their data.")
@output_option
@api_url_option(short=True)
def delete(file: str, force: bool, output: str, api_url: str | None) -> int:
    """Stop and delete what a file describes: all jobs of its names, and volumes with all their data."""
    from penstock.cli.confirm import confirmed

    if not force and not confirmed(f"Delete everything {file} describes, volumes with all their data?"):
        click.echo("Cancelled") if output in ("table", "wide") else note("Cancelled")
        return 0
    return _show(connect(api_url).post("/v1/delete", _body(file))["results"], output)


@command(
    "convert",
    examples="""
    penstock convert -f job.yaml > task.yaml
    penstock convert -f task.yaml | kubectl apply -f -""",
)
@file_option
@api_url_option(short=True)
def convert(file: str, api_url: str | None) -> None:
    """Print the task for a manifest, or the manifest for a task."""
    click.echo(connect(api_url).post("/v1/convert", _body(file))["text"], nl=False)


def _show(results: list[Row], output: str, mark: str = "") -> int:
    """One line for each document; 1 if any failed."""
    failed = any(result.get("result") == "failed" for result in results)
    if output not in ("table", "wide"):
        print_data(results, output)
        return int(failed)
    for result in results:
        named = f" ({result['id']})" if result.get("id") else ""
        line = f"{result['kind']} {result['name']}{named} {result['result']}{mark}"
        click.echo(f"{line}: {result['message']}" if result.get("message") else line)
        for notice in result.get("notices") or ():
            note(f"Note: {result['name']}: {notice}")
    return int(failed)
