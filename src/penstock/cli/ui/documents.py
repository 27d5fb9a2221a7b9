"""Commands on a file of documents: its option, the body to send, and the result of each document."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.ui.options import Function
from penstock.cli.ui.output import as_table, echo, note, print_data
from penstock.cli.ui.table import Row, message_with_place


def file_option(function: Function) -> Function:
    return _file(function, required=True)


def optional_file(function: Function) -> Function:
    """Add `--file` to a command that can name a thing instead."""
    return _file(function, required=False)


def _file(function: Function, *, required: bool) -> Function:
    kind, said = click.Path(dir_okay=False, allow_dash=True), "The file; - is standard input."
    option = click.option("-f", "--file", required=required, type=kind, multiple=True, callback=_only_one, help=said)
    return option(function)


def _only_one(ctx: click.Context, param: click.Parameter, files: tuple[str, ...]) -> str | None:
    """Refuse several files: what is sent is one text, and its line numbers are those of one file."""
    if len(files) > 1:
        said = f"one file at a time, and there are {len(files)}. Put them into one, with '---' between the documents"
        raise click.BadParameter(f"{said}, or run '{ctx.command_path}' for each.", ctx, param)
    return files[0] if files else None


def thing_or_file(word: str, words: tuple[str, ...], file: str | None) -> None:
    if bool(words) == (file is not None):
        raise click.UsageError(f"Name a {word}, or a file with -f{', not both' if words else ''}.")


def documents_body(file: str) -> dict[str, Any]:
    """Return the text as it is: the server parses it, so that every client gets the same errors."""
    from penstock.cli.jobs.submit import read_file

    return {"text": read_file(file), "source": "<stdin>" if file == "-" else file}


def show_results(results: list[Row], output: str, mark: str = "") -> int:
    """Print a line for each document, and return 1 if any failed."""
    failed = any(result.get("result") == "failed" for result in results)
    if not as_table(output):
        print_data(results, output)
        return int(failed)
    for result in results:
        named = f" ({result['id']})" if result.get("id") else ""
        line = f"{result['kind']} {result['name']}{named} {result['result']}{mark}"
        why = result.get("message") if mark else message_with_place(result)  # of a dry run it is part of the message
        echo(f"{line}: {why}" if why else line)
        for notice in result.get("notices") or ():
            note(f"Note: {result['name']}: {notice}")
    return int(failed)
