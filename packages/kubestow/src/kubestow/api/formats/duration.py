"""Durations in Go's notation: "15s", "1h30m", "1.5s".

A :class:`Duration` is a whole number of nanoseconds. It parses and prints like Go's ``time.Duration``, with Go's error
messages.
"""

from __future__ import annotations

import re

import msgspec

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_MAX = 2**63 - 1
#: More integer digits overflow, more fraction digits are below a nanosecond.
_MAX_DIGITS = 20
_PART = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^0-9.]*)")


class Duration(msgspec.Struct, frozen=True, order=True):
    """A duration in whole nanoseconds."""

    nanoseconds: int = 0

    @classmethod
    def of(cls, *, seconds: float) -> Duration:
        """A duration of ``seconds``, rounded to nanoseconds."""
        return cls(round(seconds * _NANOSECONDS["s"]))

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Parse "1h30m", "-1.5s" or "0". Raises ValueError with Go's message."""
        unsigned = text[1:] if text[:1] in ("+", "-") else text
        if unsigned == "0":
            return cls()
        if not unsigned:
            raise ValueError(f'time: invalid duration "{text}"')
        nanoseconds = sum(_part_nanoseconds(part, text) for part in _parts(unsigned, text))
        if nanoseconds > _MAX:
            raise ValueError(f'time: invalid duration "{text}"')
        return cls(-nanoseconds if text.startswith("-") else nanoseconds)

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.nanoseconds / _NANOSECONDS["s"]

    def __str__(self) -> str:
        """The duration in Go's notation: "1h0m0s", "1.5s", "300ms"."""
        sign, rest = ("-" if self.nanoseconds < 0 else ""), abs(self.nanoseconds)
        if rest == 0:
            return "0s"
        if rest < _NANOSECONDS["s"]:
            unit = next(unit for unit in ("ms", "µs", "ns") if rest >= _NANOSECONDS[unit])
            return f"{sign}{_decimal(rest, _NANOSECONDS[unit])}{unit}"
        minutes, below_a_minute = divmod(rest, _NANOSECONDS["m"])
        hours, minutes = divmod(minutes, 60)
        leading = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
        return f"{sign}{leading}{_decimal(below_a_minute, _NANOSECONDS['s'])}s"


def _parts(unsigned: str, text: str) -> list[re.Match[str]]:
    """The number-and-unit parts of a duration; raises ValueError where a number is missing."""
    parts, position = [], 0
    while position < len(unsigned):
        part = _PART.match(unsigned, position)
        if part is None or not (part["whole"] or part["fraction"]):
            raise ValueError(f'time: invalid duration "{text}"')
        parts.append(part)
        position = part.end()
    return parts


def _part_nanoseconds(part: re.Match[str], text: str) -> int:
    unit, fraction = part["unit"], part["fraction"] or ""
    if not unit:
        raise ValueError(f'time: missing unit in duration "{text}"')
    if unit not in _NANOSECONDS:
        raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
    whole, fraction = part["whole"].lstrip("0"), fraction[:_MAX_DIGITS]
    if len(whole) > _MAX_DIGITS:
        raise ValueError(f'time: invalid duration "{text}"')
    below_one = int(fraction) * _NANOSECONDS[unit] // 10 ** len(fraction) if fraction else 0
    return int(whole or 0) * _NANOSECONDS[unit] + below_one


def _decimal(amount: int, unit: int) -> str:
    """``amount / unit`` as an exact decimal without trailing zeros; ``unit`` is a power of ten."""
    whole, below_one = divmod(amount, unit)
    fraction = f"{below_one:0{len(str(unit)) - 1}d}".rstrip("0") if below_one else ""
    return f"{whole}.{fraction}" if fraction else str(whole)
