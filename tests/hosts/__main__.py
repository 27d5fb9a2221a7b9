"""`python -m tests.hosts`: brings Docker hosts up, leaves them running, and takes them down."""

from __future__ import annotations

import argparse
import sys
import time

from tests.hosts import lot
from tests.hosts.lot import Hosts
from tests.rig.places import RigError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hosts", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, does in {
        "up": "bring them up and wait until their engines answer",
        "down": "end them and remove what they left",
        "env": "print where those that are up are reached",
        "list": "the names of those that are there",
    }.items():
        sub = commands.add_parser(command, help=does)
        if command != "list":
            sub.add_argument("--name", default=lot.DEFAULT_NAME, help="several can be up (default: %(default)s)")
        if command == "up":
            sub.add_argument("--hosts", type=int, choices=range(1, 10), help="(default: 2)")
            sub.add_argument("--disk-mb", type=int, help="give each a disk of this size, in memory")
            sub.add_argument("--gpu", action="append", metavar="PRODUCT", help="let each seem to have one; repeat it")
    try:
        return _do(parser.parse_args())
    except RigError as error:
        print(f"hosts: {error}", file=sys.stderr)
        return 1


def _do(asked: argparse.Namespace) -> int:
    if asked.command == "up":
        _up(asked.name, asked.hosts, asked.disk_mb, tuple(asked.gpu or ()))
    elif asked.command == "down":
        Hosts.down(asked.name)
    elif asked.command == "env":
        if not (there := Hosts.find(asked.name)):
            raise RigError(f"{asked.name} is not up: python -m tests.hosts up --name {asked.name}")
        print(*(f"{name}={value}" for name, value in _environment(there).items()), sep="\n")
    else:
        print(*(f"{name}\t{'up' if Hosts.find(name) else 'not up'}" for name in Hosts.names()), sep="\n")
    return 0


def _environment(there: Hosts) -> dict[str, object]:
    variables: dict[str, object] = {}
    for host in there.hosts:
        upper = host.name.replace("-", "").upper()
        variables |= {f"{upper}_UNIX": host.unix, f"{upper}_TCP": host.tcp, f"{upper}_SSH": host.ssh}
    return variables | {
        "DOCKER_HOST": there.hosts[0].unix,
        "DOCKER_CERT_PATH": there.keys.client,
        "SSH_CONFIG": there.keys.config,
        "REGISTRY": there.registry.address,
        "PRIVATE_REGISTRY": there.private_registry.address,
    }


def _up(name: str, number: int | None, disk_mb: int | None, gpus: tuple[str, ...]) -> None:
    began = time.monotonic()
    there = Hosts.up(name, number, disk_mb=disk_mb, gpus=gpus)
    print(f"{len(there.hosts)} Docker hosts are up after {time.monotonic() - began:.0f} s.")
    print(f"  to use them: eval $(.venv/bin/python -m tests.hosts env --name {name} | sed 's/^/export /')")
    print(f"  to end them: .venv/bin/python -m tests.hosts down --name {name}")


if __name__ == "__main__":
    sys.exit(main())
