"""Proportional scaling: distributing a change of a Deployment's replicas over its ReplicaSets during a rolling update.

Each ReplicaSet grows or shrinks in proportion to its size, so that scaling neither advances nor reverts the update.
Rounding errors go to the largest. Among ReplicaSets of one size the newest grow first and the oldest shrink first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["ReplicaSetSize", "scale_proportionally"]


class ReplicaSetSize(NamedTuple):
    """The replicas of a ReplicaSet, and the Deployment's replicas plus maxSurge when it was last scaled."""

    name: str
    replicas: int
    max_replicas: int


def scale_proportionally(replica_sets: Sequence[ReplicaSetSize], allowed: int) -> dict[str, int]:
    """The replicas of each set by name, ``allowed`` in total. ``replica_sets`` is ordered oldest first."""
    missing = allowed - sum(replica_set.replicas for replica_set in replica_sets)
    ordered = list(reversed(replica_sets)) if missing > 0 else list(replica_sets)
    ordered.sort(key=lambda replica_set: replica_set.replicas, reverse=True)
    sizes = {replica_set.name: replica_set.replicas for replica_set in ordered}
    remaining = missing
    for replica_set in ordered:
        step = _proportional_size(replica_set, allowed) - replica_set.replicas
        step = min(step, remaining) if missing > 0 else max(step, remaining)
        sizes[replica_set.name] += step
        remaining -= step
    if ordered:
        largest = ordered[0].name
        sizes[largest] = max(0, sizes[largest] + remaining)
    return sizes


def _proportional_size(replica_set: ReplicaSetSize, allowed: int) -> int:
    """The size in proportion to the change of the total, rounded half away from zero."""
    if replica_set.max_replicas <= 0:
        return replica_set.replicas if allowed else 0
    return (2 * replica_set.replicas * allowed + replica_set.max_replicas) // (2 * replica_set.max_replicas)
