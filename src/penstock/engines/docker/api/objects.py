"""The record of a container as it was last seen on its host."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.engines.base import Run
from penstock.engines.docker import names
from penstock.engines.docker.names import Label
from penstock.engines.shared.minder import Note, read_note

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)\Z")
LARGEST_NOTE = 64 * 1024
KILLED_CODE = 137
RUNS = ("running", "paused", "restarting")


LOST_TRACK = 255
"""The code that Docker writes where it found nothing of a container that ran. A program may end with it, too."""


@dataclass(frozen=True)
class ContainerRecord:
    id: str
    name: str
    host: str
    run: Run
    part: int
    labels: dict[str, str]
    status: str
    """Docker's word: created, running, paused, restarting, removing, exited, dead."""
    exit_code: int
    error: str
    """Why it could not be started."""
    out_of_memory: bool
    memory_limit: int
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    tty: bool
    cpuset: str = ""
    """The CPUs it may use, as Docker writes them; empty: all."""
    note: Note = field(default_factory=Note)
    gone: bool = False
    """Someone else removed it."""
    witness: str | None = None
    """The life of Docker (`Link.docker`) that saw it end, so that its code is true; empty: none did; None: not asked
    yet."""
    peak: int = field(default=0, compare=False)
    """Bytes of memory, of a program without a minder, as far as it was seen."""
    programs: frozenset[str] = field(default=frozenset(), compare=False)
    """By Docker's ids: those that ran beside its own when it was looked at."""

    @property
    def began(self) -> bool:
        return self.started_at is not None

    @property
    def prepared(self) -> bool:
        """Is it there and, as far as Docker knows, was never started?"""
        return self.status == "created" and not (self.began or self.gone or self.error)

    @property
    def taken_away(self) -> bool:
        """Did its removal end it? Docker kills what it removes; one that had ended before has its own end."""
        return self.gone and (self.status not in ("exited", "dead") or self.exit_code == KILLED_CODE)

    @property
    def runs(self) -> bool:
        return self.status in RUNS and not self.gone

    @property
    def over(self) -> bool:
        return self.gone or self.status in ("exited", "dead", "removing") or bool(self.error)

    @property
    def unwitnessed(self) -> bool:
        """Has it ended, while it is still to be asked whether Docker was there to see it?"""
        return self.over and not self.error and not self.gone and self.witness is None

    @property
    def unknown_code(self) -> bool:
        """Is its exit code unknown? Docker was not there when it ended, and it has left no note."""
        return self.witness == "" and self.note.code is None

    @property
    def has_bash(self) -> bool:
        return bool(self.labels.get(Label.HAS_BASH))

    @property
    def gpus(self) -> list[str]:
        """The uuids of the GPUs that are its own."""
        return [uuid for uuid in self.labels.get(Label.GPUS, "").split(",") if uuid]

    @property
    def is_array(self) -> bool:
        return bool(self.labels.get(Label.ARRAY))

    @property
    def place(self) -> int:
        """Which of the places of an array an index has; of several nodes the rank."""
        return names.number(self.labels, Label.PLACE)

    @property
    def grace(self) -> int:
        return names.number(self.labels, Label.GRACE, 10)

    @property
    def max_duration(self) -> int:
        return names.number(self.labels, Label.MAX_DURATION)


def read_container(found: dict[str, Any], host: str) -> ContainerRecord | None:
    """Read Docker's answer about a container; None if it is not of a run of ours."""
    config, state = found["Config"], found["State"]
    labels = dict(config.get("Labels") or {})
    run = names.run_of(labels)
    if run is None:
        return None
    created, status = read_time(found.get("Created")), state.get("Status", "")
    started, ended = read_time(state.get("StartedAt")), read_time(state.get("FinishedAt"))
    if started is None and not state.get("Error") and status in (*RUNS, "exited", "dead"):
        started = created  # killed while it started it, Docker does not know when that was
    return ContainerRecord(
        id=found["Id"],
        name=str(found.get("Name", "")).lstrip("/"),
        host=host,
        run=run,
        part=names.number(labels, Label.PART),
        labels=labels,
        status=status,
        exit_code=int(state.get("ExitCode") or 0),
        error=state.get("Error") or "" if started is None else "",
        out_of_memory=bool(state.get("OOMKilled")),
        memory_limit=int(found.get("HostConfig", {}).get("Memory") or 0),
        created_at=created,
        started_at=started,
        ended_at=max(ended, started) if ended and started else ended,
        tty=bool(config.get("Tty")),
        cpuset=str(found.get("HostConfig", {}).get("CpusetCpus") or ""),
        programs=frozenset(found.get("ExecIDs") or ()),
    )


def read_time(text: str | None) -> datetime | None:
    """Read a time of Docker's, which writes nanoseconds, and the year 1 for never."""
    match = _TIME.match(text or "")
    if not match or match[1].startswith("0001"):
        return None
    micros = (match[2] or "").ljust(6, "0")[:6]
    zone = "+00:00" if match[3] == "Z" else match[3]
    return datetime.fromisoformat(f"{match[1]}.{micros}{zone}").astimezone(UTC)


def note_in(archive: bytes | None) -> Note:
    """Read the minder's note. A container can put anything there, so only a small plain file is read."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive or b"")) as found:
            entry = found.next()
            file = found.extractfile(entry) if entry and entry.isreg() and entry.size <= LARGEST_NOTE else None
            return read_note(file.read().decode(errors="replace")) if file else Note()
    except (tarfile.TarError, ValueError):
        return Note()
