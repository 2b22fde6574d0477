"""What a plugin has prepared for the shapes of recent pods.

A counter of pods lives as long as something holds it, and a plugin that counts pods holds its counters here. With many
shapes, those without a placed pod are dropped first, since most of their pods are gone, and then the least recently
used; their counters are dropped with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kubestow.cluster.bounded_cache import BoundedCache
from kubestow.cluster.pods.shapes import Shape

__all__ = ["ShapeCache"]

V = TypeVar("V")

_SWEEP_ABOVE, _MAX_SHAPES = 128, 256


class ShapeCache(BoundedCache[Shape, V]):
    """A bounded cache by shape. ``is_in_use`` says whether there are placed pods of a shape."""

    def __init__(self, is_in_use: Callable[[Shape], bool]) -> None:
        super().__init__(_MAX_SHAPES)
        self._is_in_use = is_in_use
        #: With more shapes than this, those that are not in use are dropped.
        self._sweep_above = _SWEEP_ABOVE

    def put(self, key: Shape, value: V, *, cost: int = 1) -> V:
        """Cache what has been prepared for a shape, in place of an earlier value."""
        super().put(key, value, cost=cost)
        if len(self) > self._sweep_above:
            self.retain(lambda shape: shape is key or self._is_in_use(shape))
            self._sweep_above = max(_SWEEP_ABOVE, 2 * len(self))
        return value
