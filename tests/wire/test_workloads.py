"""What is stored of a workload and what the API answers are two things."""

from __future__ import annotations

from penstock.domain.states import State
from penstock.domain.summaries import WorkloadSummary
from penstock.domain.workloads import Spec
from penstock.wire.workloads import SpecView, Summary
from tests.store.making import a_workload


def test_a_stored_summary_is_a_summary_of_the_api():
    workload = a_workload(message="zu wenig Platz für “alles”", state=State.QUEUED, ahead=3)
    stored = WorkloadSummary.of(workload).model_dump_json()
    assert stored == Summary.of(workload).model_dump_json() == Summary.model_validate_json(stored).model_dump_json()


def test_what_was_asked_for_is_shown_without_the_values_of_secrets():
    spec = Spec(run="a", envs={"LICENCE": "hunter2", "SEED": "1"}, secrets=("LICENCE",))
    assert SpecView.of(spec).envs == {"LICENCE": "***", "SEED": "1"}
    assert spec.envs["LICENCE"] == "hunter2"
