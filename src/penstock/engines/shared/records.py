"""Records stored beside an engine's objects, from which a lost database is rebuilt."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import ValidationError

from penstock.domain.users import Account
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Spec, Workload

LOST = "secrets: the values of {} were lost with the server's records, and are not set in further attempts"


def without_values(record: str, spec: Spec) -> str:
    """Return the record of a workload without the values of its secrets: annotations are for everyone to read."""
    if not spec.secrets:
        return record
    told = json.loads(record)
    envs = told.get("spec", {}).get("envs", {})
    told["spec"]["envs"] = {name: value for name, value in envs.items() if name not in spec.secrets}
    return json.dumps(told)


def with_values(workload: Workload, there: Mapping[str, str]) -> Workload:
    """Return a workload that was found, with those values of its secrets that are still there."""
    known = {name: value for name, value in there.items() if name in workload.spec.secrets}
    lost = [name for name in workload.spec.secrets if name not in known]
    spec = workload.spec.model_copy(update={"envs": workload.spec.envs | known, "secrets": tuple(sorted(known))})
    told = (*workload.notices, LOST.format(", ".join(lost))) if lost else workload.notices
    return workload.model_copy(update={"spec": spec, "notices": told})


def volume_record(volume: Volume, account: Account) -> str:
    recorded = volume.model_dump(mode="json", exclude={"made"})
    return json.dumps({"volume": recorded, "account": account.model_dump(mode="json")})


def read_volume(record: str) -> tuple[Volume, Account] | None:
    """Return the volume and its owner; None if someone has changed the record, or a later Penstock wrote it."""
    try:
        found = json.loads(record)
        return Volume.model_validate(found["volume"]), Account.model_validate(found["account"])
    except (ValueError, LookupError, TypeError, ValidationError, RecursionError):
        return None
