"""What a plugin has worked out for the shapes of pods that it met lately.

Counters live as long as somebody holds them, so a plugin that counts pods keeps what it prepared for a shape here.
Where there are many shapes those without any placed pod are forgotten, mostly because their pods are gone, and then
those that were not seen for longest; with them go their counters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from kubestow.cluster.pods.shapes import Shape

__all__ = ["ShapeMemory"]

T = TypeVar("T")

_MANY, _MOST = 128, 256


class ShapeMemory(Generic[T]):
    """A bounded mapping from shapes. ``is_in_use`` says whether there are placed pods of a shape."""

    def __init__(self, is_in_use: Callable[[Shape], bool]) -> None:
        self._is_in_use = is_in_use
        self._by_shape: OrderedDict[Shape, T] = OrderedDict()
        #: How many shapes there may be before those that are not in use are looked for.
        self._limit = _MANY

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
        elif len(self._by_shape) > self._limit:
            self._forget_unused(shape)
        return value

    def _forget_unused(self, newest: Shape) -> None:
        unused = [shape for shape in self._by_shape if shape is not newest and not self._is_in_use(shape)]
        for shape in unused:
            del self._by_shape[shape]
        self._limit = max(_MANY, 2 * len(self._by_shape))
