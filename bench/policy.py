"""One question to the policies, as every request asks it: may this caller do this to that, in this group?"""

from __future__ import annotations

import statistics
import time

from bench.table import Line, show
from penstock.domain.policy import Kind, Rights, Verb
from penstock.domain.users import Caller, Proof

GROUPS = 50
ROUNDS = 9
REPEATED = 200
WORDS = {"Workload": ["get", "apply", "describe", "shell", "cancel"], "Volume": ["get", "apply"], "GPU": ["get"]}


def lines() -> list[Line]:
    groups = [f"group-{number}" for number in range(GROUPS)]
    rights = Rights.of("ann", [(group, WORDS) for group in groups])
    caller = Caller(user="ann", proof=Proof.token, written=rights)
    asked = [(verb, kind, group) for verb in Verb for kind in Kind for group in (None, groups[-1], "of-others")]
    took = statistics.median(_took(caller, asked) for _ in range(ROUNDS))
    note = f"of a member of {GROUPS} groups, over every verb and kind; processor time"
    return [Line("policy check, in process", took * 1e6, "µs", "≤ 20 µs", took <= 20e-6, note=note)]


def _took(caller: Caller, asked: list[tuple[Verb, Kind, str | None]]) -> float:
    """Seconds of one."""
    began = time.process_time()
    for _ in range(REPEATED):
        for verb, kind, group in asked:
            caller.may(verb, kind, group)
    return (time.process_time() - began) / (REPEATED * len(asked))


if __name__ == "__main__":
    print(show(lines()))
