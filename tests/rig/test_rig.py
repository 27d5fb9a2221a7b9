"""The Kubernetes that the tests run on is a real one, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rig import images, places, system, versions
from tests.rig.cluster import Rig
from tests.rig.left import left, running
from tests.rig.processes import RigError, wait_for

IMAGE = "penstock-test:1"


def pod(name, namespace, *script, node=None, image=IMAGE, **spec):
    container = {"name": "main", "image": image, "command": ["bash", "-c", "\n".join(script)]}
    container["volumeMounts"] = [{"name": volume["name"], "mountPath": "/data"} for volume in spec.get("volumes", ())]
    placed = {"nodeName": node} if node else {}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **placed, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def claim(name, namespace, storage_class, mode="ReadWriteOnce"):
    spec = {"storageClassName": storage_class, "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def using(name):
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def wait(rig, namespace, what, condition):
    everything = ["--all"] if "/" not in what else []
    rig.kubectl("wait", "-n", namespace, what, *everything, f"--for={condition}", "--timeout=90s")


def succeeded(rig, namespace, name):
    """What a pod printed, which ended well."""
    wait(rig, namespace, f"pod/{name}", "jsonpath={.status.phase}=Succeeded")
    return rig.kubectl("logs", "-n", namespace, name)


def ready(rig):
    return {
        item["metadata"]["name"]
        for item in json.loads(rig.kubectl("get", "nodes", "-o", "json"))["items"]
        if any(state["type"] == "Ready" and state["status"] == "True" for state in item["status"]["conditions"])
    }


def test_two_nodes_are_ready(rig):
    assert ready(rig) >= {"node-1", "node-2"}


def test_pods_on_different_nodes_reach_each_other_by_name(rig, rig_namespace):
    service = {"clusterIP": "None", "selector": {"app": "served"}, "publishNotReadyAddresses": True}
    metadata = {"name": "group", "namespace": rig_namespace}
    serve = pod("served", rig_namespace, "exec python3 -m http.server 80", node="node-1", subdomain="group")
    serve["spec"]["hostname"] = "zero"
    fetch = "until python3 -c 'import urllib.request as u; print(u.urlopen(\"http://zero.group\").status)'; do :; done"
    rig.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
        serve,
        pod("asking", rig_namespace, f"{fetch} 2>/dev/null", "getent hosts zero.group", node="node-2"),
    )
    printed = succeeded(rig, rig_namespace, "asking")
    assert printed.startswith("200\n")
    assert f"zero.group.{rig_namespace}.svc.cluster.local" in printed


def test_a_claim_is_bound_when_first_used_and_its_data_stay(rig, rig_namespace):
    rig.apply(claim("data", rig_namespace, "standard"))
    rig.apply(pod("first", rig_namespace, "echo kept > /data/file", **using("data")))
    succeeded(rig, rig_namespace, "first")
    rig.apply(pod("second", rig_namespace, "cat /data/file", **using("data")))
    assert succeeded(rig, rig_namespace, "second") == "kept\n"


def test_a_shared_claim_is_bound_at_once_and_seen_by_both_nodes(rig, rig_namespace):
    rig.apply(claim("data", rig_namespace, "rook-cephfs", "ReadWriteMany"))
    wait(rig, rig_namespace, "pvc/data", "jsonpath={.status.phase}=Bound")
    rig.apply(pod("writes", rig_namespace, "echo here > /data/file", node="node-1", **using("data")))
    succeeded(rig, rig_namespace, "writes")
    rig.apply(pod("reads", rig_namespace, "cat /data/file", node="node-2", **using("data")))
    assert succeeded(rig, rig_namespace, "reads") == "here\n"


def test_a_claim_of_the_expandable_class_grows(rig, rig_namespace):
    rig.apply(claim("data", rig_namespace, "expandable"), pod("uses", rig_namespace, "true", **using("data")))
    succeeded(rig, rig_namespace, "uses")
    larger = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    rig.kubectl("patch", "-n", rig_namespace, "pvc", "data", "-p", json.dumps(larger))
    wait(rig, rig_namespace, "pvc/data", "jsonpath={.status.capacity.storage}=3Gi")


def test_a_command_runs_in_a_pod_and_its_exit_code_comes_back(rig, rig_namespace):
    rig.apply(pod("open", rig_namespace, "sleep infinity"))
    wait(rig, rig_namespace, "pod/open", "condition=Ready")
    assert rig.kubectl("exec", "-n", rig_namespace, "open", "--", "echo", "hello") == "hello\n"
    with pytest.raises(RigError, match="exit code 7"):
        rig.kubectl("exec", "-n", rig_namespace, "open", "--", "bash", "-c", "exit 7")


def test_a_pod_reaches_the_api_server_as_its_service(rig, rig_namespace):
    ask = (
        "import os, ssl, urllib.request as u",
        "place = '/var/run/secrets/kubernetes.io/serviceaccount/'",
        "context = ssl.create_default_context(cafile=place + 'ca.crt')",
        "print(u.urlopen('https://' + os.environ['KUBERNETES_SERVICE_HOST'] + '/version', context=context).read())",
    )
    rig.apply(pod("asks", rig_namespace, "python3 - <<'END'", *ask, "END"))
    assert f'"gitVersion": "v{versions.VERSION}"' in succeeded(rig, rig_namespace, "asks")


@pytest.mark.parametrize(
    ("image", "answer"),
    [("nobody/has-this:1", "not found"), ("private/image:1", "pull access denied")],
    ids=["unknown", "private"],
)
def test_an_image_that_cannot_be_pulled_says_what_the_registry_answered(rig, rig_namespace, image, answer):
    rig.apply(pod("waits", rig_namespace, image=image))
    reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull"
    wait(rig, rig_namespace, "pod/waits", reason)
    state = rig.get("pod", "waits", rig_namespace)["status"]["containerStatuses"][0]["state"]
    events = rig.kubectl("get", "events", "-n", rig_namespace)
    assert answer in state["waiting"].get("message", "") + events


def test_an_image_can_have_any_name(rig, rig_namespace):
    rig.name_test_image("nvcr.io/some/program:latest")
    rig.apply(pod("runs", rig_namespace, "python --version", image="nvcr.io/some/program:latest"))
    assert succeeded(rig, rig_namespace, "runs").startswith("Python 3")


def test_an_image_can_be_made_on_top_of_another(rig, rig_namespace, tmp_path):
    layer = images.Layer()
    layer.directory("srv/more")
    layer.file("srv/more/file", b"on top\n")
    image = images.write(tmp_path / "image", [layer], {"WorkingDir": "/srv/more"}, system.standard()[system.TEST])
    rig.load_image(image, "registry.example/on-top:2")
    rig.apply(pod("runs", rig_namespace, "cat file", image="registry.example/on-top:2"))
    assert succeeded(rig, rig_namespace, "runs") == "on top\n"


def test_requests_are_counted_by_who_asks(rig, rig_namespace):
    mark = rig.request_mark()
    rig.kubectl("get", "pods", "-n", rig_namespace)
    asked = [event["requestURI"] for event in rig.requests("kubectl", mark)]
    assert f"/api/v1/namespaces/{rig_namespace}/pods?limit=500" in asked


def test_a_second_cluster_is_none_of_the_first_ones_business(rig, own_rig):
    own_rig.make_namespace("only-here")
    assert "only-here" not in rig.kubectl("get", "namespaces")
    assert ready(own_rig) == {"node-1", "node-2"}


def test_gpus_that_are_not_there_can_be_asked_for(own_rig):
    own_rig.patch_gpus("node-2", "NVIDIA-A10", 4)
    asking = pod("computes", "default", "true")
    asking["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 3}}
    own_rig.apply(asking)
    succeeded(own_rig, "default", "computes")
    assert own_rig.get("pod", "computes")["spec"]["nodeName"] == "node-2"
    own_rig.patch_gpus("node-2", None, 0)
    assert "nvidia.com/gpu" not in own_rig.get("node", "node-2")["status"]["allocatable"]


def test_a_lost_node_is_noticed_and_its_pods_are_told_to_go(own_rig):
    own_rig.apply(pod("there", "default", "sleep infinity", node="node-2", terminationGracePeriodSeconds=1))
    wait(own_rig, "default", "pod/there", "condition=Ready")
    own_rig.cut("node-2")
    wait_for("node-2 to be lost", lambda: ready(own_rig) == {"node-1"})
    wait_for("its pod to be told", lambda: "deletionTimestamp" in own_rig.get("pod", "there")["metadata"])
    own_rig.mend("node-2")
    wait_for("node-2 to come back", lambda: ready(own_rig) == {"node-1", "node-2"})
    own_rig.kubectl("wait", "--for=delete", "pod/there", "--timeout=60s")


def test_what_was_killed_is_started_again_by_the_next_up(own_rig):
    own_rig.make_namespace("stays")
    for component in ("etcd", "apiserver", "kubelet-1", "containerd-2"):
        own_rig.stop(component)
    with pytest.raises(RigError):
        own_rig.kubectl("get", "nodes")
    again = Rig.up(own_rig.name, temporary=True)
    assert "stays" in again.kubectl("get", "namespaces")
    assert again.processes.ended == {}


@pytest.fixture
def name(rig):
    """Of a rig that is brought up and ended by the test."""
    name = f"end-{os.getpid()}"
    with places.used(name):
        yield name
    Rig.down(name)


def networks():
    return subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout


def busy(name):
    """A rig with a pod that runs on each node."""
    rig = Rig.up(name, temporary=True)
    rig.apply(claim("data", "default", "shared", "ReadWriteMany"))
    wait(rig, "default", "pvc/data", "jsonpath={.status.phase}=Bound")
    rig.apply(*(pod(node, "default", "sleep infinity", node=node, **using("data")) for node in rig.node_names))
    wait(rig, "default", "pods", "condition=Ready")
    return rig


def test_down_leaves_nothing_and_may_be_repeated(name):
    before = networks()
    busy(name)
    Rig.down(name)
    Rig.down(name)
    assert left(name) == []
    assert networks() == before


def test_a_crash_at_any_time_leaves_what_the_next_up_or_down_clears(name):
    for seconds in (0.5, 1.5, 4):
        starter = subprocess.Popen([sys.executable, "-m", "tests.rig", "up", "--name", name])
        time.sleep(seconds)  # There is no event to wait for: any instant will do.
        starter.kill()
        starter.wait()
    rig = busy(name)
    os.kill(rig.processes.holder, signal.SIGKILL)
    wait_for("its first process to end", lambda: rig.processes.holder is None)
    assert running(name) == []
    Rig.down(name)
    assert left(name) == []


def test_of_another_version_a_kubelet_is_never_newer_than_the_api_server():
    assert {"kube-apiserver", "kubelet", "kube-proxy"} <= set(versions.programs_of("1.30.4"))
    assert "kubelet" not in versions.programs_of("1.36.3")
    assert "kube-apiserver" in versions.programs_of("1.36.3")


def test_of_another_version_only_what_can_be_one_is_taken():
    asked = [sys.executable, "-m", "tests.rig", "list"]
    environ = os.environ | {"RIG_KUBERNETES": "newest"}
    done = subprocess.run(asked, env=environ, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "RIG_KUBERNETES is a version like 1.30.4, not 'newest'\n"
