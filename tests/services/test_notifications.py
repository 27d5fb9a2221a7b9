"""Whom the settings do not allow any more is sent nothing, though it was promised while they did."""

from __future__ import annotations

import pytest

from penstock.services.notifications import Notifications
from penstock.settings import Settings
from penstock.store.database import Database
from tests.server.test_notifications import PATIENCE, Listener, listener
from tests.store.making import a_workload

__all__ = ["listener"]


@pytest.mark.parametrize("to", ["{}/hooks", "telegram:4711"])
async def test_who_is_not_allowed_any_more_is_sent_nothing(tmp_path, listener: Listener, to):
    to = to.format(listener.address)
    settings = Settings(webhooks=(f"{listener.address}/others",), webhook_secret="s", telegram_api=listener.address)
    async with await Database.open(f"sqlite:///{tmp_path / 'penstock.db'}") as db:
        await db.write(lambda tx: tx.outbox.add(to, a_workload(), None))
        version = db.version
        notifications = Notifications(db, settings)
        await notifications.open()
        await db.changed(version, PATIENCE)
        await notifications.close()
        notification = await db.read(lambda tx: tx.outbox.first(to))
    assert notification is not None
    assert notification.tries == 1
    assert listener.heard.empty()
