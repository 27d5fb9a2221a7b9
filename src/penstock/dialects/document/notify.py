"""Read `plugins`: who is notified when the workload enters which state."""

from __future__ import annotations

from collections.abc import Callable

from penstock.dialects.reader import FieldRules, PlacedContext, ReadContext, Reader, read_fields, sequence
from penstock.dialects.task.notify import HOW_IT_ENDED, NOTICES_LIMIT, each_once, states_of, telegram, webhook
from penstock.dialects.yaml import Items, Node
from penstock.domain.workloads import Notice

Told = list[tuple[Node, str, Notice]]
Address = Callable[[ReadContext, Node, str, str], str | None]


def plugins(context: PlacedContext, node: Node, path: str) -> tuple[Notice, ...]:
    context.says(node, path, "notify")
    said = read_fields(context, node, path, PLUGINS)
    return each_once(context, [told for name in PLUGINS.readers if name in said for told in said[name]])


def _plugin(key: str, example: str, address: Address) -> Reader:
    """One, or a list of several."""

    def to(context: PlacedContext, node: Node, path: str) -> str | None:
        text = context.text(node, path)
        return None if text is None else address(context, node, path, text)

    shape = FieldRules({key: to, "sendOn": states_of})

    def read(context: PlacedContext, node: Node, path: str) -> Told:
        items = sequence(context, node, path) if isinstance(node, Items) else [(node, path)]
        if context.too_many(items, NOTICES_LIMIT, node, path):
            return []
        found: Told = []
        for item, here in items:
            said = read_fields(context, item, here, shape)
            context.require(item, here, key, f"for example '{key}: {example}'")
            on = said.get("sendOn", HOW_IT_ENDED)
            if key in said and on:
                context.says(item, here, "notify", said[key])
                found.append((item, here, Notice(to=said[key], on=on)))
        return found

    return read


PLUGINS = FieldRules(
    {
        "telegram": _plugin("id", "12345", telegram),
        "webhook": _plugin("url", "https://example.com/hook", webhook),
    }
)
