"""Asking before something is destroyed."""

from __future__ import annotations

import sys

import click

from penstock.cli.table import clean


def confirmed(question: str, option: str = "--force") -> bool:
    """The answer, typed or piped in; where there is nobody to give one, an error that names the option."""
    try:
        return click.confirm(clean(question), err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError(f"{clean(question)} Nobody is there to answer: use {option}.") from None
