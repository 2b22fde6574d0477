"""Offers: the candidates of a preemption while extenders may still narrow them down (semantics 9.4, 9.5).

An extender answers after a while, and with victims of its own choosing perhaps. So what is offered are names and pods,
not rows of the node table, and the best is picked from what is left by the same criteria as in :mod:`.candidates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kubestow.framework.interface import PostFilterResult, Victims
from kubestow.framework.status import Status

__all__ = ["Offers", "best_offer"]

_NOBODY_LEFT = Status.unschedulable("preemption: no candidate node for preemption")
#: Makes every int32 priority positive, so that evicting fewer pods of negative priority counts for something.
_PRIORITY_SHIFT = 2**31
_NOT_STARTED = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Offers:
    """Implements :class:`kubestow.framework.interface.ExtenderCandidates`; ``nominate`` makes the result for a node."""

    work_out: Callable[[], Mapping[str, Victims]]
    nominate: Callable[[str, Victims], PostFilterResult]

    def victims_by_node(self) -> Mapping[str, Victims]:
        """The candidates."""
        return self.work_out()

    def select(self, victims_by_node: Mapping[str, Victims]) -> PostFilterResult:
        """The best of what is left."""
        if not victims_by_node:
            return PostFilterResult(_NOBODY_LEFT)
        name = best_offer(victims_by_node)
        return self.nominate(name, victims_by_node[name])


def best_offer(victims_by_node: Mapping[str, Victims]) -> str:
    """The node on which a preemption hurts least, the first by name among equals."""
    return min(victims_by_node, key=lambda name: (*_harm(victims_by_node[name]), name))


def _harm(victims: Victims) -> tuple[int, int, int, int, timedelta]:
    pods = victims.pods
    highest = max(pod.priority for pod in pods)
    since = min(pod.status.start_time or _NOT_STARTED for pod in pods if pod.priority == highest)
    return (
        victims.violations,
        pods[0].priority,
        sum(pod.priority + _PRIORITY_SHIFT for pod in pods),
        len(pods),
        _NOT_STARTED - since,
    )
