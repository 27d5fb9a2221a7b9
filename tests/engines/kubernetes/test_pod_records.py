"""The records of pods are kept in a file that the next server reads."""

from __future__ import annotations

from pathlib import Path

from penstock.engines.kubernetes.pod_records import RunPods
from penstock.engines.kubernetes.state.pods import record_pod
from tests.engines.kubernetes.state.test_endings import START, a_pod, ended, running


def test_notes_survive_half_a_line_and_give_back_what_was_seen(tmp_path: Path) -> None:
    notes = RunPods(tmp_path)
    notes.see(record_pod(a_pod(0, running())))
    notes.see(record_pod(a_pod(1, ended(7), phase="Failed")))
    notes.lose(0, "uid-0", START)
    with (tmp_path / "units").open("ab") as file:
        file.write(b'{"part": 1, "ui')
    again = RunPods(tmp_path)
    assert again.units == notes.units
    assert again.units[0].gone_at == START
    again.see(record_pod(a_pod(2, running())))
    assert set(RunPods(tmp_path).units) == {0, 1, 2}


def test_another_pod_of_the_part_is_not_lost_with_the_first(tmp_path: Path) -> None:
    notes = RunPods(tmp_path)
    notes.see(record_pod(a_pod(0, running(), uid="first")))
    notes.see(record_pod(a_pod(0, running(), uid="second", created=9)))
    notes.lose(0, "first", START)
    assert notes.units[0].uid == "second"
    assert notes.units[0].gone_at is None
