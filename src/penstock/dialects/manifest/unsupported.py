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
NO_RIGHTS = "a workload has no rights in the cluster"
ONLY = "only persistentVolumeClaim and emptyDir are"
DATA = "copy the data into a volume and mount that"

POD_REFUSED: Mapping[str, Refusal] = {
    "initContainers": ("a workload has one container", "put their commands before the container's own"),
    **dict.fromkeys(("ephemeralContainers", "shareProcessNamespace"), ("a workload has one container", REMOVE)),
    **dict.fromkeys(("nodeName", "topologySpreadConstraints"), (PLACED, REMOVE)),
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostAliases"), (SEPARATE, REMOVE)),
    **dict.fromkeys(("hostname", "setHostnameAsFQDN", "hostnameOverride"), ("Penstock names its nodes", REMOVE)),
    **dict.fromkeys(("serviceAccountName", "serviceAccount"), (NO_RIGHTS, REMOVE)),
    "automountServiceAccountToken": (NO_RIGHTS, "remove it, or write false"),
    **dict.fromkeys(
        ("priorityClassName", "priority", "preemptionPolicy"), ("workloads start in the order they came", REMOVE)
    ),
    "tolerations": (FOR_THE_ADMIN, "remove it; the setting is kubernetes_tolerations"),
    "runtimeClassName": (FOR_THE_ADMIN, "remove it; the setting is kubernetes_runtime_class"),
    "securityContext": (FOR_THE_ADMIN, "remove it; the settings are kubernetes_run_as and kubernetes_fs_group"),
    **dict.fromkeys(
        ("schedulerName", "overhead", "dnsPolicy", "dnsConfig", "enableServiceLinks", "workloadRef"),
        (FOR_THE_ADMIN, REMOVE),
    ),
    "schedulingGates": ("what has to end before is said with 'after' of a task", REMOVE),
    "readinessGates": PROBES,
    "os": ("workloads run on Linux", REMOVE),
    "resourceClaims": ("devices are asked for as nvidia.com/gpu", REMOVE),
    "resources": ("a container's resources are", "write them under containers[0].resources"),
}
POD_PLAIN = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "setHostnameAsFQDN"), FALSE),
    "automountServiceAccountToken": FALSE,
    "hostUsers": TRUE,
    "enableServiceLinks": FALSE,
    **dict.fromkeys(("serviceAccountName", "serviceAccount"), frozenset({"default"})),
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
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), PROBES),
    "lifecycle": ("a program is told to end with TERM", "remove it; terminationGracePeriodSeconds gives it time"),
    "ports": ("nothing is published; programs of one workload reach each other on every port", REMOVE),
    "volumeDevices": ("volumes are file systems", "write it under volumeMounts"),
    "imagePullPolicy": (FOR_THE_ADMIN, "remove it, or write IfNotPresent"),
    "securityContext": (FOR_THE_ADMIN, "remove it; the settings are kubernetes_run_as and kubernetes_pod_security"),
    "stdin": ("a workload's input is empty", "remove it; penstock exec opens a terminal"),
    "stdinOnce": ("a workload's input is empty", REMOVE),
    "tty": ("a workload has no terminal", "remove it; penstock exec opens one"),
    **dict.fromkeys(("terminationMessagePath", "terminationMessagePolicy"), ("the log is kept", REMOVE)),
    "resizePolicy": ("resources stay as they are while it runs", REMOVE),
    **dict.fromkeys(
        ("restartPolicy", "restartPolicyRules"), ("a workload has one container", "write restartPolicy under the spec")
    ),
}
CONTAINER_PLAIN = {
    **dict.fromkeys(("stdin", "stdinOnce", "tty"), FALSE),
    "imagePullPolicy": {"IfNotPresent"},
    "terminationMessagePath": {"/dev/termination-log"},
    "terminationMessagePolicy": {"File"},
}

MOUNT_REFUSED: Mapping[str, Refusal] = {
    **dict.fromkeys(("subPath", "subPathExpr"), ("a volume is mounted as a whole", "mount it and use the path below")),
    "mountPropagation": ("what is mounted in a workload stays in it", REMOVE),
    "recursiveReadOnly": ("readOnly is", "write 'readOnly: true'"),
}
MOUNT_PLAIN = {"mountPropagation": {"None"}, "recursiveReadOnly": {"Disabled"}}

VOLUME_REFUSED: Mapping[str, Refusal] = {
    "secret": (ONLY, "pass the value with env, or name the Secret there"),
    **dict.fromkeys(("configMap", "projected", "image"), (ONLY, DATA)),
    "downwardAPI": (ONLY, "Penstock's variables say the same"),
    "hostPath": ("a workload sees nothing of the node's own disk", "use a volume"),
    "ephemeral": (ONLY, "use emptyDir"),
    **dict.fromkeys(("nfs", "csi"), (ONLY, "use a volume")),
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
    **dict.fromkeys(("volumeName", "selector"), ("a volume gets new room", REMOVE)),
    **dict.fromkeys(("dataSource", "dataSourceRef"), ("a volume begins empty", "remove it and copy the data in")),
    "volumeMode": ("volumes are file systems", "remove it, or write Filesystem"),
    "volumeAttributesClassName": (FOR_THE_ADMIN, REMOVE),
}
PVC_PLAIN = {"volumeMode": {"Filesystem"}}
