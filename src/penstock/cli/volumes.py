"""`penstock volumes`: create, list, resize, enter and delete volumes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.completion import volume_names
from penstock.cli.exec import converse, session_options
from penstock.cli.ui.command import LazyGroup
from penstock.cli.ui.options import ListOptions, api_url_option, common_options, connect, list_options
from penstock.cli.ui.output import as_table, print_data, print_facts, print_items, print_result, show_list, show_notices
from penstock.cli.ui.table import NAME, Column, Row, field, moment, short_time
from penstock.client.address import segment

PATH = "/v1/volumes"
PHASE = 30
"""Width of a status and its reason before other columns are dropped for it."""


@click.group(cls=LazyGroup)
def volumes() -> None:
    """Manage volumes: places for data, used by name."""


@volumes.command(
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
@common_options()
def create(name: str, size: str, storage_class: str | None, access_modes: str, output: str) -> None:
    """Create a volume of SIZE (500Mi, 10Gi, 1Ti)."""
    modes = [mode.strip() for mode in access_modes.split(",") if mode.strip()]
    body = {"name": name, "size": size, "storage_class": storage_class, "access_modes": modes}
    volume = connect().post(PATH, body, create=True)
    show_notices(volume)
    text = f"Volume created successfully with ID: {volume['id']}\nStatus: {phase(volume)}"
    print_result(volume, output, text)


@volumes.command(
    "list",
    examples="""
    penstock volumes list
    penstock volumes list --details
    penstock volumes list --status Bound -o name""",
)
@list_options
def list_volumes(asked: ListOptions) -> None:
    """List volumes; --details shows what is used of them."""
    details = asked.details or asked.output == "wide"
    columns = volume_columns(details=details, all_users=asked.all_users)
    show_list(connect(), PATH, asked, lambda _: columns, "volumes", usage=details)


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
    return "ReadOnlyMany" if volume.get("readonly") else ",".join(volume["access_modes"])


def used(volume: Row) -> str:
    """Return the bytes used, and their share if a size was asked for."""
    amount = volume.get("used_bytes")
    if amount is None:
        return f"not measured: {volume['not_measured']}" if volume.get("not_measured") else "-"
    share = f" ({100 * amount / volume['size_bytes']:.0f} %)" if volume["size_bytes"] else ""
    return f"{_bytes(amount)}{share}"


def _bytes(amount: int | None) -> str:
    from penstock.domain.quantities import show_bytes

    return "-" if amount is None else show_bytes(amount)


@volumes.command("get", examples="penstock volumes get training-data")
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=volume_names)
@common_options()
def get(ref: str, output: str) -> None:
    """Show one volume: what is used of it, and by which jobs."""
    volume = connect().get(f"{PATH}/{segment(ref)}", {"usage": True})
    if as_table(output):
        show_volume(volume)
    else:
        print_data(volume, output)


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


@volumes.command("resize", examples="penstock volumes resize training-data 20Gi")
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=volume_names)
@click.argument("size")
@common_options()
def resize(ref: str, size: str, output: str) -> None:
    """Make a volume larger, where its storage class allows that. It never gets smaller."""
    volume = connect().post(f"{PATH}/{segment(ref)}/resize", {"size": size})
    print_result(volume, output, f"Volume {volume['id']} ({volume['name']}) is {volume['size']}")


@volumes.command("df", examples="penstock volumes df\npenstock volumes df training-data")
@click.argument("refs", metavar="[NAME_OR_ID]...", nargs=-1, shell_complete=volume_names)
@common_options()
def df(refs: Sequence[str], output: str) -> None:
    """Show used and free space of volumes, like df: of their size, and of the disk."""
    client = connect()
    if refs:
        items = [client.get(f"{PATH}/{segment(ref)}", {"usage": True}) for ref in refs]
    else:
        items = client.list(PATH, {"usage": True}, 0).items
    columns = [
        field("Volume", "name", least=NAME),
        field("Size", "size"),
        Column("Used", lambda volume: _bytes(volume.get("used_bytes"))),
        Column("Avail", lambda volume: _bytes(_left(volume))),
        Column("Disk free", _free, drop=2),
    ]
    columns += [Column("Use%", _share), Column("Status", _measured, drop=1, least=9)]
    print_items(items, output, columns)


def _measured(volume: Row) -> str:
    return f"not measured: {volume['not_measured']}" if volume.get("not_measured") else phase(volume)


def _left(volume: Row) -> int | None:
    """Return how many bytes can still be written, within the volume's size and the disk."""
    used_bytes, size, free = volume.get("used_bytes"), volume["size_bytes"], volume.get("free_bytes")
    known = [max(size - used_bytes, 0)] if size and used_bytes is not None else []
    return min([*known, *([] if free is None else [free])], default=None)


def _share(volume: Row) -> str:
    used_bytes, size = volume.get("used_bytes"), volume["size_bytes"]
    return f"{100 * used_bytes / size:.0f}%" if size and used_bytes is not None else "-"


@volumes.command(
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
def shell(ref: str, words: Sequence[str], stdin: bool | None, tty: bool | None) -> int:
    """Open a shell in a volume, or run a program there; no job needs to run.

    The volume is at /volume. The exit code is the program's.
    """
    return converse(connect(), f"{PATH}/{segment(ref)}/shell", {}, words, stdin, tty)


@volumes.command(
    "delete",
    examples="""
    penstock volumes delete training-data
    penstock volumes delete vabcdefg --force""",
)
@click.argument("refs", metavar="NAME_OR_ID...", nargs=-1, required=True, shell_complete=volume_names)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@common_options()
def delete(refs: Sequence[str], force: bool, output: str) -> int:
    """Delete volumes and all their data, for good. Refused while a job uses one."""
    from penstock.cli.ui.confirm import delete_each

    def question(volume: Row, whose: str) -> str:
        return f"Delete volume {volume['name']} ({volume['id']}, {volume['size']}){whose} and all its data?"

    return delete_each(connect(), PATH, refs, question, force=force, output=output, say=_deleted)


def _deleted(gone: Row) -> str:
    if gone.get("message"):
        return f"Volume {gone['id']} is being deleted: {gone['message']}"
    return f"Volume {gone['id']} deleted successfully"


@volumes.command("classes", examples="penstock volumes classes")
@common_options()
def classes(output: str) -> None:
    """List the storage classes for volumes."""
    items = connect().get("/v1/storage-classes")["items"]
    columns = [
        Column("Name", lambda row: f"{row['name']} (default)" if row.get("default") else row["name"]),
        Column("Free", _free),
        Column("Can grow", lambda row: "yes" if row.get("resizable") else "no"),
        field("Description", "description", wrap=True, least=20),
    ]
    print_items(items, output, columns)


def _free(row: Row) -> str:
    return _bytes(row.get("free_bytes"))
