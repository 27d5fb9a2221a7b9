"""The one table: what each route needs. A route that is missing here is shut for everyone."""

from __future__ import annotations

from penstock.domain.policy import Kind, Verb

_PUBLIC = (Verb.public, Kind.Server)

NEEDS: dict[tuple[str, str], tuple[Verb, Kind]] = {
    ("GET", "/"): _PUBLIC,
    ("GET", "/healthz"): _PUBLIC,
    ("GET", "/docs"): _PUBLIC,
    ("GET", "/docs/{file}"): _PUBLIC,
    ("GET", "/openapi.json"): _PUBLIC,
    ("GET", "/metrics"): (Verb.get, Kind.Server),
    ("GET", "/v1/whoami"): (Verb.get, Kind.User),
    ("GET", "/v1/server"): (Verb.get, Kind.Server),
    ("POST", "/v1/server/stop"): (Verb.all_groups, Kind.Server),
    ("GET", "/v1/doctor"): (Verb.get, Kind.Server),
    ("GET", "/v1/nodes"): (Verb.get, Kind.Node),
    ("GET", "/v1/gpus"): (Verb.get, Kind.Node),
    ("GET", "/v1/storage-classes"): (Verb.get, Kind.Storage),
    ("POST", "/v1/volumes"): (Verb.create, Kind.Volume),
    ("GET", "/v1/volumes"): (Verb.get, Kind.Volume),
    ("GET", "/v1/volumes/{ref}"): (Verb.get, Kind.Volume),
    ("DELETE", "/v1/volumes/{ref}"): (Verb.delete, Kind.Volume),
    ("POST", "/v1/volumes/{ref}/resize"): (Verb.update, Kind.Volume),
    ("GET", "/v1/volumes/{ref}/events"): (Verb.get, Kind.Volume),
    ("GET", "/v1/volumes/{ref}/shell"): (Verb.exec, Kind.Volume),
    ("POST", "/v1/workloads"): (Verb.create, Kind.Workload),
    ("GET", "/v1/workloads"): (Verb.get, Kind.Workload),
    ("POST", "/v1/workloads/stop"): (Verb.stop, Kind.Workload),
    ("GET", "/v1/workloads/{ref}"): (Verb.get, Kind.Workload),
    ("DELETE", "/v1/workloads/{ref}"): (Verb.delete, Kind.Workload),
    ("GET", "/v1/workloads/{ref}/wait"): (Verb.get, Kind.Workload),
    ("GET", "/v1/workloads/{ref}/logs"): (Verb.logs, Kind.Workload),
    ("GET", "/v1/workloads/{ref}/exec"): (Verb.exec, Kind.Workload),
    ("POST", "/v1/workloads/{ref}/stop"): (Verb.stop, Kind.Workload),
    ("POST", "/v1/workloads/{ref}/retry"): (Verb.create, Kind.Workload),
    ("GET", "/v1/workloads/{ref}/events"): (Verb.get, Kind.Workload),
    ("PUT", "/v1/uploads"): (Verb.create, Kind.Workload),
    ("POST", "/v1/apply"): (Verb.create, Kind.Workload),
    ("POST", "/v1/delete"): (Verb.delete, Kind.Workload),
    ("POST", "/v1/convert"): (Verb.get, Kind.Workload),
    ("POST", "/v1/tokens"): (Verb.create, Kind.Token),
    ("GET", "/v1/tokens"): (Verb.get, Kind.Token),
    ("DELETE", "/v1/tokens/{token_id}"): (Verb.delete, Kind.Token),
    # document 001
    ("POST", "/tasks/submit"): (Verb.create, Kind.Workload),
    ("GET", "/tasks"): (Verb.get, Kind.Workload),
    ("POST", "/tasks/stop"): (Verb.stop, Kind.Workload),
    ("GET", "/tasks/{task_id}"): (Verb.get, Kind.Workload),
    ("GET", "/tasks/{task_id}/logs"): (Verb.logs, Kind.Workload),
    ("POST", "/tasks/{task_id}/stop"): (Verb.stop, Kind.Workload),
    ("POST", "/volumes/create"): (Verb.create, Kind.Volume),
    ("GET", "/volumes"): (Verb.get, Kind.Volume),
    ("GET", "/volumes/{volume_id}"): (Verb.get, Kind.Volume),
    ("DELETE", "/volumes/{volume_id}"): (Verb.delete, Kind.Volume),
}
