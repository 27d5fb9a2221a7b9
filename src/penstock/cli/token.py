"""`penstock token`: create, list, rotate and delete the tokens that identify you over TCP."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.ui.command import LazyGroup
from penstock.cli.ui.confirm import confirmed, each
from penstock.cli.ui.options import Function, api_url_option, common_options, connect
from penstock.cli.ui.output import echo, note, print_data, print_items
from penstock.cli.ui.table import Row, field, moment
from penstock.client.address import segment

PATH = "/v1/tokens"


@click.group(cls=LazyGroup)
def token() -> None:
    """Manage tokens, which identify you over TCP."""


def lifetime_options(function: Function) -> Function:
    what_for = click.option("--description", default="", help="What it is for.")
    until = click.option(
        "--expires", metavar="DURATION", help="Valid this long, such as 30d; by default until deleted."
    )
    return what_for(until(function))


@token.command(
    "create",
    examples="""
    penstock token create --description laptop --expires 30d
    export PENSTOCK_TOKEN=$(penstock token create)
    penstock token create --user alice --expires 90d""",
)
@lifetime_options
@click.option("--user", help="For this user instead of yourself (admin).")
@common_options()
def create(description: str, expires: str | None, user: str | None, output: str) -> None:
    """Create a token and print it. It is shown only once: the server keeps its hash."""
    make_token(output, description=description, expires=expires, user=user)


def make_token(output: str, **asked: str | None) -> None:
    body = {key: value for key, value in asked.items() if value is not None}
    _show(connect().post(PATH, body, create=True), output)


def _show(made: Row, output: str) -> None:
    if output in ("json", "yaml"):
        print_data(made, output)
        return
    until = f", valid until {made['expires_at'][:19]}" if made.get("expires_at") else ""
    said = f"Token {made['id']} of {made['user']}{until}; it is shown only once:"
    if output == "name":
        note(f"{said} {made['token']}")
        echo(made["id"])
    else:
        note(said)
        echo(made["token"])


@token.command(
    "list",
    examples="""
    penstock token list
    penstock token list --user alice""",
)
@click.option("--user", help="This user's instead of yours (admin).")
@common_options()
def list_tokens(user: str | None, output: str) -> None:
    """List your tokens, without the secret."""
    listing = connect().list(PATH, {"user": user}, 0)
    columns = [field("Token ID", "id"), field("User", "user", drop=3), field("Description", "description", least=16)]
    columns += [moment("Created", "created_at", drop=2), moment("Expires", "expires_at")]
    columns.append(moment("Last Used", "last_used_at", drop=1))
    print_items(listing.items, output, columns, noun="tokens")


@token.command("rotate", examples="penstock token rotate tabcdefg")
@click.argument("token_id", metavar="ID")
@common_options()
def rotate(token_id: str, output: str) -> None:
    """Replace a token, which works for one more day, and print the new one."""
    _show(connect().post(f"{PATH}/{segment(token_id)}/rotate"), output)


@token.command("delete", examples="penstock token delete tabcdefg")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before deleting somebody else's.")
@api_url_option()
def delete(ids: Sequence[str], yes: bool) -> int:
    """Delete tokens, which stop working at once. It asks an admin before deleting somebody else's."""
    client = connect()
    asks = not yes and client.get("/v1/whoami")["admin"]
    mine = {token["id"] for token in client.list(PATH, {}, 0).items} if asks else set()

    def delete_one(token_id: str) -> dict[str, str] | None:
        path, question = f"{PATH}/{segment(token_id)}", f"Delete token {token_id}, which is not yours?"
        if asks and token_id not in mine and not confirmed(question, "--yes"):
            return None
        client.delete(path)
        return {"id": token_id}

    return each(ids, delete_one, "table", lambda gone: f"Token {gone['id']} deleted successfully")
