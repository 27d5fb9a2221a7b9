"""Making a volume asks the engine each thing once."""

from __future__ import annotations

from collections import Counter

from penstock.wire.requests import NewVolume
from tests.services.scheduling import ANN, Kept, running


async def test_making_a_volume_asks_the_engine_each_thing_once(place, monkeypatch):
    async with running(place, Kept()) as parts:
        asked: Counter[str] = Counter()

        def counted(name):
            original = getattr(parts.engine, name)

            async def ask(*args):
                asked[name] += 1
                return await original(*args)

            return ask

        for name in ("storage_classes", "create_volume", "volume_reports", "volume_users", "nodes"):
            monkeypatch.setattr(parts.engine, name, counted(name))
        made = await parts.volumes.create(ANN, NewVolume(name="data", size="1Gi"))
        assert made.status == "Bound"
        assert asked == {"storage_classes": 1, "create_volume": 1, "volume_reports": 1}
