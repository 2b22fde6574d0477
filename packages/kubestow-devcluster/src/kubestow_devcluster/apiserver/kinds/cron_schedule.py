"""The schedules of CronJobs: five fields, or a descriptor such as ``@hourly`` or ``@every 1h30m``.

The dialect and its error messages are those of robfig/cron, the library that Kubernetes uses. The fields are minute,
hour, day of month, month and day of week, made of numbers, names, ranges, lists and steps. If one of the two day fields
is ``*``, a day must match both; if neither is, it must match either. A local time that a change to daylight saving time
skips does not occur; one that the change back repeats occurs twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from kubestow.api.formats.duration import Duration
from kubestow.errors import KubestowError

_MINUTE = timedelta(minutes=1)
#: A schedule with no occurrence in this many years has none.
_SEARCH_YEARS = 5
#: The most digits that a number in a field may have.
_MAX_DIGITS = 18
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class InvalidSchedule(KubestowError):
    """The text is not a cron schedule; the message is kube-apiserver's."""


@dataclass(frozen=True, slots=True)
class _Field:
    """The matching values of one field; ``is_star`` for ``*`` or ``?`` without a step."""

    values: frozenset[int]
    is_star: bool


@dataclass(frozen=True, slots=True)
class SpecSchedule:
    """A schedule of five fields, evaluated in the local time of a time zone."""

    minutes: _Field
    hours: _Field
    days: _Field
    months: _Field
    weekdays: _Field

    def next(self, after: datetime, zone: tzinfo) -> datetime | None:
        """The first occurrence after ``after``, in UTC; None if there is none within five years."""
        candidate = after.astimezone(UTC).replace(second=0, microsecond=0) + _MINUTE
        local = candidate.astimezone(zone)
        last_year = local.year + _SEARCH_YEARS
        while local.year <= last_year:
            if local.month not in self.months.values:
                candidate = _midnight((local.replace(day=1) + timedelta(days=32)).replace(day=1), zone)
            elif not self._matches_day(local):
                candidate = _midnight(local + timedelta(days=1), zone)
            elif local.hour not in self.hours.values:
                candidate += timedelta(minutes=60 - local.minute)
            elif local.minute not in self.minutes.values:
                candidate += _MINUTE
            else:
                return candidate
            local = candidate.astimezone(zone)
        return None

    def latest(self, after: datetime, now: datetime, zone: tzinfo) -> datetime | None:
        """The last occurrence after ``after`` and not after ``now``, in UTC; None if there is none."""
        # Search a window that ends now, and widen it until it has an occurrence or reaches back to `after`.
        window = timedelta(hours=1)
        while True:
            start = max(after, now - window)
            occurrence = self.next(start, zone)
            if occurrence is not None and occurrence <= now:
                break
            if start == after:
                return None
            window *= 4
        while (following := self.next(occurrence, zone)) is not None and following <= now:
            occurrence = following
        return occurrence

    def _matches_day(self, local: datetime) -> bool:
        matches_date = local.day in self.days.values
        matches_weekday = local.isoweekday() % 7 in self.weekdays.values
        if self.days.is_star or self.weekdays.is_star:
            return matches_date and matches_weekday
        return matches_date or matches_weekday


@dataclass(frozen=True, slots=True)
class ConstantDelaySchedule:
    """``@every``: a fixed delay between occurrences, counted from the ``after`` that is passed in."""

    delay: timedelta

    def next(self, after: datetime, zone: tzinfo) -> datetime:
        """The first occurrence after ``after``, in UTC."""
        return after.astimezone(UTC).replace(microsecond=0) + self.delay

    def latest(self, after: datetime, now: datetime, zone: tzinfo) -> datetime | None:
        """The last occurrence after ``after`` and not after ``now``, in UTC; None if there is none."""
        start = after.astimezone(UTC).replace(microsecond=0)
        elapsed = (now - start) // self.delay
        return start + elapsed * self.delay if elapsed > 0 else None


Schedule = SpecSchedule | ConstantDelaySchedule


def parse(text: str) -> Schedule:
    """Parse the ``spec.schedule`` of a CronJob. Raises InvalidSchedule."""
    if not text:
        raise InvalidSchedule("empty spec string")
    if text.startswith("@every "):
        try:
            delay = Duration.parse(text.removeprefix("@every "))
        except ValueError as error:
            raise InvalidSchedule(f"failed to parse duration {text}: {error}") from None
        return ConstantDelaySchedule(timedelta(seconds=max(1, int(delay.seconds))))
    if text.startswith("@") and text not in _DESCRIPTORS:
        raise InvalidSchedule(f"unrecognized descriptor: {text}")
    fields = _DESCRIPTORS.get(text, text).split()
    if len(fields) != 5:
        raise InvalidSchedule(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    minutes, hours, days, months, weekdays = fields
    return SpecSchedule(
        _parse_field(minutes, 0, 59),
        _parse_field(hours, 0, 23),
        _parse_field(days, 1, 31),
        _parse_field(months, 1, 12, names=_MONTHS),
        _parse_field(weekdays, 0, 6, names=_DAYS),
    )


def _parse_field(text: str, low: int, high: int, *, names: tuple[str, ...] = ()) -> _Field:
    values: set[int] = set()
    is_star = False
    for part in text.split(","):
        if part:
            part_values, part_is_star = _parse_range(part, low, high, names)
            values.update(part_values)
            is_star = is_star or part_is_star
    return _Field(frozenset(values), is_star)


def _parse_range(text: str, low: int, high: int, names: tuple[str, ...]) -> tuple[range, bool]:
    """The values of ``*``, ``5`` or ``1-5``, with or without a step, and whether the range is a star."""
    bounds, *steps = text.split("/")
    first, *others = bounds.split("-")
    is_star = first in ("*", "?")
    if is_star:
        start, end = low, high
    elif len(others) > 1:
        raise InvalidSchedule(f"too many hyphens: {text}")
    else:
        start = _parse_number(first, low, names)
        end = _parse_number(others[0], low, names) if others else start
    if len(steps) > 1:
        raise InvalidSchedule(f"too many slashes: {text}")
    step = _parse_number(steps[0], 0, ()) if steps else 1
    if steps and not others:
        end = high
    _check_bounds(text, (start, end, step), low, high)
    return range(start, end + 1, step), is_star and step == 1


def _check_bounds(text: str, parsed: tuple[int, int, int], low: int, high: int) -> None:
    """Raises InvalidSchedule for a (start, end, step) outside the bounds of the field."""
    start, end, step = parsed
    if start < low:
        raise InvalidSchedule(f"beginning of range ({start}) below minimum ({low}): {text}")
    if end > high:
        raise InvalidSchedule(f"end of range ({end}) above maximum ({high}): {text}")
    if start > end:
        raise InvalidSchedule(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise InvalidSchedule(f"step of range should be a positive number: {text}")


def _parse_number(text: str, low: int, names: tuple[str, ...]) -> int:
    """A number, or one of ``names``, which are numbered from ``low``."""
    if text.lower() in names:
        return low + names.index(text.lower())
    digits = text.removeprefix("+").removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise InvalidSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if len(digits) > _MAX_DIGITS:
        raise InvalidSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": value out of range')
    if int(text) < 0:
        raise InvalidSchedule(f"negative number ({text}) not allowed: {text}")
    return int(text)


def _midnight(day: datetime, zone: tzinfo) -> datetime:
    """The start of a local day, in UTC; where daylight saving time skips midnight, the time of that change."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
