"""The control plane: etcd, the API server, the controllers, the scheduler, DNS."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from tests.rig.certificates import Certificates
from tests.rig.places import Addresses
from tests.rig.processes import Processes, wait_for

PORT = 6443
NODE_LOST_SECONDS = 12
"""A node that says nothing for so long is lost. Kubernetes' own value is 50; here a test waits for it."""
TOLERATED_SECONDS = 5
"""How long pods stay on a lost node, unless they say so themselves. Kubernetes' own value is 300."""

_ETCD = "http://127.0.0.1:2379"
_ETCD_PEER = "http://127.0.0.1:2380"
_MASTERS = "/O=system:masters/CN="
_OURSELVES = ("rig:controller-manager", "rig:scheduler", "rig:dns", "rig:storage", "rig:kubelet-client")


class Control:
    def __init__(self, directory: Path, programs: Path, addresses: Addresses, processes: Processes) -> None:
        self.directory = directory
        self.programs = programs
        self.addresses = addresses
        self.processes = processes
        self.certificates = Certificates(directory, f"https://{addresses.control}:{PORT}")

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    def certify(self) -> None:
        at = self.addresses
        self.certificates.begin()
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        addresses = ("127.0.0.1", at.control, at.first_service)
        alternatives = [f"DNS:{name}" for name in names] + [f"IP:{address}" for address in addresses]
        self.certificates.make("apiserver", "/CN=kube-apiserver", *alternatives)
        self.certificates.make("kubelet-client", f"{_MASTERS}rig:kubelet-client")
        self.certificates.kubeconfig("admin", f"{_MASTERS}admin")
        for name in ("controller-manager", "scheduler", "dns", "storage"):
            self.certificates.kubeconfig(name, f"{_MASTERS}rig:{name}")
        self.certificates.kubeconfig("proxy", "/CN=system:kube-proxy")

    def start_etcd(self) -> None:
        self.processes.start(
            "etcd",
            self.programs / "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_ETCD_PEER}",
            f"--initial-advertise-peer-urls={_ETCD_PEER}",
            f"--initial-cluster=default={_ETCD_PEER}",
        )

    def start_apiserver(self) -> None:
        pki, at = self.certificates, self.addresses
        policy = self.directory / "audit.json"
        policy.write_text(json.dumps(_audit_policy()))
        self.processes.start(
            "apiserver",
            self.programs / "kube-apiserver",
            f"--etcd-servers={_ETCD}",
            f"--secure-port={PORT}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={at.control}",
            f"--service-cluster-ip-range={at.services}",
            f"--tls-cert-file={pki.certificate('apiserver')}",
            f"--tls-private-key-file={pki.key('apiserver')}",
            f"--client-ca-file={pki.authority}",
            f"--service-account-key-file={pki.account_key}",
            f"--service-account-signing-key-file={pki.account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--kubelet-client-certificate={pki.certificate('kubelet-client')}",
            f"--kubelet-client-key={pki.key('kubelet-client')}",
            f"--kubelet-certificate-authority={pki.authority}",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            f"--default-not-ready-toleration-seconds={TOLERATED_SECONDS}",
            f"--default-unreachable-toleration-seconds={TOLERATED_SECONDS}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=1000",
        )

    def wait_for_apiserver(self) -> None:
        context = self.certificates.client_context("admin")

        def ready() -> bool:
            self.processes.check("etcd", "apiserver")
            return _is_well(f"{self.certificates.server}/readyz", context)

        wait_for("the API server", ready)

    def start_controllers(self) -> None:
        pki, config = self.certificates, self.directory
        common = ("--leader-elect=false", "--bind-address=127.0.0.1")
        self.processes.start(
            "controller-manager",
            self.programs / "kube-controller-manager",
            f"--kubeconfig={config / 'controller-manager.kubeconfig'}",
            *common,
            f"--service-account-private-key-file={pki.account_key}",
            f"--root-ca-file={pki.authority}",
            "--use-service-account-credentials",
            "--pvclaimbinder-sync-period=1s",
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={NODE_LOST_SECONDS}s",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        )
        self.processes.start(
            "scheduler",
            self.programs / "kube-scheduler",
            f"--kubeconfig={config / 'scheduler.kubeconfig'}",
            *common,
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        )

    def start_dns(self) -> None:
        corefile = self.directory / "Corefile"
        corefile.write_text(_corefile(self.addresses.control, self.directory / "dns.kubeconfig"))
        self.processes.start("dns", self.programs / "coredns", "-conf", corefile)

    def wait_for_dns(self) -> None:
        def ready() -> bool:
            self.processes.check("dns")
            return _is_well(f"http://{self.addresses.control}:8181/ready")

        wait_for("DNS", ready)


def _is_well(url: str, context: ssl.SSLContext | None = None) -> bool:
    try:
        with urllib.request.urlopen(url, context=context, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return False


def _audit_policy() -> dict[str, object]:
    """A line for each answered request that did not come from the cluster itself."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [
            {"level": "None", "users": [*_OURSELVES, "system:apiserver", "system:kube-proxy"]},
            {"level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"]},
            {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*", "/metrics"]},
            {"level": "Metadata"},
        ],
    }


def _corefile(address: str, kubeconfig: Path) -> str:
    """A name that is not the cluster's does not exist: said at once, where a real server would ask the Internet.

    Names of the cluster are not cached, as kubeadm has it: one that was asked for too early is found once it is there.
    """
    return f"""cluster.local:53 in-addr.arpa:53 {{
  bind {address}
  errors
  ready {address}:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
  }}
}}
.:53 {{
  bind {address}
  errors
  template ANY ANY . {{
    rcode NXDOMAIN
  }}
}}
"""
