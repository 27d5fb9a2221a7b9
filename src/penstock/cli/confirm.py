"""Asking before something is destroyed."""

from __future__ import annotations

import sys

import click


def confirmed(question: str) -> bool:
    """The person's answer; where there is nobody to ask, an error that names --force."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: use --force.")
    return click.confirm(question, err=True)
