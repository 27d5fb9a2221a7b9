"""The minder: the first process of a container, and the shell below it that runs `setup` and `run`.

Kubernetes tells only the first process of a container to end, and kills all others with it. The minder passes the word
on: it stops all processes, sends each TERM (the readers of pipes last, so that what comes before them can still print),
lets them go on and waits until the last one is gone. It needs bash and nothing else of the image.

What a program prints last is still on its way when it ends, and runtimes have been seen to lose it with the container.
So the minder ends only when all that was printed has been fetched.

A node's name in DNS vanishes with it. A node that succeeds within ten seconds of its start stays that long, so that all
others have seen it and begin, too.

The outcome stands in the container's termination message as one line of JSON, which `read_note` reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.engines.base import Launch

BASH = "/bin/bash"
MARKS = "/run/penstock"
"""A small directory of the container's own, there only if code is sent to it."""
ARRIVED = f"{MARKS}/workdir"
"""The file that is made once the user's code is unpacked."""
PEER_PATIENCE = 60
"""Seconds beyond `placement_timeout`: a peer that is still missing then has gone again, or all would have given up."""

MINDER = r"""
max=$1 grace=$2; shift 2
trap 'ending=${ending:-stop}' TERM; trap 'ending=${ending:-time}' ALRM
exec {idle}<> <(:)
exec {out}>&1 {err}>&2 </dev/null >/dev/null 2>&1
set -m; /bin/bash -c "$1" bash "${@:2}" >&"$out" 2>&"$err" {idle}>&- {out}>&- {err}>&- & child=$!; set +m
look() {
  parent=() busy=() below=(); local entry line words pid
  for entry in /proc/[0-9]*; do
    read -r line <"$entry/stat" || continue
    words=(${line##*) }); [[ ${words[0]} == [ZX] ]] && continue
    parent[${entry#/proc/}]=${words[1]}; busy[${words[1]}]=1
  done
  unset 'parent[1]'
  for pid in "${!parent[@]}"; do
    local up=${parent[pid]}; while ((up > 1)); do up=${parent[up]:-1}; done
    ((up == 1)) && below+=("$pid")
  done
}
reads_a_pipe() {
  [[ -p /proc/$1/fd/0 && ! ${busy[$1]} ]] || return
  local name value
  while read -r name value; do [[ $name == SigCgt: ]] && break; done <"/proc/$1/status"
  ! ((16#${value: -4} & 0x4000))
}
end_all() {
  local pid deadline=$((SECONDS + grace)) only_readers
  kill -KILL $timer; kill -STOP -1; look
  for pid in "${!parent[@]}"; do reads_a_pipe "$pid" || kill -TERM "$pid"; done
  kill -CONT -1
  while look; ((${#below[@]})); do
    only_readers=1; for pid in "${below[@]}"; do reads_a_pipe "$pid" || only_readers=; done
    [[ $only_readers ]] && kill -TERM "${below[@]}"
    [[ $ending == time ]] && ((SECONDS >= deadline)) && break
    read -r -t 0.1 -u "$idle"
  done
}
drain() {
  local each fd try
  for each in "$out" "$err"; do
    [[ -p /proc/self/fd/$each ]] && exec {fd}<"/proc/self/fd/$each" || continue
    for ((try = 0; try < 100; try++)); do read -r -t 0 -u "$fd" || break; read -r -t 0.02 -u "$idle"; done
    exec {fd}<&-
  done
  read -r -t 0.05 -u "$idle"
}
note() {
  local said; read -r said </dev/termination-log
  [[ $said =~ \"phase\":\"([a-z]+)\",\"at\":([0-9]+) ]] && phase=${BASH_REMATCH[1]} went=${BASH_REMATCH[2]} && return
  phase=run went=0
}
clock() {
  until note; [[ $phase == setup || $phase == run ]]; do read -r -t 0.1 -u "$idle"; done
  read -r -t "$max" -u "$idle"; kill -ALRM 1
}
((max)) && { clock & timer=$!; }
until [[ $ending ]]; do wait "$child"; [[ $ending ]] || break; done
[[ $ending ]] && end_all; [[ $ending == time ]] && kill -KILL -1
wait "$child"; code=$?; ((code < 0)) && code=143
trap 'leave=1' TERM ALRM
note
for file in /sys/fs/cgroup/memory.peak /sys/fs/cgroup/memory/memory.max_usage_in_bytes; do
  [[ -r $file ]] && read -r peak <"$file"
done
printf '{"penstock":{"phase":"%s","code":%d,"ended":"%s","peak":%d}}\n' "$phase" "$code" "$ending" "${peak:-0}" \
  >/dev/termination-log
while printf -v now '%(%s)T' -1; ((code == 0 && NUM_NODES > 1 && now < went + 10)) && [[ ! $ending$leave ]]; do
  read -r -t 0.2 -u "$idle"
done
drain
[[ $phase != run && $code == 0 ]] && exit 1
[[ $ending == time && $code == 0 ]] && exit 124
exit "$code"
""".strip()

PREPARE = r"""
penstock_at() {
  printf '{"penstock":{"phase":"%s","at":%d}}\n' "$1" "${penstock_went:-0}" >/dev/termination-log
} 2>/dev/null
penstock_pause() { local idle; exec {idle}<> <(:); read -r -t 0.2 -u "$idle"; exec {idle}>&-; }
penstock_fail() { printf '[penstock] %s\n' "$1"; exit 125; }
if ((NUM_NODES > 1)); then
  penstock_at peers
  for penstock_peer in $SKYPILOT_NODE_IPS; do
    until { : >"/dev/udp/$penstock_peer/9" || getent hosts "$penstock_peer"; } >/dev/null 2>&1; do
      ((SECONDS > $2)) && break
      penstock_pause
    done
  done
fi
if [[ $3 ]]; then
  penstock_at upload
  until [[ -e $3 ]]; do
    [[ -s $3.failed ]] && penstock_fail "The workdir could not be unpacked: $(<"$3.failed")"
    ((SECONDS > 300)) && penstock_fail 'The workdir did not arrive within 5 minutes.'
    penstock_pause
  done
fi
penstock_setup=$4 penstock_run=$5; shift 5
printf -v penstock_went '%(%s)T' -1; SECONDS=0
""".strip()

PAYLOAD = (
    'eval "$1"; if [[ $penstock_setup ]]; then penstock_at setup; set -e; eval "$penstock_setup"; set +e; fi; '
    "penstock_at run; unset -f penstock_at penstock_pause penstock_fail; "
    "unset penstock_peer penstock_setup penstock_went; "
    'if (($#)); then exec "$@"; fi; eval "unset penstock_run; $penstock_run"'
)
"""All on one line, so that bash counts the lines of the user's scripts from 1 in its messages."""


@dataclass(frozen=True)
class Note:
    """The outcome as the minder wrote it; a container that was killed before that has only a phase."""

    phase: str = "run"
    """`peers` or `upload` (it did not begin), `setup` or `run`."""
    code: int | None = None
    """The exit code of the user's shell."""
    ended: str = ""
    """`stop` or `time` if it was told to end."""
    peak: int | None = None
    """The most memory it used, in bytes."""


FAILURES = {
    "peers": "It ended while it waited for the other nodes.",
    "upload": "The workdir did not arrive in the container; the log says why.",
}
"""Why a container could not begin, by the phase it ended in."""


LARGEST_PEAK = 1 << 50


def read_note(message: str) -> Note:
    """Read the termination message. Programs may write there, too, so nothing in it is taken on trust."""
    try:
        said = json.loads(message.splitlines()[-1])["penstock"]
        phase, code, ended, peak = (said.get(key) for key in ("phase", "code", "ended", "peak"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Note()
    return Note(
        phase=phase if phase in (*FAILURES, "setup") else "run",
        code=code if type(code) is int and 0 <= code < 256 else None,
        ended=ended if ended in ("stop", "time") else "",
        peak=peak if type(peak) is int and 0 < peak < LARGEST_PEAK else None,
    )


def needs_bash(launch: Launch) -> bool:
    """A program with its arguments is started without bash, unless something has to be awaited first."""
    spec = launch.spec
    return isinstance(spec.run, str) or spec.nodes > 1 or launch.workdir_archive is not None


def command(launch: Launch, peer_patience: int) -> list[str]:
    """Return the container's command, escaped for Kubernetes, which replaces `$(NAME)` by a variable."""
    spec = launch.spec
    script, program = (spec.run, ()) if isinstance(spec.run, str) else ("", spec.run or ())
    if not needs_bash(launch):
        return [verbatim(word) for word in program]
    given = (
        str(spec.max_duration or 0),
        str(launch.stop_grace),
        PAYLOAD,
        PREPARE,
        str(peer_patience),
        ARRIVED if launch.workdir_archive else "",
        spec.setup or "",
        script,
    )
    return [BASH, "-c", *(verbatim(word) for word in (MINDER, "bash", *given, *program))]


def verbatim(text: str) -> str:
    """Escape a text so that the container gets exactly this."""
    return text.replace("$", "$$")
