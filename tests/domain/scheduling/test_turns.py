"""Whose turn it is: priorities, first come first served, fair between groups, limits, and the place in the queue."""

from __future__ import annotations

from dataclasses import replace

from penstock.domain.scheduling.explain import beyond_limit
from penstock.domain.users import Group, Limits
from tests.domain.scheduling.jobs import ask, decided, job, later, node, pool_of, running, why


def order(pool):
    return sorted(pool.waiting, key=pool.ahead)


def test_first_come_first_served():
    pool = pool_of(node(cpus=2), waiting=[job("b", ask(2), since=2), job("a", ask(2), since=1)])
    assert decided(pool) == {"a": ["box"]}
    assert pool.ahead("b") == 0


def test_a_higher_priority_goes_first():
    pool = pool_of(node(cpus=2), waiting=[job("a", ask(2)), job("b", ask(2), since=9, priority=1)])
    assert order(pool) == ["b", "a"]
    assert decided(pool) == {"b": ["box"]}


def test_the_group_that_holds_least_goes_first():
    held = [running("x", cpus=2, group="vision"), running("y", cpus=1, group="speech")]
    waiting = [job("v", ask(1), group="vision"), job("s", ask(1), since=5, group="speech")]
    pool = pool_of(node(cpus=4), held=held, waiting=waiting)
    assert decided(pool) == {"s": ["box"]}


def test_a_share_is_that_of_what_the_group_holds_most_of():
    held = [running("x", cpus=1, uuids=("box-0",), group="vision"), running("y", cpus=3, group="speech")]
    waiting = [job("v", ask(1), group="vision"), job("s", ask(1), since=5, group="speech")]
    pool = pool_of(node(cpus=5, has=1), held=held, waiting=waiting)
    assert decided(pool) == {"s": ["box"]}  # 3 of 5 CPUs are less than 1 of 1 GPU


def test_groups_take_turns_however_many_jobs_one_of_them_brings():
    many = [job(f"v{number}", ask(1), since=number, group="vision") for number in range(6)]
    few = [job(f"s{number}", ask(1), since=10 + number, group="speech") for number in range(2)]
    pool = pool_of(node(cpus=4), waiting=[*many, *few])
    assert order(pool)[:4] == ["v0", "s0", "v1", "s1"]
    assert sorted(decided(pool)) == ["s0", "s1", "v0", "v1"]


def test_the_place_in_the_queue_is_known_and_moves():
    pool = pool_of(node(cpus=1), waiting=[job(each, since=place) for place, each in enumerate("abc")])
    assert [pool.ahead(each) for each in "abc"] == [0, 1, 2]
    decided(pool)
    assert [pool.ahead(each) for each in "bc"] == [0, 1]


def test_what_a_limit_keeps_out_is_ahead_of_nobody():
    groups = [Group(name="vision", limits=Limits(gpus=0))]
    waiting = [job(each, ask(gpus=1), since=place, group="vision") for place, each in enumerate("vw")]
    waiting += [job(each, ask(8), since=5 + place, group="speech") for place, each in enumerate("st")]
    pool = pool_of(node(has=1), held=[running("x", group="speech")], waiting=waiting, groups=groups)
    assert decided(pool) == {}
    assert [pool.ahead(each) for each in "st"] == [0, 1]
    assert why(pool, "w") == "group vision may have 0 GPUs at once: 0 are taken, needs 1"
    assert pool.explain("w").ahead is None
    assert pool.outlook(job("u", ask(8), since=9, group="speech"), later(9)).ahead == 2
    assert pool.outlook(job("u", ask(gpus=1), since=9, group="vision"), later(9)).ahead is None
    pool.set_group(Group(name="vision", limits=Limits(gpus=1)))
    assert [pool.ahead(each) for each in "vswt"] == [0, 1, 2, 3]


def test_what_is_said_of_one_that_comes_counts_only_those_whose_turn_is_before():
    held = [running("x", cpus=2, group="vision")]
    waiting = [job(f"v{number}", ask(4), since=number, group="vision") for number in range(3)]
    pool = pool_of(node(cpus=4), held=held, waiting=waiting)
    assert decided(pool) == {}
    found = pool.outlook(job("new", since=9, group="vision"), later(9))
    assert found.message == "room is kept for those ahead in the queue; with a max_duration it might pass them"
    assert found.ahead == 3
    assert pool.outlook(job("new", since=9, group="vision", priority=10), later(9)) is None
    assert pool.outlook(job("new", since=9, group="speech"), later(9)) is None
    said = pool.outlook(job("new", ask(3), since=9, group="vision", priority=10), later(9)).message
    assert said == "needs 3 CPUs; 2 of 4 are free"
    pool.enqueue(job("new", since=9, group="vision", priority=10))
    assert decided(pool, later(9)) == {"new": ["box"]}


def test_the_place_that_one_will_have_is_told_before_it_comes():
    coming = [("vision", 0), ("speech", 0), ("vision", 1), ("ann", -1), ("speech", 0), ("vision", 0)]
    pool = pool_of(node(cpus=4), held=[running("x", cpus=4)])
    for since, (group, priority) in enumerate(coming):
        new = job(f"j{since}", ask(2), since=since, group=group, priority=priority)
        cause = pool.outlook(new, later(9))
        pool.enqueue(new)
        assert pool.causes([new.id]) == {new.id: cause}


def test_beyond_the_limit_of_its_group_a_job_waits_and_is_in_nobodys_way():
    groups = [Group(name="vision", limits=Limits(gpus=4))]
    held = [running("x", uuids=("box-0", "box-1", "box-2"), group="vision")]
    waiting = [job("v", ask(gpus=2), group="vision"), job("s", ask(gpus=5), since=5, group="speech")]
    pool = pool_of(node(has=8), held=held, waiting=waiting, groups=groups)
    assert decided(pool) == {"s": ["box"]}
    assert pool.causes(["v"]) == {"v": beyond_limit("group vision may have 4 GPUs at once: 3 are taken, needs 2")}


def test_limits_hold_for_each_member_too():
    groups = [Group(name="vision", limits_each=Limits(workloads=1, cpus_milli=2000))]
    waiting = [
        job("a1", user="ann", group="vision"),
        job("a2", user="ann", group="vision", since=1),
        job("b1", ask(3), user="bob", group="vision", since=2),
        job("b2", user="bob", group="vision", since=3),
    ]
    pool = pool_of(node(), waiting=waiting, groups=groups)
    assert decided(pool) == {"a1": ["box"], "b2": ["box"]}
    assert why(pool, "a2").startswith("ann in group vision may have 1 workload at once: 1 is taken, needs 1")
    assert pool.never(pool.waiting["b1"]) == {"cpus": "asks for 3 CPUs; bob in group vision may have 2 at once"}


def test_a_raised_limit_lets_it_start():
    group = Group(name="vision", limits=Limits(workloads=0))
    pool = pool_of(node(), waiting=[job("a", group="vision")], groups=[group])
    assert decided(pool) == {}
    pool.set_group(Group(name="vision", limits=Limits(workloads=1)))
    assert decided(pool) == {"a": ["box"]}


def test_an_array_keeps_to_the_limits_of_its_group():
    groups = [Group(name="vision", limits=Limits(cpus_milli=6000))]
    held = [running("x", cpus=2, group="vision")]
    pool = pool_of(
        node(cpus=16), held=held, waiting=[job("a", ask(places=50, array=True), group="vision")], groups=groups
    )
    assert len(decided(pool)["a"]) == 4


def test_a_share_of_a_node_counts_for_the_limit_of_cpus():
    groups = [Group(name="vision", limits=Limits(cpus_milli=3000))]
    pool = pool_of(node(cpus=8, has=2), waiting=[job("a", ask(None, 0, gpus=1), group="vision")], groups=groups)
    assert decided(pool) == {}
    assert why(pool, "a") == "its share of a node's CPUs is more than the limits of group vision leave"


LIMITED = [Group(name="vision", limits=Limits(cpus_milli=1000))]
BY_SHARE = ask(None, 0, gpus=1)
"""Its share is 4 CPUs of `big` and 1 of `small`."""


def big_and_small(**more):
    return pool_of(node("big", 8, has=2), node("small", 2, has=2), groups=LIMITED, **more)


def test_a_job_goes_to_the_node_whose_share_its_limit_leaves():
    waiting = [job("w", BY_SHARE, group="vision")]
    pool = big_and_small(held=[running("x", "big", group="ann")], waiting=waiting)
    assert decided(pool) == {"w": ["small"]}  # though big is the fuller


def test_where_only_larger_shares_have_room_it_says_what_it_waits_for():
    held = [running(each, "small", cpus=0.5, uuids=(f"small-{number}",)) for number, each in enumerate("xy")]
    pool = big_and_small(held=held, waiting=[job("w", BY_SHARE, group="vision"), job("a", BY_SHARE, since=1)])
    assert decided(pool) == {"a": ["big"]}
    assert why(pool, "w") == "needs 1 GPU; 0 of 2 are free"
    assert [str(answer) for answer in pool.explain("w").answers] == [
        "node big: group vision may have 1 CPU at once: 0 are taken, needs 4, its share of the node",
        "node small: has 0 of 2 free Tesla V100-SXM2-16GB, needs 1",
    ]
    pool.enqueue(job("b", BY_SHARE, since=2, group="ann"))
    pool.enqueue(job("c", BY_SHARE, since=3, group="ann"))
    pool.release("x")
    assert decided(pool)["w"] == ["small"]


def test_room_that_its_limit_leaves_is_kept_for_it():
    """Else those that may have more would take it each time it comes free."""
    held = [running("x", "small", uuids=("small-0", "small-1"), group="ann")]
    pool = big_and_small(held=held, waiting=[job("w", ask(None, 0, gpus=2), group="vision")])
    pool.set_group(Group(name="vision", limits=Limits(cpus_milli=2000)))
    assert decided(pool) == {}
    pool.enqueue(job("a", ask(None, 0, gpus=1, node="small"), since=1))
    pool.hold(running("x", "small", uuids=("small-0",), group="ann"))
    assert decided(pool) == {}
    assert "kept" in why(pool, "a")
    pool.release("x")
    assert decided(pool) == {"w": ["small"]}


def test_a_share_beyond_what_its_group_holds_besides_waits_and_says_so():
    held = [running("x", "small", cpus=0.5, group="vision")]
    pool = big_and_small(held=held, waiting=[job("w", BY_SHARE, group="vision"), job("a", BY_SHARE, since=1)])
    assert decided(pool) == {"a": ["small"]}
    beyond = beyond_limit("its share of a node's CPUs is more than the limits of group vision leave")
    assert pool.causes(["w"]) == {"w": beyond}
    assert [each.passes for answer in pool.explain("w").answers for each in answer.obstacles] == [False, True]
    pool.release("x")
    assert decided(pool) == {"w": ["small"]}


def test_a_share_that_is_more_than_the_limit_on_every_node_can_never_run():
    pool = pool_of(node("a", 8, has=2), node("b", 6, has=2), groups=LIMITED)
    said = "names no CPUs, so its share of a node counts, at least 3 CPUs (b); group vision may have 1 at once"
    assert pool.never(job("w", BY_SHARE, group="vision")) == {"cpus": said}
    assert pool.never(job("w", BY_SHARE)) == {}
    assert pool.never(job("w", ask(1, 0, gpus=1), group="vision")) == {}
    pool.see(node("c", 2, has=2, maintenance=True))
    assert pool.never(job("w", BY_SHARE, group="vision")) == {}
    together = job("w", ask(None, 0, gpus=1, places=2, together=True), group="vision")
    said = "names no CPUs, so its share of a node counts, at least 2 CPUs (c); group vision may have 1 at once"
    assert pool.never(together) == {"cpus": said}


def test_an_array_has_as_many_places_as_its_limit_leaves_shares():
    pool = big_and_small(waiting=[job("a", ask(None, 0, gpus=1, places=9, array=True), group="vision")])
    pool.set_group(Group(name="vision", limits=Limits(cpus_milli=5000)))
    assert decided(pool) == {"a": ["small", "small"]}


def test_of_very_many_kinds_all_have_their_turn():
    held = [running("x", "full", cpus=8)]
    waiting = [job(f"j{number:03}", ask(1, node="full"), since=number) for number in range(600)]
    waiting = [replace(each, ask=replace(each.ask, memory_bytes=number)) for number, each in enumerate(waiting)]
    pool = pool_of(node("full", 8), node("other", 8), held=held, waiting=waiting)
    pool.enqueue(job("last", ask(1, node="other"), since=999))
    assert pool.decide(later(999)) == []
    assert not pool.settled
    assert decided(pool, later(999)) == {"last": ["other"]}
    assert pool.settled
    assert (why(pool, "j599"), pool.ahead("j599")) == ("needs 1 CPU; 0 of 8 are free", 599)


def test_what_comes_meanwhile_is_looked_at_in_its_turn():
    held = [running("x", cpus=8)]
    waiting = [job(f"j{number:03}", ask(1), since=number) for number in range(600)]
    waiting = [replace(each, ask=replace(each.ask, memory_bytes=number)) for number, each in enumerate(waiting)]
    pool = pool_of(node(cpus=8), held=held, waiting=waiting)
    assert pool.decide(later(999)) == []
    pool.release("x")
    assert list(decided(pool, later(999))) == [f"j{number:03}" for number in range(8)]


def test_what_no_node_could_run_is_not_ahead_of_anyone():
    pool = pool_of(node("lab-1", 2), held=[running("x", "lab-1", cpus=2)])
    pool.enqueue(job("lost", ask(1, node="lab-2"), since=0))
    pool.enqueue(job("gang", ask(2, places=2), since=1))
    pool.enqueue(job("other", ask(1), since=2))
    decided(pool)
    assert (pool.ahead("lost"), pool.ahead("gang"), pool.ahead("other")) == (0, 0, 0)
    assert why(pool, "other") == "needs 1 CPU; 0 of 2 are free"
    pool.see(node("lab-2", 2))
    decided(pool)
    assert pool.ahead("other") == 1


def test_a_node_that_goes_or_changes_takes_what_only_it_could_run_out_of_the_queue():
    pool = pool_of(
        node("lab-1", 2), node("lab-2", 8), held=[running("x", "lab-1", cpus=2), running("y", "lab-2", cpus=8)]
    )
    pool.enqueue(job("large", ask(8), since=0))
    pool.enqueue(job("small", ask(1), since=1))
    decided(pool)
    assert pool.ahead("small") == 1
    pool.see(node("lab-2", 4))
    decided(pool)
    assert pool.ahead("small") == 0
    pool.see(node("lab-2", 8))
    decided(pool)
    assert pool.ahead("small") == 1
    pool.lose("lab-2")
    decided(pool)
    assert pool.ahead("small") == 0
    pool.release("x")
    assert decided(pool) == {"small": ["lab-1"]}
