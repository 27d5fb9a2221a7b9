"""`penstock adm` (also `pwmadm`): manage users, groups, tokens and the audit."""

from __future__ import annotations

import click

from penstock.cli.completion import user_names
from penstock.cli.token import lifetime_options, make_token
from penstock.cli.ui.command import HELP, LazyGroup, version_option
from penstock.cli.ui.documents import documents_body, file_option, show_results
from penstock.cli.ui.options import common_options, connect
from penstock.cli.ui.output import echo, note, plural, print_data, print_items, print_total
from penstock.cli.ui.table import Column, Row, constant, field, moment
from penstock.domain.quantities import count_cpus, show_bytes, show_duration


@click.group(cls=LazyGroup, context_settings=HELP)
@version_option
def adm() -> None:
    """Manage users, groups and tokens, and see who did what."""


@adm.command(
    "init",
    examples="""
    penstock adm init
    penstock adm init ada""",
)
@click.argument("name", metavar="[USER]", required=False)
@common_options()
def init(name: str | None, output: str) -> None:
    """Make the first admin, once; from then on policies decide who may do what.

    USER is you by default. The token is printed only once.
    """
    made = connect().post("/v1/adm/init", {} if name is None else {"user": name})
    if output in ("json", "yaml"):
        print_data(made, output)
        return
    note(f"{made['user']} is the admin of this server; the token is shown only once:")
    if output == "name":
        echo(made["user"])
        note(made["token"])
    else:
        echo(made["token"])


@adm.group(cls=LazyGroup)
def user() -> None:
    """Create and change users and groups."""


@adm.group(cls=LazyGroup)
def token() -> None:
    """Manage tokens of users."""


@user.command("apply", examples="penstock adm user apply -f users.yaml")
@file_option
@click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")
@common_options()
def apply_users(file: str, dry_run: bool, output: str) -> int:
    """Create or change the users and groups in a file, which has documents of kind User and Group only."""
    body = documents_body(file) | {"dry_run": dry_run, "kinds": ["User", "Group"]}
    answer = connect().post("/v1/apply", body, create=True)
    return show_results(answer["results"], output, " (dry run)" if dry_run else "")


@token.command(
    "create",
    examples="""
    penstock adm token create ada
    penstock adm token create ada --expires 90d --description laptop""",
)
@click.argument("name", metavar="USER", shell_complete=user_names)
@lifetime_options
@common_options()
def create_token(name: str, description: str, expires: str | None, output: str) -> None:
    """Create a token for a user and print it. It is shown only once: the server keeps its hash."""
    make_token(output, description=description, expires=expires, user=name)


@adm.command("users", examples="penstock adm users -o wide")
@common_options()
def users(output: str) -> None:
    """List who may use this server."""
    items = connect().list("/v1/users", {}, 0).items
    print_items(items, output, user_columns(wide=output == "wide"), ruled=True)


@adm.command("groups", examples="penstock adm groups")
@common_options()
def groups(output: str) -> None:
    """List the groups and what each may have at once."""
    items = connect().list("/v1/groups", {}, 0).items
    print_items(items, output, group_columns(wide=output == "wide"), ruled=True)


@adm.command(
    "audit",
    examples="""
    penstock adm audit
    penstock adm audit --user ada --limit 0 -o json""",
)
@click.option("--user", "who", metavar="USER", help="Only what this user did.")
@click.option("--name", help="Only what was done to things of this name.")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="At most; 0 is all.")
@common_options()
def audit(who: str | None, name: str | None, limit: int, output: str) -> None:
    """Show who did what, newest first, refusals included."""
    listing = connect().list("/v1/audit", {"user": who, "name": name}, limit)
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


def user_columns(*, wide: bool) -> list[Column]:
    columns = [
        constant("kind", "User", drop=2),
        field("name", "name", least=12),
        Column("groups", _groups, least=16),
        Column("active", lambda row: _yes(row.get("active", True))),
    ]
    return (
        [*columns, field("uid", "uid", drop=3), Column("policy", _policies, wrap=True, least=24)] if wide else columns
    )


def group_columns(*, wide: bool) -> list[Column]:
    columns = [
        constant("kind", "Group", drop=3),
        field("name", "name", least=12),
        Column("limits", lambda row: _limits(row.get("limits")), least=16),
        Column("limits_each", lambda row: _limits(row.get("limits_each")), drop=1, least=16),
    ]
    if wide:
        columns.append(Column("max_priority", lambda row: str(row.get("max_priority") or 0), drop=4))
        columns.append(Column("max_duration", lambda row: _duration(row.get("max_duration")), drop=4))
        columns.append(Column("idle_timeout", lambda row: _duration(row.get("idle_timeout")), drop=5))
        columns.append(Column("stop_idle", lambda row: _yes(row.get("stop_idle")), drop=6))
    return columns


def _groups(row: Row) -> str:
    return ",".join(str(group.get("name")) for group in row.get("groups") or ()) or "-"


def _policies(row: Row) -> str:
    """Write a line per group: `ada: Workload get,apply; Volume get`."""
    return "\n".join(f"{group.get('name')}: {_policy(group.get('policy'))}" for group in row.get("groups") or ()) or "-"


def _policy(policy: dict[str, list[str]] | str | None) -> str:
    if isinstance(policy, dict):
        return "; ".join(f"{kind} {','.join(verbs)}" for kind, verbs in policy.items()) or "-"
    return policy or "-"


def _limits(limits: Row | None) -> str:
    """Write limits: `8 GPUs, 64 CPUs`; none is `-`."""
    known = limits or {}
    said = [plural(known["gpus"], "GPU")] if known.get("gpus") is not None else []
    said += [count_cpus(known["cpus_milli"])] if known.get("cpus_milli") is not None else []
    said += [plural(known["workloads"], "workload")] if known.get("workloads") is not None else []
    said += [f"{show_bytes(known['volume_bytes'])} in volumes"] if known.get("volume_bytes") is not None else []
    return ", ".join(said) or "-"


def _duration(seconds: int | None) -> str:
    return "-" if seconds is None else show_duration(seconds)


def _yes(value: object) -> str:
    return "true" if value else "false"
