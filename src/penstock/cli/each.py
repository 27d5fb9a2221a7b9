"""One command on several things: a fault of one does not keep the others from being done."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from penstock.cli.output import echo, note, print_data, show_error
from penstock.cli.table import Row
from penstock.errors import PenstockError, Unreachable


def each(refs: Sequence[str], act: Callable[[str], Row | None], output: str, say: Callable[[Row], str]) -> int:
    """Act on every one and say so, or print what became of them; the exit code is that of the first fault.

    `act` gives None where the person said no.
    """
    code = 0
    done: list[Row] = []
    plain = output in ("table", "wide")
    for ref in refs:
        try:
            result = act(ref)
        except Unreachable:
            raise
        except PenstockError as error:
            if os.environ.get("PENSTOCK_DEBUG") == "1":
                raise
            show_error(error)
            code = code or error.exit_code
            continue
        if result is None:
            echo("Cancelled") if plain else note("Cancelled")
        elif plain:
            echo(say(result))
        else:
            done.append(result)
    if not plain and done:
        print_data(done if len(refs) > 1 else done[0], output)
    return code
