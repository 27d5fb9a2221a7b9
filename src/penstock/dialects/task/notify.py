"""Read `notify`: who is notified when a task enters which state.

`telegram:12345` and `https://example.com/hook` are told how it ended; a mapping names the states for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from penstock.dialects.reader import ReadContext, each_once, matching, member, one_or_more
from penstock.dialects.yaml import Node, Pairs, Scalar, is_null
from penstock.domain.names import shorten
from penstock.domain.states import State
from penstock.domain.workloads import Notice

NOTICES_LIMIT = 20
ADDRESS_LIMIT = 2048
TELEGRAM = "telegram:"
CHAT = re.compile(r"-?[0-9]{1,20}\Z|@[A-Za-z0-9_]{1,64}\Z", re.ASCII)
HOW_IT_ENDED = (State.EXITED, State.CRASHED, State.STOPPED, State.STUCK)
EXAMPLE = "for example telegram:12345, or https://example.com/hook"


def notify(context: ReadContext, node: Node, path: str) -> tuple[Notice, ...]:
    if type(node) is Pairs:
        said: list[tuple[Node, str, Node | None]] = [
            (key, f"{path}.{shorten(key.text)}", states) for key, states in node.items
        ]
    else:
        said = [(item, here, None) for item, here in one_or_more(node, path)]
    if context.too_many(said, NOTICES_LIMIT, node, path):
        return ()
    found: list[tuple[Node, str, Notice]] = []
    for address, here, states in said:
        to = _address(context, address, here)
        on = HOW_IT_ENDED if states is None else states_of(context, states, here)
        if to and on:
            found.append((address, here, Notice(to=to, on=on)))
    return notices_of(context, found)


def notices_of(context: ReadContext, notices: Iterable[tuple[Node, str, Notice]]) -> tuple[Notice, ...]:
    """Return the notices, Telegram first, so that equal requests are equal in whatever order they were written."""
    found: dict[str, Notice] = {}
    for node, path, notice in notices:
        if notice.to in found:
            context.problem(f"'{shorten(notice.to)}' appears twice", node, path, "name all the states at once")
        found[notice.to] = notice
    return tuple(sorted(found.values(), key=lambda notice: not notice.to.startswith(TELEGRAM)))


def states_of(context: ReadContext, node: Node, path: str) -> tuple[State, ...]:
    """Read a state or a list of states; the default is how the task ended."""
    if is_null(node):
        return HOW_IT_ENDED
    items = one_or_more(node, path)
    if not items:
        context.problem("names no state", node, path, f"for example [{', '.join(HOW_IT_ENDED)}]")
    return each_once(context, items, _state)


_state = member(State, "a state")


def _is_address(text: str) -> bool:
    if len(text) > ADDRESS_LIMIT or not text.isprintable() or not text.isascii() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _address(context: ReadContext, node: Node, path: str) -> str | None:
    text = context.text(node, path, EXAMPLE)
    if text is None or not text.startswith(TELEGRAM):
        return text and webhook(context, node, path)
    return telegram(context, Scalar(text.removeprefix(TELEGRAM), quoted=True, mark=node.mark), path)


def telegram(context: ReadContext, node: Node, path: str) -> str | None:
    chat = _chat(context, node, path)
    return chat and TELEGRAM + chat


_chat = matching(
    CHAT.match, "is not a chat of Telegram", "a number, such as 12345, or the name of a channel, such as @lab"
)
webhook = matching(_is_address, "is not an address one can be told at", EXAMPLE)
