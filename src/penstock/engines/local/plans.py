"""A run's directory before it begins: what each node has of its own, and the plan the supervisor carries out."""

from __future__ import annotations

import marshal
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.domain.nodes import Gpu
from penstock.domain.quantities import parse_bytes, show_duration
from penstock.engines.base import Launch
from penstock.engines.local import venvs
from penstock.engines.local.claims import Claims
from penstock.engines.local.gpus import device_binds
from penstock.engines.local.hiding import hidden, masks, private
from penstock.engines.local.identity import Identity, identity
from penstock.engines.local.layout import Layout
from penstock.engines.local.limits import Limits
from penstock.engines.local.mounts import refuse_inside, volume_binds
from penstock.engines.local.sandbox import Bind, Payload, in_system, options
from penstock.engines.local.scripts import DEFAULT_PATH, Place, base_env, env_script, node_env, start_script
from penstock.engines.local.supervisor.erase import erase
from penstock.engines.local.supervisor.start import OPTIONS
from penstock.settings import Settings

BASH = shutil.which("bash") or "/bin/bash"
INSIDE_SCRIPTS = "/run/penstock/job"
INSIDE_PROGRAMS = "/run/penstock/bin"
INSIDE_WORKDIR = "/workdir"


@dataclass(frozen=True)
class Machine:
    """What plans are made from."""

    settings: Settings
    layout: Layout
    claims: Claims
    limits: Limits
    gpus: dict[str, Gpu]
    bwrap: str

    @property
    def sandboxed(self) -> bool:
        return self.settings.sandbox == "bubblewrap"


def write_plan(run_dir: Path, launch: Launch, machine: Machine) -> None:
    """May be done again as long as the run has not begun; the caller holds its lock."""
    who = identity(launch.account, machine.settings)
    binds = volume_binds(launch, machine.claims) if machine.sandboxed else []
    names = [f"rank-{rank}" for rank in range(launch.spec.nodes)]
    (run_dir / "logs").mkdir(mode=0o700, exist_ok=True)
    plan = {
        "gpus": [uuid for rank in launch.gpus for uuid in rank],
        "grace": launch.stop_grace,
        "max_duration": launch.spec.max_duration,
        "max_duration_text": show_duration(launch.spec.max_duration or 0),
        "log_limit": parse_bytes(machine.settings.log_limit),
        "log_limit_text": machine.settings.log_limit,
        "private": names,
        "ranks": [_rank(run_dir, launch, machine, who, binds, rank) for rank in range(launch.spec.nodes)],
    }
    fresh = run_dir / "plan.new"
    fresh.touch(mode=0o600)
    fresh.write_bytes(marshal.dumps(plan))
    fresh.rename(run_dir / "plan")


def _rank(
    run_dir: Path, launch: Launch, machine: Machine, who: Identity, mounts: list[Bind], rank: int
) -> dict[str, Any]:
    folder = _private(run_dir / f"rank-{rank}", launch)
    venv = venvs.read_venv(launch.venv, private(machine.settings)) if launch.venv else None
    place = _place(folder, launch, machine)
    envs = _envs(launch, machine, place, venv, rank)
    made = _write_scripts(folder, launch, place, envs, venv)
    _own([*made, folder], who)
    group = f"{run_dir.name}-{rank}"
    asked = launch.spec.resources
    return {
        "argv": _argv(place, machine, who),
        "options": _options(folder, launch, machine, who, place, mounts, venv, rank) if machine.sandboxed else [],
        "env": {"PATH": DEFAULT_PATH},
        "identity": who.drop,
        "kept": not machine.sandboxed,
        "archive": str(launch.workdir_archive) if place.unpack else None,
        "cgroups": machine.limits.groups(group, asked),
        "memory": machine.limits.memory_record(group, asked),
    }


def _private(folder: Path, launch: Launch) -> Path:
    erase(str(folder))
    folder.mkdir(mode=0o700)
    for name, mode in (("home", 0o700), ("workdir", 0o755), ("tmp", 0o1777), ("vartmp", 0o1777), ("scripts", 0o700)):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    return folder


def _place(folder: Path, launch: Launch, machine: Machine) -> Place:
    asked = launch.spec.workdir
    unpack = launch.workdir_archive is not None
    if not machine.sandboxed:
        workdir = str(folder / "workdir") if unpack else asked
        programs = str(machine.layout.programs)
        return Place(str(folder / "scripts"), programs, str(folder / "home"), workdir, unpack)
    return Place(INSIDE_SCRIPTS, INSIDE_PROGRAMS, _home(launch), INSIDE_WORKDIR if unpack else asked, unpack)


def _home(launch: Launch) -> str:
    """/home/USER, unless a volume is mounted there or above: its data is not the place for a job's dot files."""
    usual = f"/home/{launch.account.user}"
    taken = any(usual == mount.path or usual.startswith(mount.path.rstrip("/") + "/") for mount in launch.mounts)
    return f"/var{usual}" if taken else usual


def _envs(launch: Launch, machine: Machine, place: Place, venv: venvs.Venv | None, rank: int) -> dict[str, str]:
    envs = base_env(launch.account.user, place)
    envs |= venvs.environment(venv, place.home) if venv else {"PIP_BREAK_SYSTEM_PACKAGES": "1"}
    if not machine.sandboxed:
        for mount in launch.mounts:
            name = mount.volume.name.upper().replace("-", "_")
            envs[f"PENSTOCK_VOLUME_{name}"] = str(machine.claims.path(mount.volume))
    return envs | launch.spec.envs | node_env(launch, rank)


def _write_scripts(
    folder: Path, launch: Launch, place: Place, envs: dict[str, str], venv: venvs.Venv | None
) -> list[Path]:
    lost = launch.venv is not None and venv is None
    notice = f"the virtual environment {launch.venv} cannot be used; the system's Python is" if lost else None
    texts = {
        "start.sh": start_script(place, setup=launch.spec.setup is not None, notice=notice),
        "env.sh": env_script(envs),
        "setup.sh": (launch.spec.setup or "") + "\n",
        "run.sh": launch.spec.run + "\n",
    }
    for name, text in texts.items():
        (folder / "scripts" / name).write_text(text, errors="surrogateescape")
    layer = venvs.write_layer(venv, folder / "home", place.home) if venv else []
    return [*folder.iterdir(), *(folder / "scripts").iterdir(), *layer]


def _own(paths: list[Path], who: Identity) -> None:
    """The folder last: as long as it is root's, the account cannot get in and exchange what we are about to give it."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, who.account.uid, who.account.gid, follow_symlinks=False)


def _argv(place: Place, machine: Machine, who: Identity) -> list[str]:
    payload = _payload(place, who)
    sandbox = [machine.bwrap, "--args", str(OPTIONS), "--"] if machine.sandboxed else []
    return [*sandbox, *payload.setpriv, *payload.argv]


def _payload(place: Place, who: Identity) -> Payload:
    return Payload((BASH, "--noprofile", "--norc", f"{place.scripts}/start.sh"), who.setpriv)


def _options(
    folder: Path,
    launch: Launch,
    machine: Machine,
    who: Identity,
    place: Place,
    mounts: list[Bind],
    venv: venvs.Venv | None,
    rank: int,
) -> list[str]:
    uuids = launch.gpus[rank] if rank < len(launch.gpus) else ()
    binds = [
        Bind(str(folder / "scripts"), INSIDE_SCRIPTS, "--ro-bind"),
        Bind(str(machine.layout.programs), INSIDE_PROGRAMS, "--ro-bind"),
        Bind(str(folder / "home"), place.home),
        Bind(str(folder / "tmp"), "/tmp"),  # noqa: S108
        Bind(str(folder / "vartmp"), "/var/tmp"),  # noqa: S108
        *(venvs.binds(venv) if venv else []),
        *device_binds([machine.gpus[uuid] for uuid in uuids if uuid in machine.gpus]),
    ]
    refuse_inside(mounts, binds)
    binds += mounts
    if place.workdir and not _reachable(place.workdir, [bind.dest for bind in binds]):
        binds.append(Bind(str(folder / "workdir"), place.workdir))
    binds = [*masks(hidden(machine.settings, who), binds), *binds]
    return options(machine.bwrap, binds, _payload(place, who))


def _reachable(path: str, dests: list[str]) -> bool:
    """Is the directory in something that is mounted, or one the host's system has? If not, the job gets its own."""
    if path == "/" or path.split("/")[1] in ("proc", "dev", "sys", "run"):
        return True
    inside = any(path == dest or path.startswith(dest.rstrip("/") + "/") for dest in dests)
    return inside or (in_system(path) and Path(path).is_dir())
