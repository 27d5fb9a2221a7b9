"""The rights that deploy/kubernetes gives besides those that `penstock doctor` checks."""

from __future__ import annotations

from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.api.resources import KubernetesNode, NodeMetrics, ServiceAccount
from penstock.engines.kubernetes.doctor import WATCH, Right
from penstock.engines.kubernetes.waiting.kueue import QueuedWorkload

FOR_QUEUES: tuple[Right, ...] = tuple((verb, QueuedWorkload, "") for verb in (*WATCH, "patch"))
"""Needed only by jobs that are in a queue."""
FOR_GPU_USE: tuple[Right, ...] = (("list", Pod, ""), ("get", Pod, "proxy"))
"""Needed in the namespace of NVIDIA's exporter."""
FOR_KUBELETS: tuple[Right, ...] = (("get", KubernetesNode, "metrics"), ("get", KubernetesNode, "stats"))
"""Rights of the account whose token kubelets are shown."""
FOR_ITS_TOKEN: tuple[Right, ...] = (("create", ServiceAccount, "token"),)
"""Needed for that account and no other."""
FOR_METRICS: tuple[Right, ...] = (("list", NodeMetrics, ""),)
"""Needed for `top node` where a kubelet does not answer and the cluster has a metrics-server."""
