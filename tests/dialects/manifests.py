"""Manifests of the kinds the storage tutorial uses, and what they read as, in the few words the tests of them use."""

from __future__ import annotations

import pytest

from penstock.dialects.documents import read_documents
from penstock.dialects.manifest.read import ManifestWorkload
from penstock.dialects.task.read import Task
from penstock.domain.workloads import Spec
from penstock.errors import Invalid

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: scratch-alice
spec:
  containers:
  - name: shell
    image: rockylinux:8
    resources:
      limits:
        memory: 8Gi
        cpu: 100m
        ephemeral-storage: 10Gi
      requests:
        memory: 4Gi
        cpu: 100m
        ephemeral-storage: 1Gi
    command: ["sh", "-c", "sleep 1000"]
    volumeMounts:
    - name: disk
      mountPath: /mnt/disk
    - name: ram
      mountPath: /mnt/ram
  volumes:
  - name: disk
    emptyDir: {}
  - name: ram
    emptyDir:
      medium: Memory
"""

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: results-alice
spec:
  storageClassName: rook-cephfs
  accessModes:
  - ReadWriteMany
  resources:
    requests:
      storage: 1Gi
"""

SWEEP = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: sweep-alice
spec:
  completionMode: Indexed
  completions: 4
  parallelism: 4
  ttlSecondsAfterFinished: 180
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - key: nvidia.com/gpu.product
                operator: In
                values:
                - NVIDIA-A10
      volumes:
          - name: results
            persistentVolumeClaim:
              claimName: results-alice
      containers:
      - name: sweep
        image: example.com/solver:1
        command: ["/bin/bash", "-c"]
        args:
        - >-
            cd /results;
            size=$(awk "BEGIN {print 1.2+0.8*$JOB_COMPLETION_INDEX}");
            solve --size $size > log$JOB_COMPLETION_INDEX;
        volumeMounts:
            - name: results
              mountPath: /results
        resources:
          limits:
            memory: 16Gi
            cpu: "4"
            nvidia.com/gpu: "1"
            ephemeral-storage: 10Gi
          requests:
            memory: 16Gi
            cpu: "4"
            nvidia.com/gpu: "1"
            ephemeral-storage: 10Gi
      restartPolicy: Never
"""

SMALL_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: small}
spec:
  restartPolicy: Never
  containers:
  - image: busybox
    command: [echo]
"""

SMALL_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: small}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - image: busybox
        command: [echo]
"""


def under_pod(*lines: str) -> str:
    """A Pod with more lines in its spec."""
    return SMALL_POD + "".join(f"  {line}\n" for line in lines)


def under_container(*lines: str) -> str:
    return SMALL_POD + "".join(f"    {line}\n" for line in lines)


def under_job(*lines: str) -> str:
    return SMALL_JOB + "".join(f"  {line}\n" for line in lines)


def task_of(text: str) -> Task:
    (document,) = read_documents(text, "m.yaml")
    assert isinstance(document, ManifestWorkload)
    return document.task


def spec_of(text: str) -> Spec:
    return task_of(text).spec


def problems_of(text: str) -> list[str]:
    with pytest.raises(Invalid) as caught:
        read_documents(text, "m.yaml")
    return [str(problem) for problem in caught.value.problems]
