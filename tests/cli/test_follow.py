"""A log that is read from its start once more."""

from __future__ import annotations

import pytest

from penstock.cli.ui.follow import ShownBytes, ShownLines


def shown(shows: ShownBytes | ShownLines, *streams: list[bytes]) -> bytes:
    """What reaches the terminal of streams of which all but the last broke off."""
    written = b""
    for stream in streams:
        shows.again()
        written += b"".join(shows.fresh(piece) for piece in stream)
    return written + shows.rest()


def test_the_bytes_of_one_node_go_on_where_they_broke_off():
    assert shown(ShownBytes(), [b"on", b"e\ntw"], [b"o"], [b"one\n", b"two\nthree"]) == b"one\ntwo\nthree"


def test_the_lines_of_several_nodes_go_on_though_they_come_in_another_order():
    first = [b"node-0 | a\nnode-1 | x\nno", b"de-1 | y\nnode-0 | "]
    second = [b"node-1 | x\nnode-1 | y\nnode-1 | z\n", b"node-0 | a\nnode-0 | b\n"]
    assert shown(ShownLines(), first, second) == b"node-0 | a\nnode-1 | x\nnode-1 | y\nnode-1 | z\nnode-0 | b\n"


@pytest.mark.parametrize("shows", [ShownBytes(), ShownLines()])
def test_a_last_line_without_an_end_is_shown_too(shows):
    assert shown(shows, [b"node-0 | a\nnode-0 | b"]) == b"node-0 | a\nnode-0 | b"
