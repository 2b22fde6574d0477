"""The census: where every placed pod is, by shape, and the shapes by what their pods have in common.

Whoever wants to count some pods that were not counted before asks for the shapes of their groups
(:mod:`kubestow.cluster.pods.index_keys`) and so never walks over pods that cannot matter.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass

from kubestow.cluster.pods.index_keys import IndexKeys
from kubestow.cluster.pods.shapes import PodInfo, Shape

__all__ = ["PlacedPod", "PodIndex"]


@dataclass(slots=True)
class PlacedPod:
    """Where a pod is: a node's name (which may belong to no known node), and whether that is only assumed."""

    info: PodInfo
    node_name: str
    assumed: bool


class PodIndex:
    """Placements by shape."""

    def __init__(self) -> None:
        self._by_shape: dict[Shape, dict[str, PlacedPod]] = {}
        self._shapes: dict[Hashable, dict[Shape, None]] = {}

    def __contains__(self, shape: Shape) -> bool:
        """Whether any pod of a shape is placed."""
        return shape in self._by_shape

    def of(self, index_keys: IndexKeys | None) -> Iterator[tuple[Shape, Collection[PlacedPod]]]:
        """The shapes that are in one of the groups, or all of them for None, with their placements."""
        shapes = (
            self._by_shape
            if index_keys is None
            else dict.fromkeys(s for g in index_keys for s in self._shapes.get(g, ()))
        )
        return ((shape, self._by_shape[shape].values()) for shape in shapes)

    def add(self, uid: str, placed_pod: PlacedPod) -> bool:
        """Take a placement in; whether it is the first of its shape."""
        shape = placed_pod.info.shape
        copies = self._by_shape.get(shape)
        if copies is not None:
            copies[uid] = placed_pod
            return False
        self._by_shape[shape] = {uid: placed_pod}
        for group in shape.index_keys:
            self._shapes.setdefault(group, {})[shape] = None
        return True

    def remove(self, uid: str, placed_pod: PlacedPod) -> bool:
        """Undo :meth:`add`; whether it was the last of its shape."""
        shape = placed_pod.info.shape
        copies = self._by_shape[shape]
        del copies[uid]
        if copies:
            return False
        del self._by_shape[shape]
        for group in shape.index_keys:
            shapes = self._shapes[group]
            del shapes[shape]
            if not shapes:
                del self._shapes[group]
        return True
