"""Read `plugins`: who is notified when the workload enters which state."""

from __future__ import annotations

from collections.abc import Callable

from penstock.dialects.reader import PlacedReading, Reader, Reading, Shape, lacks, read_fields, sequence
from penstock.dialects.task.notify import HOW_IT_ENDED, NOTICES_LIMIT, each_once, states_of, telegram, webhook
from penstock.dialects.yaml import Items, Node
from penstock.domain.workloads import Notice

Told = list[tuple[Node, str, Notice]]
Address = Callable[[Reading, Node, str, str], str | None]


def plugins(reading: PlacedReading, node: Node, path: str) -> tuple[Notice, ...]:
    reading.says(node, path, "notify")
    said = read_fields(reading, node, path, PLUGINS)
    return each_once(reading, [told for name in PLUGINS.readers if name in said for told in said[name]])


def _plugin(key: str, example: str, address: Address) -> Reader:
    """One, or a list of several."""

    def to(reading: PlacedReading, node: Node, path: str) -> str | None:
        text = reading.text(node, path)
        return None if text is None else address(reading, node, path, text)

    shape = Shape({key: to, "sendOn": states_of})

    def read(reading: PlacedReading, node: Node, path: str) -> Told:
        items = sequence(reading, node, path) if isinstance(node, Items) else [(node, path)]
        if len(items) > NOTICES_LIMIT:
            reading.problem(f"has {len(items):,} entries; {NOTICES_LIMIT} at most", node, path)
            return []
        found: Told = []
        for item, here in items:
            said = read_fields(reading, item, here, shape)
            if lacks(item, key):
                reading.problem("is missing", item, f"{here}.{key}", f"for example '{key}: {example}'")
            on = said.get("sendOn", HOW_IT_ENDED)
            if key in said and on:
                reading.says(item, here, "notify", said[key])
                found.append((item, here, Notice(to=said[key], on=on)))
        return found

    return read


PLUGINS = Shape(
    {
        "telegram": _plugin("id", "12345", telegram),
        "webhook": _plugin("url", "https://example.com/hook", webhook),
    }
)
