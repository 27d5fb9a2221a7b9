"""What holds whatever happens: nothing is given twice, nobody is delayed or forgotten, and only the state decides."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.nodes import Node
from penstock.domain.scheduling.demand import Allocation, Ask, PlacedJob, QueuedJob
from penstock.domain.scheduling.fit import count, first_end, half
from penstock.domain.scheduling.pool import Pool
from penstock.domain.states import Reason
from penstock.domain.users import Group, Limits
from tests.domain.scheduling.jobs import A10, NOW, V100, ask, gpus, job, node, stranger, why

NAMES = ("n0", "n1", "n2", "n3")
GROUPS = ("ann", "vision")


@st.composite
def nodes(draw: st.DrawFn, name: str):
    count = draw(st.integers(0, 4))
    mixed = draw(st.integers(0, count))
    found = (*gpus(name, mixed, A10), *gpus(name, count - mixed, V100, first=mixed))
    odd = draw(st.sampled_from([{}, {}, {}, {"processes": (stranger(),)}, {"taken_elsewhere": True}]))
    found = tuple(gpu.model_copy(update=odd) if gpu.minor == 0 else gpu for gpu in found)
    return node(
        name,
        cpus=draw(st.sampled_from((1, 2, 4, 8))),
        memory=draw(st.sampled_from((8, 16))),
        has=found,
        group=draw(st.sampled_from(("", "", "vision"))),
        maintenance=draw(st.sampled_from((False, False, False, True))),
    )


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    wanted = draw(st.integers(0, 3))
    exclusive, array = draw(st.booleans()), draw(st.sampled_from((False, False, True)))
    some = (1, 2, 4) if exclusive or not wanted else (None, 1, 2)
    return ask(
        cpus=draw(st.sampled_from(some)),
        memory=draw(st.sampled_from((0, 4) if not wanted else (None, 0, 4))),
        gpus=wanted,
        products=draw(st.sampled_from(((), (), ("V100",), ("A10", "V100")))) if wanted else (),
        exclusive=exclusive,
        places=draw(st.sampled_from((1, 1, 1, 2, 3))),
        array=array,
        spread=draw(st.booleans()),
        together=not array and draw(st.sampled_from((False, False, True))),
        volumes=draw(st.sampled_from(((), (), (), (("data", "n1"),)))),
        groups=draw(st.sampled_from((None, frozenset({"ann"}), frozenset({"vision", "ann"})))),
    )


@st.composite
def jobs(draw: st.DrawFn, number: int, wants=None, limits=(None, 10, 20, 60)) -> QueuedJob:
    return job(
        f"j{number:03}",
        draw(asks() if wants is None else wants),
        since=draw(st.integers(0, 5)),
        user=draw(st.sampled_from(("ann", "bob"))),
        group=draw(st.sampled_from(GROUPS)),
        priority=draw(st.sampled_from((0, 0, 0, 1))),
        max_duration=draw(st.sampled_from(limits)),
    )


LIMITS = st.sampled_from(
    (Limits(), Limits(gpus=2), Limits(cpus_milli=1000), Limits(cpus_milli=3000), Limits(workloads=2))
)


class Lab:
    """A pool to which things happen, drawn one by one."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.pool = Pool()
        self.groups = [Group(name=name, limits=draw(LIMITS), limits_each=draw(LIMITS)) for name in GROUPS]
        for group in self.groups:
            self.pool.set_group(group)
        self.now = NOW
        self.count = 0

    def happens(self) -> None:
        event = self.draw(st.sampled_from(("node", "node", "lost", "job", "job", "job", "over", "over", "time")))
        if event == "node":
            self.pool.see(self.draw(nodes(self.draw(st.sampled_from(NAMES)))))
        elif event == "lost":
            self.pool.lose(self.draw(st.sampled_from(NAMES)))
        elif event == "job":
            for _ in range(self.draw(st.integers(1, 4))):
                self.count += 1
                self.pool.enqueue(self.draw(jobs(self.count)))
        elif event == "over" and (known := sorted([*self.pool.held, *self.pool.waiting])):
            self.pool.release(self.draw(st.sampled_from(known)))
        elif event == "time":
            self.now += timedelta(seconds=self.draw(st.integers(1, 30)))

    def afresh(self) -> Pool:
        """The same state, told to a new pool in another order."""
        chance = random.Random(self.draw(st.integers(0, 9)))
        pool = Pool()
        tell = [(pool.see, room.node) for room in self.pool.rooms.values()]
        tell += [(pool.hold, held) for held in self.pool.held.values()]
        tell += [(pool.enqueue, waiting) for waiting in self.pool.waiting.values()]
        tell += [(pool.set_group, group) for group in self.groups]
        chance.shuffle(tell)
        for say, what in tell:
            say(what)
        return pool


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_what_is_decided_depends_only_on_what_there_is(data):
    lab = Lab(data.draw)
    for _ in range(data.draw(st.integers(1, 12))):
        lab.happens()
        afresh = lab.afresh()
        assert {each: lab.pool.ahead(each) for each in lab.pool.waiting} == {
            each: afresh.ahead(each) for each in afresh.waiting
        }
        if data.draw(st.booleans()):
            assert lab.pool.decide(lab.now, most=5) == afresh.decide(lab.now, most=5)
            for each in lab.pool.waiting:
                assert lab.pool.explain(each) == afresh.explain(each)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_nothing_is_given_twice_and_nobody_gets_more_than_there_is_or_than_he_may(data):
    lab = Lab(data.draw)
    for _ in range(data.draw(st.integers(1, 12))):
        lab.happens()
        before = dict(lab.pool.waiting)
        for held in lab.pool.decide(lab.now):
            _is_whole(held)
            _kept_its_turn(held, before)
            _fits_its_nodes(held, lab.pool)
            _keeps_limits(held, lab.groups, lab.pool)


def _is_whole(held: PlacedJob) -> None:
    wanted, places = held.job.ask, held.places
    assert len(places) == wanted.places or (wanted.array and 1 <= len(places) < wanted.places)
    assert not wanted.together or len({place.node for place in places}) == 1
    assert all(place.node == home for place in places for _, home in wanted.volumes)
    for place in places:
        assert len(place.gpus) == wanted.gpus
        assert len(place.cpuset) * 1000 == (wanted.cpus_milli if wanted.exclusive else 0)
        assert wanted.cpus_milli in (None, place.cpus_milli)
        assert wanted.memory_bytes in (None, place.memory_bytes)


def _kept_its_turn(held: PlacedJob, before: dict[str, QueuedJob]) -> None:
    """Nobody in the same position came earlier and still waits."""
    mine = held.job
    before.pop(mine.id)
    same = [each for each in before.values() if _alike(each) == _alike(mine)]
    assert all((each.since, each.id) > (mine.since, mine.id) for each in same)


def _alike(each: QueuedJob):
    return each.ask, each.user, each.group, each.priority, each.max_duration


def _fits_its_nodes(held: PlacedJob, pool: Pool) -> None:
    for name in {place.node for place in held.places}:
        there = pool.rooms[name].node
        assert held.job.ask.may_use(there)
        assert not there.maintenance
        places = [place for each in pool.held.values() for place in each.places if place.node == name]
        uuids = [uuid for place in places for uuid in place.gpus]
        numbers = [number for place in places for number in place.cpuset]
        assert len(uuids) == len(set(uuids))
        assert len(numbers) == len(set(numbers))
        own = [place for place in held.places if place.node == name]
        for what in (
            "cpus_milli",
            "memory_bytes",
        ):  # a node that shrank may have less than runs there: nothing is added
            assert not _sum(own, what) or _sum(places, what) <= getattr(there, what)
        usable = {gpu.uuid for gpu in there.gpus if held.job.ask.takes(gpu) and not gpu.taken_elsewhere}
        assert {uuid for place in held.places if place.node == name for uuid in place.gpus} <= usable


def _sum(places: list[Allocation], what: str) -> int:
    return sum(getattr(place, what) for place in places)


def _keeps_limits(held: PlacedJob, groups: list[Group], pool: Pool) -> None:
    group = next(each for each in groups if each.name == held.job.group)
    for limits, user in ((group.limits, None), (group.limits_each, held.job.user)):
        theirs = [each for each in pool.held.values() if each.job.group == group.name and user in (None, each.job.user)]
        assert limits.workloads is None or len(theirs) <= limits.workloads
        assert limits.gpus is None or sum(each.gpus for each in theirs) <= limits.gpus
        assert limits.cpus_milli is None or sum(each.cpus_milli for each in theirs) <= limits.cpus_milli


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_room_to_come_is_found_where_counting_finds_it(data):
    lab = Lab(data.draw)
    for _ in range(data.draw(st.integers(4, 12))):
        lab.happens()
        lab.pool.decide(lab.now)
    wanted, places = data.draw(asks()), data.draw(st.integers(1, 3))
    for room in lab.pool.rooms.values():
        products = [product for product in (A10, V100) if wanted.takes_product(product)]
        enough = [count(wanted, products, free, room.node) >= places for _, free in room.later]
        assert first_end(wanted, products, places, room) == [*enough, True].index(True)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_an_array_starts_with_at_least_half_of_what_it_could_have(data):
    there = [data.draw(nodes(name)) for name in NAMES[:2]]
    wanted = ask(1, places=data.draw(st.integers(1, 20)), array=True)
    pool = Pool()
    for each in there:
        pool.see(each)
    taken = data.draw(jobs(1))
    pool.enqueue(taken)
    pool.decide(NOW)
    pool.enqueue(job("sweep", wanted, priority=-1))
    capacity = sum(each.cpus_milli // 1000 for each in there if not each.maintenance)
    for held in pool.decide(NOW):
        if held.job.id == "sweep":
            assert len(held.places) >= half(min(wanted.places, capacity))


def _run(pool: Pool, until: str | None = None) -> dict[str, datetime]:
    """Lets time pass: everything takes as long as it may. When did each start?"""
    started: dict[str, datetime] = {}
    now = NOW
    while True:
        while starts := pool.decide(now):
            started |= {held.job.id: now for held in starts}
        ends = [held.ends for held in pool.held.values() if held.ends]
        if not ends or until in started:
            return started
        now = max(min(ends), now)
        for held in list(pool.held.values()):
            if held.ends and held.ends <= now:
                pool.release(held.job.id)


def _busy(there: list[Node], earlier: list[QueuedJob], coming: list[QueuedJob]) -> Pool:
    """What came earlier runs as far as there was room; the others wait."""
    pool = Pool()
    for each in there:
        pool.see(each)
    for each in earlier:
        pool.enqueue(each)
    pool.decide(NOW)
    for each in earlier:
        if each.id in pool.waiting:
            pool.release(each.id)
    for each in coming:
        pool.enqueue(each)
    return pool


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_nothing_that_passes_delays_the_first_that_waits(data):
    there = [data.draw(nodes(name)) for name in NAMES[:3]]
    earlier = [data.draw(jobs(number)) for number in range(4)]
    head = job("head", data.draw(asks()), priority=5, max_duration=10)
    others = [data.draw(jobs(number)) for number in range(10, 18)]
    without = _run(_busy(there, earlier, [head]), "head")
    if "head" in without:
        assert _run(_busy(there, earlier, [head, *others]), "head")["head"] <= without["head"]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_on_one_node_nothing_that_passes_delays_the_first_of_any_kind_that_waits(data):
    """On several, what passes one changes where those after it have room first."""
    there = [node("n0", cpus=6, memory=8, has=2)]
    wants = st.builds(ask, st.integers(1, 5), st.sampled_from((0, 4, 8)), st.integers(0, 2))
    earlier = [data.draw(jobs(number, wants)) for number in range(3)]
    wanted = data.draw(st.lists(wants, min_size=2, max_size=4, unique=True))
    heads = [
        job(f"head{place}", each, priority=9 - place, max_duration=data.draw(st.sampled_from((10, 20, None))))
        for place, each in enumerate(wanted)
    ]
    others = [data.draw(jobs(number, wants)) for number in range(10, 16)]
    without, among = _run(_busy(there, earlier, heads)), _run(_busy(there, earlier, heads + others))
    for head in heads:
        if head.id in without:
            assert among[head.id] <= without[head.id]


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_nobody_waits_for_ever(data):
    there = [data.draw(nodes(name)) for name in NAMES[:3]]
    coming = [data.draw(jobs(number, limits=(10, 20, 60))) for number in range(data.draw(st.integers(1, 15)))]
    pool = Pool()
    for each in there:
        pool.see(each)
    for each in coming:
        pool.enqueue(each)
    started = _run(pool)
    for each in coming:
        alone = Pool()
        for one in there:
            alone.see(one)
        alone.enqueue(each)
        assert (each.id in started) == bool(alone.decide(NOW)), why(alone, each.id)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_what_is_told_to_be_impossible_never_starts_and_all_else_does_on_empty_nodes(data):
    there = [data.draw(nodes(name)).model_copy(update={"maintenance": False}) for name in NAMES[:2]]
    there = [each.model_copy(update={"gpus": tuple(_idle(gpu) for gpu in each.gpus)}) for each in there]
    wanted = data.draw(jobs(1))
    if wanted.ask.cpus_milli is None and not wanted.ask.array:  # shares are of Docker hosts, where ranks are together
        wanted = replace(wanted, ask=replace(wanted.ask, together=True))
    pool = Pool()
    for each in there:
        pool.see(each)
    for name in GROUPS:
        pool.set_group(Group(name=name, limits=data.draw(LIMITS), limits_each=data.draw(LIMITS)))
    never = pool.never(wanted)
    pool.enqueue(wanted)
    assert bool(pool.decide(NOW)) == (not never), never


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_what_no_node_could_run_says_so_and_is_in_nobodys_way(data):
    lab = Lab(data.draw)
    for _ in range(data.draw(st.integers(1, 12))):
        lab.happens()
        lab.pool.decide(lab.now)
        lost = {each for each in lab.pool.waiting if not _could_ever_run(lab.pool, each)}
        causes = lab.pool.causes(lab.pool.waiting)
        assert {each for each in causes if causes[each].reason is Reason.NO_NODE_FITS} == lost
        others = lab.afresh()
        for each in lost:
            others.release(each)
        assert all(lab.pool.ahead(each) == others.ahead(each) for each in others.waiting)


def _could_ever_run(pool: Pool, workload_id: str) -> bool:
    """Alone, on open and empty nodes, beyond no limit."""
    alone = Pool()
    for room in pool.rooms.values():
        alone.see(room.node.model_copy(update={"maintenance": False, "gpus": tuple(map(_idle, room.node.gpus))}))
    alone.enqueue(pool.waiting[workload_id])
    return bool(alone.decide(NOW))


def _idle(gpu):
    return gpu.model_copy(update={"processes": (), "taken_elsewhere": False})
