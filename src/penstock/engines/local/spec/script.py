"""Write the script of a node's first shell: wait for `go`, then workdir, setup and run."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote

from penstock.domain.names import shorten
from penstock.engines.base import Launch
from penstock.engines.shared.environment import INDEX, RANKS, run_variables

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class NodePaths:
    """Paths as the node sees them."""

    scripts: str
    programs: str
    """A directory that comes last on its PATH."""
    home: str
    workdir: str | None = None
    """Where the script starts; None is HOME."""
    unpack: bool = False
    """The caller's code is unpacked there first, from descriptor 4."""


def start_script(paths: NodePaths, *, setup: bool, notice: str | None = None) -> str:
    """Write the first script. `setup` is sourced with `set -e` and without our descriptors; `run` after it in the same
    shell, so that what setup exported, activated and entered stays. The account that runs the job unpacks the archive:
    whatever is in it reaches no further than the job itself could."""
    lines = [
        "printf 'ready\\n' >&3",
        "IFS= read -r penstock_go || exit 125",
        "exec </dev/null",
        "unset penstock_go",
        f". {quote(paths.scripts + '/env.sh')} 2>/dev/null",
        *([f"printf '%s\\n' {quote('[penstock] ' + notice)}"] if notice else []),
        *_enter(paths),
    ]
    if setup:
        lines += ["set -e", f". {quote(paths.scripts + '/setup.sh')} 3>&-", "set +e"]
    lines += ["printf 'run\\n' >&3", "exec 3>&-", f". {quote(paths.scripts + '/run.sh')}"]
    return "\n".join(lines) + "\n"


def _enter(paths: NodePaths) -> list[str]:
    target = paths.workdir or paths.home
    lines = []
    if paths.unpack:
        unpack = f"tar -xz -f - --no-same-owner -C {quote(target)} <&4 3>&-"
        lines += [_or_fail(unpack, "The workdir could not be unpacked; the log says why."), "exec 4<&-"]
    elif paths.workdir:
        lines.append(f"mkdir -p -- {quote(target)} 2>/dev/null")
    why = f"The workdir '{shorten(target)}' is not there and cannot be made in this job."
    return [*lines, _or_fail(f"cd -- {quote(target)} 2>/dev/null", why)]


def _or_fail(command: str, sentence: str) -> str:
    said = quote(f"failed {sentence}")
    told = quote(f"[penstock] {sentence}")
    return f"{command} || {{ printf '%s\\n' {said} >&3; printf '%s\\n' {told}; exit 125; }}"


def run_script(run: str | tuple[str, ...], *, waits: bool = False) -> str:
    """Write the script of `run`; a program and its arguments take the shell's place. `waits`: its input never ends, so
    that a shell stays."""
    opened = "exec 0<> <(:)\n" if waits else ""
    if isinstance(run, str):
        return f"{opened}{run}\n"
    program = quote(run[0])
    said = quote(f"[penstock] '{shorten(run[0])}' was not found: there is no such program in this job.")
    look = f"type -P -- {program} >/dev/null || [ -e {program} ] || {{ printf '%s\\n' {said}; exit 127; }}"
    return f"{look}\n{opened}exec -- {join(run)}\n"


def enter_script(paths: NodePaths) -> str:
    """Write what a program sources that is started later, from outside: the variables, and where the run began."""
    where = [quote(paths.workdir)] if paths.workdir else []
    go = " || ".join(f"cd -- {path} 2>/dev/null" for path in [*where, '"$HOME"', "/"])
    return f". {quote(paths.scripts + '/env.sh')} 2>/dev/null\n{go}\n"


def env_script(envs: dict[str, str]) -> str:
    return "".join(f"export {name}={quote(value)}\n" for name, value in envs.items())


def node_env(launch: Launch, number: int) -> dict[str, str]:
    """Return what a node is told about the run; these win over what the user set. In an array `number` is that of the
    place, and the supervisor adds the index of whatever runs there."""
    rank = 0 if launch.spec.array else number
    gpus = launch.gpus[number] if number < len(launch.gpus) else ()
    facts = run_variables(launch, ["127.0.0.1"] * launch.spec.nodes) | dict.fromkeys(RANKS, str(rank))
    return facts | ({} if launch.spec.array else {INDEX: str(rank)}) | {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}


def base_env(user: str, paths: NodePaths) -> dict[str, str]:
    """Return the variables that the user may change. Unbuffered, so that a log line comes when it is printed."""
    return {
        "PATH": f"{paths.home}/.local/bin:{DEFAULT_PATH}:{paths.programs}",
        "HOME": paths.home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONUNBUFFERED": "1",
    }


PIP = """#!/bin/sh
# Where Python comes without pip, a private environment lends it; what it installs goes to ~/.local all the same.
if ! python3 -c 'import pip' 2>/dev/null; then
    lender="$HOME/.cache/penstock-pip"
    if [ ! -e "$lender/ready" ]; then
        rm -rf "$lender"
        if ! python3 -m venv "$lender" >/dev/null 2>&1; then
            echo "pip: Python on this machine has no pip. Fix: sudo apt-get install -y python3-pip" >&2
            exit 127
        fi
        touch "$lender/ready"
    fi
    PYTHONPATH=$(echo "$lender"/lib/python3*/site-packages)${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
fi
exec python3 -m pip "$@"
"""


def write_programs(directory: Path) -> None:
    """Write the programs that jobs find last on their PATH; each is replaced in one step, since a job may just look for
    it."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    fresh = directory / ".new"
    fresh.unlink(missing_ok=True)
    fresh.write_text(PIP)
    fresh.chmod(0o755)
    fresh.rename(directory / "pip")
    if python := shutil.which("python3", os.X_OK, DEFAULT_PATH):
        fresh.symlink_to(python)
        fresh.rename(directory / "python")
