"""Timestamps in Kubernetes' format: RFC 3339 in UTC, with seconds (Time) or microseconds (MicroTime)."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(moment: datetime) -> str:
    """A Time such as 2026-01-01T00:00:00Z, truncated to seconds."""
    return _formatted(moment, "seconds")


def micro_timestamp(moment: datetime) -> str:
    """A MicroTime such as 2026-01-01T00:00:00.000000Z."""
    return _formatted(moment, "microseconds")


def _formatted(moment: datetime, precision: str) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"
