"""Every example runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running import RunningServer

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_to_its_end(server: RunningServer, example: Path):
    volume = {"name": "quickstart", "size": "1Gi", "access_modes": ["ReadWriteMany"]}
    assert server.request("POST", "/v1/volumes", volume)[0] == 201
    job = server.ended(server.submit(example.read_text(), source=example.name)["id"])
    _, log = server.request("GET", f"/v1/workloads/{job['id']}/logs")
    assert (job["status"], job["notices"]) == ("completed", []), log


def test_the_quickstart_leaves_a_line_of_each_node_in_the_volume(server: RunningServer):
    volume = {"name": "quickstart", "size": "1Gi", "access_modes": ["ReadWriteMany"]}
    server.request("POST", "/v1/volumes", volume)
    example = next(path for path in EXAMPLES if path.name == "quickstart.yaml")
    server.ended(server.submit(example.read_text())["id"])
    read = server.ended(server.submit("volumes: {/data: quickstart}\nrun: cat /data/result.txt")["id"])
    _, log = server.request("GET", f"/v1/workloads/{read['id']}/logs")
    assert log == "Hello from node 0 of 2\nHello from node 1 of 2\n"
