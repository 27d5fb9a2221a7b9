"""Measure what a container uses with a script in it, which needs bash or a POSIX shell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from penstock.domain.model import now
from penstock.errors import Unavailable
from penstock.wire.measures import GpuMeasure, Measure, ProcessMeasure

LOOK = r"""
mark=$1
say() { printf '\036%s %s\n' "$mark" "$1"; }
show() {
  [ -r "$1" ] || return; say "$1"
  while line=; IFS= read -r line || [ "$line" ]; do printf '%s\n' "$line"; done <"$1"
}
words() {
  say "$1"
  if [ "$BASH_VERSION" ]; then while line=; IFS= read -r -d '' line || [ "$line" ]; do printf '%s ' "$line"; done <"$1"
  else tr '\0' ' ' <"$1"; fi
}
pause() { if [ "$BASH_VERSION" ]; then eval 'exec 3<> <(:)'; read -r -t 0.5 -u 3; else sleep 0.5 || sleep 1; fi; }
sample() {
  say sample; show /proc/uptime; for each in /proc/[0-9]*; do show "$each/stat"; done
  for file in cpu.stat cpuacct/cpuacct.usage cpu,cpuacct/cpuacct.usage; do show "/sys/fs/cgroup/$file"; done
}
{
  say self; echo $$; sample; pause; sample
  for each in /proc/[0-9]*; do show "$each/status"; words "$each/cmdline"; show "$each/io"; done
  for file in memory.current memory.max memory.stat memory/memory.usage_in_bytes memory/memory.limit_in_bytes \
    memory/memory.stat; do show "/sys/fs/cgroup/$file"; done
  show /proc/net/dev; show /etc/passwd
  if command -v nvidia-smi >/dev/null; then
    say gpus; nvidia-smi --query-gpu=uuid,name,memory.total,memory.used,utilization.gpu --format=csv,noheader,nounits
  fi
} 2>/dev/null
""".strip()
"""What only bash can read stands in quotes: other shells would refuse all of it. A line that cannot be read leaves the
one before where it was, so that one is forgotten first."""

TICKS = 100
"""Ticks of a second in /proc, on every machine Kubernetes runs on."""
UNLIMITED = 1 << 62
"""From here on a limit of a cgroup of the first version means none."""
MEBIBYTE = 1 << 20
LONGEST_COMMAND, MOST_PROCESSES = 300, 200
_PROCESS = re.compile(r"/proc/(\d+)/(\w+)\Z")
_CGROUP = "/sys/fs/cgroup"


class _Process(NamedTuple):
    parent: int
    ticks: int
    began: int


Texts = dict[str, str]


def read_usage(said: bytes, mark: str) -> Measure:
    """Read what the script printed. A program in the container can forge it, about itself only."""
    sections = _sections(said.decode(errors="replace"), mark)
    try:
        before, after = (_sample(texts) for texts in sections[1:3])
        return _measure(before, after, sections[2], int(sections[0].get("self", "0")))
    except (ValueError, IndexError, KeyError) as error:
        raise Unavailable("The container's answer cannot be read.") from error


def _sections(text: str, mark: str) -> list[Texts]:
    """Split into what stood under each name: before the samples, and from each of them on."""
    found: list[Texts] = [{}]
    for part in text.split(f"\036{mark} ")[1:]:
        name, _, content = part.partition("\n")
        if name == "sample":
            found.append({})
        else:
            found[-1][name] = content
    return found


class _Sample(NamedTuple):
    uptime: float
    busy: float | None
    processes: Mapping[int, _Process]


def _sample(texts: Texts) -> _Sample:
    processes = {}
    for name, content in texts.items():
        about = _PROCESS.match(name)
        words = content.rpartition(")")[2].split()
        if about and about[2] == "stat" and len(words) > 19:
            processes[int(about[1])] = _Process(int(words[1]), int(words[11]) + int(words[12]), int(words[19]))
    return _Sample(float(texts["/proc/uptime"].split()[0]), _busy(texts), processes)


def _busy(texts: Texts) -> float | None:
    """The CPU seconds used."""
    for file in ("cpuacct/cpuacct.usage", "cpu,cpuacct/cpuacct.usage"):
        if found := texts.get(f"{_CGROUP}/{file}"):
            return int(found) / 1e9
    found = _value(texts.get(f"{_CGROUP}/cpu.stat", ""), "usage_usec")
    return int(found) / 1e6 if found else None


def _value(text: str, key: str) -> str | None:
    lines = [line.split() for line in text.splitlines()]
    return next((words[1] for words in lines if len(words) > 1 and words[0] == key), None)


def _measure(before: _Sample, after: _Sample, texts: Texts, own: int) -> Measure:
    seconds = max(after.uptime - before.uptime, 0.01)
    theirs = {pid: each for pid, each in after.processes.items() if own not in (pid, each.parent)}
    users = _users(texts.get("/etc/passwd", ""))
    shown = []
    for pid, process in theirs.items():
        earlier = before.processes.get(pid)
        ticks = process.ticks - (earlier.ticks if earlier and earlier.began == process.began else 0)
        if status := texts.get(f"/proc/{pid}/status"):
            percent = round(100 * ticks / TICKS / seconds, 1)
            name = _value(status, "Name:") or "?"
            command = texts.get(f"/proc/{pid}/cmdline", "").strip() or f"[{name}]"
            shown.append(_process(pid, percent, status, command, users))
    shown.sort(key=lambda each: (-each.cpu_percent, -each.memory_bytes, each.pid))
    cpu = sum(each.cpu_percent for each in shown)
    if before.busy is not None and after.busy is not None:
        cpu = 100 * (after.busy - before.busy) / seconds
    received, sent = _network(texts.get("/proc/net/dev", ""))
    return Measure(
        at=now(),
        cpu_percent=max(round(cpu, 1), 0.0),
        memory_bytes=_memory(texts) or sum(each.memory_bytes for each in shown),
        memory_limit_bytes=_limit(texts),
        gpus=_gpus(texts.get("gpus", "")),
        disk_read_bytes=_io(theirs, texts, "read_bytes:"),
        disk_written_bytes=_io(theirs, texts, "write_bytes:"),
        network_received_bytes=received,
        network_sent_bytes=sent,
        processes=tuple(shown[:MOST_PROCESSES]),
    )


def _process(pid: int, percent: float, status: str, command: str, users: Mapping[str, str]) -> ProcessMeasure:
    resident, uid = _value(status, "VmRSS:"), _value(status, "Uid:") or "?"
    return ProcessMeasure(
        pid=pid,
        user=users.get(uid, uid),
        cpu_percent=percent,
        memory_bytes=int(resident) * 1024 if resident else 0,
        command=command[:LONGEST_COMMAND],
    )


def _users(passwd: str) -> dict[str, str]:
    known: dict[str, str] = {}
    for line in passwd.splitlines():
        words = line.split(":")
        if len(words) > 2:
            known.setdefault(words[2], words[0])
    return known


def _memory(texts: Texts) -> int | None:
    """The memory used, without cached files that the kernel gives back."""
    for used, stat, kept in (
        ("memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        if found := texts.get(f"{_CGROUP}/{used}"):
            return max(int(found) - int(_value(texts.get(f"{_CGROUP}/{stat}", ""), kept) or 0), 0)
    return None


def _limit(texts: Texts) -> int | None:
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        found = texts.get(f"{_CGROUP}/{file}", "").strip()
        if found.isdigit() and int(found) < UNLIMITED:
            return int(found)
    return None


def _io(processes: Mapping[int, _Process], texts: Texts, key: str) -> int | None:
    """Sum a counter of the processes' I/O; those of other accounts are not shown."""
    found = [_value(texts.get(f"/proc/{pid}/io", ""), key) for pid in processes]
    counts = [int(each) for each in found if each]
    return sum(counts) if counts else None


def _network(text: str) -> tuple[int | None, int | None]:
    """Sum the bytes of all interfaces of the pod but the loopback."""
    received = sent = None
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and name.strip() != "lo" and len(words) > 8:
            received, sent = (received or 0) + int(words[0]), (sent or 0) + int(words[8])
    return received, sent


def _gpus(text: str) -> tuple[GpuMeasure, ...]:
    """Read what nvidia-smi prints; what it does not know is `[N/A]`."""
    found = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 5 and words[0].startswith("GPU-"):
            total, used, percent = (_number(word) for word in words[2:])
            found.append(
                GpuMeasure(
                    uuid=words[0],
                    product=words[1],
                    memory_bytes=None if total is None else total * MEBIBYTE,
                    memory_used_bytes=None if used is None else used * MEBIBYTE,
                    utilization=percent,
                )
            )
    return tuple(found)


def _number(word: str) -> int | None:
    with suppress(ValueError):
        return int(word)
    return None
