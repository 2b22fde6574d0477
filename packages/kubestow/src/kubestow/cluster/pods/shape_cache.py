"""What has been prepared for the shapes of recent pods.

A counter of pods lives as long as something holds it, and what holds counters is kept in caches like this one. With
many groups of shapes, those without a placed pod are dropped first, since most of their pods are gone, and then the
least recently used; their counters are dropped with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kubestow.cluster.bounded_cache import BoundedCache
from kubestow.cluster.pods.shapes import ShapeFamily, ShapeGroup

__all__ = ["ShapeCache"]

V = TypeVar("V")

_SWEEP_ABOVE, _MAX_GROUPS = 128, 256


class ShapeCache(BoundedCache[ShapeGroup, V]):
    """A bounded cache by group of shapes. ``is_in_use`` says whether there are placed pods of a family."""

    def __init__(
        self,
        is_in_use: Callable[[ShapeFamily], bool],
        *,
        budget: int = _MAX_GROUPS,
        minimum: int = 1,
        sweep_above: int = _SWEEP_ABOVE,
    ) -> None:
        super().__init__(budget, minimum=minimum)
        self._is_in_use = is_in_use
        #: With more groups than this, those that are not in use are dropped; at first, and later at least, as given.
        self._sweep_above = self._least_sweep_above = sweep_above

    def put(self, key: ShapeGroup, value: V, *, cost: int = 1) -> V:
        """Cache what has been prepared for a group of shapes, in place of an earlier value."""
        super().put(key, value, cost=cost)
        if len(self) > self._sweep_above:
            self.retain(lambda group: group is key or self._is_in_use(group.family))
            self._sweep_above = max(self._least_sweep_above, 2 * len(self))
        return value
