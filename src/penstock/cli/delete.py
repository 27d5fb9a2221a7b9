"""`penstock delete`: delete one thing by its name, or everything a file describes."""

from __future__ import annotations

import re
import sys

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.ui.command import command
from penstock.cli.ui.confirm import confirmed, each, of_others
from penstock.cli.ui.documents import documents_body, optional_file, show_results, thing_or_file
from penstock.cli.ui.follow import is_over
from penstock.cli.ui.kinds import PATHS, SINGLE, KindChoice, KindParam, asked_for, one_thing, speaks_pwm
from penstock.cli.ui.options import common_options, connect, group_option
from penstock.cli.ui.output import cancelled, plural
from penstock.cli.ui.table import Row
from penstock.client.address import segment
from penstock.client.api import FILE_SECONDS, Client
from penstock.domain.kinds import APPLIED
from penstock.errors import Forbidden

LOSSES = {"Workload": " and its log", "Volume": " and all its data"}
VOLUMES = re.compile(r"kind[\"']?\s*:\s*[\"']?(Volume|PersistentVolumeClaim)\b")


@command(
    "delete",
    examples="""
    penstock delete -f sweep.yaml
    penstock delete -f pvc.yaml --yes
    penstock delete wk first-test -g your-group
    penstock delete node lambda-02 --force""",
)
@click.argument("words", metavar="[KIND] [NAME_OR_ID]", nargs=-1, shell_complete=kinds_and_names)
@optional_file
@group_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask, even if volumes lose their data.")
@click.option("--force", is_flag=True, help="Same as --yes; also delete a node that does not answer.")
@common_options(short=True)
def delete(words: tuple[str, ...], file: str | None, group: str | None, yes: bool, force: bool, output: str) -> int:
    """Delete one thing, or stop and delete what a file describes.

    With a file, all jobs of its names are deleted, and volumes with all their data. pwmcli asks only before it deletes
    volumes, and only at a terminal.
    """
    thing_or_file("thing", words, file)
    if file is not None:
        return _delete_described(file, group, yes or force, force, output)
    kind, ref = one_thing(words, KindParam(*APPLIED))
    client = connect()
    named = asked_for(client, kind, ref, group)

    def delete_one(_: str) -> Row | None:
        whose = None if yes else _others(client, kind, named, group, force)
        question = f"Delete {kind.noun} {ref}{whose or ''}{LOSSES.get(kind.noun, '')}?"
        if whose and not confirmed(question, "--yes"):
            return None
        if not whose and not yes and not force and not _agreed(question, volumes=kind.noun == "Volume"):
            return None
        asked = {"group": group} | ({"force": "true"} if force and kind.noun == "Node" else {})
        gone: Row | None = client.delete(f"{PATHS[kind.noun]}/{segment(named)}", asked)
        return gone or {"name": ref}

    return each([ref], delete_one, output, lambda gone: _said(kind, gone))


def _delete_described(file: str, group: str | None, yes: bool, force: bool, output: str) -> int:
    body = documents_body(file)
    question = f"Delete everything {file} describes, volumes with all their data?"
    if not yes and not _agreed(question, volumes=bool(VOLUMES.search(body["text"]))):
        cancelled(output)
        return 0
    asked = {"group": group} | ({"force": "true"} if force else {})
    answer = connect().post("/v1/delete", body, asked, timeout=FILE_SECONDS)
    return show_results(answer["results"], output)


def _agreed(question: str, *, volumes: bool) -> bool:
    """Ask for confirmation. pwmcli asks only at a terminal before volumes: PWM's program never asked."""
    if speaks_pwm(click.get_current_context()) and not (volumes and sys.stdin.isatty()):
        return True
    return confirmed(question, "--yes")


def _others(client: Client, kind: KindChoice, named: str, group: str | None, force: bool) -> str | None:
    """Say whose the thing is, or who loses something with it; None if nobody but oneself.

    A group, a storage, and a node that answers are never deleted while anybody has something there.
    """
    if kind.noun in SINGLE and not force:
        thing = client.get(f"{PATHS[kind.noun]}/{segment(named)}", {"group": group})
        return of_others(client, [thing]) and f" of {thing['user']}"
    if kind.noun == "Node" and force:
        try:
            jobs = client.list(PATHS["Workload"], {"all_users": True, "status": "pending,running,unknown"}, 0).items
        except Forbidden:
            return ", with whatever other people had there,"
        there = [job for job in jobs if named in job.get("hosts", ()) and not is_over(job)]
        whose = of_others(client, there)
        return whose and f", which had {plural(len(there), 'job')} {whose},"
    if kind.noun == "User" and not force:
        return None if client.get("/v1/whoami")["user"] == named else " with their tokens"
    return None


def _said(kind: KindChoice, gone: Row) -> str:
    id_ = f" ({gone['id']})" if gone.get("id") and kind.noun in SINGLE else ""
    more = f": {gone['message']}" if gone.get("message") else ""
    done = "is being deleted" if more and kind.noun == "Volume" else "deleted"
    return f"{kind.noun} {gone.get('name')}{id_} {done}{more}"
