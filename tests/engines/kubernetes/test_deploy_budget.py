"""The disruption budget of two replicas: stand-ins that take turns as servers do, evicted as by `kubectl drain`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines.kubernetes.deployed import objects, own_names
from tests.rig.cluster import Rig
from tests.rig.places import RigError
from tests.rig.processes import wait_for

pytestmark = pytest.mark.timeout(300)

TAKES_ITS_TURN = """
trap exit TERM
until mkdir /var/lib/penstock/turn; do sleep 0.2; done
trap "rmdir /var/lib/penstock/turn; exit" TERM
until [ -e /var/lib/penstock/database ]; do sleep 0.2; done
touch /tmp/ready
while sleep 0.2; do :; done
"""
"""Ready, like a server, once it has the lock and what it needs."""


@pytest.fixture
def names(rig: Rig) -> Iterator[dict[str, str]]:
    names = own_names()
    found = [each for each in objects(rig, "two-replicas", names) if each["kind"] in OURS]
    for item in found:
        _stand_in(item)
    rig.make_namespace(names["penstock"])
    rig.apply(*found)
    yield names
    rig.kubectl("delete", "namespace", "--wait=false", names["penstock"])


OURS = ("ServiceAccount", "ConfigMap", "StatefulSet", "PersistentVolumeClaim", "PodDisruptionBudget")


def _stand_in(item: dict[str, Any]) -> None:
    if item["kind"] == "PersistentVolumeClaim":
        item["spec"]["storageClassName"] = "shared"
    if item["kind"] != "StatefulSet":
        return
    (container,) = item["spec"]["template"]["spec"]["containers"]
    container |= {"image": "penstock-test:1", "command": ["bash", "-c", TAKES_ITS_TURN], "env": []}
    container["readinessProbe"] = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    del container["livenessProbe"]


def pods(rig: Rig, names: dict[str, str]) -> dict[str, tuple[str, bool]]:
    """Of each its uid, and whether it is ready."""
    items = json.loads(rig.kubectl("get", "pods", "-n", names["penstock"], "-o", "json"))["items"]
    found = {}
    for pod in items:
        ready = {"type": "Ready", "status": "True"}
        conditions = pod["status"].get("conditions", ())
        is_ready = any(ready.items() <= each.items() for each in conditions)
        found[pod["metadata"]["name"]] = (pod["metadata"]["uid"], is_ready)
    return found


def works(rig: Rig, names: dict[str, str]) -> str:
    """The one that is ready, beside one that waits, in the eyes of the budget, too."""
    found: list[str] = []

    def is_so() -> bool:
        seen = pods(rig, names)
        found[:] = [name for name, (_, ready) in seen.items() if ready]
        return len(seen) == 2 and len(found) == 1 and allowed(rig, names) == 1

    wait_for("one to work and one to wait", is_so)
    return found[0]


def allowed(rig: Rig, names: dict[str, str]) -> int:
    """How many ready ones may go now."""
    return int(rig.get("poddisruptionbudget", "penstock", names["penstock"])["status"]["disruptionsAllowed"])


def inside(rig: Rig, names: dict[str, str], pod: str, *command: str) -> None:
    rig.kubectl("exec", "-n", names["penstock"], pod, "--", *command)


def test_each_may_leave_its_node_and_who_takes_over_not_before_it_works(rig: Rig, names: dict[str, str]) -> None:
    wait_for("both to be there", lambda: rig.get("statefulset", "penstock", names["penstock"])["status"]["replicas"])
    wait_for("a database", lambda: inside(rig, names, "penstock-0", "touch", "/var/lib/penstock/database") is None)
    first = works(rig, names)
    (second,) = pods(rig, names).keys() - {first}
    inside(rig, names, first, "rm", "/var/lib/penstock/database")
    rig.evict(first, names["penstock"])
    wait_for("the budget to know", lambda: not allowed(rig, names))
    with pytest.raises(RigError, match="would violate the pod's disruption budget"):
        rig.evict(second, names["penstock"])
    wait_for("a database", lambda: inside(rig, names, second, "touch", "/var/lib/penstock/database") is None)
    working = works(rig, names)
    rig.evict(working, names["penstock"])
    wait_for("the other to work", lambda: works(rig, names) != working)
