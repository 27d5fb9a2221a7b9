"""Jobs of one or several nodes, and claims, field by field."""

from __future__ import annotations

import pytest

from penstock.dialects.documents import read_documents
from penstock.dialects.manifest.read import ManifestVolume
from penstock.dialects.manifest.unsupported import JOB_REFUSED
from penstock.domain.volumes import AccessMode
from penstock.domain.workloads import UNLIMITED, Array
from tests.dialects.manifests import CLAIM, SMALL_JOB, SMALL_POD, problems_of, spec_of, task_of, under_job

# Job


@pytest.mark.parametrize("key", sorted(JOB_REFUSED))
def test_a_field_of_a_job_that_is_not_carried_is_refused_with_its_reason(key):
    (problem,) = problems_of(under_job(f"{key}: {{a: [b]}}"))
    assert problem.startswith(f"m.yaml:11:3: spec.{key}: is not supported: {JOB_REFUSED[key][0]} (")


def test_a_job_keeps_kubernetes_own_defaults():
    spec = spec_of(SMALL_JOB)
    assert (spec.retries, spec.requeue, spec.stop_grace, spec.ttl, spec.array, spec.nodes) == (6, 6, 30, None, None, 1)


@pytest.mark.parametrize(
    ("lines", "array"),
    [
        (("completions: 1",), None),
        (("completions: 1", "parallelism: 1", "completionMode: NonIndexed"), None),
        (("completions: 1", "completionMode: Indexed"), Array(count=1)),
        (("completions: 4", "completionMode: Indexed"), Array(count=4, parallelism=1)),
        (("completions: 4", "completionMode: Indexed", "parallelism: 3"), Array(count=4, parallelism=3)),
        (("completions: 4", "completionMode: Indexed", "parallelism: 8"), Array(count=4)),
        (("completions: 4",), Array(count=4, parallelism=1)),
    ],
)
def test_completions_are_an_array(lines, array):
    assert spec_of(under_job(*lines)).array == array


def test_completions_without_an_index_have_one_here_and_that_is_said():
    assert task_of(under_job("completions: 4")).notices == (
        "spec.completions: the 4 runs are told apart by JOB_COMPLETION_INDEX here",
    )


@pytest.mark.parametrize(
    ("line", "retries", "requeue"),
    [
        ("backoffLimit: 0", 0, 0),
        ("backoffLimit: 3", 3, 3),
        ("backoffLimit: 2147483647", UNLIMITED, 1000),
        ("backoffLimitPerIndex: 2", 2, 2),
    ],
)
def test_a_jobs_failures_and_lost_nodes_get_another_attempt(line, retries, requeue):
    spec = spec_of(under_job(line))
    assert (spec.retries, spec.requeue) == (retries, requeue)


def test_times_of_a_job():
    spec = spec_of(under_job("activeDeadlineSeconds: 60", "ttlSecondsAfterFinished: 0", "backoffLimit: 0"))
    assert (spec.max_duration, spec.ttl) == (60, 0)
    assert task_of(under_job("activeDeadlineSeconds: 60")).notices == (
        "spec.backoffLimit: activeDeadlineSeconds ends an attempt, and the next begins",
    )
    inside = SMALL_JOB.replace("      restart", "      activeDeadlineSeconds: 9\n      restart")
    assert spec_of(inside).max_duration == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            SMALL_JOB.replace("      restartPolicy: Never\n", ""),
            "template.spec.restartPolicy: is missing (Never or OnFa",
        ),
        (SMALL_JOB.replace("Never", "Always"), "template.spec.restartPolicy: must be Never or OnFailure, not 'Always'"),
        (
            under_job("parallelism: 2"),
            "completions: is missing: Pods that share a queue of work are not carried: a Job",
        ),
        (under_job("completionMode: Indexed"), "completions: is missing: an Indexed Job has a number of completions"),
        (under_job("completionMode: indexed"), "completionMode: must be Indexed or NonIndexed, not 'indexed'"),
        (under_job("completions: 10001"), "completions: must be a whole number from 1 to 10,000, not '10001'"),
        (under_job("parallelism: 0"), "parallelism: must be a whole number from 1 to 2,147,483,647, not '0'"),
        (under_job("backoffLimit: 1001"), "backoffLimit: must be a whole number from 0 to 1,000, not '1001'"),
        (
            under_job("backoffLimit: 1", "backoffLimitPerIndex: 1"),
            "backoffLimit: is beside backoffLimitPerIndex (keep o",
        ),
        (
            under_job("suspend: true"),
            "suspend: is not supported: a workload starts when there is room (remove it, or wr",
        ),
        (
            SMALL_JOB.replace("  template:\n", "  template:\n    metadata: {labels: {app: x}}\n"),
            "template.metadata.labels: is not supported: Penstock sets labels and annotations of its own (remove it)",
        ),
        (
            under_job("activeDeadlineSeconds: 1").replace(
                "      restart", "      activeDeadlineSeconds: 9\n      restart"
            ),
            "activeDeadlineSeconds: is in the template's spec, too (keep one of them)",
        ),
        (
            SMALL_JOB.replace("      restart", "      subdomain: small\n      restart"),
            "template.spec.subdomain: is not supported: nodes find each other through a headless Service (remove it,",
        ),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {}\n", "template.spec: is missing"),
    ],
)
def test_a_job_that_cannot_be_is_refused(text, said):
    (problem,) = problems_of(text)
    assert problem.partition(": ")[2].startswith(f"spec.{said}")


def test_a_field_deep_inside_a_job_has_its_whole_path():
    (problem,) = problems_of(SMALL_JOB + "        livenessProbe: {exec: {command: [a]}}\n")
    assert problem.startswith(
        "m.yaml:11:9: spec.template.spec.containers[0].livenessProbe: is not supported: nothing is p"
    )


# several nodes

SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: small}
spec:
  clusterIP: None
  selector: {job-name: small}
---
"""
NODES = SERVICE + under_job("completionMode: Indexed", "completions: 4", "parallelism: 4", "backoffLimit: 0").replace(
    "      restart", "      subdomain: small\n      restart"
)


def test_an_indexed_job_whose_pods_a_headless_service_names_has_several_nodes():
    spec = spec_of(NODES)
    assert (spec.nodes, spec.array) == (4, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NODES.replace("clusterIP: None", "clusterIP: 10.0.0.1"), "spec.clusterIP: only a headless Service that names"),
        (
            NODES.replace("job-name", "app"),
            "spec.selector: only a headless Service that names the Pods of a Job in the",
        ),
        (NODES.replace("job-name: small", "job-name: other"), "spec.selector: there is no Job 'other' in this file"),
        (
            NODES.replace("parallelism: 4", "parallelism: 2"),
            "subdomain: names the Pods, so all must run at once (compl",
        ),
        (NODES.replace("  clusterIP", "  type: NodePort\n  clusterIP"), "spec.type: is not supported: only a headless"),
        (SERVICE + SMALL_POD, "spec.selector: there is no Job 'small' in this file"),
    ],
)
def test_other_services_are_refused(text, said):
    assert any(said in problem for problem in problems_of(text))


# PersistentVolumeClaim


def test_a_claim_without_a_class_has_the_default():
    (document,) = read_documents(CLAIM.replace("  storageClassName: rook-cephfs\n", "  volumeMode: Filesystem\n"), "m")
    assert isinstance(document, ManifestVolume)
    assert document.claim.storage_class is None


def test_a_claim_may_have_several_modes():
    (document,) = read_documents(CLAIM.replace("  - Read", "  - ReadWriteOnce\n  - Read"), "m")
    assert isinstance(document, ManifestVolume)
    assert document.claim.access_modes == (AccessMode.ReadWriteOnce, AccessMode.ReadWriteMany)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            CLAIM.replace("Many", "OncePod"),
            "accessModes[0]: 'ReadWriteOncePod' is not an access mode (one of ReadWrite",
        ),
        (CLAIM.replace("  accessModes:\n  - ReadWriteMany\n", ""), "accessModes: is missing (for example [ReadWriteOn"),
        (CLAIM.replace("1Gi", "10"), "resources.requests.storage: '10' has no unit (10Gi or 10Mi)"),
        (CLAIM.replace("1Gi", "10GB"), "resources.requests.storage: '10GB' is not a size (10Gi)"),
        (CLAIM.replace("storage: 1Gi", "{}"), "resources.requests.storage: is missing (for example 10Gi)"),
        (CLAIM.replace("rook-cephfs", '""'), "storageClassName: is empty: only volumes that are made when they are as"),
        (
            CLAIM + "    limits: {storage: 2Gi}\n",
            "resources.limits: is not supported: a volume has the size it requests",
        ),
        (CLAIM + "  volumeName: pv-1\n", "volumeName: is not supported: a volume gets new room (remove it)"),
        (
            CLAIM + "  selector: {matchLabels: {a: b}}\n",
            "selector: is not supported: a volume gets new room (remove it)",
        ),
        (
            CLAIM + "  dataSource: {name: a}\n",
            "dataSource: is not supported: a volume begins empty (remove it and copy",
        ),
        (
            CLAIM + "  volumeMode: Block\n",
            "volumeMode: is not supported: volumes are file systems (remove it, or write",
        ),
    ],
)
def test_a_claim_that_cannot_be_is_refused(text, said):
    (problem,) = problems_of(text)
    assert problem.partition(": ")[2].startswith(f"spec.{said}")
