"""Asking before something is destroyed."""

from __future__ import annotations

import sys

import click


def confirmed(question: str) -> bool:
    """The answer, typed or piped in; where there is nobody to give one, an error that names --force."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError(f"{question} Nobody is there to answer: use --force.") from None
