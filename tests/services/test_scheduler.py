"""Placement: what fits, what waits and why, what never fits, and that nothing ahead is delayed."""

from penstock.domain.nodes import Gpu, Node
from penstock.services.scheduler import Ask, decide, never, shortage

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
        "accelerators": "asks for 1 H100 GPU (2 nodes together); box has 2 × NVIDIA A10",
    }


def test_the_same_state_gives_the_same_placement():
    node = machine(cpus=64, gpus=[gpu(i, f"P{i % 3}") for i in range(9)])
    waiting = {f"w{i}": ask(1, gpus=i % 4) for i in range(12)}
    assert decide(waiting, {}, node) == decide(dict(waiting), {}, node)
