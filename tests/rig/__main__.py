"""`python -m tests.rig`: brings a Kubernetes up, leaves it running, and takes it down."""

from __future__ import annotations

import argparse
import sys
import time

from tests.rig import cluster, places, versions
from tests.rig.cluster import Rig
from tests.rig.places import RigError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, does in {
        "up": "bring it up and wait until its nodes are ready",
        "down": "end it and remove what it left",
        "env": "print KUBECONFIG=… of the one that is up",
        "list": "the names of those that are there",
        "build": "build the programs and nothing else",
    }.items():
        sub = commands.add_parser(command, help=does)
        if command in ("up", "down", "env"):
            sub.add_argument("--name", default=places.DEFAULT_NAME, help="several can be up (default: %(default)s)")
        if command == "up":
            sub.add_argument("--nodes", type=int, choices=range(1, 10), help="(default: 2)")
        if command == "build":
            sub.add_argument("--if-usable", action="store_true", help="not where no rig can be brought up anyway")
    try:
        return _do(parser.parse_args())
    except RigError as error:
        print(f"rig: {error}", file=sys.stderr)
        return 1


def _do(asked: argparse.Namespace) -> int:
    if asked.command == "up":
        _up(asked.name, asked.nodes)
    elif asked.command == "down":
        Rig.down(asked.name)
    elif asked.command == "env":
        if not (rig := Rig.find(asked.name)):
            raise RigError(f"{asked.name} is not up: python -m tests.rig up --name {asked.name}")
        print(f"KUBECONFIG={rig.kubeconfig}")
    elif asked.command == "list":
        rigs = [name for name in places.names() if not name.startswith(places.HOSTS)]
        print(*(f"{name}\t{'up' if Rig.find(name) else 'not up'}" for name in rigs), sep="\n")
    elif not (asked.if_usable and cluster.fault()):
        print(versions.build_all())
    return 0


def _up(name: str, nodes: int | None) -> None:
    began = time.monotonic()
    rig = Rig.up(name, nodes)
    print(f"Kubernetes {versions.VERSION} with {len(rig.nodes)} nodes is up after {time.monotonic() - began:.0f} s.")
    end = "make rig-down" if name == places.DEFAULT_NAME else f".venv/bin/python -m tests.rig down --name {name}"
    print(f"  to use it: export KUBECONFIG={rig.kubeconfig} PATH={rig.programs}:$PATH")
    print(f"  to end it: {end}")


if __name__ == "__main__":
    sys.exit(main())
