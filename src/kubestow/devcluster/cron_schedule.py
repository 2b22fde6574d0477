"""Cron schedules, as cron jobs have them: five fields or a descriptor such as ``@hourly`` or ``@every 1h30m``.

Fields are minute, hour, day of month, month, day of week: numbers, names, ranges, lists and steps, in the dialect of
the library that Kubernetes uses. A day has to match both day fields when one of them is ``*``, and either when both are
given. A time that the clocks skip does not occur; one that they repeat occurs twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from kubestow.api.duration import Duration
from kubestow.errors import KubestowError

__all__ = ["Cron", "Every", "InvalidSchedule", "Schedule", "parse"]

_MINUTE = timedelta(minutes=1)
#: A schedule that does not occur within so many years never does.
_YEARS = 5
#: The longest number that a field may hold.
_DIGITS = 18
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
    """A text is no cron schedule; the error says why in the words of kube-apiserver."""


@dataclass(frozen=True, slots=True)
class _Field:
    """The values of one field; ``is_star`` when it was left open."""

    values: frozenset[int]
    is_star: bool


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule by the clock of a time zone."""

    minutes: _Field
    hours: _Field
    days: _Field
    months: _Field
    weekdays: _Field

    def next(self, after: datetime, zone: tzinfo) -> datetime | None:
        """The first time after ``after``, in UTC; None when there is none in the next years."""
        moment = after.astimezone(UTC).replace(second=0, microsecond=0) + _MINUTE
        local = moment.astimezone(zone)
        last = local.year + _YEARS
        while local.year <= last:
            if local.month not in self.months.values:
                moment = _midnight((local.replace(day=1) + timedelta(days=32)).replace(day=1), zone)
            elif not self._matches_day(local):
                moment = _midnight(local + timedelta(days=1), zone)
            elif local.hour not in self.hours.values:
                moment += timedelta(minutes=60 - local.minute)
            elif local.minute not in self.minutes.values:
                moment += _MINUTE
            else:
                return moment
            local = moment.astimezone(zone)
        return None

    def latest(self, after: datetime, now: datetime, zone: tzinfo) -> datetime | None:
        """The last time after ``after`` that is not after ``now``; None when there is none."""
        # From a little before now on, and further back until there is one, or everything has been looked at.
        span = timedelta(hours=1)
        while True:
            start = max(after, now - span)
            found = self.next(start, zone)
            if found is not None and found <= now:
                break
            if start == after:
                return None
            span *= 4
        while (following := self.next(found, zone)) is not None and following <= now:
            found = following
        return found

    def _matches_day(self, local: datetime) -> bool:
        by_date = local.day in self.days.values
        by_weekday = local.isoweekday() % 7 in self.weekdays.values
        if self.days.is_star or self.weekdays.is_star:
            return by_date and by_weekday
        return by_date or by_weekday


@dataclass(frozen=True, slots=True)
class Every:
    """A schedule by the time passed since the last one."""

    delay: timedelta

    def next(self, after: datetime, zone: tzinfo) -> datetime:
        """The first time after ``after``, in UTC."""
        return after.astimezone(UTC).replace(microsecond=0) + self.delay

    def latest(self, after: datetime, now: datetime, zone: tzinfo) -> datetime | None:
        """The last time after ``after`` that is not after ``now``; None when there is none."""
        start = after.astimezone(UTC).replace(microsecond=0)
        passed = (now - start) // self.delay
        return start + passed * self.delay if passed > 0 else None


Schedule = Cron | Every


def parse(text: str) -> Schedule:
    """Raises InvalidSchedule."""
    if not text:
        raise InvalidSchedule("empty spec string")
    if text.startswith("@every "):
        return _every(text)
    if text.startswith("@") and text not in _DESCRIPTORS:
        raise InvalidSchedule(f"unrecognized descriptor: {text}")
    fields = _DESCRIPTORS.get(text, text).split()
    if len(fields) != 5:
        raise InvalidSchedule(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    minutes, hours, days, months, weekdays = fields
    return Cron(
        _field(minutes, 0, 59),
        _field(hours, 0, 23),
        _field(days, 1, 31),
        _field(months, 1, 12, names=_MONTHS),
        _field(weekdays, 0, 6, names=_DAYS),
    )


def _every(text: str) -> Every:
    try:
        delay = Duration.parse(text.removeprefix("@every "))
    except ValueError as error:
        raise InvalidSchedule(f"failed to parse duration {text}: {error}") from None
    return Every(timedelta(seconds=max(1, int(delay.seconds))))


def _field(text: str, low: int, high: int, *, names: tuple[str, ...] = ()) -> _Field:
    values: set[int] = set()
    is_star = False
    for part in text.split(","):
        if part:
            of_part, star = _part(part, low, high, names)
            values.update(of_part)
            is_star = is_star or star
    return _Field(frozenset(values), is_star)


def _part(text: str, low: int, high: int, names: tuple[str, ...]) -> tuple[range, bool]:
    """The values of ``*``, ``5``, ``1-5`` or any of them with a step, and whether they are left open."""
    span, *steps = text.split("/")
    first, *others = span.split("-")
    is_star = first in ("*", "?")
    if is_star:
        start, end = low, high
    elif len(others) > 1:
        raise InvalidSchedule(f"too many hyphens: {text}")
    else:
        start = _number(first, low, names)
        end = _number(others[0], low, names) if others else start
    if len(steps) > 1:
        raise InvalidSchedule(f"too many slashes: {text}")
    step = _number(steps[0], 0, ()) if steps else 1
    if steps and not others:
        end = high
    _check_bounds(text, (start, end, step), low, high)
    return range(start, end + 1, step), is_star and step == 1


def _check_bounds(text: str, given: tuple[int, int, int], low: int, high: int) -> None:
    start, end, step = given
    if start < low:
        raise InvalidSchedule(f"beginning of range ({start}) below minimum ({low}): {text}")
    if end > high:
        raise InvalidSchedule(f"end of range ({end}) above maximum ({high}): {text}")
    if start > end:
        raise InvalidSchedule(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise InvalidSchedule(f"step of range should be a positive number: {text}")


def _number(text: str, low: int, names: tuple[str, ...]) -> int:
    """A number, or a name that stands for one; names are numbered from ``low``."""
    if text.lower() in names:
        return low + names.index(text.lower())
    digits = text.removeprefix("+").removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise InvalidSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if len(digits) > _DIGITS:
        raise InvalidSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": value out of range')
    if int(text) < 0:
        raise InvalidSchedule(f"negative number ({text}) not allowed: {text}")
    return int(text)


def _midnight(day: datetime, zone: tzinfo) -> datetime:
    """When a day begins in a zone, in UTC. Where the clocks skip midnight, when they do."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
