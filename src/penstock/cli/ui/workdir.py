"""Pack directories of code that a task names, honouring .gitignore at every level as git does.

The archive goes to the server while it is made, so it needs no room on the disk. Owner and order are fixed, so the
same files give the same bytes.

The server reads the text and says what it needs (428). That is a claim: a server that lies could name any directory of
whoever asks. So the client reads the same text, for that one key alone, and compares.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import stat
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, NamedTuple

import yaml
from pathspec import GitIgnoreSpec

from penstock.cli.ui.output import note
from penstock.cli.ui.table import clean
from penstock.client.api import Client
from penstock.client.http import SendPiece
from penstock.domain.quantities import show_bytes
from penstock.errors import BadRequest, FilesNeeded, ServerFault, TooLarge

PIECE = 256 * 1024
PATIENCE = 1.0
"""Seconds before a progress bar is shown."""
BAR = 30


class PackedFile(NamedTuple):
    path: Path
    name: str
    """Relative to the directory that is packed."""
    status: os.stat_result


class IgnoreRules(NamedTuple):
    """One .gitignore, whose rules hold below its directory."""

    directory: Path
    spec: GitIgnoreSpec


def upload(client: Client, directory: Path, entries: Sequence[PackedFile], limit: int | None) -> str:
    """Pack what was found in the directory, send it, and return the id of the upload."""

    def fill(send: SendPiece) -> None:
        pack(entries, ArchivePipe(send, directory, entries, limit), ProgressBar(directory, entries))

    answer = client.put("/v1/uploads", fill)
    return str(answer["id"])


def walk(directory: Path) -> Iterator[PackedFile]:
    """Yield everything to send, parents before children, in a fixed order."""
    if not directory.is_dir():
        raise BadRequest(f"The workdir {directory} is not a directory.", hint="it is relative to the task file")
    top = directory.resolve()
    yield from _below(PackedFile(top, "", top.stat()), _rules_above(top))


def _below(parent: PackedFile, rules: Sequence[IgnoreRules]) -> Iterator[PackedFile]:
    directory, prefix = parent.path, f"{parent.name}/" if parent.name else ""
    rules = [*rules, *_rules_in(directory)]
    try:
        with _opened(parent, os.O_DIRECTORY) as handle, os.scandir(handle) as items:
            found = sorted((item.name, item.stat(follow_symlinks=False)) for item in items)
    except OSError as error:
        raise BadRequest(f"{directory} cannot be read: {error.strerror}.") from error
    for name, status in found:
        path, folder = directory / name, stat.S_ISDIR(status.st_mode)
        sendable = folder or stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
        if name == ".git" or not sendable or _ignored(path, folder, rules):
            continue
        entry = PackedFile(path, prefix + name, status)
        yield entry
        if folder:
            yield from _below(entry, rules)


@contextmanager
def _opened(entry: PackedFile, flags: int = 0) -> Iterator[int]:
    """Open the file that was found; whatever replaced it since then, such as a link, is not read."""
    handle = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        if not os.path.samestat(os.fstat(handle), entry.status):
            raise OSError(errno.ESTALE, "it was exchanged while it was read")
        yield handle
    finally:
        os.close(handle)


def _rules_in(directory: Path) -> list[IgnoreRules]:
    try:
        text = (directory / ".gitignore").read_text(errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return []
    except OSError as error:
        raise BadRequest(f"{directory / '.gitignore'} cannot be read: {error.strerror}.") from error
    return [IgnoreRules(directory, GitIgnoreSpec.from_lines(text.splitlines()))]


def _rules_above(top: Path) -> list[IgnoreRules]:
    """Return the rules of the repository that the directory is part of, outermost first."""
    above = list(top.parents)
    root = next((place for place, parent in enumerate([top, *above]) if (parent / ".git").exists()), 0)
    return [rules for parent in reversed(above[:root]) for rules in _rules_in(parent)]


def _ignored(path: Path, folder: bool, rules: Sequence[IgnoreRules]) -> bool:
    """Tell whether a path is ignored: the innermost .gitignore that mentions it decides."""
    for directory, spec in reversed(rules):
        name = str(path.relative_to(directory)) + ("/" if folder else "")
        said = spec.check_file(name).include
        if said is not None:
            return said
    return False


class ArchivePipe:
    """The file that the archive is written to: sends it in pieces, and stops at the size limit."""

    def __init__(self, send: SendPiece, directory: Path, entries: Sequence[PackedFile], limit: int | None) -> None:
        self._send = send
        self._directory = directory
        self._entries = entries
        self._limit = limit
        self._sent = 0
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._sent += len(data)
        if self._limit is not None and self._sent > self._limit:
            raise self._too_large(self._limit)
        self._held += data
        if len(self._held) >= PIECE:
            self.flush()
        return len(data)

    def flush(self) -> None:
        self._send(bytes(self._held))
        self._held.clear()

    def _too_large(self, limit: int) -> TooLarge:
        largest = sorted(self._entries, key=size, reverse=True)[:3]
        names = ", ".join(f"{entry.name} ({show_bytes(size(entry))})" for entry in largest)
        return TooLarge(
            f"The workdir {self._directory} is over the limit of {show_bytes(limit)}, packed. Its largest: {names}.",
            hint="leave data out by .gitignore and put it in a volume",
        )


class ProgressBar:
    """A progress bar on the terminal, once packing takes a while."""

    def __init__(self, directory: Path, entries: Sequence[PackedFile], doing: str = "Sending") -> None:
        self._doing = doing
        self._directory = directory
        self._total = sum(map(size, entries)) or 1
        self._done = 0
        self._next = monotonic() + PATIENCE
        self._shown = False

    def advance(self, amount: int) -> None:
        self._done += amount
        if monotonic() < self._next or not sys.stderr.isatty():
            return
        self._next = monotonic() + 0.1
        self._shown = True
        filled = min(BAR, BAR * self._done // self._total)
        bar = "#" * filled + "-" * (BAR - filled)
        amounts = f"{show_bytes(self._done)} of {show_bytes(self._total)}"
        sys.stderr.write(f"\r{self._doing} {clean(str(self._directory))} [{bar}] {amounts}\x1b[K")
        sys.stderr.flush()

    def finish(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class ReadProgress:
    """A file that reports how much of it was read."""

    def __init__(self, file: BinaryIO, progress: ProgressBar) -> None:
        self._file = file
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._progress.advance(len(data))
        return data


def contents(entries: Sequence[PackedFile]) -> str:
    """Describe what is sent, before packing: `3 files, 12Ki`."""
    files = [entry for entry in entries if not stat.S_ISDIR(entry.status.st_mode)]
    return f"{len(files)} file{'' if len(files) == 1 else 's'}, {show_bytes(sum(map(size, files)))}"


def size(entry: PackedFile) -> int:
    return entry.status.st_size if stat.S_ISREG(entry.status.st_mode) else 0


def pack(entries: Sequence[PackedFile], pipe: ArchivePipe, progress: ProgressBar) -> None:
    """Write the entries to the pipe as .tar.gz."""
    try:
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=pipe, compresslevel=1, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            for entry in entries:
                _add(archive, entry, progress)
        pipe.flush()
    finally:
        progress.finish()


def _add(archive: tarfile.TarFile, entry: PackedFile, progress: ProgressBar) -> None:
    info = tarfile.TarInfo(entry.name)
    info.mode = stat.S_IMODE(entry.status.st_mode) & 0o777
    info.mtime = int(entry.status.st_mtime)
    try:
        if stat.S_ISDIR(entry.status.st_mode):
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        elif stat.S_ISLNK(entry.status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, str(entry.path.readlink())
            archive.addfile(info)
        else:
            with _opened(entry) as handle, os.fdopen(handle, "rb", closefd=False) as file:
                info.size = os.fstat(file.fileno()).st_size
                archive.addfile(info, ReadProgress(file, progress))
    except ConnectionError:
        raise  # the server's answer says why
    except OSError as error:
        raise BadRequest(f"{entry.path} cannot be sent: {error.strerror or error}.") from error


KEY = "workdir"


def send_files(client: Client, text: str, base: str, asked: FilesNeeded) -> dict[str, str]:
    """Pack and send what is asked for, and return the upload's id for each field. Everything is checked first."""
    files, limit = asked.details.get("files"), asked.details.get("limit_bytes")
    if not isinstance(files, dict) or not files:
        raise refusal(files)
    known = set(named_directories(text))
    for path in files.values():
        if not isinstance(path, str) or path not in known:
            raise refusal(path)
    limit = limit if isinstance(limit, int) else None
    sent = {path: _send(client, path, base, limit) for path in dict.fromkeys(files.values())}
    return {field: sent[path] for field, path in files.items()}


def sent_along(text: str, base: str, limit: int | None) -> list[str]:
    """Describe what would be sent of local directories; each is packed, so that a dry run finds the same problems."""
    return [_would_send(path, base, limit) for path in dict.fromkeys(named_directories(text))]


def _would_send(path: str, base: str, limit: int | None) -> str:
    directory = Path(base, path)
    entries = list(walk(directory))
    pack(entries, ArchivePipe(lambda _: None, directory, entries, limit), ProgressBar(directory, entries, "Packing"))
    return f"{path} ({contents(entries)} before packing)"


def _send(client: Client, path: str, base: str, limit: int | None) -> str:
    directory = Path(base, path)
    entries = list(walk(directory))
    note(f"Sending {path} ({contents(entries)})")
    return upload(client, directory, entries, limit)


def refusal(path: Any) -> ServerFault:
    return ServerFault(
        f"The server asks for {json.dumps(path)}, which is not a relative {KEY} of what you submit; nothing was sent.",
        hint="do not trust this server: it may be after your files; tell its admin",
    )


def named_directories(text: str) -> Iterator[str]:
    """Yield every relative workdir in any document of the text; none if the text cannot be read."""
    for document in _documents(text):
        for each in (document, *_items(document)):
            for place in (each, each.get("spec") if isinstance(each, dict) else None):
                path = place.get(KEY) if isinstance(place, dict) else None
                if isinstance(path, str) and path and not path.startswith("/"):
                    yield path


def _documents(text: str) -> list[Any]:
    """Parse the text; JSON by its own parser, since YAML's does not join a surrogate pair of escapes."""
    try:
        if text.startswith("{"):
            return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    try:
        return list(yaml.load_all(text, Loader=yaml.CBaseLoader))
    except (yaml.YAMLError, RecursionError):
        return []


def _items(document: Any) -> list[Any]:
    """Return the documents inside a List."""
    items = document.get("items") if isinstance(document, dict) else None
    return items if isinstance(items, list) else []
