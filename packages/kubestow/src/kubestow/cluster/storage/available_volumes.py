"""Available PersistentVolumes, and the nodes that can access them: static binding of claims (semantics 8.12).

A claim that waits for its first consumer is bound to an unbound volume that satisfies it and is accessible from the
pod's node, the smallest first. Unbound volumes are kept by storage class. For each distinct set of requirements (class,
modes, selector) the volumes that satisfy it are sorted once, by size, and grouped by node affinity. Matching a volume
for every node is then a few array operations, independent of the number of bound volumes.

Cached masks of nodes: those that can access a volume, those of a storage class's topologies.

Thousands of volumes share a handful of node affinities. A mask depends only on the labels of the nodes and on its key,
so it is kept until the labels of a node change.
"""

from __future__ import annotations

from bisect import bisect_left
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
#: The most sizes per set of requirements for which matches are cached.
_MOST_SIZES = 4

_encode = msgspec.json.Encoder(order="deterministic").encode

Terms = Sequence[NodeSelectorTerm]


class VolumeMatch(NamedTuple):
    """A volume per row of a view: ``numbers`` (int64) are indexes into ``volumes``, or NO_VOLUME."""

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

    def matching(self, nodes: Nodes) -> VolumeMatching:
        """Matches the claims of a pod, one after the other, on the rows of a view."""
        return VolumeMatching(self, nodes)

    def prebound_to(self, claim: PersistentVolumeClaim, requirements: ClaimRequirements) -> list[PersistentVolume]:
        """The volumes that are reserved for a claim and satisfy it, by name."""
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

    def sorted_for(self, requirements: ClaimRequirements) -> _SortedVolumes | None:
        """The unbound volumes for claims with these requirements, whatever their size; None for a class without any."""
        unbound = self._unbound.get(requirements.storage_class)
        if unbound is None:
            return None
        requirements = requirements._replace(size=min(requirements.size, 0))
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

    ``accessible_from`` are the nodes of each volume. Volumes with the same nodes form a group. ``group_of`` (int64) is
    the group of each volume, ``available`` (bool) whether it is unbound. ``groups`` and ``rows`` (intp) are the pairs
    of a group and a row from which its volumes are accessible, ascending; there are ``group_count`` groups and
    ``total`` rows in the node table.
    """

    def __init__(self, volumes: list[PersistentVolume], accessible_from: list[NodeMask], masks: NodeMasks) -> None:
        sizes = list(map(capacity_of, volumes))
        order = sorted(range(len(volumes)), key=lambda i: (sizes[i], volumes[i].metadata.name))
        self.volumes = [volumes[i] for i in order]
        self.total = masks.total
        self.available = np.ones(len(order), np.bool_)
        self._sizes = [sizes[i] for i in order]
        self._revision = masks.revision
        self._numbers = {volume.metadata.name: number for number, volume in enumerate(self.volumes)}
        #: The latest results of :meth:`first_match`.
        self._first_matches: dict[int, NDArray[np.int64]] = {}
        groups: dict[int, int] = {}
        self.group_of = np.array([groups.setdefault(id(accessible_from[i]), len(groups)) for i in order], np.int64)
        rows_of_group = {groups[id(mask)]: mask.rows for mask in accessible_from}
        rows = [rows_of_group[group] for group in range(len(groups))]
        self.group_count = len(groups)
        self.rows = np.concatenate([*rows, np.empty(0, np.intp)])
        self.groups = np.repeat(np.arange(len(groups)), np.array(list(map(len, rows)), np.intp))

    def is_current(self, revision: int) -> bool:
        return self._revision == revision

    def remove(self, volume: PersistentVolume) -> None:
        """A volume is not available any more."""
        number = self._numbers.get(volume.metadata.name)
        if number is not None:
            self.available[number] = False
            self._first_matches.clear()

    def add(self, volume: PersistentVolume) -> bool:
        """A volume is available again; False when it was not, or was different, when the volumes were sorted."""
        number = self._numbers.get(volume.metadata.name)
        if number is None or not _sorts_alike(self.volumes[number], volume):
            return False
        self.volumes[number] = volume
        self.available[number] = True
        self._first_matches.clear()
        return True

    def first_of_size(self, size: int) -> int:
        """The number of the first volume that has a size, in nano bytes."""
        return bisect_left(self._sizes, size)

    def first_match(self, size: int) -> NDArray[np.int64]:
        """For each row of the table the first available volume of a size that is accessible from there, or NO_VOLUME.

        An int64 array that is not to be changed.
        """
        start = self.first_of_size(size)
        match = self._first_matches.get(start)
        if match is None:
            none = len(self.volumes)
            numbers = (np.flatnonzero(self.available[start:]) + start)[::-1]
            by_group = np.full(self.group_count, none)
            by_group[self.group_of[numbers]] = numbers  # the last write prevails: the first in order
            best = np.full(self.total, none)
            np.minimum.at(best, self.rows, by_group[self.groups])
            match = np.where(best == none, NO_VOLUME, best)
            if len(self._first_matches) >= _MOST_SIZES:
                self._first_matches.clear()
            self._first_matches[start] = match
        return match


# -- the claims of a pod ------------------------------------------------------------------------------------------


class VolumeMatching:
    """The matches of a pod's claims on the rows of a view, where no claim gets a volume that an earlier one has.

    Costs a few array operations per claim if the claims of a storage class differ in their sizes only. Claims that
    differ otherwise may also walk over what the others have taken of the same volumes.
    """

    def __init__(self, available: AvailableVolumes, nodes: Nodes) -> None:
        self._available = available
        self._nodes = nodes
        self._none = np.full(len(nodes), NO_VOLUME, np.int64)
        self._taken: dict[str, _TakenVolumes] = {}
        #: Where pre-bound volumes are taken, bool per row of the view, by name.
        self._prebound_taken: dict[str, Mask] = {}

    def match(self, claim: PersistentVolumeClaim, requirements: ClaimRequirements) -> VolumeMatch:
        """The best volume for the next claim on each row. Claims must come smallest first."""
        prebound = self._available.prebound_to(claim, requirements)
        unbound = self._available.sorted_for(requirements)
        if unbound is None and not prebound:
            return VolumeMatch((), self._none)
        name = requirements.storage_class
        taken = self._taken.get(name)
        if unbound is None:
            numbers = self._none
        elif taken is None:
            numbers = unbound.first_match(requirements.size)[self._nodes.rows]
        else:
            numbers = taken.first_free(unbound, requirements.size)
        if not prebound:
            assert unbound is not None
            self._take(name, unbound, numbers)
            return VolumeMatch(unbound.volumes, numbers)
        decided, chosen = self._choose_prebound(prebound)
        if unbound is not None:
            self._take(name, unbound, np.where(decided, NO_VOLUME, numbers))
        others = np.where(numbers == NO_VOLUME, NO_VOLUME, numbers + len(prebound))
        volumes = [] if unbound is None else unbound.volumes
        return VolumeMatch([*prebound, *volumes], np.where(decided, chosen, others))

    def _choose_prebound(self, prebound: Sequence[PersistentVolume]) -> tuple[Mask, NDArray[np.int64]]:
        """Where pre-bound volumes decide (bool), and the number of the chosen one there (int64), or NO_VOLUME."""
        decided, chosen = np.zeros(len(self._nodes), np.bool_), self._none.copy()
        for number, volume in enumerate(prebound):
            # The first pre-bound volume decides for a node, even if it is not accessible from there.
            taken = self._prebound_taken.setdefault(volume.metadata.name, np.zeros(len(decided), np.bool_))
            here = ~decided & ~taken
            accessible: Mask = self._available.accessible_from(node_terms(volume)).where[self._nodes.rows] & here
            chosen[accessible] = number
            taken |= accessible
            decided |= here
        return decided, chosen

    def _take(self, storage_class: str, volumes: _SortedVolumes, numbers: NDArray[np.int64]) -> None:
        taken = self._taken.get(storage_class)
        if taken is None:
            taken = self._taken[storage_class] = _TakenVolumes(self._nodes)
        taken.take(volumes, numbers)


class _TakenVolumes:
    """The unbound volumes of one storage class that claims of a pod have taken, per row of a view.

    A volume that any row has taken has one flag per row that it is accessible from, so that a look-up costs the same
    however many volumes are taken.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._walks: dict[int, _Walk] = {}
        #: The numbers of the volumes by name, made when a second walk begins; until then those of the first walk.
        self._numbers: dict[str, int] = {}
        #: The start of each volume's flags by number, -1 while it is not taken on any row.
        self._starts = np.zeros(0, np.int64)
        self._flags = np.zeros(64, np.bool_)
        self._used = 0
        #: What was taken last and is not recorded yet: most pods have no other claim of the class.
        self._latest: tuple[_SortedVolumes, NDArray[np.int64]] | None = None

    def take(self, volumes: _SortedVolumes, numbers: NDArray[np.int64]) -> None:
        """Take a volume, or NO_VOLUME, per row of the view (``numbers``, int64)."""
        self._record()
        self._latest = volumes, numbers

    def first_free(self, volumes: _SortedVolumes, size: int) -> NDArray[np.int64]:
        """The first volume of a size that is accessible from each row and not taken there, int64, or NO_VOLUME."""
        self._record()
        return self._walk(volumes).first(volumes.first_of_size(size), self._is_taken)

    def _walk(self, volumes: _SortedVolumes) -> _Walk:
        walk = self._walks.get(id(volumes))
        if walk is None:
            numbers = np.arange(len(volumes.volumes))
            if self._walks and not self._numbers:
                (first,) = self._walks.values()
                self._numbers = {volume.metadata.name: number for number, volume in enumerate(first.volumes.volumes)}
            if self._walks:
                known = self._numbers
                named = (known.setdefault(volume.metadata.name, len(known)) for volume in volumes.volumes)
                numbers = np.fromiter(named, np.int64, len(volumes.volumes))
            walk = self._walks[id(volumes)] = _Walk(volumes, self._nodes, numbers)
            missing = len(self._numbers or numbers) - len(self._starts)
            self._starts = np.concatenate([self._starts, np.full(missing, -1)])
        return walk

    def _is_taken(self, numbers: NDArray[np.int64], places: NDArray[np.int64]) -> Mask:
        """Whether volumes are taken at their places among the rows that they are accessible from."""
        starts = self._starts[numbers]
        return (starts >= 0) & self._flags[np.where(starts >= 0, starts + places, 0)]

    def _record(self) -> None:
        if self._latest is None:
            return
        (volumes, chosen), self._latest = self._latest, None
        rows = np.flatnonzero(chosen != NO_VOLUME)
        if not len(rows):
            return
        walk = self._walk(volumes)
        numbers, places, sizes = walk.flags_of(chosen[rows], rows)
        distinct, first = np.unique(numbers, return_index=True)
        is_new = self._starts[distinct] < 0
        new, new_sizes = distinct[is_new], sizes[first[is_new]]
        self._starts[new] = self._used + np.cumsum(new_sizes) - new_sizes
        self._used += int(new_sizes.sum())
        if self._used > len(self._flags):
            grown = np.zeros(2 * self._used, np.bool_)
            grown[: len(self._flags)] = self._flags
            self._flags = grown
        self._flags[self._starts[numbers] + places] = True


class _Walk:
    """A walk over sorted volumes, for each pair of a group and a row; what it has passed is taken or too small.

    ``numbers`` (int64) are those by which flags are kept.
    """

    def __init__(self, volumes: _SortedVolumes, nodes: Nodes, numbers: NDArray[np.int64]) -> None:
        self.volumes = volumes
        self._numbers = numbers
        self._row_numbers, self._row_count = nodes.row_numbers, len(nodes)
        positions = np.full(volumes.total, -1, np.int64)
        positions[nodes.rows] = np.arange(len(nodes))
        in_view = positions[volumes.rows] >= 0
        table_rows, self._groups = volumes.rows[in_view], volumes.groups[in_view]
        self._positions = positions[table_rows]
        #: One key per pair, ascending.
        self._pairs = self._groups * volumes.total + table_rows
        self._group_sizes = np.bincount(self._groups, minlength=volumes.group_count)
        self._group_starts = np.cumsum(self._group_sizes) - self._group_sizes
        self._places = np.arange(len(self._groups)) - self._group_starts[self._groups]
        available = np.flatnonzero(volumes.available)
        by_group = np.argsort(volumes.group_of[available], kind="stable")
        #: The available volumes by group, in order, and one key per volume, ascending.
        self._order = np.append(available[by_group], len(numbers))
        self._scale = len(numbers) + 1
        self._keys = volumes.group_of[self._order[:-1]] * self._scale + self._order[:-1]
        self._next = np.searchsorted(self._keys, self._groups * self._scale)
        self._end = np.searchsorted(self._keys, (self._groups + 1) * self._scale)
        self._start = 0

    def first(self, start: int, is_taken: Callable[[NDArray[np.int64], NDArray[np.int64]], Mask]) -> NDArray[np.int64]:
        """The first volume from number ``start`` on that is not taken, int64 per row of the view, or NO_VOLUME."""
        if start > self._start:
            self._start = start
            self._next = np.maximum(self._next, np.searchsorted(self._keys, self._groups * self._scale + start))
        walking = np.flatnonzero(self._next < self._end)
        while len(walking):
            numbers = self._numbers[self._order[self._next[walking]]]
            walking = walking[is_taken(numbers, self._places[walking])]
            self._next[walking] += 1
            walking = walking[self._next[walking] < self._end[walking]]
        none = len(self._numbers)
        found = np.where(self._next < self._end, self._order[self._next], none)
        best = np.full(self._row_count, none)
        np.minimum.at(best, self._positions, found)
        return np.where(best == none, NO_VOLUME, best)

    def flags_of(
        self, chosen: NDArray[np.int64], positions: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of a volume on each of some rows: its number, the place of the row among its rows, and how many it has."""
        groups = self.volumes.group_of[chosen]
        pairs = np.searchsorted(self._pairs, groups * self.volumes.total + self._row_numbers[positions])
        return self._numbers[chosen], pairs - self._group_starts[groups], self._group_sizes[groups]


def node_terms(volume: PersistentVolume) -> Terms | None:
    """The terms of a volume's required node affinity, None for a volume without."""
    affinity = volume.spec.node_affinity
    return None if affinity is None or affinity.required is None else affinity.required.node_selector_terms


def _sorts_alike(one: PersistentVolume, other: PersistentVolume) -> bool:
    return capacity_of(one) == capacity_of(other) and node_terms(one) == node_terms(other)
