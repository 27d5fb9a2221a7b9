"""`penstock ssh-proxy`: connect stdin and stdout to a port of a running job, as ssh's ProxyCommand."""

from __future__ import annotations

import os

import click

from penstock.cli.completion import active_job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.options import api_url_option, connect, group_option, part_options
from penstock.client.address import segment


@command(
    "ssh-proxy",
    examples="""
    penstock ssh-proxy train 2222
    ssh -o ProxyCommand='penstock ssh-proxy %h %p' -p 2222 train""",
)
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=active_job_names)
@click.argument("port", type=click.IntRange(1, 65535), default=22)
@part_options
@group_option
@api_url_option()
def ssh_proxy(ref: str, port: int, part: int | None, group: str | None) -> None:
    """Connect standard input and output to a port of a running job, for use as ssh's ProxyCommand.

    An ssh server must run in the job; the port is 22 unless another is named.
    """
    from penstock.cli.ui.relay import Relay

    query = {"port": port, "part": part, "group": group}
    there = connect().websocket(f"/v1/workloads/{segment(ref)}/connect", query)
    before = [os.get_blocking(descriptor) for descriptor in (0, 1)]
    try:
        for descriptor in (0, 1):
            os.set_blocking(descriptor, False)
        Relay(there, 0, 1).run()
    finally:  # a terminal is shared with the shell that started us
        for descriptor, blocking in enumerate(before):
            os.set_blocking(descriptor, blocking)
