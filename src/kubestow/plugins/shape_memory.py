"""What a plugin has worked out for the shapes of pods that it met lately.

Counters live as long as somebody holds them, so a plugin that counts pods keeps what it prepared for a shape here; the
shapes that were not seen for longest are forgotten, and with them their counters.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from kubestow.cluster.pods import Shape

__all__ = ["ShapeMemory"]

T = TypeVar("T")

_MOST = 256


class ShapeMemory(Generic[T]):
    """A bounded mapping from shapes."""

    def __init__(self) -> None:
        self._by_shape: OrderedDict[Shape, T] = OrderedDict()

    def get(self, shape: Shape) -> T | None:
        """What is remembered of a shape."""
        found = self._by_shape.get(shape)
        if found is not None:
            self._by_shape.move_to_end(shape)
        return found

    def put(self, shape: Shape, value: T) -> T:
        """Remember something of a shape, in place of what was."""
        self._by_shape[shape] = value
        self._by_shape.move_to_end(shape)
        if len(self._by_shape) > _MOST:
            self._by_shape.popitem(last=False)
        return value
