"""Placement: what fits, what waits and why, what never fits, and that nothing ahead is delayed."""

from penstock.domain.nodes import Gpu, Node
from penstock.domain.workloads import Array, Requests, Resources, Spec
from penstock.services.scheduler import Ask, ask_of, decide, never, room_of, shortage

GI = 1024**3


def gpu(minor, product="NVIDIA A10", elsewhere=False):
    return Gpu(uuid=f"GPU-{minor}", product=product, memory_bytes=24 * GI, minor=minor, taken_elsewhere=elsewhere)


def machine(cpus=4, memory=16, gpus=()):
    return Node(name="box", cpus_milli=cpus * 1000, memory_bytes=memory * GI, gpus=tuple(gpus), limits_enforced=True)


def ask(cpus=1.0, memory=0, gpus=0, products=(), nodes=1):
    return Ask(nodes, int(cpus * 1000), memory * GI, gpus, tuple(products))


def outcome(waiting, held=None, node=None):
    decisions = decide(waiting, held or {}, node or machine())
    return {d.workload_id: d.waits if d.waits else d.gpus for d in decisions}


def test_what_fits_starts_in_order():
    assert outcome({"a": ask(2), "b": ask(2)}) == {"a": ((),), "b": ((),)}


def test_what_does_not_fit_waits_and_says_what_is_missing():
    held = {"x": (ask(3), ())}
    assert outcome({"a": ask(2)}, held) == {"a": "needs 2 CPUs; 1 of 4 are free"}
    assert shortage(ask(1, memory=8), _room(memory=4), machine()) == "needs 8Gi of memory; 4Gi of 16Gi are free"


def _room(cpus=4, memory=16, gpus=()):
    from penstock.services.scheduler import Room

    return Room(cpus * 1000, memory * GI, tuple(gpus))


def test_a_small_one_may_not_pass_a_big_one_if_that_could_delay_it():
    held = {"x": (ask(2), ())}
    found = outcome({"big": ask(4), "small": ask(1)}, held)
    assert found["big"] == "needs 4 CPUs; 2 of 4 are free"
    assert "small" not in found


def test_one_that_takes_nothing_the_waiting_one_could_use_may_pass():
    node = machine(cpus=8, gpus=[gpu(0)])
    held = {"x": (ask(1, gpus=1), ("GPU-0",))}
    found = outcome({"wants-gpu": ask(1, gpus=1), "cpu-only": ask(1)}, held, node)
    assert found == {"wants-gpu": "needs 1 GPU; 0 of 1 are free", "cpu-only": ((),)}


def test_the_place_in_the_queue_is_said():
    held = {"x": (ask(3, gpus=1), ("GPU-0",))}
    node = machine(cpus=8, gpus=[gpu(0)])
    found = outcome({"a": ask(1, gpus=1), "b": ask(1, gpus=1)}, held, node)
    assert found["b"] == "needs 1 GPU; 0 of 1 are free; 1 ahead in the queue"


def test_gpus_are_given_by_product_and_never_twice():
    node = machine(gpus=[gpu(0), gpu(1, "NVIDIA A100"), gpu(2), gpu(3, "NVIDIA A100")])
    found = outcome({"a": ask(1, gpus=2, products=["A10"]), "b": ask(1, gpus=2)}, node=node)
    assert found == {"a": (("GPU-0", "GPU-2"),), "b": (("GPU-1", "GPU-3"),)}


def test_each_node_of_a_workload_gets_its_own_gpus():
    node = machine(gpus=[gpu(i) for i in range(4)])
    assert outcome({"a": ask(2, gpus=4, nodes=2)}, node=node) == {"a": (("GPU-0", "GPU-1"), ("GPU-2", "GPU-3"))}


def test_a_gpu_held_by_another_server_is_not_given_and_is_said():
    node = machine(gpus=[gpu(0, elsewhere=True)])
    said = outcome({"a": ask(1, gpus=1)}, node=node)["a"]
    assert said == "needs 1 GPU; 0 of 1 are free, 1 held by another server on this machine"


def test_what_can_never_fit_is_named_with_what_there_is():
    node = machine(gpus=[gpu(0), gpu(1)])
    assert never(ask(4), node) == {}
    assert never(ask(8, memory=32, gpus=1, products=["H100"], nodes=2), node) == {
        "cpus": "asks for 8 CPUs (2 nodes together); box has 4",
        "memory": "asks for 32Gi of memory (2 nodes together); box has 16Gi",
        "accelerators": "asks for 1 H100 GPU (2 nodes together); box has 2 × NVIDIA A10 (2 free)",
    }


def test_a_product_that_is_not_there_is_refused_with_those_that_are_and_how_many_are_free():
    node = machine(gpus=[gpu(0), gpu(1), gpu(2, "NVIDIA L4", elsewhere=True)])
    room = room_of(node).less(ask(1, gpus=1), ["GPU-1"])
    said = never(ask(1, gpus=1, products=["H100"]), node, room)["accelerators"]
    assert said == "asks for 1 H100 GPU; box has 2 × NVIDIA A10 (1 free), 1 × NVIDIA L4 (0 free)"


def array(count, parallelism=None, **resources):
    return Spec(run="x", array=Array(count=count, parallelism=parallelism), resources=Resources(**resources))


def test_an_array_asks_for_as_many_places_as_the_machine_has_at_most():
    each = {"cpus_milli": 1000}
    assert ask_of(array(3, **each), 500, machine()).nodes == 3
    assert ask_of(array(100, **each), 500, machine()).nodes == 4
    assert ask_of(array(100, parallelism=2, **each), 500, machine()).nodes == 2
    assert ask_of(array(100, **each), 500, machine(), indexes=1).nodes == 1
    assert ask_of(array(100, memory_bytes=8 * GI), 500, machine()).nodes == 2
    assert ask_of(array(100, gpus=1), 500, machine(cpus=64, gpus=[gpu(0), gpu(1), gpu(2)])).nodes == 3
    alone = ask_of(array(100, cpus_milli=8000), 500, machine())
    assert never(alone, machine()) == {"cpus": "asks for 8 CPUs; box has 4"}


def test_an_array_starts_with_the_places_there_are_once_that_is_half_of_all():
    wish = ask_of(array(100, cpus_milli=1000), 500, machine())
    assert outcome({"a": wish}, {"x": (ask(1), ())}) == {"a": ((),) * 3}
    assert outcome({"a": wish}, {"x": (ask(3), ())}) == {"a": "needs 2 CPUs; 1 of 4 are free"}
    assert outcome({"a": wish, "b": ask(1)}) == {"a": ((),) * 4}


def test_each_place_of_an_array_has_its_own_gpus():
    node = machine(cpus=64, gpus=[gpu(i) for i in range(4)])
    assert outcome({"a": ask_of(array(9, gpus=2), 500, node)}, node=node) == {
        "a": (("GPU-0", "GPU-1"), ("GPU-2", "GPU-3"))
    }


def test_what_is_requested_counts_and_not_the_limit():
    asked = Resources(cpus_milli=4000, memory_bytes=16 * GI, requests=Requests(cpus_milli=500, memory_bytes=GI))
    wish = ask_of(Spec(run="x", nodes=2, resources=asked), 500, machine())
    assert (wish.cpus_milli, wish.memory_bytes) == (1000, 2 * GI)


def test_what_takes_nothing_starts_on_a_full_machine():
    assert outcome({"shell": ask(0)}, {"x": (ask(4), ())}) == {"shell": ((),)}


def test_the_same_state_gives_the_same_placement():
    node = machine(cpus=64, gpus=[gpu(i, f"P{i % 3}") for i in range(9)])
    waiting = {f"w{i}": ask(1, gpus=i % 4) for i in range(12)}
    assert decide(waiting, {}, node) == decide(dict(waiting), {}, node)
