"""However a log's bytes come, and wherever they break off, each line is had once and none is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.kubernetes.logs.stream import NS, LineFilter, LogLine, LogMark, nanoseconds

START = 1_794_790_793 * NS


class Entry(NamedTuple):
    time: int
    text: bytes


def written(time: int) -> bytes:
    second = datetime.fromtimestamp(time // NS, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{second}.{time % NS:09d}Z ".encode()


def answer(log: list[Entry], since: str | None) -> bytes:
    """What a kubelet sends: all whose time is not before the second asked for."""
    first = 0 if since is None else int(datetime.fromisoformat(since).timestamp()) * NS
    return b"".join(written(entry.time) + entry.text for entry in log if entry.time >= first)


def had(mark: LogMark, data: bytes, sizes: list[int]) -> bytes:
    sifter, out = LineFilter(mark), b""
    for size in sizes:
        out += b"".join(line.data for line in sifter.feed(data[:size]))
        data = data[size:]
    return out + b"".join(line.data for line in sifter.feed(data))


TEXT = st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"") + b"\n")
STEPS = st.integers(0, 2 * NS) | st.just(0) | st.integers(1, 2000)
SWAPPED = NS
"""Nothing is written that much later than its time."""


@st.composite
def logs(draw) -> list[Entry]:
    """Times mostly grow; the two outputs may swap places, and two lines may have the very same time."""
    time, log = START, []
    for step, text in draw(st.lists(st.tuples(STEPS, TEXT), max_size=30)):
        time += step
        log.append(Entry(time, text))
    for place in draw(st.sets(st.integers(0, len(log) // 2))):
        pair = log[2 * place : 2 * place + 2]
        if pair and pair[-1].time - pair[0].time < SWAPPED:
            log[2 * place : 2 * place + 2] = reversed(pair)
    if log and draw(st.booleans()):
        log[-1] = Entry(log[-1].time, log[-1].text.removesuffix(b"\n") or b"x")
    return log


@given(logs(), st.lists(st.floats(0, 1), max_size=4), st.lists(st.integers(1, 50), max_size=20), st.booleans())
def test_a_log_that_breaks_off_anywhere_and_is_asked_for_again_is_whole(log, breaks, sizes, restart):
    mark, out = LogMark(), b""
    for part in [*breaks, 1.0]:
        whole = answer(log, mark.since)
        out += had(mark, whole[: round(len(whole) * part)], sizes)
        if restart:
            mark = LogMark(mark.times, mark.part)
    assert out == b"".join(entry.text for entry in log)


def test_a_line_is_given_with_its_time_as_far_as_it_has_come():
    sifter = LineFilter(LogMark())
    assert list(sifter.feed(b"2026-11-16T00:59:53.300997884Z a\x00b\xff\r")) == [
        LogLine(START + 300_997_884, b"a\x00b\xff\r")
    ]
    assert list(sifter.feed(b"z\n2026-11-16T00:59:5")) == [LogLine(START + 300_997_884, b"z\n")]
    assert list(sifter.feed(b"4.1Z later\n")) == [LogLine(START + 1_100_000_000, b"later\n")]


def test_the_kubelets_own_words_are_no_line_of_the_log():
    sifter = LineFilter(LogMark())
    assert list(sifter.feed(b"unable to retrieve container logs for containerd://0123456789abcdef")) == []
    assert sifter.said == b"unable to retrieve container logs for containerd://0123456789abcdef"


def test_the_rest_of_a_long_line_that_began_before_what_was_asked_for_is_not_had_twice():
    mark = LogMark([START, START + 1])
    sifter = LineFilter(mark)
    rest = b"x" * 100 + b"\n"
    data = rest + answer([Entry(START, b"a\n"), Entry(START + 1, b"b\n"), Entry(START + 2, b"c\n")], None)
    assert [line.data for line in sifter.feed(data)] == [b"c\n"]
    assert sifter.said == b""


def test_a_rotated_file_that_begins_anew_is_read_from_its_beginning():
    mark = LogMark()
    had(mark, answer([Entry(START + n, b"%d\n" % n) for n in range(200)], None), [])
    assert had(mark, answer([Entry(START + 500, b"after\n")], mark.since), []) == b"after\n"


@pytest.mark.parametrize(
    ("second", "fraction", "zone", "expected"),
    [
        (b"2026-11-16T00:59:53", b"300997884", b"Z", START + 300_997_884),
        (b"2026-11-16T00:59:53", b"3", b"Z", START + 300_000_000),
        (b"2026-11-16T00:59:53", None, b"Z", START),
        (b"2026-11-16T01:59:53", None, b"+01:00", START),
    ],
)
def test_the_time_of_a_line_is_exact_in_every_zone(second, fraction, zone, expected):
    assert nanoseconds(second, fraction, zone) == expected
