"""When GPUs are idle: only what is seen counts, and what is seen must go on without a gap."""

from __future__ import annotations

from penstock.domain.workloads import Spec
from penstock.engines.shared.refusals import IDLE_PARTLY_UNSEEN, IDLE_UNSEEN, by_place, idle_notices
from penstock.services.idle import GpuLook, IdleClock, following, sample_of
from penstock.wire.measures import GpuMeasure
from tests.store.making import a_workload

GI = 2**30
QUIET = GpuLook(2, (0, 0), GI)
UNSEEN = GpuLook(2, (0,), GI)


def after(*sights: GpuLook) -> IdleClock:
    """A look each minute."""
    clock = None
    for number, sight in enumerate(sights):
        clock = following(clock, sight, 60.0 * number)
    assert clock
    return clock


def test_idle_is_since_the_first_of_the_looks_at_which_nothing_was_done():
    assert after(QUIET, QUIET, QUIET).idle_since == 0
    assert after(GpuLook(2, (0, 9), GI), QUIET, QUIET).idle_since == 60


def test_one_gpu_that_computes_is_enough():
    assert after(QUIET, QUIET, GpuLook(2, (0, 1), GI)).idle_since is None


def test_one_that_fills_its_memory_does_something():
    """Data is loaded before anything computes."""
    assert after(QUIET, GpuLook(2, (0, 0), 2 * GI)).idle_since is None
    assert after(QUIET, GpuLook(2, (0, 0), 2 * GI), GpuLook(2, (0, 0), 2 * GI)).idle_since == 120
    assert after(GpuLook(2, (0, 0), 2 * GI), QUIET).idle_since == 0


def test_what_cannot_be_seen_is_not_idle_and_the_clock_begins_anew():
    assert after(UNSEEN).idle_since is None
    assert after(QUIET, UNSEEN).idle_since is None
    assert after(QUIET, UNSEEN, QUIET).idle_since == 120


def test_one_whose_gpus_nobody_names_is_never_idle():
    assert after(GpuLook(0, (), 0)).idle_since is None
    assert sample_of(()) == GpuLook(0, (), 0)


def test_a_workload_is_seen_by_the_gpus_it_has_on_all_of_its_nodes():
    workload = a_workload(spec=Spec(name="train", run="true", nodes=2), gpus=(("GPU-1",), ("GPU-2", "GPU-3")))
    told = {
        "GPU-1": GpuMeasure(uuid="GPU-1", utilization=40, memory_used_bytes=GI),
        "GPU-2": GpuMeasure(uuid="GPU-2", utilization=None, memory_used_bytes=GI),
        "GPU-9": GpuMeasure(uuid="GPU-9", utilization=100, memory_used_bytes=GI),
    }
    assert sample_of(by_place([workload], told)[workload.id]) == GpuLook(3, (40,), 2 * GI)


def test_where_nobody_sees_gpus_whoever_asks_for_it_is_told():
    asked = Spec(name="train", run="true", idle_timeout=60)
    assert idle_notices(asked, [False, False]) == [IDLE_UNSEEN]
    assert idle_notices(asked, [True, False]) == [IDLE_PARTLY_UNSEEN]
    assert idle_notices(asked, [True, True]) == []
    assert idle_notices(Spec(name="train", run="true"), [False]) == []
