"""Amounts: exact, as Kubernetes writes them, and refused in words a person can use."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.quantities import (
    BINARY,
    DECIMAL,
    LARGEST,
    NotAQuantity,
    parse_bytes,
    parse_cpus,
    parse_duration,
    show_bytes,
    show_cpus,
    show_duration,
)

UNITS = BINARY | {unit: factor for unit, factor in DECIMAL.items() if unit}


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1Ti", 1024**4),
        ("500Mi", 500 * 1024**2),
        ("1.5Gi", 3 * 512 * 1024**2),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", 2),
        ("1k", 1000),
        ("+2Gi", 2 * 1024**3),
        (".5Ki", 512),
        ("5.Ki", 5120),
        ("10737418240", 10737418240),
        ("1.0000000000000000000000000001Gi", 1024**3 + 1),
    ],
)
def test_a_size_is_read_exactly(text, amount):
    assert parse_bytes(text) == amount


@given(st.integers(1, 10**12), st.integers(0, 10**9), st.sampled_from(sorted(UNITS)))
def test_a_size_with_a_fraction_rounds_up_to_a_byte_and_nothing_else(whole, part, unit):
    exact = ceil(Fraction(f"{whole}.{part:09d}") * UNITS[unit])
    text = f"{whole}.{part:09d}{unit}"
    if exact > LARGEST:
        with pytest.raises(NotAQuantity, match="larger"):
            parse_bytes(text)
    else:
        assert parse_bytes(text) == exact


@given(st.text() | st.from_regex(r"[-+.0-9eEKMGTPikm]{1,40}", fullmatch=True))
def test_any_text_is_a_size_or_refused_shortly(text):
    for parse in (parse_bytes, parse_cpus, parse_duration):
        try:
            assert 0 < parse(text) <= LARGEST
        except NotAQuantity as error:
            said = str(error)
        else:
            said = ""
        assert len(said) < 200


@pytest.mark.parametrize("text", ["0", "0Gi", "-0", "0e9", "0.0Ti"])
def test_zero_is_not_a_size(text):
    with pytest.raises(NotAQuantity, match="more than zero"):
        parse_bytes(text)


def test_a_negative_size_is_refused():
    with pytest.raises(NotAQuantity, match="'-1Gi' is negative"):
        parse_bytes("-1Gi")


@pytest.mark.parametrize(
    "text", ["1e999", "8Ei", "7.9999999999999999999999Ei", "9223372036854775808", "9223372036854775807.0001"]
)
def test_a_size_that_overflows_is_refused(text):
    with pytest.raises(NotAQuantity, match="larger than any disk"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10GB", "10Gi"),
        ("10 gi", "10Gi"),
        ("10g", "10Gi"),
        ("500m", "500Mi"),
        ("1.5tb", "1.5Ti"),
        ("10", "10Gi or 10Mi"),
    ],
)
def test_a_size_written_another_way_gets_the_right_one_suggested(text, hint):
    with pytest.raises(NotAQuantity) as caught:
        parse_bytes(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    "text", ["", "Gi", "junk", "1Gi ", "1 Gi", "1Gi\n", "0x10", "1_000Mi", "٣Gi", "1Zi", "nan", "inf"]
)
def test_junk_is_not_a_size(text):
    with pytest.raises(NotAQuantity, match="is not a size"):
        parse_bytes(text)


def test_a_bare_number_is_a_size_only_where_it_can_be_meant():
    assert parse_bytes("1048576") == 1024**2
    for text, bare in (("1048575", True), ("1048576", False)):
        with pytest.raises(NotAQuantity, match="has no unit"):
            parse_bytes(text, bare=bare)


@pytest.mark.parametrize(
    ("text", "milli"),
    [("4", 4000), ("0.5", 500), ("500m", 500), ("4+", 4000), ("1.25", 1250), ("0.001", 1), ("08", 8000)],
)
def test_cpus_are_read_in_thousandths(text, milli):
    assert parse_cpus(text) == milli


@pytest.mark.parametrize("text", ["0", "0m", "0.000", "-1", "1.5m", "0.0001", "four", "true", "", "1e3", "٣", "4 "])
def test_what_is_not_a_number_of_cpus_is_refused_with_an_example(text):
    with pytest.raises(NotAQuantity) as caught:
        parse_cpus(text)
    assert "for example" in caught.value.hint


@given(st.integers(1, 999_999_999))
def test_cpus_read_back_as_they_are_shown(milli):
    assert parse_cpus(show_cpus(milli)) == milli


@pytest.mark.parametrize(
    ("text", "seconds"), [("12h", 43200), ("30m", 1800), ("1h30m", 5400), ("2d", 172800), ("90s", 90), ("1d1s", 86401)]
)
def test_durations_are_read_in_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("3600", "3600s, 3600m or 3600h"),
        ("1:30", "for example 12h, 30m or 1h30m"),
        ("", "for example 12h, 30m or 1h30m"),
        ("1m1h", "for example 12h, 30m or 1h30m"),
        ("1.5h", "for example 12h, 30m or 1h30m"),
        ("0s", "for example 30m"),
        ("0", "for example 30m"),
        ("²", "for example 12h, 30m or 1h30m"),
    ],
)
def test_what_is_not_a_duration_is_refused_with_the_right_form(text, hint):
    with pytest.raises(NotAQuantity) as caught:
        parse_duration(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("amount", "shown"), [(0, "0B"), (1023, "1023B"), (1536, "1.5Ki"), (10 * 1024**3, "10Gi"), (1024**5, "1Pi")]
)
def test_bytes_are_shown_short(amount, shown):
    assert show_bytes(amount) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (45, "45s"), (5400, "1h30m"), (90061, "1d1h"), (3601, "1h1s")]
)
def test_durations_are_shown_in_two_parts_at_most(seconds, shown):
    assert show_duration(seconds) == shown
