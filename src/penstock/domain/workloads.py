"""Workloads: something to run, as it was asked for and as it is."""

from __future__ import annotations

from enum import StrEnum

from penstock.domain.model import Model, Time
from penstock.domain.secrets import MASK, mask_secrets
from penstock.domain.states import ENDED, SHORT, WAITING, Reason, State
from penstock.domain.users import Account


class Wants(StrEnum):
    RUN = "RUN"
    STOP = "STOP"
    DELETE = "DELETE"


class Requests(Model):
    """What a place must have free, where that is less than the limit; None is "as much as the limit"."""

    cpus_milli: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None


class Resources(Model):
    """What one node of a workload asks for; None is "not said"."""

    cpus_milli: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    """What it may write outside its volumes, scratch on disk included."""
    requests: Requests = Requests()
    gpus: int = 0
    gpu_products: tuple[str, ...] = ()
    """It takes any one of these; empty is any product."""
    exclusive_cpus: bool = False
    """Whole CPUs that nobody else gets meanwhile."""
    image: str | None = None


class Selectors(Model):
    """Which nodes it may be placed on, besides having what it asks for."""

    node: str | None = None
    cpu_product: str | None = None
    labels: dict[str, str] = {}
    spread: bool = False
    """Place it on as many nodes as there are, instead of as few."""


class Mount(Model):
    path: str
    volume: str
    """Its id or name as the user wrote it."""
    read_only: bool = False
    group: str | None = None
    """The group the volume belongs to; None is the workload's own."""
    storage: str | None = None
    """Where the volume is made if it does not exist: `pwm.all` is the disk of the node; None: it must exist."""
    sub_path: str | None = None
    """The directory in the volume that is mounted; None is all of it."""


class FromSecret(Model):
    """Variables whose values are in a Secret of the cluster, which the server never reads."""

    secret: str
    name: str | None = None
    """The variable's name; None: each key of the Secret becomes one."""
    key: str | None = None
    """The key of that one variable."""
    prefix: str = ""
    """Put before the names of all of them."""


class Port(Model):
    port: int
    protocol: str = "tcp"


class Notice(Model):
    """Whom to tell when the workload enters one of these states."""

    to: str
    """`telegram:<chat>`, or the address of a webhook."""
    on: tuple[State, ...]


class Medium(StrEnum):
    disk = "disk"
    memory = "memory"


class Scratch(Model):
    """A place for files that lives and dies with each unit of the workload."""

    path: str
    medium: Medium = Medium.disk
    size_bytes: int | None = None
    """Memory refuses to take more than this; a disk that exceeds it ends the workload."""


class Array(Model):
    """The same program `count` times, told apart by JOB_COMPLETION_INDEX."""

    count: int
    parallelism: int | None = None
    """How many run at once; None is as many as there is room for."""


UNLIMITED = -1


class Spec(Model):
    """What a user asked for, in whichever format."""

    name: str | None = None
    nodes: int = 1
    array: Array | None = None
    """Never together with several nodes."""
    after: tuple[str, ...] = ()
    """Ids or names, as the user wrote them, of workloads that must complete before it starts."""
    queue: str | None = None
    """The Kueue queue that decides when it may start."""
    resources: Resources = Resources()
    selectors: Selectors = Selectors()
    labels: dict[str, str] = {}
    """Labels of its containers, for others' tools."""
    envs: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    """Names of those among `envs` whose values are never shown, in their order. One without a value there is open: the
    document names it, and leaves the value where it is kept."""
    from_secrets: tuple[FromSecret, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    """Secrets of the cluster with credentials of image registries."""
    mounts: tuple[Mount, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    workdir: str | None = None
    """Absolute: a directory inside the job. Relative: the user's code, sent along at submit."""
    setup: str | None = None
    run: str | tuple[str, ...] | None
    """A script for bash; or a program and its arguments, started as they are, without a shell. None: the image's own
    command, where there are images."""
    terminal: bool = False
    """Its program has a terminal and an open input, so that a shell waits for someone to attach."""
    ports: tuple[Port, ...] = ()
    """Ports it listens on; reached through the server, never published."""
    max_duration: int | None = None
    """Seconds, counted for each attempt from its start."""
    stop_grace: int | None = None
    """Seconds between TERM and KILL; None is the server's setting."""
    retries: int = 0
    """Further attempts when the program fails, or UNLIMITED. An array repeats only its failed indexes."""
    requeue: int | None = None
    """Further attempts when its node is lost or takes its room back, besides `retries`. None is the server's
    setting."""
    restart: bool = False
    """Start it again after a success, too, until it is stopped: a Pod that restarts always."""
    ttl: int | None = None
    """Seconds after its end until it is deleted; its volumes stay. None is the server's retention."""
    priority: int = 0
    """Higher is placed first."""
    idle_timeout: int | None = None
    """Seconds its GPUs may do nothing; None is the group's."""
    notify: tuple[Notice, ...] = ()

    @property
    def parts(self) -> int:
        """How many units an attempt has: ranks, or indexes."""
        return self.array.count if self.array else self.nodes

    @property
    def open_secrets(self) -> tuple[str, ...]:
        return tuple(name for name in self.secrets if name not in self.envs)

    @property
    def secret_values(self) -> dict[str, str]:
        return {name: self.envs[name] for name in self.secrets if name in self.envs}

    @property
    def shown(self) -> Spec:
        """The same without the values of its secrets: what leaves the server."""
        return self.model_copy(update={"envs": self.envs | dict.fromkeys(self.secrets, MASK)}) if self.secrets else self

    def without_secrets(self, said: str | None) -> str | None:
        """Mask its secrets in a message about it, which may repeat what it was started with."""
        return str(mask_secrets(said, self.secret_values)) if said and self.secrets else said


class Change(Model):
    """One line of a workload's history."""

    state: State
    reason: Reason
    message: str | None = None
    at: Time


class Unit(Model):
    """One rank of an attempt, or one index of an array."""

    attempt: int = 1
    index: int = 0
    rank: int
    state: State
    reason: Reason | None = None
    message: str | None = None
    exit_code: int | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    peak_memory_bytes: int | None = None
    container: str | None = None
    """Its container's id, where the engine has containers and says it."""
    node: str | None = None
    """The node it runs on, where the engine chose."""


class Progress(Model):
    """How far an array has come: counts its indexes, each by its newest attempt."""

    completed: int = 0
    failed: int = 0
    running: int = 0


class Workload(Model):
    id: str
    name: str
    group: str
    namespace: str = ""
    """The cluster's namespace it is in; empty where there are no namespaces."""
    user: str
    account: Account
    """The Unix account it runs as."""
    spec: Spec
    volume_ids: dict[str, str] = {}
    """Mount path → id of the volume, resolved once, at submit."""
    files: dict[str, str] = {}
    """Field → id of the upload (`workdir`)."""
    venv: str | None = None
    notices: tuple[str, ...] = ()
    """What the submitter was told: fields that do not apply here, an image that is not used."""
    session: bool = False
    """It stands for a shell somebody opened: it takes no place in the queue, and ends with the connection or the
    server."""
    state: State = State.INSERTED
    reason: Reason = Reason.SUBMITTED
    message: str | None = None
    ahead: int | None = None
    """How many were before it in our queue when that was written last; None: nobody, or it does not wait there."""
    wants: Wants = Wants.RUN
    after_ids: tuple[str, ...] = ()
    """The ids behind `after`, resolved once, at submit."""
    max_duration: int | None = None
    """The spec's own, or else its group's at the time of submission; see `time_limit`."""
    requeue: int = 0
    """The server's setting at the time of submission, for a spec without `requeue`; see `requeues`."""
    attempt: int = 1
    launched: int = 0
    """The last attempt the engine took over; if that is gone, someone removed it."""
    indexes: tuple[int, ...] = ()
    """The indexes this attempt of an array runs; empty is all."""
    progress: Progress | None = None
    """Of an array that has begun."""
    retried: int = 0
    requeued: int = 0
    queued_at: Time | None = None
    """Since when this attempt waits, if it is not the first."""
    not_before: Time | None = None
    """The next attempt waits until then."""
    gpus: tuple[tuple[str, ...], ...] = ()
    """GPU uuids by rank, while placed."""
    hosts: tuple[str, ...] = ()
    """Node names by rank, once placed, where there are several to choose from."""
    containers: tuple[str, ...] = ()
    """Container ids by rank, as short as Docker shows them, once they run; none of an array."""
    cpusets: tuple[tuple[int, ...], ...] = ()
    """CPUs by rank, while placed, if it has them to itself."""
    counted: tuple[tuple[int, int], ...] = ()
    """CPUs (in thousandths) and bytes of memory by rank that are counted as taken, while placed."""
    master_port: int | None = None
    exit_code: int | None = None
    created_at: Time
    updated_at: Time
    started_at: Time | None = None
    ended_at: Time | None = None

    @property
    def object_name(self) -> str:
        return f"{self.name}-{self.id}"

    @property
    def status(self) -> str:
        return SHORT[self.state]

    @property
    def ended(self) -> bool:
        """Is it over? One in doubt is not, as long as it is asked about: its node may answer again."""
        return self.state in ENDED and (self.state is not State.UNKNOWN or self.ended_at is not None)

    @property
    def time_limit(self) -> int | None:
        """Seconds an attempt of it may run."""
        return self.max_duration or self.spec.max_duration

    @property
    def requeues(self) -> int:
        """How often it begins anew because its node is lost or takes its room back."""
        return self.requeue if self.spec.requeue is None else self.spec.requeue

    @property
    def placed(self) -> bool:
        """Does it hold resources? From ASSIGNED until it has ended."""
        return self.state not in WAITING and not self.ended
