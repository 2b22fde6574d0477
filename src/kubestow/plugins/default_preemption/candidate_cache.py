"""Caches preemption candidates by pod shape.

The results of a dry run hold for all pods of a shape until an event concerns the node, its nominations or a disruption
budget. The cache tracks that through the cluster's journal: changed rows lose their results, a change that affects all
rows drops all of them. The least recently used shapes are evicted when the cache is full.
"""

from __future__ import annotations

from collections import OrderedDict

from kubestow.cluster.events import POD_BITS, Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.filters import Filters
from kubestow.framework.interface import Handle
from kubestow.framework.result_cache import Answers, Memory, Staleness
from kubestow.plugins.default_preemption.candidates import Candidates

__all__ = ["CandidateCache"]

#: A dry run on a node depends on all pods of the node, and on the pods nominated to it.
_DEPENDENCIES = Staleness(row_bits=POD_BITS | ClusterEvent(EventResource.NOMINATION, Action.UPDATE).bits)
#: The size of the cache in bytes, and what one shape takes of it per node.
_MAX_BYTES = 32 * 2**20
_BYTES_PER_NODE = 72
#: The number of shapes that the cache holds however many nodes there are.
_MIN_SHAPES = 8


class CandidateCache:
    """Candidates by pod shape, least recently used first."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._entries: OrderedDict[Shape, _Entry] = OrderedDict()

    def get(self, pod: PodInfo, filters: Filters, budgets_version: int) -> Candidates:
        """The valid candidates for pods of this shape; empty for a new shape."""
        entry = self._entries.pop(pod.shape, None) or _Entry()
        candidates = entry.refresh(self._handle, filters, budgets_version)
        self._entries[pod.shape] = entry
        max_shapes = max(_MIN_SHAPES, _MAX_BYTES // (_BYTES_PER_NODE * len(self._handle.cluster.nodes)))
        if len(self._entries) > max_shapes:
            self._entries.popitem(last=False)
        return candidates


class _Entry:
    """The candidates of one shape, and what they depend on."""

    def __init__(self) -> None:
        self._memory = Memory()
        #: The filters that ran, and the version of the disruption budgets.
        self._depends_on: tuple[tuple[Answers, ...], int] = ((), -1)
        self._candidates: Candidates

    def refresh(self, handle: Handle, filters: Filters, budgets_version: int) -> Candidates:
        """Drop results that are no longer valid."""
        staleness = filters.staleness
        depends_on = (filters.active, budgets_version)
        stale = None
        if staleness is not None and depends_on == self._depends_on:
            stale = self._memory.stale_rows(handle.cluster, staleness | _DEPENDENCIES)
        if stale is None:
            self._candidates = Candidates(handle.cluster.nodes)
        else:
            self._candidates.invalidate(stale)
        self._depends_on = depends_on
        self._memory.note(handle.cluster)
        return self._candidates
