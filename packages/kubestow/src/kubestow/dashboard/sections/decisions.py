"""Attempts per second with their results, latency and reasons, and the attempts themselves.

All of it is counted from the recent attempts that are kept anyway. The seconds before the first viewer therefore have
the last eight attempts of each pod only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from kubestow.engine.explanation.plain_words import reasons_in
from kubestow.observability.recent_attempts import AttemptRecord, RecentAttempts
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.observer import Result

__all__ = ["DecisionsSection"]

#: Seconds on the timeline, attempts listed, reasons counted per second.
_SECONDS, _MOST_ATTEMPTS, _MOST_REASONS = 300, 50, 5
_MOST_CHARACTERS = 300

Point = dict[str, Any]


class DecisionsSection:
    """Implements :class:`~kubestow.dashboard.sections.section.Section` for what the scheduler has decided."""

    name = "decisions"

    def __init__(self, attempts: RecentAttempts, clock: Clock) -> None:
        self._attempts, self._clock = attempts, clock
        #: By second since 1970, those without an attempt left out.
        self._points: dict[int, Point] = {}
        self._newest: list[dict[str, Any]] = []
        #: The second that was still in progress at the last refresh, and the attempts that it had.
        self._from = 0

    def refresh(self) -> dict[str, Any] | None:
        now = int(self._clock.now().timestamp())
        changed = self._points_since(max(self._from, now - _SECONDS))
        self._from = now
        former_newest, self._newest = self._newest, self._list_newest()
        changed = {second: point for second, point in changed.items() if self._points.get(second) != point}
        self._points = {second: p for second, p in (self._points | changed).items() if second > now - _SECONDS}
        if not changed and former_newest == self._newest:
            return None
        return {"points": list(changed.values()), "attempts": self._newest}

    def content(self) -> dict[str, Any]:
        return {"points": [self._points[second] for second in sorted(self._points)], "attempts": self._newest}

    def _points_since(self, second: int) -> dict[int, Point]:
        """The points of this second and those after it."""
        by_second: dict[int, list[AttemptRecord]] = {}
        for _, records in self._attempts.newest_pods():
            if int(records[-1].ended_at.timestamp()) < second:
                break
            for record in reversed(records):
                ended = int(record.ended_at.timestamp())
                if ended < second:
                    break
                by_second.setdefault(ended, []).append(record)
        return {ended: _point(ended, records) for ended, records in sorted(by_second.items())}

    def _list_newest(self) -> list[dict[str, Any]]:
        listed = []
        for (key, records), _ in zip(self._attempts.newest_pods(), range(_MOST_ATTEMPTS), strict=False):
            record = records[-1]
            listed.append(
                {
                    "pod": key,
                    "number": record.number,
                    "time": round(record.ended_at.timestamp(), 1),
                    "seconds": round(record.seconds, 5),
                    "result": record.result.value,
                    "node": record.node_name,
                    "message": record.message[:_MOST_CHARACTERS],
                }
            )
        return listed


def _point(second: int, records: Iterable[AttemptRecord]) -> Point:
    """One second: attempts by result, the 50th, 90th and 99th percentile of their seconds, the commonest reasons."""
    records = list(records)
    results = Counter(record.result for record in records)
    percentiles = np.percentile([record.seconds for record in records], (50, 90, 99))
    reasons: Counter[str] = Counter()
    for record in records:
        if record.result is Result.UNSCHEDULABLE:
            reasons.update({reason for _, reason in reasons_in(record.message)} or {record.message[:_MOST_CHARACTERS]})
        elif record.result is Result.ERROR:
            reasons["internal error"] += 1
    return {
        "time": second,
        **{result.value: results[result] for result in Result},
        "latency": [round(seconds, 6) for seconds in percentiles.tolist()],
        "reasons": dict(reasons.most_common(_MOST_REASONS)),
    }
