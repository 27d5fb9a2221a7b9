"""`penstock port-forward`: make a port of a running job a local port of this machine."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import click

from penstock.cli.completion import active_job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.options import api_url_option, connect, group_option, part_options
from penstock.cli.ui.output import note, show_error
from penstock.client.address import segment
from penstock.errors import Conflict, PenstockError

if TYPE_CHECKING:
    from penstock.client.api import Client, Query

HOST = "127.0.0.1"
"""Never an address that the network can reach."""
BACKLOG = 128


class Ports(click.ParamType["tuple[int, int]"]):
    """`8888`, or `9000:8888` for another local port, as in kubectl; `0:8888` for any that is free."""

    name = "ports"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        here, colon, there = value.rpartition(":")
        words = (here, there) if colon else (there, there)
        if not all(word.isascii() and word.isdigit() and int(word) <= 65535 for word in words) or int(there) == 0:
            self.fail(f"'{value}' is not PORT or LOCAL:PORT, each up to 65535.", param, ctx)
        return int(words[0]), int(words[1])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return "[LOCAL:]PORT"


@command(
    "port-forward",
    examples="""
    penstock port-forward notebook 8888
    penstock port-forward notebook 9000:8888 6006
    penstock port-forward --node 1 train 0:29500""",
)
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=active_job_names)
@click.argument("ports", type=Ports(), nargs=-1, required=True)
@part_options
@group_option
@api_url_option()
def port_forward(ref: str, ports: tuple[tuple[int, int], ...], part: int | None, group: str | None) -> None:
    """Forward local ports to a running job, until Ctrl-C.

    It listens on 127.0.0.1 only, takes any number of connections, and keeps going while the server restarts.
    """
    client = connect()
    found = client.get(f"/v1/workloads/{segment(ref)}", {"group": group})
    if found["status"] != "running":
        raise Conflict(f"{found['name']} ({found['id']}) is not running: {found['status']}.")
    client.stay()  # a server that somebody stopped is not started again by a browser's next click
    listening = [_listen(here, there) for here, there in ports]
    try:
        for each, (_, there) in zip(listening, ports, strict=True):
            query: Query = {"port": there, "part": part, "group": group}
            threading.Thread(target=_serve, args=(each, client, found["id"], query), daemon=True).start()
            note(f"{HOST}:{each.getsockname()[1]} is port {there} of {found['name']} ({found['id']}); Ctrl-C ends it.")
        threading.Event().wait()
    except KeyboardInterrupt:
        note("")


def _listen(here: int, there: int) -> socket.socket:
    try:
        return socket.create_server((HOST, here), backlog=BACKLOG)
    except OSError as error:
        raise Conflict(
            f"Cannot listen on local port {here}: {os.strerror(error.errno or 0)}.",
            hint=f"use any free port: 0:{there}",
        ) from error


def _serve(listening: socket.socket, client: Client, workload_id: str, query: Query) -> None:
    while True:
        here, _ = listening.accept()
        threading.Thread(target=_pass_on, args=(here, client, workload_id, query), daemon=True).start()


def _pass_on(here: socket.socket, client: Client, workload_id: str, query: Query) -> None:
    """Relay one connection; an error ends only this one."""
    from penstock.cli.ui.relay import Relay

    with here:
        try:
            there = client.websocket(f"/v1/workloads/{workload_id}/connect", query)
            here.setblocking(False)
            Relay(there, here.fileno(), here.fileno()).run()
        except PenstockError as error:
            show_error(error)
