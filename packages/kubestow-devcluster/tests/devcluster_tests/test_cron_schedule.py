"""Schedules are parsed as in Kubernetes and follow the local time of their zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow_devcluster.apiserver.kinds import cron_schedule

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 3, 1, 10, 17, 30, tzinfo=UTC)


def times(schedule: str, count: int, after: datetime = START, zone: ZoneInfo | None = None) -> list[str]:
    """The next occurrences, in the local time of the zone."""
    occurrences, parsed = [], cron_schedule.parse(schedule)
    for _ in range(count):
        following = parsed.next(after, zone or UTC)
        assert following is not None
        after = following
        occurrences.append(f"{after.astimezone(zone or UTC):%m-%d %H:%M}")
    return occurrences


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("* * * * *", ["03-01 10:18", "03-01 10:19"]),
        ("*/15 * * * *", ["03-01 10:30", "03-01 10:45"]),
        ("5/20 11 * * *", ["03-01 11:05", "03-01 11:25", "03-01 11:45", "03-02 11:05"]),
        ("0 9-11/2 * * mon-wed", ["03-02 09:00", "03-02 11:00", "03-03 09:00"]),
        ("0 0 13 * FRI", ["03-06 00:00", "03-13 00:00", "03-20 00:00"]),
        ("0 0 */10 * fri", ["03-06 00:00", "03-11 00:00"]),
        ("0 0 ? feb,apr ?", ["04-01 00:00", "04-02 00:00"]),
        ("@hourly", ["03-01 11:00", "03-01 12:00"]),
        ("@weekly", ["03-08 00:00", "03-15 00:00"]),
        ("@every 90m", ["03-01 11:47", "03-01 13:17"]),
        ("0 0 29 2 *", ["02-29 00:00"]),
    ],
)
def test_the_next_occurrences_of_a_schedule(schedule: str, expected: list[str]) -> None:
    assert times(schedule, len(expected)) == expected


def test_a_local_time_skipped_by_daylight_saving_time_does_not_occur() -> None:
    before = datetime(2026, 3, 28, tzinfo=UTC)
    assert times("30 2 * * *", 3, before, BERLIN) == ["03-28 02:30", "03-30 02:30", "03-31 02:30"]


def test_a_local_time_repeated_at_the_end_of_daylight_saving_time_occurs_twice() -> None:
    before = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert times("30 2 * * *", 3, before, BERLIN) == ["10-25 02:30", "10-25 02:30", "10-26 02:30"]


def test_midnight_does_not_occur_on_a_day_that_starts_at_one() -> None:
    before = datetime(2018, 11, 3, 12, tzinfo=UTC)
    assert times("0 0 * * *", 2, before, ZoneInfo("America/Sao_Paulo")) == ["11-05 00:00", "11-06 00:00"]


def test_a_schedule_for_a_day_that_does_not_exist_has_no_occurrence() -> None:
    assert cron_schedule.parse("0 0 31 2 *").next(START, UTC) is None


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        (
            f"{'9' * 19} * * * *",
            f'failed to parse int from {"9" * 19}: strconv.Atoi: parsing "{"9" * 19}": value out of range',
        ),
        ("@every 9999999h", 'failed to parse duration @every 9999999h: time: invalid duration "9999999h"'),
        ("@never", "unrecognized descriptor: @never"),
        ("@every 1d", 'failed to parse duration @every 1d: time: unknown unit "d" in duration "1d"'),
        ("@every day", 'failed to parse duration @every day: time: invalid duration "day"'),
    ],
)
def test_an_invalid_schedule_is_rejected_with_the_message_of_kubernetes(schedule: str, problem: str) -> None:
    with pytest.raises(cron_schedule.InvalidSchedule) as refused:
        cron_schedule.parse(schedule)
    assert str(refused.value) == problem


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.tuples(st.one_of(st.just("*"), span), st.integers(1, 9)).map(lambda parts: f"{parts[0]}/{parts[1]}")
    part = st.one_of(number.map(str), span, steps)
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


@settings(max_examples=60)
@given(
    minute=fields(0, 59),
    hour=fields(0, 23),
    weekday=fields(0, 6),
    seconds=st.integers(0, 4 * 86400),
)
def test_the_next_occurrence_is_the_first_minute_that_matches(
    minute: str, hour: str, weekday: str, seconds: int
) -> None:
    schedule = cron_schedule.parse(f"{minute} {hour} * * {weekday}")
    assert isinstance(schedule, cron_schedule.SpecSchedule)
    after = datetime(2026, 3, 27, tzinfo=UTC) + timedelta(seconds=seconds)
    candidate = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while candidate < after + timedelta(days=8):
        local = candidate.astimezone(BERLIN)
        weekday_number = (local.weekday() + 1) % 7
        matches = local.minute in schedule.minutes.values and local.hour in schedule.hours.values
        if matches and weekday_number in schedule.weekdays.values:
            break
        candidate += timedelta(minutes=1)
    assert schedule.next(after, BERLIN) == candidate
    assert schedule.latest(after, candidate, BERLIN) == candidate


@pytest.mark.parametrize("schedule", ["* * * * *", "7 3 * * *", "0 0 1 1 *", "@every 7m"])
def test_the_latest_occurrence_is_the_last_one_before_now(schedule: str) -> None:
    parsed, now = cron_schedule.parse(schedule), START + timedelta(days=3)
    last, following = None, parsed.next(START, UTC)
    while following is not None and following <= now:
        last, following = following, parsed.next(following, UTC)
    assert parsed.latest(START, now, UTC) == last
