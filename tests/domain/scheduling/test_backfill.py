"""Who may pass a job that waits: only what does not delay it."""

from __future__ import annotations

from dataclasses import replace

from tests.domain.scheduling.jobs import GI, ask, decided, gpus, job, later, node, pool_of, running

HOUR = 3600


def waiting_for_all(**held):
    """A big job that waits for all of a node of which half is taken."""
    return pool_of(node(cpus=4), held=[running("x", cpus=2, **held)], waiting=[job("big", ask(4))])


def test_what_is_over_in_time_may_pass():
    pool = waiting_for_all(max_duration=HOUR)
    pool.enqueue(job("short", ask(1), since=1, max_duration=HOUR))
    pool.enqueue(job("long", ask(1), since=2, max_duration=HOUR + 1))
    pool.enqueue(job("endless", ask(1), since=3))
    assert decided(pool) == {"short": ["box"]}
    assert decided(pool, later(60)) == {}


def test_what_was_short_enough_is_not_any_more_when_time_has_passed():
    pool = waiting_for_all(max_duration=HOUR)
    assert decided(pool) == {}
    pool.enqueue(job("short", ask(1), since=1, max_duration=HOUR))
    assert decided(pool, later(1)) == {}


def test_nothing_passes_where_nobody_knows_when_there_will_be_room():
    pool = waiting_for_all()
    pool.enqueue(job("short", ask(1), since=1, max_duration=1))
    assert decided(pool) == {}


def test_what_should_be_over_already_may_be_over_any_moment():
    pool = waiting_for_all(max_duration=HOUR)
    pool.enqueue(job("short", ask(1), since=1, max_duration=1))
    assert decided(pool, later(2 * HOUR)) == {}


def test_what_takes_nothing_that_the_waiting_one_could_use_may_pass():
    held = [running("x", cpus=1, uuids=("box-0",))]
    pool = pool_of(node(has=1), held=held, waiting=[job("wants-gpu", ask(1, gpus=1)), job("cpu-only", since=1)])
    assert decided(pool) == {"cpu-only": ["box"]}


def test_what_fits_beside_the_waiting_one_when_that_starts_may_pass():
    held = [running("x", cpus=3, max_duration=HOUR)]
    pool = pool_of(node(cpus=4), held=held, waiting=[job("big", ask(3)), job("b", since=1), job("c", since=2)])
    assert decided(pool) == {"b": ["box"]}


def test_room_is_kept_where_it_comes_first_and_elsewhere_others_go_on():
    held = [running("x", "n0", cpus=2, max_duration=HOUR), running("y", "n1", cpus=2, max_duration=2 * HOUR)]
    pool = pool_of(node("n0", 4), node("n1", 4), held=held, waiting=[job("big", ask(4)), job("b", ask(2), since=1)])
    assert decided(pool) == {"b": ["n1"]}
    pool.release("x")
    assert decided(pool) == {"big": ["n0"]}


def test_others_do_not_take_the_kind_of_gpu_that_is_kept():
    mixed = (*gpus("n0", 2, "NVIDIA A10"), *gpus("n0", 2, first=2))
    held = [running("x", "n0", uuids=("n0-2",), max_duration=HOUR)]
    waiting = [job("v100s", ask(gpus=2, products=("V100",))), job("any", ask(gpus=1), since=1)]
    pool = pool_of(node("n0", has=mixed), held=held, waiting=waiting)
    decided(pool)
    assert pool.held["any"].places[0].gpus == ("n0-0",)


def test_a_job_on_several_nodes_keeps_those_it_will_have():
    held = [running("x", "n1", cpus=4, max_duration=HOUR)]
    pool = pool_of(node("n0", 4), node("n1", 4), held=held, waiting=[job("wide", ask(4, places=2))])
    pool.enqueue(job("long", ask(1), since=1, max_duration=2 * HOUR))
    pool.enqueue(job("short", ask(1), since=2, max_duration=HOUR // 2))
    assert decided(pool) == {"short": ["n0"]}


def test_each_kind_of_job_has_its_first_protected():
    nodes = [node("v", 4, has=1), node("a", 4, has=gpus("a", 2, "NVIDIA A10"))]
    held = [running("x", "v", uuids=("v-0",)), running("y", "a", uuids=("a-0",))]
    waiting = [
        job("v100", ask(gpus=1, products=("V100",))),
        job("a10s", ask(gpus=2, products=("A10",)), since=1),
        job("a10", ask(gpus=1, products=("A10",)), since=2),
    ]
    pool = pool_of(*nodes, held=held, waiting=waiting)
    assert decided(pool) == {}
    pool.release("y")
    assert decided(pool) == {"a10s": ["a"]}


def test_each_kind_has_its_first_protected_on_one_node_too():
    held = [running("x", cpus=1, uuids=("box-0",), max_duration=HOUR)]
    waiting = [job("memory", ask(1, 64)), job("both", ask(1, gpus=2), since=1), job("small", ask(1, gpus=1), since=2)]
    held[0] = replace(held[0], places=(replace(held[0].places[0], memory_bytes=4 * GI),))
    pool = pool_of(node(has=2), held=held, waiting=waiting)
    assert decided(pool) == {}
    pool.enqueue(job("short", ask(1, gpus=1), since=3, max_duration=HOUR))
    assert decided(pool) == {"short": ["box"]}
    pool.release("x")
    pool.release("short")
    assert decided(pool, later(HOUR)) == {"memory": ["box"], "both": ["box"]}


def test_what_passes_fits_beside_all_that_is_kept_there_together():
    held = [running("x", cpus=4, max_duration=HOUR)]
    waiting = [job("a", ask(3)), job("b", ask(3, 1), since=1), job("c", ask(2), since=2)]
    pool = pool_of(node(cpus=6), held=held, waiting=waiting)
    assert decided(pool) == {}
    pool.release("x")
    assert decided(pool, later(HOUR)) == {"a": ["box"], "b": ["box"]}


def test_one_that_will_be_over_before_another_has_its_turn_has_room_kept_until_then():
    held = [running("x", cpus=1, max_duration=HOUR), running("y", cpus=1, max_duration=3 * HOUR)]
    waiting = [job("all", ask(3)), job("two", ask(2), since=1, max_duration=HOUR)]
    pool = pool_of(node(cpus=3), held=held, waiting=waiting)
    pool.enqueue(job("one", ask(1), since=2, max_duration=2 * HOUR))  # over before "all" begins, and yet in the way
    assert decided(pool) == {}
    pool.release("x")
    assert decided(pool, later(HOUR)) == {"two": ["box"]}


def test_room_is_kept_for_eight_kinds():
    """Those beyond keep their turn only."""
    held = [running("x", cpus=1, max_duration=HOUR)]
    waiting = [job(f"j{number}", ask(4, number), since=number) for number in range(8)]
    ninth = job("ninth", ask(1, 0, gpus=2), since=8)
    passes = job("passes", ask(0, 0, gpus=1), since=9)
    taken = running("y", cpus=0, uuids=("box-0",), max_duration=HOUR)
    full = pool_of(node(cpus=4, has=2), held=[*held, taken], waiting=[*waiting, ninth, passes])
    assert decided(full) == {"passes": ["box"]}
    room = pool_of(node(cpus=4, has=2), held=[*held, taken], waiting=[*waiting[1:], ninth, passes])
    assert decided(room) == {}
