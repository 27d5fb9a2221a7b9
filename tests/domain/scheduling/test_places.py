"""Where work goes: what fits, which node is chosen, which GPUs and CPUs it gets."""

from __future__ import annotations

from penstock.domain.nodes import Allows
from penstock.domain.scheduling.demand import ask_of
from penstock.domain.users import Group, Limits
from penstock.domain.workloads import Array, Requests, Resources, Selectors, Spec
from tests.domain.scheduling.jobs import (
    A10,
    GI,
    V100,
    ask,
    decided,
    given,
    gpus,
    job,
    node,
    pool_of,
    running,
    stranger,
    why,
)


def test_what_fits_starts():
    pool = pool_of(node(cpus=4), waiting=[job("a", ask(2)), job("b", ask(2)), job("c", ask(1))])
    assert decided(pool) == {"a": ["box"], "b": ["box"]}


def test_used_nodes_are_filled_before_whole_ones_are_broken():
    nodes = [node("n1", has=4), node("n2", has=8)]
    pool = pool_of(*nodes, held=[running("x", "n2", uuids=("n2-0",))], waiting=[job("a", ask(gpus=1))])
    assert decided(pool) == {"a": ["n2"]}


def test_of_used_nodes_the_fullest_is_taken():
    held = [running("x", "n1", uuids=("n1-0",)), running("y", "n2", uuids=("n2-0", "n2-1"))]
    pool = pool_of(node("n1", has=4), node("n2", has=4), held=held, waiting=[job("a", ask(gpus=1))])
    assert decided(pool) == {"a": ["n2"]}


def test_what_needs_no_gpu_goes_where_none_is_free():
    pool = pool_of(node("a-gpus", has=4), node("plain"), waiting=[job("a")])
    assert decided(pool) == {"a": ["plain"]}


def test_what_asks_for_it_is_spread():
    nodes = [node(f"n{number}") for number in range(4)]
    pool = pool_of(*nodes, waiting=[job("a", ask(places=4, spread=True)), job("b", ask(places=4), since=1)])
    found = decided(pool)
    assert sorted(found["a"]) == ["n0", "n1", "n2", "n3"]
    assert len(set(found["b"])) == 1


def test_what_is_spread_over_fewer_nodes_than_places_is_even():
    pool = pool_of(node("n0"), node("n1"), waiting=[job("a", ask(places=4, spread=True))])
    assert sorted(decided(pool)["a"]) == ["n0", "n0", "n1", "n1"]


def test_several_nodes_are_given_all_or_none():
    nodes = [node(f"n{number}", has=8) for number in range(3)]
    pool = pool_of(*nodes, waiting=[job("a", ask(gpus=8, places=4)), job("b", ask(gpus=8, places=3), since=1)])
    assert decided(pool) == {"b": ["n0", "n1", "n2"]}  # "a" can never have its four: it keeps nothing


def test_ranks_that_fit_on_one_node_share_it():
    held = [running("x", "n0", uuids=("n0-0",))]
    pool = pool_of(node("n0", has=2), node("n1", has=2), held=held, waiting=[job("a", ask(gpus=1, places=2))])
    assert decided(pool) == {"a": ["n1", "n1"]}


def test_gpus_are_of_one_product_with_the_lowest_minor_first():
    mixed = (*gpus("n0", 1, A10), *gpus("n0", 2, V100, first=1), *gpus("n0", 2, A10, first=3))
    pool = pool_of(node("n0", has=mixed), waiting=[job("a", ask(gpus=3)), job("b", ask(gpus=2), since=1)])
    decided(pool)
    assert given(pool, "a") == [("n0-0", "n0-3", "n0-4")]
    assert given(pool, "b") == [("n0-1", "n0-2")]


def test_products_are_mixed_where_no_one_is_enough():
    mixed = (*gpus("n0", 1, A10), *gpus("n0", 1, V100, first=1))
    pool = pool_of(node("n0", has=mixed), waiting=[job("a", ask(gpus=2))])
    decided(pool)
    assert sorted(given(pool, "a")[0]) == ["n0-0", "n0-1"]


def test_all_ranks_get_one_product_where_possible():
    nodes = [
        node("n0", has=gpus("n0", 1, A10)),
        node("n1", has=gpus("n1", 1, V100)),
        node("n2", has=gpus("n2", 1, A10)),
    ]
    pool = pool_of(*nodes, waiting=[job("a", ask(gpus=1, places=2))])
    assert decided(pool) == {"a": ["n0", "n2"]}


def test_of_products_that_would_do_the_one_with_least_memory_is_given():
    nodes = [node("n0", has=gpus("n0", 1, A10)), node("n1", has=gpus("n1", 1, V100))]
    assert decided(pool_of(*nodes, waiting=[job("a", ask(gpus=1))])) == {"a": ["n1"]}


def test_a_gpu_somebody_else_uses_is_not_given():
    busy = (*gpus("n0", 1, processes=(stranger(),)), *gpus("n0", 1, first=1, taken_elsewhere=True))
    pool = pool_of(node("n0", has=(*busy, *gpus("n0", 1, first=2))), waiting=[job("a", ask(gpus=1))])
    decided(pool)
    assert given(pool, "a") == [("n0-2",)]
    pool.enqueue(job("b", ask(gpus=1), since=1))
    assert decided(pool) == {}


def test_a_gpu_that_was_ours_is_free_again_although_our_processes_were_seen_there():
    pool = pool_of(node("n0", has=1), waiting=[job("a", ask(gpus=1))])
    decided(pool)
    pool.see(node("n0", cpus=9, has=gpus("n0", 1, processes=(stranger(),))))
    pool.release("a")
    pool.enqueue(job("b", ask(gpus=1)))
    assert decided(pool) == {"b": ["n0"]}
    pool.release("b")
    pool.see(node("n0", has=gpus("n0", 1, processes=(stranger(),))))
    pool.enqueue(job("c", ask(gpus=1)))
    assert decided(pool) == {}


def test_exclusive_cpus_are_given_by_number_and_never_twice():
    pool = pool_of(node(cpus=4), waiting=[job("a", ask(2, exclusive=True)), job("b", ask(1, exclusive=True), since=1)])
    decided(pool)
    assert [pool.held[each].places[0].cpuset for each in ("a", "b")] == [(0, 1), (2,)]
    pool.release("a")
    pool.enqueue(job("c", ask(3, exclusive=True)))
    decided(pool)
    assert pool.held["c"].places[0].cpuset == (0, 1, 3)


def test_gpus_bring_their_share_of_the_node_where_nothing_is_said():
    pool = pool_of(node(cpus=80, memory=512, has=8), waiting=[job("a", ask(None, None, gpus=2))])
    decided(pool)
    assert (pool.held["a"].cpus_milli, pool.held["a"].memory_bytes) == (20_000, 128 * GI)


def test_a_share_gives_way_down_to_its_half():
    pool = pool_of(node(cpus=8, has=1), held=[running("x", cpus=3)], waiting=[job("a", ask(None, 0, gpus=1))])
    decided(pool)
    assert pool.held["a"].cpus_milli == 5000
    full = pool_of(node(cpus=8, has=1), held=[running("x", cpus=5)], waiting=[job("a", ask(None, 0, gpus=1))])
    assert decided(full) == {}


def test_selectors_decide_where_it_may_go():
    nodes = [
        node("n0", cpu_product="Intel(R) Xeon(R) CPU E5-2698 v4", labels={"disk": "hdd"}),
        node("n1", cpu_product="AMD EPYC 7742", labels={"disk": "ssd"}),
        node("n2", cpu_product="AMD EPYC 7742", labels={"disk": "hdd"}),
    ]

    def where(**selectors):
        return decided(pool_of(*nodes, waiting=[job("a", ask(**selectors))]))

    assert where(node="n2") == {"a": ["n2"]}
    assert where(cpu_product="EPYC-7742", labels=(("disk", "hdd"),)) == {"a": ["n2"]}
    assert where(labels=(("disk", "ssd"),)) == {"a": ["n1"]}
    assert where(node="n0", labels=(("disk", "ssd"),)) == {}


def test_closed_nodes_get_nothing_new():
    nodes = [
        node("n0", maintenance=True),
        node("n1", ready=False),
        node("n2", allows=(Allows.GPUWorkload,), has=1),
        node("n3", allows=(Allows.CPUWorkload,), has=1),
    ]
    pool = pool_of(*nodes, waiting=[job("a"), job("b", ask(gpus=1))])
    assert decided(pool) == {"a": ["n3"], "b": ["n2"]}


def test_only_nodes_of_its_groups_are_used():
    nodes = [node("n0", group="vision"), node("n1", group="pwm.resource")]
    shared, none = frozenset({"pwm.resource"}), frozenset({"speech"})
    pool = pool_of(*nodes, waiting=[job("a", ask(groups=shared)), job("b", ask(groups=none))])
    assert decided(pool) == {"a": ["n1"]}
    everything = pool_of(nodes[0], waiting=[job("a", ask(groups=frozenset({"pwm.all"})))])
    assert decided(everything) == {"a": ["n0"]}


def test_an_array_starts_with_the_places_there_are_once_that_is_half_of_what_it_could_have():
    def started(used):
        held = [running("x", "n0", cpus=used)]
        return decided(
            pool_of(node("n0", 4), node("n1", 4), held=held, waiting=[job("a", ask(places=100, array=True))])
        )

    assert len(started(1)["a"]) == 7
    assert len(started(4)["a"]) == 4
    assert not decided(
        pool_of(node("n0", 4), held=[running("x", "n0", cpus=3)], waiting=[job("a", ask(places=100, array=True))])
    )


def test_what_takes_nothing_starts_on_a_full_machine():
    pool = pool_of(
        node(cpus=4), held=[running("x", cpus=4)], waiting=[job("big", ask(4)), job("shell", ask(0), since=1)]
    )
    assert decided(pool) == {"shell": ["box"]}


def test_a_node_that_comes_back_has_what_ran_there():
    pool = pool_of(node(cpus=4), held=[running("x", cpus=3)])
    pool.lose("box")
    pool.enqueue(job("a", ask(2)))
    assert decided(pool) == {}
    pool.see(node(cpus=4))
    assert decided(pool) == {}
    pool.release("x")
    assert decided(pool) == {"a": ["box"]}


# from a spec


def test_what_is_requested_counts_and_not_the_limit():
    asked = Resources(cpus_milli=4000, memory_bytes=16 * GI, requests=Requests(cpus_milli=500, memory_bytes=GI))
    found = ask_of(Spec(run="x", nodes=2, resources=asked), 500)
    assert (found.places, found.cpus_milli, found.memory_bytes) == (2, 500, GI)


def test_what_is_not_said_is_the_default_or_the_share_of_the_gpus():
    plain, with_gpu = Spec(run="x"), Spec(run="x", resources=Resources(gpus=1))
    assert (ask_of(plain, 500).cpus_milli, ask_of(plain, 500).memory_bytes) == (500, 0)
    assert (ask_of(with_gpu, 500).cpus_milli, ask_of(with_gpu, 500).memory_bytes) == (None, None)
    assert ask_of(with_gpu, 500, shares=False).cpus_milli == 500


def test_exclusive_cpus_are_whole():
    assert ask_of(Spec(run="x", resources=Resources(exclusive_cpus=True)), 500).cpus_milli == 1000
    assert ask_of(Spec(run="x", resources=Resources(cpus_milli=1500, exclusive_cpus=True)), 500).cpus_milli == 2000


def test_an_array_asks_for_what_is_left_of_it_and_no_more_at_once_than_it_may():
    array = Spec(run="x", array=Array(count=100, parallelism=20))
    assert ask_of(array, 500).places == 20
    assert ask_of(array, 500, indexes=7).places == 7


def test_selectors_are_taken_over():
    chosen = Selectors(node="dgx1", cpu_product="Xeon", labels={"b": "2", "a": "1"})
    found = ask_of(Spec(run="x", selectors=chosen), 500, groups=frozenset({"ann"}))
    assert (found.node, found.cpu_product, found.labels) == ("dgx1", "Xeon", (("a", "1"), ("b", "2")))
    assert found.groups == {"ann"}


def test_ranks_that_must_share_a_node_get_one_with_room_for_all_or_none():
    nodes = [node("n0", 2), node("n1", 4), node("n2", 2)]
    pool = pool_of(*nodes, waiting=[job("a", ask(places=3, together=True)), job("b", ask(places=2), since=1)])
    assert decided(pool) == {"a": ["n1"] * 3, "b": ["n0", "n0"]}
    held = [running(f"x{number}", f"n{number}", cpus=1) for number in range(3)]
    pool = pool_of(*nodes, held=held, waiting=[job("a", ask(places=4, together=True))])
    assert decided(pool) == {}
    assert why(pool, "a") == "its 4 nodes run on one host, and at most 3 have room on one now"
    pool.release("x1")
    assert decided(pool) == {"a": ["n1"] * 4}


def test_ranks_that_must_share_a_node_wait_for_one_that_will_have_room_and_keep_it():
    held = [running("x0", "n0", cpus=3, max_duration=100), running("x1", "n1", cpus=3, max_duration=50)]
    ranks = job("ranks", ask(places=4, together=True))
    pool = pool_of(node("n0", 4), node("n1", 4), held=held, waiting=[ranks, job("small", ask(1), since=1)])
    assert decided(pool) == {"small": ["n0"]}
    assert why(pool, "ranks") == "its 4 nodes run on one host, and at most 1 have room on one now"


def test_ranks_that_no_single_node_could_take_are_refused():
    found = pool_of(node("n0", 4), node("n1", 4)).never(job("a", ask(places=6, together=True)))
    assert found == {"cpus": "asks for 6 nodes with 1 CPU each; the largest has room for 4"}


def test_work_goes_where_its_volumes_are():
    nodes = [node("n0"), node("n1"), node("n2")]
    pool = pool_of(*nodes, waiting=[job("a", ask(volumes=(("data", "n2"),)))])
    assert decided(pool) == {"a": ["n2"]}
    torn = job("b", ask(volumes=(("data", "n2"), ("more", "n1"))))
    said = "no node that you may use has all its volumes: data is on n2, more is on n1"
    assert pool.never(torn) == {"volumes": said}


def test_what_a_node_has_that_never_answered_nobody_knows():
    away = node("n0", 0, 0, ready=False, message="ssh: connection refused")
    pool = pool_of(away)
    assert pool.never(job("a", ask(64, gpus=8, products=("H100",)))) == {}
    pool.enqueue(job("a", ask(64)))
    assert decided(pool) == {}
    assert why(pool, "a") == "n0 is not ready: ssh: connection refused"


def test_a_shell_on_a_volume_is_nobodys_work():
    limited = Group(name="ann", limits=Limits(workloads=1))
    shell = job("shell", ask(0), unlimited=True)
    pool = pool_of(node(), held=[running("x")], waiting=[shell], groups=[limited])
    assert decided(pool) == {"shell": ["box"]}
