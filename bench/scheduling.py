"""The scheduler by itself: a thousand nodes of eight GPUs, ten thousand jobs of twenty groups waiting."""

from __future__ import annotations

import random
import statistics
import time
from datetime import UTC, datetime, timedelta

from bench.table import Line, show
from penstock.domain.nodes import Gpu, Node
from penstock.domain.scheduling.demand import Ask, PlacedJob, QueuedJob
from penstock.domain.scheduling.pool import Pool

NODES, GPUS, WAITING, GROUPS = 1000, 8, 10_000, 20
PRODUCTS = ("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
LIMITS = (3600, 4 * 3600, 24 * 3600, None)
PLACEMENTS = 3000
AT_ONCE = 20
"""So many end between two rounds: what a second's fiftieth brings at the goal."""
START = datetime(2026, 1, 1, tzinfo=UTC)
GI = 1024**3


def lines() -> list[Line]:
    chance = random.Random(7)
    pool = _full(chance)
    rates = [_placements(pool, chance, at_once) for at_once in (AT_ONCE, 1)]
    while pool.decide(START):
        pass
    idle = statistics.median(_took(lambda: pool.decide(START)) for _ in range(9))
    one = next(iter(pool.rooms.values())).node
    again = statistics.median(_took_after_change(pool, one) for _ in range(9))
    where = f"at {NODES:,} × {GPUS} GPUs, {WAITING:,} waiting"
    note = f"processor time of the scheduler alone: nothing is stored or started; {AT_ONCE} jobs end at a time"
    return [
        Line(f"placements {where}", rates[0], "/s", "≥ 1,000/s", rates[0] >= 1000, note=note),
        Line("placements, one at a time", rates[1], "/s", "-", None, note="two whole rounds for each job that ends"),
        Line("a round, nothing changed", idle * 1e6, "µs", "≤ 100 ms", idle <= 0.1),
        Line("a round after a node changed", again * 1000, "ms", "≤ 100 ms", again <= 0.1),
    ]


def _full(chance: random.Random) -> Pool:
    pool = Pool()
    for number in range(NODES):
        pool.see(_node(number))
    count = 0
    while len(pool.waiting) < WAITING:
        for _ in range(WAITING - len(pool.waiting)):
            pool.enqueue(_job(count, chance))
            count += 1
        while pool.decide(START):
            pass
    return pool


def _placements(pool: Pool, chance: random.Random, at_once: int) -> float:
    """As work ends, other work is placed, and as much comes anew. Only the scheduler's own time counts."""
    placed, spent, number = 0, 0.0, 10**6
    now = START
    while placed < PLACEMENTS // (1 if at_once > 1 else 4):
        now += timedelta(seconds=1)
        ended = chance.sample(list(pool.held), at_once)
        began = time.process_time()
        for each in ended:
            pool.release(each)
        starts: list[PlacedJob] = []
        while some := pool.decide(now):
            starts += some
        spent += time.process_time() - began
        placed += len(starts)
        coming = [_job(number + each, chance) for each in range(len(starts))]
        number += len(starts)
        began = time.process_time()
        for job in coming:
            pool.enqueue(job)
        spent += time.process_time() - began
    return placed / spent


def _took_after_change(pool: Pool, node: Node) -> float:
    pool.lose(node.name)
    pool.see(node)  # the same, and yet everything that waits must be looked at again
    return _took(lambda: pool.decide(START))


def _took(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _node(number: int) -> Node:
    product = PRODUCTS[number % len(PRODUCTS)]
    gpus = (Gpu(uuid=f"GPU-{number}-{minor}", product=product, memory_bytes=GI, minor=minor) for minor in range(GPUS))
    return Node(
        name=f"node-{number:04}", cpus_milli=80_000, memory_bytes=512 * GI, gpus=tuple(gpus), limits_enforced=True
    )


def _job(number: int, chance: random.Random) -> QueuedJob:
    """Mostly one or a few GPUs; some without, some whole nodes, some several of them."""
    gpus = chance.choice((0, 1, 1, 1, 2, 4, 8))
    group = f"group-{chance.randrange(GROUPS)}"
    ask = Ask(
        places=chance.choice((1, 1, 1, 1, 2, 4)) if gpus == 8 else 1,
        cpus_milli=None if gpus else 4000,
        memory_bytes=None if gpus else 16 * GI,
        gpus=gpus,
        products=chance.choice(((), ("V100",), ("A100",), ("H100",))) if gpus else (),
        groups=frozenset({group, "pwm.resource"}),
    )
    since = START + timedelta(seconds=number)
    return QueuedJob(f"job-{number:08}", ask, group, group, since, max_duration=chance.choice(LIMITS))


if __name__ == "__main__":
    print(show(lines()))
