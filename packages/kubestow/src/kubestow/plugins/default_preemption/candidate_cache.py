"""Caches preemption candidates by pod shape.

The results of a dry run hold for all pods of a shape until an event concerns the node, its nominations or a disruption
budget. The cache tracks that through the cluster's journal: changed rows lose their results, a change that affects all
rows drops all of them. The least recently used shapes are evicted when the cache is full.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubestow.cluster.bounded_cache import BoundedCache
from kubestow.cluster.cache import Cluster
from kubestow.cluster.events import POD_BITS, Action, ClusterEvent, EventResource
from kubestow.cluster.invalidation import NEVER, InvalidationMask
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.interface import FilterRunner, Handle
from kubestow.plugins.default_preemption.candidates import Candidates

__all__ = ["CandidateCache"]

#: A dry run on a node depends on all pods of the node, and on the pods nominated to it.
_DEPENDENCIES = InvalidationMask(row_bits=POD_BITS | ClusterEvent(EventResource.NOMINATION, Action.UPDATE).bits)
#: The size of the cache in bytes, and what one shape takes of it per node.
_MAX_BYTES = 32 * 2**20
_BYTES_PER_NODE = 72
#: The number of shapes that the cache holds however many nodes there are.
_MIN_SHAPES = 8


class CandidateCache:
    """Candidates by pod shape."""

    def __init__(self, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._entries: BoundedCache[Shape, _Entry] = BoundedCache(_MIN_SHAPES)

    def get(self, pod: PodInfo, filters: FilterRunner, budgets_version: int) -> Candidates:
        """The valid candidates for pods of this shape; empty for a new shape."""
        entry = self._entries.get(pod.shape)
        if entry is None:
            self._entries.resize(max(_MIN_SHAPES, _MAX_BYTES // (_BYTES_PER_NODE * len(self._cluster.nodes))))
            entry = self._entries.put(pod.shape, _Entry())
        return entry.refresh(self._cluster, filters, budgets_version)


class _Entry:
    """The candidates of one shape, and what they depend on."""

    def __init__(self) -> None:
        self._generation = NEVER
        #: The filters that ran, and the version of the disruption budgets.
        self._depends_on: tuple[Sequence[object], int] = ((), -1)
        self._candidates: Candidates

    def refresh(self, cluster: Cluster, filters: FilterRunner, budgets_version: int) -> Candidates:
        """Drop results that are no longer valid."""
        mask = filters.invalidation_mask
        depends_on = (filters.active, budgets_version)
        invalid = None
        generation = cluster.cycle.begin()
        if mask is not None and depends_on == self._depends_on:
            invalid = cluster.cycle.invalid_rows(self._generation, mask | _DEPENDENCIES)
        if invalid is None:
            self._candidates = Candidates(cluster.nodes)
        else:
            self._candidates.invalidate(invalid)
        self._depends_on = depends_on
        self._generation = generation
        return self._candidates
