"""`penstock adm` (also `pwmadm`): manage users, groups, tokens and the audit."""

from __future__ import annotations

import click

from penstock.cli.completion import user_names
from penstock.cli.token import lifetime_options, make_token
from penstock.cli.ui.command import HELP, LazyGroup, command, version_option
from penstock.cli.ui.documents import documents_body, file_option, show_results
from penstock.cli.ui.options import api_url_option, connect, output_option
from penstock.cli.ui.output import echo, note, print_data, print_items, print_total
from penstock.cli.ui.table import Column, Row, field, moment

COMMANDS = {
    "init": "penstock.cli.adm:init",
    "user": "penstock.cli.adm:user",
    "token": "penstock.cli.adm:token",
    "users": "penstock.cli.adm:users",
    "groups": "penstock.cli.adm:groups",
    "audit": "penstock.cli.adm:audit",
}


@click.group(cls=LazyGroup, places=COMMANDS, context_settings=HELP)
@version_option
def adm() -> None:
    """Manage users, groups and tokens, and see who did what."""


@click.group(cls=LazyGroup, places={"apply": "penstock.cli.adm:apply_users"})
def user() -> None:
    """Create and change users and groups."""


@click.group(cls=LazyGroup, places={"create": "penstock.cli.adm:create_token"})
def token() -> None:
    """Manage tokens of users."""


@command(
    "init",
    examples="""
    penstock adm init
    penstock adm init ada""",
)
@click.argument("name", metavar="[USER]", required=False)
@output_option
@api_url_option()
def init(name: str | None, output: str, api_url: str | None) -> None:
    """Make the first admin, once; from then on policies decide who may do what.

    USER is you by default. The token is printed only once.
    """
    made = connect(api_url).post("/v1/adm/init", {} if name is None else {"user": name})
    if output in ("json", "yaml"):
        print_data(made, output)
        return
    note(f"{made['user']} is the admin of this server; the token is shown only once:")
    echo(made["user"] if output == "name" else made["token"])
    if output == "name":
        note(made["token"])


@command("apply", examples="penstock adm user apply -f users.yaml")
@file_option
@click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")
@output_option
@api_url_option()
def apply_users(file: str, dry_run: bool, output: str, api_url: str | None) -> int:
    """Create or change the users and groups in a file, which has documents of kind User and Group only."""
    body = documents_body(file) | {"dry_run": dry_run, "kinds": ["User", "Group"]}
    answer = connect(api_url).post("/v1/apply", body, create=True)
    return show_results(answer["results"], output, " (dry run)" if dry_run else "")


@command(
    "create",
    examples="""
    penstock adm token create ada
    penstock adm token create ada --expires 90d --description laptop""",
)
@click.argument("name", metavar="USER", shell_complete=user_names)
@lifetime_options
@output_option
@api_url_option()
def create_token(name: str, description: str, expires: str | None, output: str, api_url: str | None) -> None:
    """Create a token for a user and print it. It is shown only once: the server keeps its hash."""
    make_token(api_url, output, description=description, expires=expires, user=name)


@command("users", examples="penstock adm users -o wide")
@output_option
@api_url_option()
def users(output: str, api_url: str | None) -> None:
    """List who may use this server."""
    from penstock.cli.pwm.people import user_columns

    items = connect(api_url).list("/v1/users", {}, 0).items
    print_items(items, output, user_columns(wide=output == "wide"), ruled=True)


@command("groups", examples="penstock adm groups")
@output_option
@api_url_option()
def groups(output: str, api_url: str | None) -> None:
    """List the groups and what each may have at once."""
    from penstock.cli.pwm.people import group_columns

    items = connect(api_url).list("/v1/groups", {}, 0).items
    print_items(items, output, group_columns(wide=output == "wide"), ruled=True)


@command(
    "audit",
    examples="""
    penstock adm audit
    penstock adm audit --user ada --limit 0 -o json""",
)
@click.option("--user", "who", metavar="USER", help="Only what this user did.")
@click.option("--name", help="Only what was done to things of this name.")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="At most; 0 is all.")
@output_option
@api_url_option()
def audit(who: str | None, name: str | None, limit: int, output: str, api_url: str | None) -> None:
    """Show who did what, newest first, refusals included."""
    listing = connect(api_url).list("/v1/audit", {"user": who, "name": name}, limit)
    if output == "name":
        for entry in listing.items:
            echo(_thing(entry))
        return
    print_items(listing.items, output, AUDIT)
    print_total("entries", listing, output)


def _thing(entry: Row) -> str:
    """Name what an entry is about: `Workload ada/train (abcd2345)`."""
    owned = f"{entry['group']}/" if entry.get("group") and entry.get("kind") != "Group" else ""
    named = f" {owned}{entry['name']}" if entry.get("name") else ""
    return f"{entry.get('kind', '-')}{named}" + (f" ({entry['id']})" if entry.get("id") else "")


AUDIT = [
    moment("Time", "at"),
    field("User", "user", least=8),
    field("Verb", "verb"),
    Column("Thing", _thing, least=20),
    field("Result", "result"),
    field("Detail", "detail", drop=1, least=16, wrap=True),
]
