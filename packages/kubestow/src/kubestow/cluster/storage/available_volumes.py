"""Available PersistentVolumes, and the nodes that can access them: static binding of claims (semantics 8.12).

A claim that waits for its first consumer is bound to an unbound volume that satisfies it and is accessible from the
pod's node, the smallest first. Unbound volumes are kept by storage class. For each distinct set of requirements (class,
size, modes, selector) the volumes that satisfy it are sorted once and grouped by node affinity. Matching a volume for
every node is then a few array operations, independent of the number of bound volumes.

Cached masks of nodes: those that can access a volume, those of a storage class's topologies.

Thousands of volumes share a handful of node affinities. A mask depends only on the labels of the nodes and on its key,
so it is kept until the labels of a node change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelectorTerm
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.nodes.selectors import matches_any_term
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.caches import BoundedCache
from kubestow.rules.volumes import ClaimRequirements, capacity_of, is_available_for, is_bound_to, satisfies

#: The most bytes that masks take.
_BUDGET = 64 * 2**20

Mask = NDArray[np.bool_]


class NodeMask:
    """A mask of nodes: ``where`` is bool over all rows of the node table."""

    def __init__(self, where: Mask) -> None:
        self.where = where
        #: Whether it is True for all nodes.
        self.everywhere = bool(where.all())

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        """The numbers of the rows where it is True, intp."""
        return np.flatnonzero(self.where)


class _NodesByLabels(Nodes):
    """All nodes. QUIRK (semantics 8.12): the field ``metadata.name`` in a volume's node affinity matches no node."""

    def named(self, name: str) -> Mask:
        return np.zeros(len(self), np.bool_)


class NodeMasks:
    """The masks of the nodes of a table, by key."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._by_key: BoundedCache[Hashable, NodeMask] = BoundedCache(_BUDGET)

    @property
    def revision(self) -> int:
        """The revision of the node table, which masks are valid for."""
        return self._table.revision

    @property
    def total(self) -> int:
        """The number of rows that a mask covers."""
        return len(self._table)

    def get(self, key: Hashable, select: Callable[[Nodes], Mask]) -> NodeMask:
        """The mask with a key; ``select`` computes it from all nodes, by their labels."""
        self._by_key.start_generation(self._table.revision)
        mask = self._by_key.get(key)
        if mask is not None:
            return mask
        where = select(_NodesByLabels(self._table, slice(0, len(self._table))))
        return self._by_key.put(key, NodeMask(where), cost=len(where))


#: Stands for "no volume" in a match.
NO_VOLUME = -1

#: The most sets of requirements per storage class whose volumes are cached.
_MOST_REQUIREMENTS = 64

_encode = msgspec.json.Encoder(order="deterministic").encode

Terms = Sequence[NodeSelectorTerm]


class VolumeMatch(NamedTuple):
    """A volume for every node: ``numbers`` (int64 over all rows) are indexes into ``volumes``, or NO_VOLUME."""

    volumes: Sequence[PersistentVolume]
    numbers: NDArray[np.int64]


class AvailableVolumes:
    """The volumes of a cluster that are unbound or pre-bound, that is reserved for a claim by their ``claimRef``."""

    def __init__(self, masks: NodeMasks) -> None:
        self._masks = masks
        #: Unbound volumes by storage class and name.
        self._unbound: dict[str, dict[str, PersistentVolume]] = {}
        #: Volumes with a claimRef by namespace and name of the claim, and by their own name.
        self._claimed: dict[tuple[str, str], dict[str, PersistentVolume]] = {}
        #: The sorted volumes by storage class, for classes that have unbound volumes.
        self._sorted: dict[str, dict[ClaimRequirements, _SortedVolumes]] = {}

    def changed(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        """A volume has been added, changed or deleted."""
        if before is not None:
            self._remove(before)
        if after is not None:
            self._add(after)

    def accessible_from(self, terms: Terms | None) -> NodeMask:
        """The nodes that match the terms of a volume's node affinity; None means all nodes."""
        if terms is None:
            return self._masks.get("everywhere", lambda nodes: np.ones(len(nodes), np.bool_))
        return self._masks.get(("terms", _encode(terms)), lambda nodes: matches_any_term(nodes, terms))

    def match(
        self, claim: PersistentVolumeClaim, requirements: ClaimRequirements, taken: Sequence[VolumeMatch]
    ) -> VolumeMatch:
        """The best volume for a claim on each node; ``taken`` are the matches of the pod's other claims."""
        prebound = self._prebound_to(claim, requirements)
        unbound = self._sorted_for(requirements).match(taken)
        if not prebound:
            return unbound
        numbers = np.where(unbound.numbers == NO_VOLUME, NO_VOLUME, unbound.numbers + len(prebound))
        decided = np.zeros(len(numbers), np.bool_)
        for number, volume in enumerate(prebound):
            # The first pre-bound volume decides for a node, even if it is not accessible from there.
            here = ~decided & ~_taken_at(taken, volume, len(numbers))
            numbers[here] = np.where(self.accessible_from(node_terms(volume)).where[here], number, NO_VOLUME)
            decided |= here
        return VolumeMatch([*prebound, *unbound.volumes], numbers)

    def _prebound_to(self, claim: PersistentVolumeClaim, requirements: ClaimRequirements) -> list[PersistentVolume]:
        claimed = self._claimed.get((claim.metadata.namespace, claim.metadata.name))
        if not claimed:
            return []
        return [
            volume
            for _, volume in sorted(claimed.items())
            if volume.storage_class == requirements.storage_class
            and is_bound_to(volume, claim)
            and satisfies(volume, requirements)
        ]

    def _sorted_for(self, requirements: ClaimRequirements) -> _SortedVolumes:
        unbound = self._unbound.get(requirements.storage_class)
        if unbound is None:
            return _SortedVolumes([], [], self._masks)
        cached = self._sorted.setdefault(requirements.storage_class, {})
        sorted_volumes = cached.get(requirements)
        if sorted_volumes is None or not sorted_volumes.is_current(self._masks.revision):
            if len(cached) >= _MOST_REQUIREMENTS:
                cached.clear()
            volumes = [volume for volume in unbound.values() if is_available_for(volume, requirements)]
            accessible_from = [self.accessible_from(node_terms(volume)) for volume in volumes]
            sorted_volumes = cached[requirements] = _SortedVolumes(volumes, accessible_from, self._masks)
        return sorted_volumes

    def _add(self, volume: PersistentVolume) -> None:
        claim = volume.spec.claim_ref
        if claim is not None:
            self._claimed.setdefault((claim.namespace, claim.name), {})[volume.metadata.name] = volume
            return
        self._unbound.setdefault(volume.storage_class, {})[volume.metadata.name] = volume
        cached = self._sorted.get(volume.storage_class, {})
        for requirements in [requirements for requirements in cached if is_available_for(volume, requirements)]:
            if not cached[requirements].add(volume):
                del cached[requirements]

    def _remove(self, volume: PersistentVolume) -> None:
        claim = volume.spec.claim_ref
        if claim is not None:
            claimed = self._claimed[claim.namespace, claim.name]
            del claimed[volume.metadata.name]
            if not claimed:
                del self._claimed[claim.namespace, claim.name]
            return
        unbound = self._unbound[volume.storage_class]
        del unbound[volume.metadata.name]
        if unbound:
            for sorted_volumes in self._sorted.get(volume.storage_class, {}).values():
                sorted_volumes.remove(volume)
        else:
            del self._unbound[volume.storage_class]
            self._sorted.pop(volume.storage_class, None)


class _SortedVolumes:
    """The volumes that satisfy one set of requirements, smallest first, then by name; some may be bound by now.

    ``accessible_from`` are the nodes of each volume. Volumes with the same nodes form a group.
    """

    def __init__(self, volumes: list[PersistentVolume], accessible_from: list[NodeMask], masks: NodeMasks) -> None:
        order = sorted(range(len(volumes)), key=lambda i: (capacity_of(volumes[i]), volumes[i].metadata.name))
        self.volumes = [volumes[i] for i in order]
        self._revision = masks.revision
        self._total = masks.total
        self._numbers = {volume.metadata.name: number for number, volume in enumerate(self.volumes)}
        self._available = np.ones(len(order), np.bool_)
        self._first_match: VolumeMatch | None = None
        groups: dict[int, int] = {}
        self._group_of = np.array([groups.setdefault(id(accessible_from[i]), len(groups)) for i in order], np.int64)
        rows_of_group = {groups[id(mask)]: mask.rows for mask in accessible_from}
        rows = [rows_of_group[group] for group in range(len(groups))]
        #: The pairs of a group of volumes and a row from which they are accessible.
        self._rows = np.concatenate([*rows, np.empty(0, np.intp)])
        self._groups = np.repeat(np.arange(len(groups)), np.array(list(map(len, rows)), np.intp))
        self._group_count = len(groups)

    def is_current(self, revision: int) -> bool:
        return self._revision == revision

    def remove(self, volume: PersistentVolume) -> None:
        """A volume is not available any more."""
        number = self._numbers.get(volume.metadata.name)
        if number is not None:
            self._available[number] = False
            self._first_match = None

    def add(self, volume: PersistentVolume) -> bool:
        """A volume is available again; False when it was not, or was different, when the volumes were sorted."""
        number = self._numbers.get(volume.metadata.name)
        if number is None or not _sorts_alike(self.volumes[number], volume):
            return False
        self.volumes[number] = volume
        self._available[number] = True
        self._first_match = None
        return True

    def match(self, taken: Sequence[VolumeMatch]) -> VolumeMatch:
        """For each row the first available volume that is accessible from there and not taken there."""
        if taken:
            return self._matched(taken)
        if self._first_match is None:
            self._first_match = self._matched(taken)
        return self._first_match

    def _matched(self, taken: Sequence[VolumeMatch]) -> VolumeMatch:
        none = len(self.volumes)
        first = self._first_of_groups(len(taken) + 1)
        found = first[0][self._groups]
        if taken:
            taken_here = [self._renumbered(match)[self._rows] for match in taken]
            found = np.full(len(self._groups), none)
            for by_group in first[::-1]:  # in reverse, so that the first ones prevail
                here = by_group[self._groups]
                is_free = np.all([here != other for other in taken_here], axis=0)
                found = np.where(is_free, here, found)
        best = np.full(self._total, none)
        np.minimum.at(best, self._rows, found)
        return VolumeMatch(self.volumes, np.where(best == none, NO_VOLUME, best))

    def _first_of_groups(self, count: int) -> list[NDArray[np.int64]]:
        """The first available volume of each group, the second, and so on; ``len(volumes)`` where there is none."""
        available = self._available.copy()
        first = []
        for _ in range(count):
            numbers = np.flatnonzero(available)[::-1]
            by_group = np.full(self._group_count, len(self.volumes))
            by_group[self._group_of[numbers]] = numbers  # the last write prevails: the first in order
            first.append(by_group)
            available[by_group[by_group < len(available)]] = False
        return first

    def _renumbered(self, match: VolumeMatch) -> NDArray[np.int64]:
        """A match of other sorted volumes in the numbers of these, NO_VOLUME where its volume is not among them."""
        if match.volumes is self.volumes:
            return match.numbers
        matched, where = np.unique(match.numbers, return_inverse=True)
        names = (match.volumes[number].metadata.name if number >= 0 else "" for number in matched.tolist())
        return np.array([self._numbers.get(name, NO_VOLUME) for name in names], np.int64)[where]


def node_terms(volume: PersistentVolume) -> Terms | None:
    """The terms of a volume's required node affinity, None for a volume without."""
    affinity = volume.spec.node_affinity
    return None if affinity is None or affinity.required is None else affinity.required.node_selector_terms


def _sorts_alike(one: PersistentVolume, other: PersistentVolume) -> bool:
    return capacity_of(one) == capacity_of(other) and node_terms(one) == node_terms(other)


def _taken_at(taken: Sequence[VolumeMatch], volume: PersistentVolume, total: int) -> NDArray[np.bool_]:
    where = np.zeros(total, np.bool_)
    for match in taken:
        numbers = [n for n, other in enumerate(match.volumes) if other.metadata.name == volume.metadata.name]
        where |= np.isin(match.numbers, numbers)
    return where
