"""A log that is read, and not followed, from somebody who is lost while it is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from penstock.errors import Unavailable
from penstock.services.workloads.logs import begun

LOST = Unavailable("Docker on lab-2 cannot be reached.")


async def broken_after(*pieces: bytes) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece
    raise LOST


async def test_a_log_that_breaks_off_says_so():
    read = b"".join([piece async for piece in await begun(broken_after(b"one\n", b"two\n"))])
    assert read == b"one\ntwo\n\n[penstock] the log breaks off here: Docker on lab-2 cannot be reached.\n"


async def test_one_that_cannot_be_had_at_all_is_an_error():
    with pytest.raises(Unavailable):
        await begun(broken_after())
