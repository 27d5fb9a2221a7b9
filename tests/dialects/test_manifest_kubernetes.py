"""What is written is taken and run by a real Kubernetes, and what is read is what it would have made of it."""

from __future__ import annotations

import json

import pytest

from penstock.dialects.manifest.container import expanded
from penstock.dialects.manifest.write import write_manifest
from penstock.domain.workloads import UNLIMITED, Array, Medium, Mount, Requests, Resources, Scratch, Spec
from tests.dialects.manifests import POD, SMALL_POD, SWEEP, spec_of
from tests.rig.cluster import Rig
from tests.rig.system import BUSYBOX, TEST

GIB = 1024**3
DOLLARS = ("$$", "$(A)", "$$(A)", "$(a b)", "$(B)x$(C)", "$A", "$(A", "a $(b $(A)) c", "$(A)$$$(B)")
NUMBERS = {"A": "1e3", "B": "0x1F", "C": "y", "D": "~", "E": ".inf", "F": "08", "G": "2001-01-01", "H": "", "I": "1_0"}
SPECS = {
    "short": Spec(run="echo hello"),
    "dollars": Spec(run=("echo", *DOLLARS), envs={"A": "$(B)", "B": "x$$"}),
    "numbers": Spec(run=("echo", *NUMBERS.values()), envs=NUMBERS),
    "lines": Spec(
        run="a \nb\t\n\n  c: - '\"#\n", setup="x\x07y\x85z\u2028\ufeff🙂\n", envs={"A": "a\nb\n", "B": " \n"}
    ),
    "array": Spec(run="a", array=Array(count=100, parallelism=8), retries=UNLIMITED, queue="gpus", ttl=0, stop_grace=0),
    "nodes": Spec(name="train", run="a", nodes=3, max_duration=60),
    "always": Spec(run="serve", restart=True, retries=UNLIMITED),
    "places": Spec(
        run="a",
        workdir="/data",
        resources=Resources(
            cpus_milli=1500,
            memory_bytes=8 * GIB + 1,
            disk_bytes=10 * GIB,
            requests=Requests(memory_bytes=GIB),
            gpus=2,
            gpu_products=("NVIDIA A10", "L4"),
        ),
        mounts=(
            Mount(path="/a", volume="v.1"),
            Mount(path="/b", volume="v.1", read_only=True),
            Mount(path="/c", volume="v-1"),
        ),
        scratch=(Scratch(path="/v/1"), Scratch(path="/tmp", medium=Medium.memory, size_bytes=GIB), Scratch(path="/ü")),
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_kubernetes_takes_what_is_written_and_hands_on_what_the_task_says(rig: Rig, rig_namespace: str, name: str):
    spec = SPECS[name]
    made = _taken(rig, rig_namespace, write_manifest(spec))
    pod = made["spec"] if made["kind"] == "Pod" else made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {one["name"]: one.get("value", "") for one in container.get("env", []) if "valueFrom" not in one}
    assert {key: expanded(value, {}) for key, value in given.items() if key in spec.envs} == spec.envs
    words = [expanded(word, given) for word in (*container["command"], *container.get("args", []))]
    assert words[-1] == (f"set -e\n{spec.setup}\nset +e\n{spec.run}" if spec.setup else _last(spec))
    assert isinstance(spec.run, str) or tuple(words) == spec.run


def _last(spec: Spec) -> str:
    return spec.run if isinstance(spec.run, str) else spec.run[-1]


def _taken(rig: Rig, namespace: str, text: str) -> dict:
    """The last object as the API server would keep it, every field known and valid."""
    kubectl = ("apply", "--dry-run=server", "--validate=strict", "-n", namespace, "-o", "json", "-f", "-")
    answer = json.loads(rig.kubectl(*kubectl, text=text))
    return answer["items"][-1] if answer["kind"] == "List" else answer


@pytest.mark.parametrize("manifest", [POD, SWEEP])
def test_kubernetes_takes_what_a_manifest_becomes_there_and_back(rig: Rig, rig_namespace: str, manifest: str):
    _taken(rig, rig_namespace, manifest)
    _taken(rig, rig_namespace, write_manifest(spec_of(manifest)))


@pytest.mark.timeout(300)
def test_variables_are_put_in_just_as_a_real_kubernetes_does(rig: Rig, rig_namespace: str):
    command = json.dumps(["printf", "%s\\n", *DOLLARS, "$$$(A)", "$(A"])
    envs = '[{"name": "A", "value": "x"}, {"name": "B", "value": "$(A)$(C)$$"}, {"name": "C", "value": "$(B)"}]'
    text = SMALL_POD.replace("[echo]", command).replace(
        "image: busybox", f"name: a\n    image: {BUSYBOX}\n    env: {envs}"
    )
    rig.kubectl("apply", "-n", rig_namespace, "-f", "-", text=text)
    rig.kubectl("wait", "-n", rig_namespace, "--for=jsonpath={.status.phase}=Succeeded", "pod/small", "--timeout=240s")
    printed = rig.kubectl("logs", "-n", rig_namespace, "small")
    assert tuple(printed.splitlines()) == spec_of(text).run[2:]


@pytest.mark.timeout(300)
def test_several_nodes_find_each_other_with_kubectl_alone(rig: Rig, rig_namespace: str):
    run = "until getent hosts $MASTER_ADDR >/dev/null; do sleep 0.2; done; echo node $NODE_RANK of $NUM_NODES"
    spec = Spec(name="train", nodes=2, run=run, resources=Resources(image=TEST))
    rig.kubectl("apply", "-n", rig_namespace, "-f", "-", text=write_manifest(spec))
    rig.kubectl("wait", "-n", rig_namespace, "--for=condition=Complete", "job/train", "--timeout=240s")
    printed = rig.kubectl("logs", "-n", rig_namespace, "-l", "job-name=train")
    assert sorted(printed.splitlines()) == ["node 0 of 2", "node 1 of 2"]
