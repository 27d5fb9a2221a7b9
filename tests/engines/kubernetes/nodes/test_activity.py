"""What rates are made of: two measurements of a kubelet, not too far from each other."""

from __future__ import annotations

from penstock.engines.kubernetes.nodes.activity import _LastSamples
from penstock.engines.kubernetes.nodes.kubelet import TrafficSample
from penstock.engines.shared.counters import Traffic


def known(*samples: tuple[float, int]) -> _LastSamples:
    """Of disks that had read so many bytes at these times."""
    found = _LastSamples()
    for at, read in samples:
        found = found.then(f"{at:.0f}", TrafficSample(at, Traffic(disk_read=read)))
    return found


def read_per_second(*samples: tuple[float, int]) -> int | None:
    rates = known(*samples).rates()
    return rates["disk_read_per_second"] if rates else None


def test_a_rate_is_that_between_the_last_two() -> None:
    assert known((100, 7)).rates() is None
    assert read_per_second((100, 7), (110, 1007)) == 100
    assert read_per_second((100, 7), (110, 1007), (120, 1007)) == 0


def test_one_that_is_told_twice_is_one() -> None:
    assert read_per_second((100, 7), (100, 7)) is None
    assert read_per_second((100, 7), (110, 1007), (110, 1007)) == 100


def test_what_was_long_ago_is_not_now() -> None:
    assert read_per_second((100, 7), (110, 1007), (300, 9000)) is None
    assert read_per_second((100, 7), (110, 1007), (300, 9000), (310, 9010)) == 1


def test_a_clock_that_was_set_back_begins_anew() -> None:
    assert read_per_second((100, 7), (50, 9000)) is None
    assert read_per_second((100, 7), (50, 9000), (60, 9010)) == 1


def test_what_was_not_counted_is_not_nothing() -> None:
    rates = known((100, 7), (110, 7)).rates()
    assert rates
    assert rates["received_per_second"] is None
