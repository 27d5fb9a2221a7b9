"""`penstock run`: run a job from one line, without a file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

import click

from penstock.cli.jobs.submit import parse_envs, submit_and_follow
from penstock.cli.ui.command import command
from penstock.cli.ui.options import common_options, connect
from penstock.errors import Invalid, Problem

SOURCE = "<command line>"
PLAIN = re.compile(r"[\w./:@%+-]+\Z")
"""A word that a shell takes literally."""
OPTIONS = {
    "name": "--name",
    "num_nodes": "--nodes",
    "workdir": "--workdir",
    "resources.cpus": "--cpus",
    "resources.memory": "--memory",
    "resources.accelerators": "--gpus",
    "resources.image_id": "--image",
    "volumes": "--volume",
    "max_duration": "--max-duration",
    "run": "COMMAND",
}
"""The option that stands for each field of the task, which the person never sees."""


@command(
    "run",
    passes_code=True,
    examples="""
    penstock run -- python3 -c 'print(6 * 7)'
    penstock run --gpus A10:1 --volume ml-data:/data --workdir . -- python3 train.py --data /data
    penstock run --image pytorch/pytorch:latest -- python3 train.py
    penstock run --nodes 2 'echo node $NODE_RANK of $NUM_NODES'""",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.option("--gpus", metavar="[PRODUCT:]COUNT", help="GPUs of each node.")
@click.option("--cpus", metavar="NUMBER", help="CPUs of each node, such as 4 or 500m.")
@click.option("--memory", metavar="SIZE", help="Memory of each node, such as 8Gi.")
@click.option("--image", metavar="IMAGE", help="The image it runs in, where the engine has images.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes, started together.")
@click.option("--volume", "volumes", multiple=True, metavar="NAME:/PATH[:ro]", help="Mount a volume.")
@click.option("--env", "envs", multiple=True, metavar="KEY=VALUE", help="Set a variable.")
@click.option("--workdir", metavar="DIR", help="Relative: your code, sent along. Absolute: a directory in the job.")
@click.option("--name", help="Name of the job.")
@click.option("--max-duration", metavar="DURATION", help="Stop it after this long, such as 12h.")
@click.option("-d", "--detach", is_flag=True, help="Do not follow the log.")
@common_options(short=True)
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True)
def run(
    words: Sequence[str],
    volumes: Sequence[str],
    envs: Sequence[str],
    detach: bool,
    output: str,
    **asked: Any,
) -> int:
    """Run a command as a job and follow its log.

    The exit code is the command's own. Several words are a program and its arguments, started as they are, so that
    the image needs no shell; a single word may hold shell syntax.
    """
    _refuse_a_task(words)
    body = {"text": _task(words, volumes, asked), "source": SOURCE, "envs": parse_envs(envs)}
    try:
        return submit_and_follow(connect(), body, "", detach=detach, output=output)
    except Invalid as error:
        message = error.message.replace(SOURCE, "The command line")
        raise Invalid(message, hint=error.hint, problems=list(map(_of_option, error.problems))) from error


def _refuse_a_task(words: Sequence[str]) -> None:
    """Refuse `run task.yaml`, which means the task in the file."""
    if len(words) == 1 and words[0].endswith((".yaml", ".yml")) and os.path.isfile(words[0]):  # noqa: PTH113
        said = f"{words[0]} is a file, not a command."
        raise click.UsageError(f"{said} If it has a task: penstock jobs submit {words[0]}")


def _task(words: Sequence[str], volumes: Sequence[str], asked: dict[str, Any]) -> str:
    """Write the task as JSON, which is YAML."""
    resources = {"cpus": asked["cpus"], "memory": asked["memory"], "accelerators": asked["gpus"]}
    resources |= {"image_id": asked["image"]}
    task = {
        "name": asked["name"],
        "num_nodes": asked["nodes"],
        "workdir": asked["workdir"],
        "resources": _said(resources),
        "volumes": dict(_mount(text) for text in volumes),
        "max_duration": asked["max_duration"],
        "run": words[0] if len(words) == 1 and not PLAIN.match(words[0]) else list(words),
    }
    return json.dumps(_said(task))


def _of_option(problem: Problem) -> Problem:
    field = str(problem.get("field", ""))
    found = (option for key, option in OPTIONS.items() if field == key or field.startswith(f"{key}."))
    option = next(found, None)
    if option is None:
        return problem
    return Problem(problem["message"], field=option, hint=problem.get("hint"))


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, {})}


def _mount(text: str) -> tuple[str, str]:
    """Return the path and volume of `NAME:/PATH[:ro]`, as a task has them."""
    name, _, path = text.partition(":")
    path, read_only = path.removesuffix(":ro"), path.endswith(":ro")
    if not name or not path.startswith("/"):
        raise click.BadParameter(f"'{text}' is not NAME:/PATH or NAME:/PATH:ro.", param_hint="--volume")
    return path, f"{name}:ro" if read_only else name
