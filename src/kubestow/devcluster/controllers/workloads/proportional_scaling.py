"""Sharing a change of scale between the replica sets of a deployment that is being updated.

Scaling in the middle of an update must neither speed it up nor turn it back: every set grows or shrinks in proportion
to its size, and what rounding leaves goes to the largest. Of sets of one size the newest grow and the oldest shrink
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Share", "shared"]


class Share(NamedTuple):
    """A replica set: its replicas, and how many pods all sets together might have when it was last scaled."""

    name: str
    replicas: int
    most_before: int


def shared(sets: Sequence[Share], most: int) -> dict[str, int]:
    """The replicas of each set, by name, so that together they have ``most`` pods. ``sets`` begins with the oldest."""
    missing = most - sum(share.replicas for share in sets)
    ordered = list(reversed(sets)) if missing > 0 else list(sets)
    ordered.sort(key=lambda share: share.replicas, reverse=True)
    sizes = {share.name: share.replicas for share in ordered}
    left = missing
    for share in ordered:
        step = _grown(share, most) - share.replicas
        step = min(step, left) if missing > 0 else max(step, left)
        sizes[share.name] += step
        left -= step
    if ordered:
        largest = ordered[0].name
        sizes[largest] = max(0, sizes[largest] + left)
    return sizes


def _grown(share: Share, most: int) -> int:
    """The size of a set when all grow or shrink alike."""
    if share.most_before <= 0:
        return share.replicas if most else 0
    # Halves are rounded away from zero.
    return (2 * share.replicas * most + share.most_before) // (2 * share.most_before)
