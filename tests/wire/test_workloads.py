"""What is stored of a workload and what the API answers are two things."""

from __future__ import annotations

import json

from penstock.domain.states import State
from penstock.domain.summaries import WorkloadSummary
from penstock.domain.workloads import Spec
from penstock.wire import workloads
from penstock.wire.workloads import SpecView, Summary, summary_texts
from tests.store.making import a_workload


def test_a_stored_summary_is_a_summary_of_the_api():
    workload = a_workload(message="zu wenig Platz für “alles”", state=State.QUEUED, ahead=3)
    stored = WorkloadSummary.of(workload).model_dump_json()
    [text] = summary_texts([stored])
    assert text == Summary.of(workload).model_dump_json() == Summary.model_validate_json(stored).model_dump_json()


def test_a_field_of_the_api_can_be_renamed_without_a_migration(monkeypatch):
    monkeypatch.setattr(workloads, "RENAMED", {"user": "owner"})
    stored = WorkloadSummary.of(a_workload(message="für ann")).model_dump_json()
    [text] = summary_texts([stored])
    kept, shown = json.loads(stored), json.loads(text)
    assert shown["owner"] == kept["user"]
    assert "user" not in shown
    assert len(shown) == len(kept)
    assert "für" in text


def test_what_was_asked_for_is_shown_without_the_values_of_secrets():
    spec = Spec(run="a", envs={"LICENCE": "hunter2", "SEED": "1"}, secrets=("LICENCE",))
    assert SpecView.of(spec).envs == {"LICENCE": "***", "SEED": "1"}
    assert spec.envs["LICENCE"] == "hunter2"
