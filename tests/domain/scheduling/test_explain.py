"""Why a job waits, and what can never run: the sentences a person reads."""

from __future__ import annotations

from penstock.domain.nodes import Allows
from penstock.domain.scheduling.explain import no_room
from penstock.domain.states import Reason
from penstock.domain.users import Group, Limits
from tests.domain.scheduling.jobs import A10, NOW, ask, decided, gpus, job, node, pool_of, running, stranger


def cause(pool, *wanted):
    """Why the last of these waits."""
    for number, each in enumerate(wanted):
        pool.enqueue(job(f"j{number}", each, since=number))
    decided(pool)
    [found] = pool.causes([f"j{len(wanted) - 1}"]).values()
    return found


def why(pool, *wanted):
    return cause(pool, *wanted).message


def nodes_of(pool, workload_id="j0"):
    return [str(answer) for answer in pool.explain(workload_id).answers]


def test_on_one_node_what_is_missing_is_said_for_all_places_together():
    held = [running("x", cpus=3, uuids=("box-0",))]
    assert why(pool_of(node(cpus=4), held=held), ask(2)) == "needs 2 CPUs; 1 of 4 are free"
    assert why(pool_of(node(cpus=4), held=held), ask(1, places=2)) == "needs 2 CPUs; 1 of 4 are free"
    assert why(pool_of(node(cpus=4, has=1), held=held), ask(1, gpus=1)) == "needs 1 GPU; 0 of 1 are free"
    pool = pool_of(node(cpus=4, has=1), held=held)
    found = cause(pool, ask(1, gpus=1), ask(1, gpus=1))
    assert (found.message, found.ahead) == ("needs 1 GPU; 0 of 1 are free", 1)


def test_gpus_that_others_have_are_named():
    pool = pool_of(node(has=gpus("box", 1, taken_elsewhere=True)))
    assert why(pool, ask(gpus=1)) == "needs 1 GPU; 0 of 1 are free, 1 held by another server on this machine"
    pool = pool_of(node(has=gpus("box", 1, processes=(stranger(),))))
    assert (
        why(pool, ask(gpus=1))
        == "needs 1 GPU; 0 of 1 are free, 1 used by programs that Penstock did not start (python, process 4711)"
    )


def test_on_many_nodes_it_is_said_where_there_is_most():
    held = [running("x", "dgx1", uuids=("dgx1-0", "dgx1-1")), running("y", "dgx2", uuids=("dgx2-0",))]
    pool = pool_of(node("dgx1", has=4), node("dgx2", has=4), held=held)
    assert why(pool, ask(gpus=4, products=("V100",))) == (
        "no node has enough free: at most, dgx2 has 3 of 4 free Tesla V100-SXM2-16GB, needs 4"
    )
    assert nodes_of(pool) == [
        "node dgx1: has 2 of 4 free Tesla V100-SXM2-16GB, needs 4",
        "node dgx2: has 3 of 4 free Tesla V100-SXM2-16GB, needs 4",
    ]


def test_each_node_says_why_not():
    nodes = [
        node("a", cpus=2),
        node("b", maintenance=True),
        node("c", ready=False, message="ssh: connection refused"),
        node("d", allows=(Allows.GPUWorkload,)),
        node("e", labels={"disk": "hdd"}, cpu_product="Intel Xeon"),
        node("f", memory=8),
        node("g", group="vision"),
    ]
    held = [running("x", "b", cpus=6)]
    wanted = ask(4, memory=16, cpu_product="EPYC", labels=(("disk", "ssd"),), groups=frozenset({"ann"}))
    pool = pool_of(*nodes, held=held)
    pool.enqueue(job("j0", wanted))
    assert decided(pool) == {}
    unknown, label = "the product of its CPUs is not known, not EPYC", "has no label disk=ssd"
    assert nodes_of(pool) == [
        f"node a: {unknown}; {label}; has 2 CPUs, needs 4",
        f"node b: {unknown}; {label}; is in maintenance: what runs there goes on, nothing new comes; "
        "has 2 of 8 CPUs free, needs 4",
        f"node c: {unknown}; {label}; is not ready: ssh: connection refused",
        f"node d: takes no CPUWorkload; {unknown}; {label}",
        f"node e: its CPUs are Intel Xeon, not EPYC; {label}",
        f"node f: {unknown}; {label}; has 8Gi of memory, needs 16Gi",
    ]
    assert pool.causes(["j0"])["j0"].message == (
        "can never start on the nodes there are now: asks for EPYC CPUs; there are Intel Xeon, unknown; "
        "asks for nodes with the label disk=ssd; there is none; it starts once a node can run it"
    )
    assert [each.key for each in pool.explain("j0").answers[0].obstacles] == ["cpu_product", "labels", "cpus"]


def test_closed_nodes_are_named():
    pool = pool_of(node("a", maintenance=True), node("b", ready=False))
    said = "a is in maintenance: what runs there goes on, nothing new comes; b is not ready"
    assert why(pool, ask()) == said


def test_room_that_is_kept_is_said():
    pool = pool_of(node(cpus=4), held=[running("x", cpus=2, max_duration=60)])
    found = cause(pool, ask(4), ask(1))
    said = "room is kept for those ahead in the queue; with a max_duration it might pass them"
    assert (found.message, found.ahead) == (said, 1)
    assert nodes_of(pool, "j1") == ["node box: has room, but it is kept for one that is ahead in the queue"]
    pool.enqueue(job("j2", ask(1), since=2, max_duration=120))
    decided(pool)
    assert "its max_duration does not show that it would not delay them" in pool.causes(["j2"])["j2"].message


def test_of_several_places_it_is_said_how_many_have_room():
    pool = pool_of(node("n0", 4), node("n1", 4), held=[running("x", "n0", cpus=4)])
    assert why(pool, ask(4, places=2)) == "1 of 2 places have room, and it starts with all or none"
    assert nodes_of(pool) == ["node n0: has 0 of 4 CPUs free, needs 4", "node n1: has room for 1 of 2 places"]


def test_a_job_that_has_not_come_yet_is_told_what_it_would_wait_for():
    pool = pool_of(node(cpus=4), held=[running("x", cpus=2, max_duration=60)])
    assert pool.outlook(job("a", ask(2)), NOW) is None
    assert pool.outlook(job("a", ask(3)), NOW) == no_room("needs 3 CPUs; 2 of 4 are free")
    pool.enqueue(job("big", ask(4)))
    decided(pool)
    assert pool.outlook(job("a", ask(1), since=1, max_duration=60), NOW) is None
    assert "kept for those ahead" in pool.outlook(job("a", ask(1), since=1), NOW).message


def test_no_room_is_kept_once_nobody_waits():
    pool = pool_of(node(cpus=2), held=[running("x", max_duration=60)], waiting=[job("waits", ask(2))])
    decided(pool)
    assert "kept for those ahead" in pool.outlook(job("a", ask(1), since=1), NOW).message
    pool.release("waits")
    pool.release("x")
    assert pool.outlook(job("a", ask(1), since=1), NOW) is None


def never(wanted, *nodes):
    return pool_of(*nodes).never(job("a", wanted))


def test_what_can_never_run_on_one_node_is_named_with_what_there_is():
    box = node(cpus=4, memory=16, has=gpus("box", 2, A10))
    assert never(ask(4), box) == {}
    assert never(ask(4, memory=16, gpus=1, products=("H100",), places=2), box) == {
        "cpus": "asks for 8 CPUs (2 nodes together); box has 4",
        "memory": "asks for 32Gi of memory (2 nodes together); box has 16Gi",
        "accelerators": "asks for 2 H100 GPUs (2 nodes together); box has 2 × NVIDIA A10 (2 free)",
    }


def test_what_can_never_run_on_many_is_named_by_what_all_lack():
    nodes = [node("dgx1", cpus=80, has=8), node("cpu1", cpus=64, memory=128, cpu_product="AMD EPYC 7742")]
    assert never(ask(96), *nodes) == {"cpus": "asks for 96 CPUs on one node; the largest, dgx1, has 80"}
    assert never(ask(1, memory=256), *nodes) == {
        "memory": "asks for 256Gi of memory on one node; the largest, cpu1, has 128Gi"
    }
    assert never(ask(gpus=1, products=("H100",)), *nodes) == {
        "accelerators": "asks for 1 H100 GPU on one node; there are 8 × Tesla V100-SXM2-16GB (8 free)"
    }
    assert never(ask(node="dgx9"), *nodes) == {"node": "asks for node dgx9; there are cpu1, dgx1"}
    assert never(ask(cpu_product="Xeon"), *nodes) == {
        "cpu_product": "asks for Xeon CPUs; there are AMD EPYC 7742, unknown"
    }
    assert never(ask(labels=(("disk", "ssd"),)), *nodes) == {
        "labels": "asks for nodes with the label disk=ssd; there is none"
    }
    assert never(ask(70, gpus=1, cpu_product="EPYC"), *nodes) == {
        "cpu_product": "no node has all it asks for; dgx1 the product of its CPUs is not known, not EPYC"
    }
    assert never(ask(gpus=8, places=2), *nodes) == {
        "accelerators": "asks for 2 nodes with 8 GPUs, 1 CPU each; there is room for 1"
    }
    assert never(ask(gpus=8, places=2, array=True), *nodes) == {}


def test_a_closed_node_may_be_open_tomorrow():
    assert never(ask(), node(maintenance=True)) == {}


def test_nodes_of_other_groups_are_not_there():
    wanted = ask(node="secret", groups=frozenset({"ann"}))
    assert never(wanted, node("secret", group="vision")) == {"node": "there is no node that you may use"}
    assert never(wanted, node("secret", group="vision"), node("n0")) == {"node": "asks for node secret; there is n0"}
    pool = pool_of(node("secret", group="vision"), node("n0"))
    pool.enqueue(job("j0", wanted))
    assert nodes_of(pool) == ["node n0: is not secret"]


def test_one_beyond_its_limit_hears_of_the_nodes_what_is_so():
    """Nobody has looked at them for it yet: the limit alone is enough to make it wait."""
    limited = Group(name="ann", limits=Limits(workloads=0))
    pool = pool_of(node("a"), node("b", 1), waiting=[job("j0", ask(2, places=2))], groups=[limited])
    assert decided(pool) == {}
    assert nodes_of(pool) == ["node a: has room", "node b: has 1 CPU, needs 2"]


def test_one_that_is_pinned_where_its_volume_is_not_says_so():
    pool = pool_of(node("lab-1"), node("lab-2"))
    wanted = ask(node="lab-1", volumes=(("data", "lab-2"),))
    conflict = "asks for node lab-1, but volume data is on lab-2: ask for no node, or mount another volume"
    assert pool.never(job("a", wanted)) == {"node": conflict}
    assert (
        why(pool, wanted) == f"can never start on the nodes there are now: {conflict}; it starts once a node can run it"
    )
    assert pool.explain("j0").ahead is None


def test_what_no_node_could_run_is_no_longer_said_when_one_comes_or_opens():
    pool = pool_of(node("lab-2"))
    said = why(pool, ask(node="lab-1"))
    assert said == "can never start on the nodes there are now: asks for node lab-1; there is lab-2; " + (
        "it starts once a node can run it"
    )
    assert pool.causes(["j0"])["j0"].reason is Reason.NO_NODE_FITS
    pool.see(node("lab-1", maintenance=True))
    assert pool.causes(["j0"])["j0"].message == "lab-1 is in maintenance: what runs there goes on, nothing new comes"
    pool.see(node("lab-1"))
    assert decided(pool) == {"j0": ["lab-1"]}
