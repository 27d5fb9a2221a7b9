"""What processes use now: small containers of ours read it from the kernel, twice, a second apart.

One that looks at a job shares its process numbers and nothing else. Root in the job is then root over that container's
processes, too: it may end them, hold them or make them do something else. So they have and can do nothing that the job
has not and cannot, they are not waited for long, and where they fail Docker's own answer has to do.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Iterator
from time import monotonic
from typing import NamedTuple

from penstock.engines.docker.api import Api, Fields
from penstock.engines.docker.container_settings import ContainerSettings
from penstock.engines.docker.failures import ApiError
from penstock.engines.docker.helping import ended, helped
from penstock.wire import ProcessMeasure

KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20
TICKS = 100
"""In a second: so the kernel tells times, on every processor that Docker runs on."""
PATIENCE = 10.0
LONGEST_COMMAND, MOST_PROCESSES = 300, 200
NOBODY = "65533:65533"
"""Root would be root among the processes it sees, too, and could end them even without a capability."""
UNABLE: Fields = {"CapAdd": [], "ReadonlyRootfs": True}
LIMITS: Fields = {
    "Memory": 64 * MEBIBYTE,
    "MemorySwap": 64 * MEBIBYTE,
    "NanoCpus": 10**9,
    "LogConfig": {"Type": "local", "Config": {"max-size": "1m", "max-file": "1", "compress": "false"}},
}
"""Far more than it needs: they are for a job that makes it do something else."""


def twice(*files: str) -> str:
    """Prints these and which processes there are, now and a second later."""
    shown = " ".join(("/proc/uptime", *files))
    return f"for i in 0 1; do head -n 1 /proc/stat; cat {shown}; printf '%s\\n' /proc/[0-9]*; sleep $((1-i)); done"


def busiest(look: str, most: int, tell: str) -> str:
    """Words for a shell: what `look` prints, and then so many processes. `tell` is a function that says more of one."""
    return f"{{ {look}; }} | awk -v MOST={most} '{BUSIEST}{tell}'"


BUSIEST = r"""
function read(file) {
  line = ""
  while ((getline part < file) > 0) line = line part
  close(file)
  count = split(line, parts, ")")
  split(parts[count], word, " ")
  return line != ""
}
BEGIN { read("/proc/self/stat"); own = word[4]; for (i = 1; i <= MOST; i++) most[i] = -1 }
/^cpu / { look++ }
!/^\/proc\// { print; next }
!read($0 "/stat") || word[1] ~ /[ZX]/ || word[4] == own { next }
look == 1 { before[$0, word[20]] = word[12] + word[13]; next }
{
  all++
  used = word[12] + word[13] - before[$0, word[20]] + word[22] / 1e12
  for (i = MOST; i && used > most[i]; i--) { most[i + 1] = most[i]; who[i + 1] = who[i] }
  most[i + 1] = used
  who[i + 1] = $0
}
END {
  for (i = 1; i <= MOST && most[i] >= 0; i++) {
    print "busy", substr(who[i], 7), int(most[i])
    file = who[i] "/status"
    while ((getline line < file) > 0) if (line ~ /^(Name|Uid|VmRSS):/) print line
    close(file)
    tell(who[i])
  }
}
"""
"""Passes on what was read, and reads of each process that is listed what it has used: there may be ten thousand. Of
those that used the same the larger comes first. Words are counted from the last bracket: what stands before it, lines
included, a process may choose. Those that have ended are left out, and those that look here, which are a session of
their own."""
COMMANDS = r"""
function tell(place) { places = places " " place }
END {
  print "all", all
  system("for each in" places "; do echo words $each; od -An -v -tx1 -N@ $each/cmdline; done")
}""".replace("@", str(LONGEST_COMMAND))
"""Command lines in hexadecimal, which no process can make look like anything else."""
LOOK = f"od -An /dev/null || exit; {busiest(twice(), MOST_PROCESSES, COMMANDS)}"
_TIME = re.compile(r"^(\d{1,12}\.\d\d) \d+\.\d\d$", re.MULTILINE)
_BUSY = re.compile(r"^busy (\d{1,10}) (\d{1,15})\n((?:(?!busy ).*\n)*)", re.MULTILINE)
_NAME = re.compile(r"^Name:\t(.*)$", re.MULTILINE)
_UID = re.compile(r"^Uid:\t(\d{1,10})\t", re.MULTILINE)
_RESIDENT = re.compile(r"^VmRSS:[\t ]*(\d{1,15}) kB$", re.MULTILINE)
_WORDS = re.compile(r"^words /proc/(\d{1,10})\n((?: .*\n)*)", re.MULTILINE)
_ALL = re.compile(r"^all (\d{1,10})$", re.MULTILINE)


def read_busy(text: str, seconds: float) -> Iterator[tuple[ProcessMeasure, str]]:
    """Each with all that is told of it. One that has ended since it was chosen tells nothing of itself any more."""
    for pid, ticks, told in _BUSY.findall(text):
        name, uid, resident = (fact.search(told) for fact in (_NAME, _UID, _RESIDENT))
        if not name or not uid:
            continue
        process = ProcessMeasure(
            pid=int(pid),
            user="root" if uid[1] == "0" else uid[1],
            cpu_percent=round(100 * int(ticks) / TICKS / seconds, 1),
            memory_bytes=int(resident[1]) * KIBIBYTE if resident else 0,
            command=name[1],
        )
        yield process, told


# -- of a job ------------------------------------------------------------------------------------------------------


class Used(NamedTuple):
    processes: tuple[ProcessMeasure, ...]
    message: str | None


class Processes:
    """Whoever wants to know while somebody looks gets the same answer: a job that holds those who look holds one."""

    def __init__(self, made: ContainerSettings) -> None:
        self._made = made
        self._looks: dict[str, tuple[asyncio.Task[Used | str], float]] = {}
        """By container, and since when."""

    async def close(self) -> None:
        await ended([look for look, _ in self._looks.values()])

    async def of(self, api: Api, container: str) -> Used:
        """NotFound or Clash if it does not run any more."""
        look, began = self._looks.get(container) or self._begin(api, container)
        done, _ = await asyncio.wait([look], timeout=max(began + PATIENCE - monotonic(), 0))
        found = look.result() if done else f"they could not be read within {PATIENCE:.0f} seconds"
        if isinstance(found, Used):
            return found
        rows = read_rows(await api.top(container, f"-eo {COLUMNS}"))
        return _shown(rows, len(rows), f"what its processes use is over their whole life: {found}")

    def _begin(self, api: Api, container: str) -> tuple[asyncio.Task[Used | str], float]:
        look = asyncio.create_task(self._look(api, container))
        look.add_done_callback(lambda _: self._looks.pop(container, None))
        return self._looks.setdefault(container, (look, monotonic()))

    async def _look(self, api: Api, container: str) -> Used | str:
        """Or why they cannot be seen."""
        image, words = self._made.helper_image, ["sh", "-c", LOOK]
        config = UNABLE | LIMITS | {"PidMode": f"container:{container}"}
        try:
            return read_used(
                await helped(api, image, self._made.installation, words, user=NOBODY, config=config, seconds=PATIENCE)
            )
        except ValueError:
            return "what was read cannot be understood"
        except ApiError as error:
            return error.message.rstrip(".")[:LONGEST_COMMAND]


def read_used(text: str) -> Used:
    """ValueError if it is not what we print."""
    times, count = [float(each) for each in _TIME.findall(text)[:2]], _ALL.search(text)
    words = {int(pid): _command(told) for pid, told in _WORDS.findall(text)}
    if len(times) < 2 or not count or not words:
        raise ValueError(text[:LONGEST_COMMAND])
    found = [each for each, _ in read_busy(text, max(times[1] - times[0], 1 / TICKS))]
    named = [each.model_copy(update={"command": words.get(each.pid) or f"[{each.command}]"}) for each in found]
    return _shown(named, int(count[1]), None)


def _command(told: str) -> str:
    """It may be cut off in the middle of a letter."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(bytes.fromhex(told)).replace("\0", " ").strip()


def _shown(found: list[ProcessMeasure], count: int, message: str | None) -> Used:
    found.sort(key=lambda each: (-each.cpu_percent, -each.memory_bytes, each.pid))
    said = [f"{count:,} processes, of which the busiest are shown"] if count > MOST_PROCESSES else []
    said += [message] if message else []
    return Used(tuple(found[:MOST_PROCESSES]), "; ".join(said) or None)


# -- as Docker tells it ----------------------------------------------------------------------------------------------

COLUMNS = "pid,user,pcpu,rss,args"
NAMED = "pid,user,pcpu,rss,comm"
DEFUNCT = "<defunct>"
"""So `ps` calls a process that has ended and waits for someone to take note."""


def read_rows(shown: Fields) -> list[ProcessMeasure]:
    there = [row for row in shown.get("Processes") or () if len(row) == len(COLUMNS.split(","))]
    return [
        ProcessMeasure(
            pid=int(row[0]),
            user=row[1],
            cpu_percent=float(row[2]),
            memory_bytes=int(row[3]) * KIBIBYTE,
            command=row[4][:LONGEST_COMMAND],
        )
        for row in there
        if not row[4].endswith(DEFUNCT)
    ]
