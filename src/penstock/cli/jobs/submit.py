"""`penstock jobs submit`: send a task file and the code it names, then follow the log."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from penstock.cli.completion import job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.options import common_options, connect
from penstock.cli.ui.output import as_table, echo, note, print_data, show_notices
from penstock.cli.ui.table import coloured
from penstock.client.api import FILE_SECONDS, Client, Query
from penstock.errors import FilesNeeded, Invalid, Problem, TooLarge

PATH = "/v1/workloads"


@command(
    "submit",
    passes_code=True,
    examples="""
    penstock jobs submit train.yaml
    penstock jobs submit train.yaml --detach --env EPOCHS=3 --name short-try
    penstock jobs submit evaluate.yaml --after train
    penstock jobs submit train.yaml --dry-run""",
)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("-d", "--detach", is_flag=True, help="Do not follow the log.")
@click.option("--env", "envs", multiple=True, metavar="KEY=VALUE", help="Set or replace a variable.")
@click.option("--name", help="Use this name instead of the file's.")
@click.option(
    "--after",
    multiple=True,
    metavar="NAME_OR_ID",
    shell_complete=job_names,
    help="Start when this job has completed; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only check whether it is valid and would fit now.")
@common_options(short=True)
def submit(
    file: str,
    detach: bool,
    envs: Sequence[str],
    name: str | None,
    after: Sequence[str],
    dry_run: bool,
    output: str,
) -> int:
    """Submit a task and follow its log until it ends.

    FILE is the task's YAML; - is standard input. The exit code is the job's own. Ctrl-C stops following,
    not the job. With -o json, yaml or name the job is printed instead of its log, as with --detach.
    """
    body: dict[str, Any] = {"text": read_file(file), "source": "<stdin>" if file == "-" else file}
    body["envs"] = parse_envs(envs)
    if name is not None:
        body["name"] = name
    if after:
        body["after"] = list(after)
    client = connect()
    base = folder_of(file)
    if dry_run:
        answer = send(client, body | active_venv(client) | {"dry_run": True}, base)
        return _show_dry_run(answer, body["text"], base, output)
    return submit_and_follow(client, body, base, detach=detach, output=output)


def folder_of(file: str) -> str:
    """Return the directory that relative workdirs are in."""
    return "" if file == "-" else os.path.dirname(file)  # noqa: PTH120 - importing pathlib would slow every submit


def read_file(file: str) -> str:
    try:
        if file == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(file, "rb") as opened:  # noqa: PTH123 - the same
                data = opened.read()
    except OSError as error:
        raise click.BadParameter(f"{file}: {error.strerror}.", param_hint="FILE") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problem = Problem(error.reason, where=f"{file}:{line}")
        raise Invalid(f"{file} is not UTF-8 text.", problems=[problem]) from error


def parse_envs(pairs: Sequence[str]) -> dict[str, str]:
    envs = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"'{pair}' is not KEY=VALUE.", param_hint="--env")
        envs[key] = value
    return envs


def submit_and_follow(client: Client, body: dict[str, Any], base: str, *, detach: bool, output: str) -> int:
    """Submit, and follow unless the caller wants the job rather than its log."""
    job = send(client, body | active_venv(client), base)
    show_notices(job)
    if not as_table(output):
        print_data(job, output)
        return 0
    lines = f"Task submitted successfully with ID: {job['id']}\nName: {job['name']}"
    if detach:
        echo(lines)
        return 0
    note(lines)
    from penstock.cli.ui.follow import follow_to_the_end

    return follow_to_the_end(client, job)


def active_venv(client: Client) -> dict[str, Any]:
    """Return the active virtual environment, which only a server on this machine can find."""
    venv = os.environ.get("VIRTUAL_ENV") if client.local else None
    return {"venv": venv} if venv else {}


def send(client: Client, body: dict[str, Any], base: str, path: str = PATH, query: Query | None = None) -> Any:
    """Submit; if the server asks for a directory that the text names, pack it, send it and submit again."""
    timeout = None if path == PATH else FILE_SECONDS
    try:
        return client.post(path, body, query, create=True, timeout=timeout)
    except FilesNeeded as asked:
        from penstock.cli.ui.workdir import refusal, send_files

        if body.get("dry_run"):  # which makes nothing, and so needs nothing
            raise refusal(asked.details.get("files")) from asked
        files = send_files(client, body["text"], base, asked)
    except TooLarge as error:
        raise TooLarge(f"{body['source']} is too large. {error.message}", hint=error.hint) from error
    return client.post(path, body | {"files": files}, query, create=True, timeout=timeout)


def _show_dry_run(answer: dict[str, Any], text: str, base: str, output: str) -> int:
    from penstock.cli.ui.workdir import sent_along

    sent = sent_along(text, base, answer.get("upload_limit_bytes"))
    if not as_table(output):
        print_data(answer["spec"] if output == "name" else answer, output)
        return 0
    show_notices(answer)
    echo(f"Valid: {coloured('yes')}")
    fits = {True: "yes", False: "no", None: "the cluster decides"}[answer["fits_now"]]
    echo(f"Fits now: {fits}" + (f" ({m})" if (m := answer["message"]) else ""))
    for directory in sent:
        echo(f"Workdir: {directory}")
    return 0
