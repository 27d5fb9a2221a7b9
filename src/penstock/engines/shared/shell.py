"""The bash wrapper around a program that is started beside a job's own."""

from __future__ import annotations

ENTER = r"""
export PENSTOCK_SESSION=$1; shift
if [[ -t 0 ]]; then
  [[ $LC_ALL$LC_CTYPE$LANG ]] || export LANG=C.UTF-8
  exec {idle}<> <(:)
  shopt -s checkwinsize; for _ in {1..50}; do (:); ((LINES)) && break; read -r -t 0.02 -u "$idle"; done
  exec {idle}>&-
fi
exec "$@"
""".strip()
"""Marks the program with the first argument; lets a terminal have its size, and a language with letters beyond ASCII,
before the program looks."""
LEAVE = r"""
exec {idle}<> <(:)
for ((try = 0; try < 40; try++)); do
  left=; signal=HUP; ((try >= 20)) && signal=KILL
  for each in /proc/[0-9]*; do
    while IFS= read -r -d '' line; do
      [[ $line == "PENSTOCK_SESSION=$1" ]] || continue
      left=1; kill -$signal "${each#/proc/}"; kill -CONT "${each#/proc/}"; break
    done <"$each/environ"
  done
  [[ $left ]] || exit 0
  read -r -t 0.1 -u "$idle"
done 2>/dev/null
""".strip()
"""Ends all processes that have the mark."""
PLAIN_LEAVE = r"""
try=0
while [ "$try" -lt 40 ]; do
  left= signal=HUP; [ "$try" -ge 20 ] && signal=KILL
  for each in /proc/[0-9]*; do
    case "
$(tr '\0' '\n' <"$each/environ")
" in *"
PENSTOCK_SESSION=$1
"*) left=1; kill -$signal "${each#/proc/}"; kill -CONT "${each#/proc/}" ;; esac
  done
  [ "$left" ] || exit 0
  sleep 0.1; try=$((try + 1))
done 2>/dev/null
""".strip()
"""The same where there may be no bash: with any `sh`, `sleep` and `tr`."""
MARKS = r"""
for each in /proc/[0-9]*; do
  read -r line <"$each/stat" || continue
  set -- ${line##*) }; [ "$2" = 0 ] || continue
  if [ "$BASH_VERSION" ]; then
    while IFS= read -r -d '' line; do printf '%s\n' "$line"; done <"$each/environ"
  else
    tr '\0' '\n' <"$each/environ"
  fi | while IFS= read -r line; do
    case $line in PENSTOCK_SESSION=*) printf '%s\n' "${line#*=}" ;; esac
  done
done 2>/dev/null
""".strip()
"""Prints the marks of programs that were started from outside and still run; what they left behind has a parent."""
