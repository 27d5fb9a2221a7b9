"""What is counted of workloads on Docker hosts whose GPUs are only declared, so that nobody sees what they do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from penstock.engines.shared.refusals import IDLE_UNSEEN
from tests.e2e.docker.test_placement import Lab, lab, until

__all__ = ["lab"]

HOUR = 3600


def used(lab: Lab) -> dict[str, Any]:
    status, report = lab.server.request("GET", "/v1/usage")
    assert status == 200, report
    [row] = report["items"]
    return dict(row)


def moments(made: dict[str, Any], *states: str) -> list[datetime]:
    lines = {line["state"]: line["at"] for line in made["history"]}
    return [datetime.fromisoformat(lines[state]) for state in states]


def test_gpus_are_counted_for_every_node_and_not_called_idle(lab: Lab) -> None:
    job = lab.submit("ranks", resources=", cpus: 0.5, accelerators: 'V100:1'", more="num_nodes: 2\nidle_timeout: 1s\n")
    assert IDLE_UNSEEN in job["notices"]
    assert lab.runs_on(job) == ["lab-1", "lab-1"]
    _, measure = lab.server.request("GET", f"/v1/workloads/{job['id']}/top")
    assert measure["message"] == "its GPUs cannot be measured: Docker on lab-1 cannot show them"
    assert [(gpu["product"], gpu["utilization"]) for gpu in measure["gpus"]] == [("Tesla V100", None)]
    until(lambda: used(lab)["gpu_hours"] > 0)
    running = used(lab)
    assert (running["workloads"], running["gpu_hours_used"], running["gpu_hours_measured"]) == (1, None, 0)
    lab.stop(job)
    ended = lab.seen(job)
    assert (ended["state"], ended["reason"]) == ("STOPPED", "STOPPED_BY_USER")
    began, stopped, over = moments(ended, "ASSIGNED", "REQUESTED_CANCEL", "STOPPED")
    row = used(lab)
    least, most = (2 * (end - began).total_seconds() / HOUR for end in (stopped, over))
    assert least - 0.001 <= row["gpu_hours"] <= most + 0.001
    assert row["cpu_hours"] == pytest.approx(row["gpu_hours"] / 2, abs=0.0002)
    assert used(lab) == row
