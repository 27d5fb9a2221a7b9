"""Every setting, with its default and what it means. How they are read: `penstock.config`. Standard library only."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.domain.engines import EngineName

SYSTEM_SOCKET = Path("/run/penstock/penstock.sock")


def _xdg(variable: str, fallback: str) -> Path:
    given = os.environ.get(variable, "")
    base = Path(given) if given.startswith("/") else Path(os.environ.get("HOME", "/")) / fallback
    return base / "penstock"


def config_dir() -> Path:
    """Where a person's own files are: config.toml and credentials.json."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def default_data_dir() -> Path:
    return _xdg("XDG_DATA_HOME", ".local/share")


@dataclass(frozen=True)
class Settings:
    data_dir: Path = field(default_factory=default_data_dir)
    """Where the database, volumes, runs, logs and the socket are. Must be on a local disk."""

    mode: Literal["user", "system"] = "user"
    """`user`: a private server of the one who started it. `system`: started by root for everyone on the machine;
    its socket is `system_socket` and work runs as the caller's own account."""

    system_socket: Path = SYSTEM_SOCKET
    """Where a system server listens, and where every command looks first. The same for everyone on the machine."""

    database_url: str = ""
    """SQLAlchemy address of the database; empty is SQLite in `data_dir`.
    PostgreSQL: `postgresql+psycopg://user@host/name` (needs `pip install '.[postgresql]'` in a checkout)."""

    database_url_file: str = ""
    """A file that only the server's account can read, with what `database_url` would say, such as a password in it."""

    replica: Literal["refuse", "wait"] = "refuse"
    """What a second server on the same PostgreSQL database does. `refuse`: it does not start. `wait`: it stands by and
    takes over when the first is gone; one that loses its hold on the database ends at once."""

    host: str = "127.0.0.1"
    """Address the TCP port listens on."""

    port: int = 8000
    """TCP port; 0 lets the kernel choose, at each start anew. If it is taken, a server of one user with no port set, no
    tokens and no users uses a free one and says so. Any other goes without until it is free: callers know the port, and
    would show their tokens to whoever holds it."""

    address_connections: int = 1024
    """TCP connections one address may have open at once; of a proxy, all that come through it. All addresses together
    have a quarter of the descriptors of the process, and 8192 at most."""

    auth: Literal["token", "header"] = "token"
    """How TCP callers prove who they are. `token`: Authorization: Bearer. `header`: the X-User header is believed;
    only in user mode, only on loopback, never for admin verbs, never from inside a job."""

    allowed_hosts: tuple[str, ...] = ()
    """Further names the Host header may have, beside localhost, loopback addresses and `host`."""

    body_limit: str = "4Mi"
    """Largest request body, uploads and whole files of documents excepted."""

    documents_limit: str = "24Mi"
    """Largest request body that is a whole file of documents (apply, stop, delete, convert). Of a file 16 MiB are read
    at most; as JSON it is somewhat larger."""

    workdir_limit: str = "512Mi"
    """Largest packed workdir a job may send along."""

    engine: EngineName = "local"
    """Where workloads run. `local`: sandboxed process trees on this machine. `docker`: containers of the Docker engines
    that Node documents name; the settings beginning with `docker_` say how. `kubernetes`: Jobs and claims of a cluster
    (needs `pip install '.[kubernetes]'` in a checkout); the settings beginning with `kubernetes_` say which and how."""

    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    """`none` runs jobs as plain processes that see the whole machine: an explicit choice for where namespaces are
    forbidden. Volumes are then reachable only through PENSTOCK_VOLUME_<NAME>."""

    root_account: str = "nobody"
    """The account that work submitted by root runs as; work never runs as root."""

    cpus: str = ""
    """CPUs this machine offers to workloads; empty is all it has."""

    memory: str = ""
    """Memory this machine offers to workloads, such as `64Gi`; empty is all it has."""

    default_cpus: str = "500m"
    """The CPUs that are counted for a node of a workload that names none. It may use more."""

    default_requeue: int = 0
    """How often a workload that says no `requeue` begins anew when its node is lost or takes its room back, as when an
    admin empties the node; what it says itself counts, 0 too."""

    max_processes: int = 4096
    """Processes and threads a node of a workload may have at once, so that one that forks without end stops only
    itself; 0 is no limit. Enforced where CPU and memory limits are."""

    storage_classes: dict[str, str] = field(default_factory=dict)
    """Further storage classes: a table of name = directory. `standard` is `data_dir`/volumes."""

    min_free: str = ""
    """Free space on the disk of `data_dir` below which no new work is taken, such as `10Gi`: what is submitted is
    refused, and what waits goes on waiting. Empty is 1Gi, or a twentieth of a disk of less than 20Gi."""

    gpu_lock_dir: Path = Path("/run/lock")
    """Where GPUs are locked machine-wide, so that two servers never share one. The same for every server."""

    log_limit: str = "256Mi"
    """Log kept per node of a workload: the first half and the newest half; the gap is stated in the log."""

    disk_scan: str = "10s"
    """How often, at most, the disk use of a job is measured that asked for a size (`disk_size`, or the `size` of
    scratch). A scan takes longer the more files there are; the next one waits twenty times as long."""

    stop_grace: str = "10s"
    """Time between TERM and KILL when a workload is stopped."""

    retention: str = "30d"
    """How long ended workloads and their logs are kept."""

    gpu_sample: str = "15s"
    """How often the load of GPUs is read, for `penstock usage` and `idle_timeout`."""

    telegram_token: str = ""
    """The token of the Telegram bot that notifies people; empty: nobody is notified by Telegram."""

    telegram_token_file: str = ""
    """A file with that token that only the server's account can read: the configuration is read by everyone."""

    telegram_api: str = "https://api.telegram.org"
    """The address of Telegram's Bot API."""

    webhooks: tuple[str, ...] = ()
    """Addresses that may be notified of workloads' states, each with all that is below it, such as
    `https://hooks.example.org/penstock`. Empty: none, since whoever may submit could otherwise make the server send
    requests anywhere it can reach. Needs `webhook_secret`."""

    webhook_secret: str = ""
    """The key that signs webhooks: the header X-Penstock-Signature is `sha256=` and the HMAC of the body. A server that
    has `webhooks` and no secret does not start. Telegram needs none."""

    webhook_secret_file: str = ""
    """A file with that secret that only the server's account can read."""

    kubernetes_config: str = ""
    """The kubeconfig file; empty is the service account inside a cluster, else $KUBECONFIG, else ~/.kube/config."""

    kubernetes_context: str = ""
    """The context of the kubeconfig; empty is its current one."""

    kubernetes_namespace: str = ""
    """Where Jobs and claims are made; empty is the namespace of the context or of the service account. With a
    namespace per user or group it is the prefix of their names."""

    kubernetes_namespaces: Literal["one", "user", "group"] = "one"
    """`one` namespace for all, or one per `user` or `group`, made when it is first needed."""

    kubernetes_namespace_role: str = ""
    """The ClusterRole the server binds to its own account in each namespace it makes; empty: it needs none."""

    kubernetes_quota: dict[str, str] = field(default_factory=dict)
    """A ResourceQuota for each namespace Penstock makes: a table such as `requests.cpu = "32"`; empty is none. A job
    that names no memory counts as none in `requests.memory`; `limits.*` turns away jobs that name no such limit."""

    kubernetes_network: Literal["open", "namespace", "closed"] = "open"
    """A NetworkPolicy in each namespace Penstock makes. `namespace`: pods are reached only from their own namespace,
    and reach everything but link-local addresses, where clouds keep the credentials of nodes. `closed`: they reach only
    their own namespace and the cluster's DNS."""

    kubernetes_pod_security: Literal["baseline", "restricted"] = "baseline"
    """The Pod Security level pods are made for. `restricted` runs them without root: images must allow that."""

    kubernetes_image: str = "python:3.13-slim"
    """The image of a task that names none."""

    kubernetes_helper_image: str = "busybox:1"
    """An image with a shell, `du` and `sleep`: measures volumes and opens shells on them."""

    kubernetes_dcgm_namespace: str = "gpu-operator"
    """The namespace of NVIDIA's dcgm-exporter, which measures the load of GPUs; its GPU operator puts it into
    `gpu-operator`. Empty: it is not asked, and nothing is called idle."""

    kubernetes_kubelet_account: str = "penstock/penstock-nodes"
    """NAMESPACE/NAME of the service account whose token kubelets are shown when they are asked what their nodes do, for
    `top node`. It may read their numbers and nothing else, so that nobody who has taken over a node gets more from it.
    Empty: they are not asked."""

    kubernetes_kubelet_ca: str = ""
    """A file of the authorities that vouch for the certificates of kubelets, read at the start; empty is the cluster's
    own, as in the kubeconfig. `none`: they are not verified, and whoever answers at a node's address is believed."""

    kubernetes_node_selector: dict[str, str] = field(default_factory=dict)
    """Labels every node that runs our pods must have: a table of label = value."""

    kubernetes_autoscaler: tuple[str, ...] = ()
    """Nodes that an autoscaler can add: GPU products, each as the label `nvidia.com/gpu.product` of its nodes says, if
    need be with how many of them one node has, such as `NVIDIA-H100-80GB-HBM3:8`, and `cpu` for nodes without GPUs.
    `none`: nothing scales. Empty: not known."""

    kubernetes_tolerations: tuple[str, ...] = ()
    """Taints our pods tolerate, each `key`, `key=value` or either with `:effect`."""

    kubernetes_runtime_class: str = ""
    """The RuntimeClass of every pod, such as `nvidia`."""

    kubernetes_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the namespace that hold credentials of image registries."""

    kubernetes_run_as: str = ""
    """`uid` or `uid:gid` every pod runs as; empty is the image's own user."""

    kubernetes_fs_group: str = ""
    """The group volumes are made writable for (fsGroup); empty is none."""

    docker_installation: str = "penstock"
    """The name and label of containers, networks and volumes on Docker hosts. Each of several Penstocks that share a
    host needs its own."""

    docker_image: str = "python:3.13-slim"
    """The image of a task that names none."""

    docker_helper_image: str = "busybox:1"
    """An image with a shell, `du`, `mkdir` and `nc`: measures volumes, makes directories on NFS storages,
    connects to ports, reads what CPUs a host has, what it does and, with glibc in it, its GPUs."""

    docker_run_as: str = ""
    """`uid` or `uid:gid` every container runs as; empty is the image's own user."""

    docker_network: Literal["open", "closed"] = "open"
    """Each group has a network of its own on each host. `open`: containers reach the world outside. `closed`: only each
    other."""

    docker_tls_dir: str = ""
    """Certificates for `tcp://` hosts: ca.pem, cert.pem and key.pem in a directory named after the node, or beside
    these for all others. Without any, a host is spoken to without TLS, and only on this machine's own addresses."""

    docker_ssh_config: str = ""
    """The configuration file of ssh for `ssh://` hosts (`ssh -F`); empty is ssh's own."""

    docker_registry_config: str = ""
    """Credentials of registries, in a file as `docker login` writes it (~/.docker/config.json); empty is none."""

    placement_timeout: str = "5m"
    """How long some nodes of a workload may hold their place while others have none; then all give theirs back and
    it tries again."""

    pull_patience: str = "2m"
    """How long an image may fail to be pulled, or a Secret or claim be missing, before the workload ends as failed."""

    launch_attempts: int = 3
    """How often a Docker host is asked to make a workload's containers while it answers that it has no addresses left;
    then the workload is STUCK. A host that does not answer is asked again and again."""

    launch_pause: str = "20s"
    """The pause between two of these attempts."""

    @property
    def socket_path(self) -> Path:
        return self.system_socket if self.mode == "system" else self.data_dir / "penstock.sock"

    @property
    def url(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir / 'penstock.db'}"
