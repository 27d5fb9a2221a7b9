"""Write the plan that a supervisor carries out, and the private folder of each node.

An array has a plan for each place at which an index can run, not for each index: what tells one index from another is
its number alone, and the supervisor makes the private folder of a place anew for each.
"""

from __future__ import annotations

import marshal
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.domain.nodes import Gpu
from penstock.domain.quantities import parse_bytes, parse_duration, show_duration
from penstock.engines.base import Launch
from penstock.engines.local.cgroups import CgroupLimits
from penstock.engines.local.gpus import device_binds
from penstock.engines.local.layout import Layout
from penstock.engines.local.spec import mounts, script
from penstock.engines.local.spec import venv as venvs
from penstock.engines.local.spec.identity import Identity, choose_identity
from penstock.engines.local.spec.sandbox import (
    BindMount,
    SandboxMounts,
    arrange_mounts,
    bwrap_options,
    call_filter,
    in_system,
)
from penstock.engines.local.spec.script import DEFAULT_PATH, NodePaths
from penstock.engines.local.supervisor.directories import Entry, erase, make_folder
from penstock.engines.local.supervisor.start import OPTIONS
from penstock.engines.local.volumes import LocalClaims
from penstock.settings import Settings

BASH = shutil.which("bash") or "/bin/bash"
INSIDE_SCRIPTS = "/run/penstock/job"
INSIDE_PROGRAMS = "/run/penstock/bin"
INSIDE_WORKDIR = "/workdir"


@dataclass(frozen=True)
class Machine:
    settings: Settings
    layout: Layout
    claims: LocalClaims
    limits: CgroupLimits
    gpus: dict[str, Gpu]
    bwrap: str

    @property
    def sandboxed(self) -> bool:
        return self.settings.sandbox == "bubblewrap"


@dataclass(frozen=True)
class RunPlan:
    """A launch on this machine: what all its nodes have in common."""

    run_dir: Path
    launch: Launch
    machine: Machine
    who: Identity
    volumes: list[BindMount]
    venv: venvs.Venv | None


def write_plan(run_dir: Path, launch: Launch, machine: Machine) -> None:
    """Write the plan of a run that has not begun, whose lock the caller holds. It may be written again."""
    who = choose_identity(launch.account, machine.settings)
    binds = mounts.volume_mounts(launch, machine.claims) if machine.sandboxed else []
    venv = venvs.read_venv(launch.venv, mounts.server_directories(machine.settings), who) if launch.venv else None
    plan = RunPlan(run_dir, launch, machine, who, binds, venv)
    indexes = _indexes(launch)
    places = min(max(len(launch.gpus), 1), len(indexes)) if indexes else launch.spec.nodes
    (run_dir / "logs").mkdir(mode=0o700, exist_ok=True)
    written = {
        "gpus": [uuid for rank in launch.gpus for uuid in rank],
        "grace": launch.stop_grace,
        "max_duration": launch.spec.max_duration,
        "max_duration_text": show_duration(launch.spec.max_duration or 0),
        "disk_scan": parse_duration(machine.settings.disk_scan),
        "log_limit": parse_bytes(machine.settings.log_limit),
        "log_limit_text": machine.settings.log_limit,
        "private": [f"rank-{number}" for number in range(places)],
        "ranks": [_rank(plan, number) for number in range(places)],
        "array": indexes,
    }
    fresh = run_dir / "plan.new"
    fresh.touch(mode=0o600)
    fresh.write_bytes(marshal.dumps(written))
    fresh.rename(run_dir / "plan")


def _indexes(launch: Launch) -> list[int] | None:
    """Return the indexes of an array that this attempt runs; None if it is no array."""
    if launch.spec.array is None:
        return None
    return list(launch.indexes) or list(range(launch.spec.array.count))


def _rank(plan: RunPlan, number: int) -> dict[str, Any]:
    """Return the plan of a node, or of a place at which indexes of an array run one after the other."""
    launch, machine, who = plan.launch, plan.machine, plan.who
    folder = plan.run_dir / f"rank-{number}"
    paths = _node_paths(folder, launch, machine)
    envs = _envs(plan, paths, folder, number)
    entries = _private(plan, paths, envs)
    owner = (who.account.uid, who.account.gid) if os.geteuid() == 0 else None
    erase(str(folder))
    make_folder(str(folder), entries, owner)
    group = f"{plan.run_dir.name}-{number}"
    asked = launch.spec.resources
    groups = machine.limits.groups(group, asked)
    arranged = (
        _mounts(plan, paths, folder, number, groups)
        if machine.sandboxed
        else SandboxMounts([], [], by_descriptor=False)
    )
    return {
        "folder": folder.name,
        "make": entries if launch.spec.array else [],
        "owner": owner,
        "argv": _argv(paths, machine, who),
        "options": bwrap_options(machine.bwrap, arranged, as_root=bool(who.setpriv)) if machine.sandboxed else [],
        "filter": call_filter(machine.bwrap, as_root=bool(who.setpriv)) if machine.sandboxed else b"",
        "held": arranged.held,
        "by_descriptor": arranged.by_descriptor,
        "inside": arranged.inside,
        "env": {"PATH": DEFAULT_PATH},
        "envs": envs,
        "identity": who.drop,
        "kept": not machine.sandboxed,
        "archive": str(launch.workdir_archive) if paths.unpack else None,
        "cgroups": groups,
        "memory": machine.limits.memory_record(group, asked),
        "disk": mounts.disk_limits(launch.spec, paths.home, paths.workdir or INSIDE_WORKDIR),
    }


def _private(plan: RunPlan, paths: NodePaths, envs: dict[str, str]) -> list[Entry]:
    spec, venv = plan.launch.spec, plan.venv
    lost = plan.launch.venv is not None and venv is None
    notice = f"the virtual environment {plan.launch.venv} cannot be used; the system's Python is" if lost else None
    texts = {
        "start.sh": script.start_script(paths, setup=spec.setup is not None, notice=notice),
        "env.sh": script.env_script(envs),
        "enter.sh": script.enter_script(paths),
        "setup.sh": (spec.setup or "") + "\n",
        "run.sh": script.run_script(spec.run or (), waits=spec.terminal),
    }
    layer = venvs.layer(venv, paths.home) if venv else []
    return [
        *(("home", 0o700, None), ("workdir", 0o755, None), ("scripts", 0o700, None)),
        *mounts.disk_entries(spec),
        *((f"scripts/{name}", 0o644, text.encode(errors="surrogateescape")) for name, text in texts.items()),
        *((f"home/{name}", mode, content) for name, mode, content in layer),
    ]


def _node_paths(folder: Path, launch: Launch, machine: Machine) -> NodePaths:
    asked = launch.spec.workdir
    unpack = launch.workdir_archive is not None
    if not machine.sandboxed:
        workdir = str(folder / "workdir") if unpack else asked
        programs = str(machine.layout.programs)
        return NodePaths(str(folder / "scripts"), programs, str(folder / "home"), workdir, unpack)
    return NodePaths(INSIDE_SCRIPTS, INSIDE_PROGRAMS, _home(launch), INSIDE_WORKDIR if unpack else asked, unpack)


def _home(launch: Launch) -> str:
    """Return /home/USER, unless something is mounted there or above: its data is not the place for a job's dot
    files."""
    usual = f"/home/{launch.account.user}"
    paths = [*(mount.path for mount in launch.mounts), *(each.path for each in launch.spec.scratch)]
    taken = any(usual == path or usual.startswith(path.rstrip("/") + "/") for path in paths)
    return f"/var{usual}" if taken else usual


def _envs(plan: RunPlan, paths: NodePaths, folder: Path, number: int) -> dict[str, str]:
    launch, venv = plan.launch, plan.venv
    envs = script.base_env(launch.account.user, paths)
    envs |= venvs.environment(venv, paths.home) if venv else {"PIP_BREAK_SYSTEM_PACKAGES": "1"}
    if not plan.machine.sandboxed:
        for mount in launch.mounts:
            name = mount.volume.name.upper().replace("-", "_")
            envs[f"PENSTOCK_VOLUME_{name}"] = str(plan.machine.claims.path(mount.volume))
        for name, asked in mounts.scratch_on_disk(launch.spec):
            envs[mounts.scratch_variable(asked.path)] = str(folder / name)
    envs |= launch.spec.envs | script.node_env(launch, number)
    if launch.spec.array:
        envs.pop("JOB_COMPLETION_INDEX", None)  # comes with each index
    return envs


def _argv(paths: NodePaths, machine: Machine, who: Identity) -> list[str]:
    sandbox = [machine.bwrap, "--args", str(OPTIONS), "--"] if machine.sandboxed else []
    return [*sandbox, *who.setpriv, BASH, "--noprofile", "--norc", f"{paths.scripts}/start.sh"]


def _mounts(plan: RunPlan, paths: NodePaths, folder: Path, number: int, groups: list[dict[str, Any]]) -> SandboxMounts:
    launch, machine = plan.launch, plan.machine
    uuids = launch.gpus[number] if number < len(launch.gpus) else ()
    own = [
        BindMount(str(folder / "scripts"), INSIDE_SCRIPTS, "--ro-bind"),
        BindMount(str(machine.layout.programs), INSIDE_PROGRAMS, "--ro-bind"),
        BindMount(str(folder / "home"), paths.home),
        *(plan.venv.binds if plan.venv else []),
        *mounts.control_groups([group["path"] for group in groups], machine.limits.version),
        *device_binds([machine.gpus[uuid] for uuid in uuids if uuid in machine.gpus]),
    ]
    own += mounts.own_mounts(launch.spec, folder, machine.bwrap)
    mounts.refuse_inside(plan.volumes, own)
    binds = [*own, *mounts.scratch_mounts(launch.spec, folder), *plan.volumes]
    if paths.workdir and not _reachable(paths.workdir, [bind.dest for bind in binds]):
        binds.append(BindMount(str(folder / "workdir"), paths.workdir))
    binds = [*mounts.masks(mounts.hidden_paths(machine.settings, plan.who), binds), *binds]
    return arrange_mounts(machine.bwrap, binds, plan.volumes)


def _reachable(path: str, dests: list[str]) -> bool:
    """Is the directory in something that is mounted, or one the host's system has? If not, the job gets its own."""
    if path == "/" or path.split("/")[1] in ("proc", "dev", "sys", "run"):
        return True
    inside = any(path == dest or path.startswith(dest.rstrip("/") + "/") for dest in dests)
    return inside or (in_system(path) and Path(path).is_dir())
