"""`penstock volumes`: create, list, resize, enter and delete volumes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.completion import volume_names
from penstock.cli.exec import converse, session_options
from penstock.cli.ui.command import LazyGroup, command
from penstock.cli.ui.options import api_url_option, connect, list_options, output_option
from penstock.cli.ui.output import echo, note, print_data, print_facts, print_items, show_list
from penstock.cli.ui.table import NAME, Column, Row, field, moment, short_time
from penstock.client.address import segment

PATH = "/v1/volumes"
PHASE = 30
"""Width of a status and its reason before other columns are dropped for it."""
COMMANDS = {
    "create": "penstock.cli.volumes:create",
    "list": "penstock.cli.volumes:list_volumes",
    "get": "penstock.cli.volumes:get",
    "resize": "penstock.cli.volumes:resize",
    "df": "penstock.cli.volumes:df",
    "shell": "penstock.cli.volumes:shell",
    "delete": "penstock.cli.volumes:delete",
    "classes": "penstock.cli.volumes:classes",
}


@click.group(cls=LazyGroup, places=COMMANDS)
def volumes() -> None:
    """Manage volumes: places for data, used by name."""


@command(
    "create",
    examples="""
    penstock volumes create training-data 10Gi
    penstock volumes create shared-data 50Gi --access-modes ReadWriteMany
    penstock volumes create fast-cache 20Gi --storage-class standard""",
)
@click.argument("name")
@click.argument("size")
@click.option("-s", "--storage-class", help="Its storage class; see: penstock volumes classes.")
@click.option(
    "-a",
    "--access-modes",
    default="ReadWriteOnce",
    show_default=True,
    metavar="MODE[,MODE]",
    help="ReadWriteOnce, ReadWriteMany (for jobs of several nodes), ReadOnlyMany.",
)
@output_option
@api_url_option()
def create(
    name: str, size: str, storage_class: str | None, access_modes: str, output: str, api_url: str | None
) -> None:
    """Create a volume of SIZE (500Mi, 10Gi, 1Ti)."""
    modes = [mode.strip() for mode in access_modes.split(",") if mode.strip()]
    body = {"name": name, "size": size, "storage_class": storage_class, "access_modes": modes}
    volume = connect(api_url).post(PATH, body, create=True)
    for notice in volume.get("notices", ()):
        note(f"Note: {notice}")
    if output in ("table", "wide"):
        echo(f"Volume created successfully with ID: {volume['id']}")
        echo(f"Status: {phase(volume)}")
    else:
        print_data(volume, output)


@command(
    "list",
    examples="""
    penstock volumes list
    penstock volumes list --details
    penstock volumes list --status Bound -o name""",
)
@list_options
def list_volumes(
    details: bool,
    all_users: bool,
    status: str | None,
    name: str | None,
    limit: int,
    watch: bool,
    output: str,
    api_url: str | None,
) -> None:
    """List volumes; --details shows what is used of them."""
    details = details or output == "wide"
    query = {"status": status, "name": name, "all_users": all_users, "usage": details}
    columns = volume_columns(details=details, all_users=all_users)
    client = connect(api_url)
    show_list(client, PATH, query, lambda _: columns, "volumes", limit=limit, watch=watch, output=output)


def volume_columns(*, details: bool, all_users: bool) -> list[Column]:
    columns = [field("Volume ID", "id"), field("Name", "name", least=NAME), field("Size", "size")]
    columns += [Column("Status", phase, least=9 if details else PHASE), moment("Created", "created_at", drop=2)]
    if all_users:
        columns.append(field("User", "user", least=16))
    if details:
        columns.append(field("Storage Class", "storage_class", drop=3))
        columns.append(Column("Access Modes", access, drop=1, least=13))
        columns += [field("PVC Name", "object_name", drop=4), Column("Used", used, least=12)]
    return columns


def phase(volume: Row) -> str:
    """Return the status, with the reason if there is something to wait for or to fix."""
    why = volume.get("message") if volume["status"] in ("Pending", "Lost") else None
    return f"{volume['status']}: {why}" if why else str(volume["status"])


def access(volume: Row) -> str:
    """Return the access modes in effect."""
    return "ReadOnlyMany" if volume.get("readonly") else ",".join(volume["access_modes"])


def used(volume: Row) -> str:
    """Return the bytes used, and their share if a size was asked for."""
    amount = volume.get("used_bytes")
    if amount is None:
        return f"not measured: {volume['not_measured']}" if volume.get("not_measured") else "-"
    from penstock.domain.quantities import show_bytes

    share = f" ({100 * amount / volume['size_bytes']:.0f} %)" if volume["size_bytes"] else ""
    return f"{show_bytes(amount)}{share}"


@command("get", examples="penstock volumes get training-data")
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=volume_names)
@output_option
@api_url_option()
def get(ref: str, output: str, api_url: str | None) -> None:
    """Show one volume: what is used of it, and by which jobs."""
    volume = connect(api_url).get(f"{PATH}/{segment(ref)}", {"usage": True})
    if output not in ("table", "wide"):
        print_data(volume, output)
        return
    show_volume(volume)


def _user(job: Row) -> str:
    return f"{job['name']} ({job['id']}, {job['status']})" if job["id"] else str(job["name"])


def show_volume(volume: Row, more: Sequence[tuple[str, str]] = ()) -> None:
    """Print a volume; `more` are facts k8s-cli has no line for."""
    users = ", ".join(map(_user, volume.get("used_by") or ()))
    facts = [("Volume ID", volume["id"]), ("Name", volume["name"]), ("Status", volume["status"])]
    facts += [("Message", volume["message"])] if volume.get("message") else []
    facts += [("Size", volume["size"] or "-"), ("Used", used(volume)), ("Used By", users or "-")]
    place = ("Storage", volume["storage"]) if volume.get("storage") else ("Storage Class", volume["storage_class"])
    facts += [place, *more, ("Access Modes", access(volume))]
    namespace = volume.get("namespace") or volume["group"]
    facts += [("User", volume["user"]), ("Namespace", namespace), ("PVC Name", volume["object_name"])]
    print_facts([*facts, ("Created", short_time(volume["created_at"]))])


@command("resize", examples="penstock volumes resize training-data 20Gi")
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=volume_names)
@click.argument("size")
@output_option
@api_url_option()
def resize(ref: str, size: str, output: str, api_url: str | None) -> None:
    """Make a volume larger, where its storage class allows that. It never gets smaller."""
    volume = connect(api_url).post(f"{PATH}/{segment(ref)}/resize", {"size": size})
    if output in ("table", "wide"):
        echo(f"Volume {volume['id']} ({volume['name']}) is {volume['size']}")
    else:
        print_data(volume, output)


@command("df", examples="penstock volumes df\npenstock volumes df training-data")
@click.argument("refs", metavar="[NAME_OR_ID]...", nargs=-1, shell_complete=volume_names)
@output_option
@api_url_option()
def df(refs: Sequence[str], output: str, api_url: str | None) -> None:
    """Show used and free space of volumes, like df: of their size, and of the disk."""
    client = connect(api_url)
    if refs:
        items = [client.get(f"{PATH}/{segment(ref)}", {"usage": True}) for ref in refs]
    else:
        items = client.list(PATH, {"usage": True}, 0).items
    columns = [
        field("Volume", "name", least=NAME),
        field("Size", "size"),
        Column("Used", _used),
        Column("Avail", _left),
        Column("Disk free", _free, drop=2),
    ]
    columns += [Column("Use%", _share), Column("Status", _measured, drop=1, least=9)]
    print_items(items, output, columns)


def _used(volume: Row) -> str:
    from penstock.domain.quantities import show_bytes

    return "-" if volume.get("used_bytes") is None else show_bytes(volume["used_bytes"])


def _measured(volume: Row) -> str:
    return f"not measured: {volume['not_measured']}" if volume.get("not_measured") else phase(volume)


def _left(volume: Row) -> str:
    from penstock.domain.quantities import show_bytes

    left = _left_of(volume)
    return "-" if left is None else show_bytes(left)


def _left_of(volume: Row) -> int | None:
    """Return how many bytes can still be written, within the volume's size and the disk."""
    used_bytes, size, free = volume.get("used_bytes"), volume["size_bytes"], volume.get("free_bytes")
    known = [max(size - used_bytes, 0)] if size and used_bytes is not None else []
    return min([*known, *([] if free is None else [free])], default=None)


def _share(volume: Row) -> str:
    used_bytes, size = volume.get("used_bytes"), volume["size_bytes"]
    return f"{100 * used_bytes / size:.0f}%" if size and used_bytes is not None else "-"


@command(
    "shell",
    passes_code=True,
    examples="""
    penstock volumes shell training-data
    penstock volumes shell training-data -- du -sh .
    tar c results | penstock volumes shell training-data -- tar x""",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=volume_names)
@click.argument("words", metavar="[--] [COMMAND]...", nargs=-1)
@session_options
@api_url_option()
def shell(ref: str, words: Sequence[str], stdin: bool | None, tty: bool | None, api_url: str | None) -> int:
    """Open a shell in a volume, or run a program there; no job needs to run.

    The volume is at /volume. The exit code is the program's.
    """
    return converse(connect(api_url), f"{PATH}/{segment(ref)}/shell", {}, words, stdin, tty)


@command(
    "delete",
    examples="""
    penstock volumes delete training-data
    penstock volumes delete vabcdefg --force""",
)
@click.argument("refs", metavar="NAME_OR_ID...", nargs=-1, required=True, shell_complete=volume_names)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@output_option
@api_url_option()
def delete(refs: Sequence[str], force: bool, output: str, api_url: str | None) -> int:
    """Delete volumes and all their data, for good. Refused while a job uses one."""
    from penstock.cli.ui.confirm import confirmed, each, of_others

    client = connect(api_url)

    def delete_one(ref: str) -> Row | None:
        volume = client.get(f"{PATH}/{segment(ref)}")
        whose = f" of {volume['user']}" if not force and of_others(client, [volume]) else ""
        question = f"Delete volume {volume['name']} ({volume['id']}, {volume['size']}){whose} and all its data?"
        if not force and not confirmed(question):
            return None
        gone: Row = client.delete(f"{PATH}/{volume['id']}")
        return gone

    return each(refs, delete_one, output, _said_of_deleted)


def _said_of_deleted(gone: Row) -> str:
    if gone.get("message"):
        return f"Volume {gone['id']} is being deleted: {gone['message']}"
    return f"Volume {gone['id']} deleted successfully"


@command("classes", examples="penstock volumes classes")
@output_option
@api_url_option()
def classes(output: str, api_url: str | None) -> None:
    """List the storage classes for volumes."""
    items = connect(api_url).get("/v1/storage-classes")["items"]
    columns = [
        Column("Name", lambda row: f"{row['name']} (default)" if row.get("default") else row["name"]),
        Column("Free", _free),
        Column("Can grow", lambda row: "yes" if row.get("resizable") else "no"),
        field("Description", "description", wrap=True, least=20),
    ]
    print_items(items, output, columns)


def _free(row: Row) -> str:
    from penstock.domain.quantities import show_bytes

    return "-" if row.get("free_bytes") is None else show_bytes(row["free_bytes"])
