"""Metadata, Pods and containers, field by field: what is carried, what says nothing, what is refused with its path."""

from __future__ import annotations

import pytest

from penstock.dialects.manifest.unsupported import CONTAINER_REFUSED, POD_REFUSED
from penstock.domain.workloads import UNLIMITED, Requests
from tests.dialects.manifests import (
    POD,
    SMALL_JOB,
    SMALL_POD,
    problems_of,
    spec_of,
    task_of,
    under_container,
    under_pod,
)

GIB = 1024**3

# metadata


def test_a_pattern_where_a_name_belongs_is_refused():
    (problem,) = problems_of(SMALL_POD.replace("name: small", "name: s1-<username>"))
    assert problem.startswith("m.yaml:3:18: metadata.name: 's1-<username>' is not a name: ")
    assert problem.endswith("(for example 's1-username')")


def test_a_name_that_cannot_be_ours_is_refused_with_the_nearest():
    (problem,) = problems_of(SMALL_POD.replace("name: small", "name: My.Pod"))
    assert problem.startswith("m.yaml:3:18: metadata.name: 'My.Pod' is not a name")
    assert problem.endswith("(for example 'my-pod')")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (
            "namespace: x",
            "metadata.namespace: is not supported: where things are made is for the admin: the setting kube",
        ),
        (
            "labels: {app: x}",
            "metadata.labels.app: is not supported: Penstock sets labels and annotations of its own (re",
        ),
        (
            "annotations: {a.b/c: x}",
            "metadata.annotations: is not supported: Penstock sets labels and annotations of its",
        ),
        (
            "generateName: a-",
            "metadata.generateName: is not supported: a workload is found again by its name (write 'na",
        ),
        ("uid: x", "metadata.uid: is not supported: the cluster wrote it (remove it)"),
        (
            "creationTimestamp: 2026-01-01T00:00:00Z",
            "metadata.creationTimestamp: is not supported: the cluster wrote it",
        ),
        ("nmae: x", "metadata.nmae: is not supported: no field of that name is known; did you mean 'name'?"),
    ],
)
def test_metadata_that_is_not_carried_is_refused(field, said):
    (problem,) = problems_of(SMALL_POD.replace("{name: small}", f"{{name: small, {field}}}"))
    assert problem.partition(": ")[2].startswith(said)


def test_what_kubectl_prints_and_means_nothing_is_no_matter():
    text = SMALL_POD.replace("{name: small}", "{name: small, creationTimestamp: null, labels: {}, annotations: null}")
    assert spec_of(text + "status: {}\n") == spec_of(SMALL_POD)
    (problem,) = problems_of(SMALL_POD + "status: {phase: Running}\n")
    assert problem == "m.yaml:9:1: status: is not supported: the cluster wrote it (remove it)"


def test_the_label_of_a_queue_hands_the_workload_to_it():
    text = SMALL_JOB.replace("{name: small}", "{name: small, labels: {kueue.x-k8s.io/queue-name: gpus}}")
    assert spec_of(text).queue == "gpus"
    assert spec_of(text + "  suspend: true\n").queue == "gpus"


# Pod


@pytest.mark.parametrize("key", sorted(POD_REFUSED))
def test_a_field_of_a_pod_that_is_not_carried_is_refused_with_its_reason(key):
    (problem,) = problems_of(under_pod(f"{key}: {{a: [b]}}"))
    assert problem.startswith(f"m.yaml:9:3: spec.{key}: is not supported: {POD_REFUSED[key][0]} (")
    assert spec_of(under_pod(f"{key}: {{}}")) == spec_of(under_pod(f"{key}: null")) == spec_of(SMALL_POD)


@pytest.mark.parametrize(
    "line",
    [
        "hostNetwork: false",
        "hostPID: False",
        "automountServiceAccountToken: false",
        "serviceAccountName: default",
        "schedulerName: default-scheduler",
        "dnsPolicy: ClusterFirst",
    ],
)
def test_what_is_so_anyway_may_be_said(line):
    assert spec_of(under_pod(line)) == spec_of(SMALL_POD)


def test_the_settings_of_the_admin_are_named():
    problems = problems_of(under_pod("tolerations: [{operator: Exists}]", "securityContext: {runAsUser: 0}"))
    assert "the setting is kubernetes_tolerations" in problems[0]
    assert "kubernetes_run_as and kubernetes_fs_group" in problems[1]


@pytest.mark.parametrize(
    ("policy", "restart", "retries"),
    [("Always", True, UNLIMITED), ("OnFailure", False, UNLIMITED), ("Never", False, 0)],
)
def test_a_pods_restart_policy_is_when_it_starts_again(policy, restart, retries):
    spec = spec_of(SMALL_POD.replace("Never", policy))
    assert (spec.restart, spec.retries, spec.requeue) == (restart, retries, None)


def test_a_pod_that_says_no_policy_restarts_always_as_kubernetes_has_it():
    task = task_of(POD)
    assert (task.spec.restart, task.spec.retries) == (True, UNLIMITED)
    assert task.notices == ("spec.restartPolicy: Always: each attempt begins with empty emptyDirs",)


def test_times_of_a_pod():
    spec = spec_of(under_pod("activeDeadlineSeconds: 60", "terminationGracePeriodSeconds: 120"))
    assert (spec.max_duration, spec.stop_grace) == (60, 120)
    assert spec_of(SMALL_POD).stop_grace == 30
    assert spec_of(under_pod("terminationGracePeriodSeconds: 0")).stop_grace == 0
    task = task_of(under_pod("activeDeadlineSeconds: 60").replace("Never", "OnFailure"))
    assert task.notices == (
        "spec.restartPolicy: OnFailure: activeDeadlineSeconds ends an attempt, and the next begins",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SMALL_POD.replace("Never", "never"), "spec.restartPolicy: must be Always, OnFailure or Never, not 'never'"),
        (
            under_pod("activeDeadlineSeconds: 0"),
            "spec.activeDeadlineSeconds: must be a whole number from 1 to 2,147,48",
        ),
        (under_pod("subdomain: x"), "spec.subdomain: is not supported: only a Job's nodes have names"),
        (SMALL_POD.replace("containers", "containres"), "spec.containers: is missing"),
        (SMALL_POD + "  - image: b\n    command: [c]\n", "spec.containers[1]: has 2 containers; a workload has one"),
        (
            under_pod("xyzzy: 1"),
            "spec.xyzzy: is not supported: Penstock has nothing for it (remove it; supported here are",
        ),
    ],
)
def test_a_pod_that_cannot_be_is_refused(text, said):
    assert any(problem.partition(": ")[2].startswith(said) for problem in problems_of(text))


# container


@pytest.mark.parametrize("key", sorted(CONTAINER_REFUSED))
def test_a_field_of_a_container_that_is_not_carried_is_refused_with_its_reason(key):
    (problem,) = problems_of(under_container(f"{key}: [a]"))
    assert problem.startswith(f"m.yaml:9:5: spec.containers[0].{key}: is not supported: {CONTAINER_REFUSED[key][0]} (")


@pytest.mark.parametrize("line", ["imagePullPolicy: IfNotPresent", "stdin: false", "tty: False", "name: anything"])
def test_what_means_nothing_in_a_container_may_be_said(line):
    assert spec_of(under_container(line)) == spec_of(SMALL_POD)


@pytest.mark.parametrize(
    ("program", "run"),
    [
        ("[python, train.py]", ("python", "train.py")),
        ("[sh, -c, 'sleep 1000']", ("sh", "-c", "sleep 1000")),
        ("[sh]\n    args: [-c, sleep 1000]", ("sh", "-c", "sleep 1000")),
        ("[sh]\n    args: []", ("sh",)),
        ("[/bin/bash, -c, sleep 1000]", "sleep 1000"),
        ("[/bin/bash, -c]\n    args: [sleep 1000]", "sleep 1000"),
        ("[/bin/bash, -c, 'echo $0', a]", ("/bin/bash", "-c", "echo $0", "a")),
        ("[/bin/bash, -c, ' ']", ("/bin/bash", "-c", " ")),
        ("[sleep, 1000]", ("sleep", "1000")),
    ],
)
def test_command_and_args_are_what_runs(program, run):
    assert spec_of(SMALL_POD.replace("[echo]", program)).run == run


def test_variables_are_put_in_as_kubernetes_does():
    text = SMALL_POD.replace("[echo]", "[echo, $(A), $$(A), $(B)-$(C), $$, $A, $(A, '$(a b)']") + (
        "    env: [{name: A, value: x}, {name: B, value: $(A)$(B)y}, {name: D}]\n"
    )
    spec = spec_of(text)
    assert spec.run == ("echo", "x", "$(A)", "x$(B)y-$(C)", "$", "$A", "$(A", "$(a b)")
    assert spec.envs == {"A": "x", "B": "x$(B)y", "D": ""}


def test_a_variable_nobody_knows_before_it_runs_is_refused_in_arguments():
    (problem,) = problems_of(SMALL_POD.replace("[echo]", "[solve, --seed, $(JOB_COMPLETION_INDEX)]"))
    assert problem == (
        "m.yaml:8:30: spec.containers[0].command[2]: asks for $(JOB_COMPLETION_INDEX), which is not known before it "
        "runs (let a shell ask: [sh, -c, 'program $JOB_COMPLETION_INDEX'])"
    )


def test_variables_that_grow_without_end_are_refused_before_they_do():
    value = "x" * 60_000
    entries = ["{name: A0, value: " + value + "}"]
    entries += [f"{{name: A{n}, value: {f'$(A{n - 1})' * 1000}}}" for n in range(1, 5)]
    problems = problems_of(under_container(f"env: [{', '.join(entries)}]"))
    assert problems[0].endswith("spec.containers[0].env[1].value: is longer than 128 KiB")
    text = under_container("env: [{name: A, value: " + value + "}]").replace("[echo]", f"[echo, {'$(A)' * 10_000}]")
    assert problems_of(text)[0].endswith(
        "command: is longer than 256 KiB with args (put the code in workdir or a volume)"
    )


def test_many_variables_that_are_large_in_all_are_refused():
    entries = ["{name: A, value: " + "x" * 100_000 + "}", *(f"{{name: A{n}, value: $(A)}}" for n in range(900))]
    (problem,) = problems_of(under_container(f"env: [{', '.join(entries)}]"))
    assert problem.endswith("spec.containers[0].env: is longer than 1 MiB in all")


def test_a_text_of_nothing_but_beginnings_is_read_in_time():
    assert spec_of(SMALL_POD.replace("[echo]", f"[echo, '{'$(' * 50_000}']")).run[1] == "$(" * 50_000


def test_penstocks_own_variables_are_its_own():
    task = task_of(under_container("env: [{name: NODE_RANK, value: '7'}, {name: A, value: b}]"))
    assert task.spec.envs == {"A": "b"}
    assert task.notices == ("spec.containers[0].env: Penstock sets NODE_RANK itself, in place of what is said here",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "env: [{name: A, value: b}, {name: A, value: c}]",
            "env[1].name: the variable 'A' appears twice (say it once)",
        ),
        ("env: [{name: a-b, value: c}]", "env[0].name: 'a-b' is not a variable's name"),
        ("env: [{value: c}]", "env[0].name: is missing"),
        (
            "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
            "env[0].valueFrom.fieldRef: is not supported: a variable's value is written out, or in a Secret (in a Job",
        ),
        ("env: [{name: A, valueFrom: {}}]", "env[0].valueFrom: names no source"),
        (
            "env: [{name: A, valueFrom: {secretKeyRef: {name: ../s, key: k}}}]",
            "env[0].valueFrom.secretKeyRef.name: '../s' is not the name of a Secret",
        ),
        (
            "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]",
            "env[0].valueFrom.secretKeyRef.optional: is not supported: a Secret that is named must be there",
        ),
        (
            "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: B, value: x$(A)}]",
            "env[1].value: asks for $(A), whose value is in a Secret",
        ),
        (
            "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: A, value: x}]",
            "env[1].name: the variable 'A' appears twice",
        ),
        ("envFrom: [{configMapRef: {name: c}}]", "envFrom[0].configMapRef: is not supported: "),
        ("envFrom: [{secretRef: {}}]", "envFrom[0].secretRef.name: is missing"),
        ("workingDir: code", "workingDir: 'code' is not an absolute path (for example /data)"),
        ("resources: {limits: {amd.com/gpu: 1}}", "resources.limits['amd.com/gpu']: is not supported: "),
        ("resources: {limits: {cpu: 4+}}", "resources.limits.cpu: '4+' is not a number of CPUs"),
        ("resources: {limits: {cpu: 0}}", "resources.limits.cpu: the number of CPUs must be more than zero"),
        ("resources: {limits: {memory: 8GB}}", "resources.limits.memory: '8GB' is not a size (8Gi)"),
        ("resources: {limits: {memory: 8}}", "resources.limits.memory: '8' has no unit"),
        ("resources: {limits: {memory: 8Ki}}", "resources.limits.memory: is less than any program needs"),
        ("resources: {limits: {nvidia.com/gpu: 0.5}}", "resources.limits['nvidia.com/gpu']: must be a whole number"),
        (
            "resources: {limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 1}}",
            "resources.requests['nvidia.com/gpu']: GPUs are given whole: a request must equal its limit (write it",
        ),
        (
            "resources: {requests: {nvidia.com/gpu: 1}}",
            "resources.requests['nvidia.com/gpu']: GPUs are given whole: a request must equal its limit",
        ),
        (
            "resources: {limits: {memory: 1Gi}, requests: {memory: 2Gi}}",
            "resources.requests.memory: asks for more than the limit (at most what limits says)",
        ),
        (
            "resources: {claims: [{name: x}]}",
            "resources.claims: is not supported: devices are asked for as nvidia.com/g",
        ),
    ],
)
def test_a_container_that_cannot_be_is_refused(line, said):
    (problem,) = problems_of(under_container(line))
    assert problem.partition(": ")[2].startswith(f"spec.containers[0].{said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            SMALL_POD.replace("    command: [echo]\n", ""),
            "command: is missing (for example 'command: [python, train.py]",
        ),
        (SMALL_POD.replace("command: [echo]", "args: [echo]"), "command: is missing"),
        (SMALL_POD.replace("command: [echo]", "command:"), "command: is missing"),
        (SMALL_POD.replace("image: busybox", "image:"), "image: is missing"),
        (SMALL_POD.replace("command: [echo]", "command: echo"), "command: must be a list, not a single text"),
        (SMALL_POD.replace("[echo]", "[echo, ~]"), "command[1]: has no value (write '' for an empty argument)"),
        (SMALL_POD.replace("image: busybox", "name: x"), "image: is missing (for example 'image: python:3.13-slim')"),
        (SMALL_POD.replace("busybox", "'a b'"), "image: 'a b' is not an image (for example python:3.13-slim)"),
    ],
)
def test_a_container_that_lacks_something_is_refused(text, said):
    assert problems_of(text)[0].partition(": ")[2].startswith(f"spec.containers[0].{said}")


def test_a_request_may_stand_without_a_limit():
    resources = spec_of(under_container("resources: {requests: {memory: 2Gi, cpu: 1}, limits: {cpu: 1}}")).resources
    assert (resources.memory_bytes, resources.cpus_milli) == (None, 1000)
    assert resources.requests == Requests(memory_bytes=2 * GIB)
