"""The index of placed pods: by shape, and the shapes by index key.

A new counter is filled from the shapes that have one of its index keys (:mod:`kubestow.cluster.pods.affinity_terms`),
so it never visits pods that it does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass

from kubestow.cluster.pods.affinity_terms import IndexKeys
from kubestow.cluster.pods.shapes import PodInfo, Shape, ShapeFamily


@dataclass(slots=True)
class PlacedPod:
    """A pod on a node, which may be missing from the cache, and whether the watch has yet to confirm the binding."""

    info: PodInfo
    node_name: str
    assumed: bool


class PodIndex:
    """The placed pods by shape."""

    def __init__(self) -> None:
        self._by_shape: dict[Shape, dict[str, PlacedPod]] = {}
        self._shapes_by_key: dict[Hashable, dict[Shape, None]] = {}
        #: The number of shapes of each family.
        self._families: Counter[ShapeFamily] = Counter()

    def __contains__(self, family: ShapeFamily) -> bool:
        """Whether a pod of this family is placed."""
        return family in self._families

    def with_any_key(self, index_keys: IndexKeys | None) -> Iterator[tuple[Shape, Collection[PlacedPod]]]:
        """The shapes that have one of the keys, or all of them for None, each with its placed pods."""
        shapes: Iterable[Shape] = self._by_shape
        if index_keys is not None:
            shapes = dict.fromkeys(shape for key in index_keys for shape in self._shapes_by_key.get(key, ()))
        return ((shape, self._by_shape[shape].values()) for shape in shapes)

    def add(self, uid: str, placed_pod: PlacedPod) -> bool:
        """Add a placed pod; whether it is the first of its shape."""
        shape = placed_pod.info.shape
        copies = self._by_shape.get(shape)
        if copies is not None:
            copies[uid] = placed_pod
            return False
        self._by_shape[shape] = {uid: placed_pod}
        self._families[shape.family] += 1
        for key in shape.index_keys:
            self._shapes_by_key.setdefault(key, {})[shape] = None
        return True

    def remove(self, uid: str, placed_pod: PlacedPod) -> bool:
        """Remove a placed pod; whether it was the last of its shape."""
        shape = placed_pod.info.shape
        copies = self._by_shape[shape]
        del copies[uid]
        if copies:
            return False
        del self._by_shape[shape]
        self._families[shape.family] -= 1
        if not self._families[shape.family]:
            del self._families[shape.family]
        for key in shape.index_keys:
            shapes = self._shapes_by_key[key]
            del shapes[shape]
            if not shapes:
                del self._shapes_by_key[key]
        return True
