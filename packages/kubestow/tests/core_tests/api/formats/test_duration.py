from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.formats.duration import Duration


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("15s", 15 * 10**9),
        ("1h30m", 5400 * 10**9),
        ("-1.5s", -(15 * 10**8)),
        ("+.5m", 30 * 10**9),
        ("1us2µs3μs", 6_000),
        ("2.s", 2 * 10**9),
        ("0.0000000019s", 1),
        (f"{'0' * 5000}1.5{'0' * 5000}s", 15 * 10**8),
    ],
)
def test_go_notation_is_parsed(text: str, nanoseconds: int) -> None:
    assert Duration.parse(text).nanoseconds == nanoseconds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("s", 'time: invalid duration "s"'),
        (".s", 'time: invalid duration ".s"'),
        ("15", 'time: missing unit in duration "15"'),
        ("1h5", 'time: missing unit in duration "1h5"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1 s", 'time: unknown unit " s" in duration "1 s"'),
        ("9223372037s", 'time: invalid duration "9223372037s"'),
        (f"{'9' * 5000}s", f'time: invalid duration "{"9" * 5000}s"'),
    ],
)
def test_invalid_durations_have_gos_error_message(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="time: ") as raised:
        Duration.parse(text)
    assert str(raised.value) == problem


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (20_000_000, "20ms"),
        (-(10**9), "-1s"),
        (90 * 10**9, "1m30s"),
        (3600 * 10**9, "1h0m0s"),
        (3_600_500_000_000, "1h0m0.5s"),
    ],
)
def test_a_duration_is_printed_as_in_go(nanoseconds: int, text: str) -> None:
    assert str(Duration(nanoseconds)) == text


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_printed_durations_parse_to_themselves(nanoseconds: int) -> None:
    assert Duration.parse(str(Duration(nanoseconds))) == Duration(nanoseconds)


def test_durations_compare_by_length() -> None:
    assert Duration.of(seconds=0.5) < Duration.parse("501ms") < Duration.parse("1s")
    assert Duration.of(seconds=2.5).seconds == 2.5
