"""What stands beside an object so that a server whose store was lost can have it again."""

from __future__ import annotations

import json

from pydantic import ValidationError

from penstock.domain.users import Account
from penstock.domain.volumes import Volume


def volume_record(volume: Volume, account: Account) -> str:
    recorded = volume.model_dump(mode="json", exclude={"made"})
    return json.dumps({"volume": recorded, "account": account.model_dump(mode="json")})


def read_volume(record: str) -> tuple[Volume, Account] | None:
    """None where someone has changed it, or a later version of Penstock wrote it."""
    try:
        found = json.loads(record)
        return Volume.model_validate(found["volume"]), Account.model_validate(found["account"])
    except (ValueError, LookupError, TypeError, ValidationError, RecursionError):
        return None
