"""Ten users hammer two Docker hosts while the hosts' engines and the server are killed again and again."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.model import iso, now
from tests.e2e.docker.load import PATIENCE, REQUEUE, Job, Ledger, Member, Part, Progress, Start, kept_by
from tests.e2e.pwm import USER_FILE
from tests.hosts.lot import Hosts
from tests.rig.places import RigError
from tests.rig.processes import wait_for
from tests.running import RunningServer, start_server
from tests.sampling import WHOLE, sample

USERS = 10
SERVER = ("server",) * 3
HOSTS = ("server", "lab-1", "server", "lab-2 in order", "server", "lab-1", "server", "lab-2 whole", "server")
ENGINES = ("lab-1", "all", "lab-2", "server", "all", "lab-1", "lab-2")
"""What is killed, one after the other while work comes in."""
KILLED = {SERVER: 2, HOSTS: 3, ENGINES: 3}
"""How many of them in a run that is not to be long."""
NODE = """\
apiVersion: v1
kind: Node
metadata: {{name: {name}}}
spec:
  address: {address}
  gpus:
    - {{product_name: Tesla V100, memory: 16Gi}}
    - {{product_name: Tesla V100, memory: 16Gi}}
    - {{product_name: Quadro RTX 6000, memory: 24Gi}}
"""


@dataclass(frozen=True)
class Killed:
    """An engine, and when it was not there."""

    host: str
    since: str
    until: str


class Lab:
    """The server and its hosts: what can be killed, and is there again at once."""

    def __init__(self, place: Path, hosts: Hosts) -> None:
        self.hosts = dict(zip(("lab-1", "lab-2"), hosts.hosts, strict=True))
        self.killed: list[Killed] = []
        self._place, self._port = place, _free_port()
        self.server = self._start()

    def _start(self) -> RunningServer:
        return start_server(self._place, engine="docker", port=str(self._port), stop_grace="1s")

    def begin(self) -> None:
        status, answer = self.server.request("POST", "/v1/adm/init", {})
        assert status == 201, answer
        nodes = [NODE.format(name=name, address=host.unix) for name, host in self.hosts.items()]
        people = [USER_FILE.replace("yourUserName", f"user-{number}") for number in range(USERS)]
        status, answer = self.server.request("POST", "/v1/apply", {"text": "\n---\n".join([*nodes, *people])})
        assert status == 200, answer
        assert {result["result"] for result in answer["results"]} == {"created"}
        wait_for("both hosts to be ready", lambda: len(self._ready()) == len(self.hosts), PATIENCE)

    def _ready(self) -> list[str]:
        return [node["name"] for node in self.server.request("GET", "/v1/nodes")[1]["items"] if node["ready"]]

    def token(self, user: str) -> str:
        return str(self.server.request("POST", "/v1/tokens", {"user": user})[1]["token"])

    def kill(self, what: str) -> None:
        """By name. An engine takes its containers with it when it ends in order, otherwise when it begins again; with
        the whole host all end at once."""
        name, _, how = what.partition(" ")
        engines = {each: host for each, host in self.hosts.items() if name in (each, "all")}
        since = iso(now())
        if name in ("server", "all"):
            self.server.kill()
        for host in engines.values():
            {"in order": host.restart, "whole": host.reboot}.get(how, host.kill)()
        if name in ("server", "all"):
            self.server = self._start()
        for host in engines.values() if not how else ():
            host.start()
        self.killed += [Killed(each, since, iso(now())) for each in engines]

    def audit(self) -> list[dict[str, Any]]:
        """Oldest first."""
        entries: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.server.request("GET", f"/v1/audit?limit=500{cursor}")[1]
            entries += page["items"]
            if not page["next"]:
                return entries[::-1]
            cursor = f"&cursor={page['next']}"

    def told_of(self, workload_id: str) -> str:
        """All that is known of a workload: what happened to it, and what Docker says of its containers."""
        events = self.server.request("GET", f"/v1/workloads/{workload_id}/events")[1]
        shown = [str({key: event[key] for key in ("at", "reason", "message")}) for event in events["items"]]
        for host in self.hosts.values():
            found = host.docker("ps", "-aq", "--filter", f"label=penstock.dev/workload={workload_id}").split()
            shown += [host.docker("inspect", "--format", "{{.Name}} {{json .State}}", each) for each in found]
        return "\n    ".join(shown)

    def is_cleared(self) -> None:
        """No container of a workload is left, or will be in a moment. (Helpers that lost their server go later.)"""
        left: list[str] = []

        def nothing() -> bool:
            shown = [host.docker("ps", "-a", "--filter", "label=penstock.dev/helper=") for host in self.hosts.values()]
            left[:] = [line for table in shown for line in table.splitlines()[1:]]
            return not left

        try:
            wait_for("every container to be gone", nothing, PATIENCE)
        except RigError:
            pytest.fail("left over:\n" + "\n".join(left))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@pytest.fixture
def hosts(own_hosts: Callable[..., Hosts]) -> Hosts:
    return own_hosts()


@pytest.fixture
def ledger(hosts: Hosts) -> Iterator[Ledger]:
    with kept_by(hosts.addresses.host) as kept:
        yield kept


@pytest.fixture
def lab(place: Path, hosts: Hosts) -> Iterator[Lab]:
    lab = Lab(place, hosts)
    try:
        lab.begin()
        yield lab
    finally:
        lab.server.end()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("trouble", [SERVER, HOSTS, ENGINES], ids=["server", "hosts", "engines"])
def test_whatever_is_killed_what_is_said_of_every_workload_is_true(
    lab: Lab, ledger: Ledger, trouble: tuple[str, ...]
) -> None:
    if trouble is HOSTS:  # What runs outlives the one engine, which is killed, and not the other, which is shut down.
        lab.hosts["lab-1"].configure(live_restore=True)
    kills = sample(trouble, KILLED[trouble])
    progress, each = Progress(), 2 * (len(kills) + WHOLE)
    names = [f"user-{number}" for number in range(USERS)]
    members = [Member(name, lab.token(name), lab.server.address, ledger, progress, each) for name in names]
    for member in members:
        member.start()
    step = USERS * each // (len(kills) + 1)
    for number, what in enumerate(kills, 1):
        progress.reaches(number * step)
        lab.kill(what)
    for member in members:
        member.join(PATIENCE)
    progress.reaches(USERS * each)
    assert sum(len(member.jobs) for member in members) == USERS * each
    ended = {job.id: (job, member.sees_the_end_of(job)) for member in members for job in member.jobs if not job.deleted}
    starts = ledger.starts()
    said = {id_: untrue(job, workload, starts[id_], lab.killed) for id_, (job, workload) in ended.items()}
    wrong = [f"{fault}\n    {lab.told_of(id_)}" for id_, fault in said.items() if fault]
    wrong += [*ran_twice(starts), *held_twice(starts), *given_twice(lab.audit())]
    assert not wrong, "\n".join(wrong)
    for member in members:
        member.clears_up()
    assert lab.server.request("GET", "/v1/workloads?all_users=true")[1]["items"] == []
    lab.is_cleared()
    _, defect, more = (lab.server.place / "server.log").read_text().partition("Traceback")
    assert not defect, more[:5000]


LOST_TRACK = "code 255"
"""Docker's word where it has lost track of a container, as it may on a busy machine. Of an image without bash it is all
that there is to go by."""


def untrue(job: Job, workload: dict[str, Any], parts: dict[Part, list[Start]], killed: Sequence[Killed]) -> str | None:
    """What is wrong with what is said of a workload that has ended, by what its programs wrote down."""
    state, reason = workload["state"], workload["reason"]
    codes = {part: starts[0].code for (_, part), starts in sorted(parts.items())}
    """Of the last attempt of each part."""
    number = {"array": 3, "ranks": 2}.get(job.kind, 1)
    if state == "EXITED":
        fine = codes == dict.fromkeys(range(number), 0)
    elif state == "STOPPED":
        fine = job.stop_asked
    elif (state, reason) == ("CRASHED", "PROGRAM_FAILED"):
        fine = job.kind == "fails" and 3 in codes.values() and workload["exit_code"] == 3
        fine = fine or (job.kind != "ranks" and LOST_TRACK in workload["message"])
    else:  # What may begin again has done so as often as it may, or someone wanted it stopped.
        done = workload["attempt"] > REQUEUE.get(job.kind, 0) or job.stop_asked
        fine = reason == "NODE_LOST" and done
        if state == "UNKNOWN":
            fine = fine and "the answer was lost" in workload["message"] and was_being_started(workload, killed)
        else:
            fine = fine and state == "CRASHED"
    message = workload["message"]
    return (
        None
        if fine
        else f"{job.name} ({job.id}) is {state}, {reason}: {message}; its programs wrote down: {dict(parts)}"
    )


def was_being_started(workload: dict[str, Any], killed: Sequence[Killed]) -> bool:
    """When its engine was killed: it was placed there, and nobody had seen it begin."""
    placed = placed_at(workload["history"])
    its_own = [each for each in killed if each.host in workload["hosts"]]
    began = [unit for unit in workload["units"] if unit["state"] == "UNKNOWN" and unit["started_at"]]
    return not began and any(placed <= each.until and each.since <= workload["ended_at"] for each in its_own)


def placed_at(history: Sequence[dict[str, Any]]) -> str:
    """In its last attempt, for the first time: a server that comes back looks for it where it was placed."""
    waited = max(number for number, line in enumerate(history) if line["state"] in ("INSERTED", "DENIED", "QUEUED"))
    return str(next(line["at"] for line in history[waited:] if line["state"] == "ASSIGNED"))


def ran_twice(starts: dict[str, dict[Part, list[Start]]]) -> list[str]:
    return [
        f"{workload}: attempt {attempt}, part {part}: {found}"
        for workload, parts in starts.items()
        for (attempt, part), found in parts.items()
        if len(found) > 1
    ]


def held_twice(starts: dict[str, dict[Part, list[Start]]]) -> list[str]:
    """By the programs themselves: one began with a GPU after another that was still there with it later."""
    whole = [(id_, start) for id_, parts in starts.items() for found in parts.values() for start in found]
    return [
        f"{gpu}: {one} and {other}"
        for one, first in whole
        for other, second in whole
        for gpu in {*first.gpus} & {*second.gpus}
        if first is not second and first.began < second.began < first.last
    ]


def given_twice(audit: list[dict[str, Any]]) -> list[str]:
    """By the audit: a GPU taken by one while another had it, given back by another, or never given back."""
    holders: dict[str, str] = {}
    wrong = []
    moves = [entry for entry in audit if entry["kind"] == "GPU" and entry["verb"] in ("take", "give")]
    assert moves, "nothing is said of GPUs"
    for entry in moves:
        gpu, workload = entry["name"].rpartition("/")[2], entry["id"]
        if holders.get(gpu) != (workload if entry["verb"] == "give" else None):
            wrong.append(f"{gpu}: {entry['verb']} by {workload} while {holders.get(gpu)} has it")
        holders[gpu] = workload
        if entry["verb"] == "give":
            del holders[gpu]
    return wrong + [f"{gpu}: {holder} has ended and has it" for gpu, holder in holders.items()]
