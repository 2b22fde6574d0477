from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from kubestow.api.formats.timestamps import micro_timestamp, timestamp

MOMENT = datetime(2026, 1, 1, 1, 2, 3, 999_999, tzinfo=UTC)


def test_a_time_has_seconds_and_a_micro_time_microseconds() -> None:
    assert timestamp(MOMENT) == "2026-01-01T01:02:03Z"
    assert micro_timestamp(MOMENT) == "2026-01-01T01:02:03.999999Z"


def test_years_have_four_digits() -> None:
    assert timestamp(MOMENT.replace(year=1)) == "0001-01-01T01:02:03Z"


def test_timestamps_are_in_utc() -> None:
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=-5)))
    assert (timestamp(elsewhere), micro_timestamp(elsewhere)) == (timestamp(MOMENT), micro_timestamp(MOMENT))
