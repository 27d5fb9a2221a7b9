"""Kubernetes fields that a workload does not have: why, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dialects.reader import Refusal

FALSE = frozenset({"false", "False", "FALSE"})
TRUE = frozenset({"true", "True", "TRUE"})
REMOVE = "remove it"
SEPARATE = "a workload is kept apart from the node it runs on"
FOR_THE_ADMIN = "that is for the admin"
PLACED = "the scheduler chooses the node by what is asked for"
PROBES = ("nothing is probed: a workload is over when its program is", "remove it; activeDeadlineSeconds limits it")
ONLY = "only persistentVolumeClaim and emptyDir are"
DATA = "copy the data into a volume and mount that"

POD_REFUSED: Mapping[str, Refusal] = {
    "initContainers": ("a workload has one container", "put their commands before the container's own"),
    "ephemeralContainers": ("a workload has one container", REMOVE),
    "tolerations": (FOR_THE_ADMIN, "remove it; the setting is kubernetes_tolerations"),
    "nodeName": (PLACED, REMOVE),
    "hostNetwork": (SEPARATE, REMOVE),
    "hostPID": (SEPARATE, REMOVE),
    "hostIPC": (SEPARATE, REMOVE),
    "hostUsers": (SEPARATE, REMOVE),
    "serviceAccountName": ("a workload has no rights in the cluster", REMOVE),
    "serviceAccount": ("a workload has no rights in the cluster", REMOVE),
    "automountServiceAccountToken": ("a workload has no rights in the cluster", "remove it, or write false"),
    "priorityClassName": ("workloads start in the order they came", REMOVE),
    "priority": ("workloads start in the order they came", REMOVE),
    "preemptionPolicy": ("workloads start in the order they came", REMOVE),
    "runtimeClassName": (FOR_THE_ADMIN, "remove it; the setting is kubernetes_runtime_class"),
    "securityContext": (FOR_THE_ADMIN, "remove it; the settings are kubernetes_run_as and kubernetes_fs_group"),
    "schedulerName": (FOR_THE_ADMIN, REMOVE),
    "schedulingGates": ("what has to end before is said with 'after' of a task", REMOVE),
    "topologySpreadConstraints": (PLACED, REMOVE),
    "overhead": (FOR_THE_ADMIN, REMOVE),
    "readinessGates": PROBES,
    "dnsPolicy": (FOR_THE_ADMIN, REMOVE),
    "dnsConfig": (FOR_THE_ADMIN, REMOVE),
    "hostAliases": (SEPARATE, REMOVE),
    "hostname": ("Penstock names the nodes of a workload", REMOVE),
    "setHostnameAsFQDN": ("Penstock names the nodes of a workload", REMOVE),
    "hostnameOverride": ("Penstock names the nodes of a workload", REMOVE),
    "shareProcessNamespace": ("a workload has one container", REMOVE),
    "enableServiceLinks": (FOR_THE_ADMIN, REMOVE),
    "os": ("workloads run on Linux", REMOVE),
    "resourceClaims": ("devices are asked for as nvidia.com/gpu", REMOVE),
    "resources": ("a container's resources are", "write them under containers[0].resources"),
    "workloadRef": (FOR_THE_ADMIN, REMOVE),
}
POD_PLAIN = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "setHostnameAsFQDN"), FALSE),
    "automountServiceAccountToken": FALSE,
    "hostUsers": TRUE,
    "enableServiceLinks": FALSE,
    "serviceAccountName": {"default"},
    "serviceAccount": {"default"},
    "schedulerName": {"default-scheduler"},
    "dnsPolicy": {"ClusterFirst"},
    "priority": {"0"},
    "preemptionPolicy": {"PreemptLowerPriority"},
}
SUBDOMAIN: Refusal = (
    "nodes find each other through a headless Service",
    "remove it, or put the Service of that name and with this Job as its selector into the same file",
)

CONTAINER_REFUSED: Mapping[str, Refusal] = {
    "livenessProbe": PROBES,
    "readinessProbe": PROBES,
    "startupProbe": PROBES,
    "lifecycle": ("a program is told to end with TERM", "remove it; terminationGracePeriodSeconds gives it time"),
    "ports": ("nothing is published; programs of one workload reach each other on every port", REMOVE),
    "volumeDevices": ("volumes are file systems", "write it under volumeMounts"),
    "imagePullPolicy": (FOR_THE_ADMIN, "remove it, or write IfNotPresent"),
    "securityContext": (FOR_THE_ADMIN, "remove it; the settings are kubernetes_run_as and kubernetes_pod_security"),
    "stdin": ("a workload's input is empty", "remove it; penstock exec opens a terminal"),
    "stdinOnce": ("a workload's input is empty", REMOVE),
    "tty": ("a workload has no terminal", "remove it; penstock exec opens one"),
    "terminationMessagePath": ("the log is kept", REMOVE),
    "terminationMessagePolicy": ("the log is kept", REMOVE),
    "resizePolicy": ("resources stay as they are while it runs", REMOVE),
    "restartPolicy": ("a workload has one container", "write it under the Pod's spec"),
    "restartPolicyRules": ("a workload has one container", "write restartPolicy under the Pod's spec"),
}
CONTAINER_PLAIN = {
    **dict.fromkeys(("stdin", "stdinOnce", "tty"), FALSE),
    "imagePullPolicy": {"IfNotPresent"},
    "terminationMessagePath": {"/dev/termination-log"},
    "terminationMessagePolicy": {"File"},
}

MOUNT_REFUSED: Mapping[str, Refusal] = {
    "subPath": ("a volume is mounted as a whole", "mount it and use the path below"),
    "subPathExpr": ("a volume is mounted as a whole", "mount it and use the path below"),
    "mountPropagation": ("what is mounted in a workload stays in it", REMOVE),
    "recursiveReadOnly": ("readOnly is", "write 'readOnly: true'"),
}
MOUNT_PLAIN = {"mountPropagation": {"None"}, "recursiveReadOnly": {"Disabled"}}

VOLUME_REFUSED: Mapping[str, Refusal] = {
    "configMap": (ONLY, DATA),
    "secret": (ONLY, "pass the value with env, or name the Secret there"),
    "projected": (ONLY, DATA),
    "downwardAPI": (ONLY, "Penstock's variables say the same"),
    "hostPath": ("a workload sees nothing of the node's own disk", "use a volume"),
    "ephemeral": (ONLY, "use emptyDir"),
    "nfs": (ONLY, "use a volume"),
    "csi": (ONLY, "use a volume"),
    "image": (ONLY, DATA),
}

JOB_REFUSED: Mapping[str, Refusal] = {
    "suspend": ("a workload starts when there is room", "remove it, or write false"),
    "podFailurePolicy": ("a failed program is repeated as often as backoffLimit says", REMOVE),
    "successPolicy": ("a workload is complete when all of it is", REMOVE),
    "maxFailedIndexes": ("every index is run", REMOVE),
    "selector": ("the cluster wrote it", REMOVE),
    "manualSelector": ("Penstock selects its own", REMOVE),
    "managedBy": (FOR_THE_ADMIN, REMOVE),
    "podReplacementPolicy": ("the next attempt starts when the one before is over", REMOVE),
}
JOB_PLAIN = {
    "suspend": FALSE,
    "manualSelector": FALSE,
    "managedBy": {"kubernetes.io/job-controller"},
    "podReplacementPolicy": {"TerminatingOrFailed", "Failed"},
}

PVC_REFUSED: Mapping[str, Refusal] = {
    "volumeName": ("a volume gets new room", REMOVE),
    "selector": ("a volume gets new room", REMOVE),
    "dataSource": ("a volume begins empty", "remove it and copy the data in"),
    "dataSourceRef": ("a volume begins empty", "remove it and copy the data in"),
    "volumeMode": ("volumes are file systems", "remove it, or write Filesystem"),
    "volumeAttributesClassName": (FOR_THE_ADMIN, REMOVE),
}
PVC_PLAIN = {"volumeMode": {"Filesystem"}}
