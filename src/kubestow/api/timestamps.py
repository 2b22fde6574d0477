"""Moments as Kubernetes writes them: RFC 3339 in UTC, to the second (Time) or to the microsecond (MicroTime)."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["micro_timestamp", "timestamp"]


def timestamp(moment: datetime) -> str:
    """Such as 2026-01-01T00:00:00Z; what is below a second is cut off."""
    return _written(moment, "seconds")


def micro_timestamp(moment: datetime) -> str:
    """Such as 2026-01-01T00:00:00.000000Z."""
    return _written(moment, "microseconds")


def _written(moment: datetime, precision: str) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"
