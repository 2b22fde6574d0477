"""Volumes that are there for the taking, and from which nodes: static binding of claims (semantics 8.12).

A claim that waits for its first consumer is bound to a free volume that suits it and can be reached from the pod's
node, the smallest first. Volumes that are free are kept by class; for every distinct *want* (class, size, modes,
selector) the suitable ones are put into order once, grouped by the nodes that reach them. Choosing one for every node
at once is then a few array operations, whatever number of volumes is already bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelectorTerm
from kubestow.api.quantity import nanos
from kubestow.api.selectors import EVERYTHING, Selector, compile_selector
from kubestow.api.storage import STORAGE, PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.nodes.selectors import matches_any_term
from kubestow.cluster.storage.node_selections import NodeSelection, NodeSelections
from kubestow.errors import InvalidQuantity

__all__ = [
    "NO_VOLUME",
    "AvailableVolumes",
    "ClaimRequirements",
    "VolumeMatch",
    "capacity_of",
    "is_available_for",
    "is_prebound_to",
    "node_terms",
    "requirements_of",
    "satisfies",
]

#: Stands for "no volume" in a choice.
NO_VOLUME = -1

_AVAILABLE = "Available"
_FILESYSTEM = "Filesystem"
#: Wants that are remembered per class.
_WANTS = 64

_encode = msgspec.json.Encoder(order="deterministic").encode

Terms = Sequence[NodeSelectorTerm]


class ClaimRequirements(NamedTuple):
    """What a claim asks of a volume. ``size`` is in nano bytes."""

    storage_class: str
    size: int
    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]
    selector: Selector


class VolumeMatch(NamedTuple):
    """A volume for every node: ``numbers`` are int64 over all rows, into ``volumes``, or NO_CHOICE."""

    volumes: Sequence[PersistentVolume]
    numbers: NDArray[np.int64]


def requirements_of(claim: PersistentVolumeClaim) -> ClaimRequirements:
    """What a claim asks for. Raises InvalidQuantity or InvalidSelector."""
    spec = claim.spec
    return ClaimRequirements(
        claim.storage_class,
        nanos(spec.resources.requests.get(STORAGE, 0)),
        spec.volume_mode or _FILESYSTEM,
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes),
        EVERYTHING if spec.selector is None else compile_selector(spec.selector),
    )


class AvailableVolumes:
    """The volumes of a cluster by what they are good for."""

    def __init__(self, selections: NodeSelections) -> None:
        self._selections = selections
        self._free: dict[str, dict[str, PersistentVolume]] = {}
        self._meant_for: dict[tuple[str, str], dict[str, PersistentVolume]] = {}
        self._pools: dict[str, dict[ClaimRequirements, _Pool]] = {}

    def changed(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        """A volume is new, changed or gone."""
        if before is not None:
            self._remove(before)
        if after is not None:
            self._add(after)

    def reach(self, terms: Terms | None) -> NodeSelection:
        """The nodes that meet a volume's node affinity; None means all of them."""
        if terms is None:
            return self._selections.get("everywhere", lambda nodes: np.ones(len(nodes), np.bool_))
        return self._selections.get(("terms", _encode(terms)), lambda nodes: matches_any_term(nodes, terms))

    def choose(
        self, claim: PersistentVolumeClaim, want: ClaimRequirements, taken: Sequence[VolumeMatch]
    ) -> VolumeMatch:
        """The best volume for a claim, node by node; ``taken`` are those that the pod's other claims have there."""
        meant = self._meant_for_claim(claim, want)
        if not meant:
            return self._pool(want).choose(taken)
        rest = self._pool(want).choose(taken)
        numbers = np.where(rest.numbers == NO_VOLUME, NO_VOLUME, rest.numbers + len(meant))
        decided = np.zeros(len(numbers), np.bool_)
        for number, volume in enumerate(meant):
            # The first volume that is reserved for the claim decides, even if that means: none from here.
            open_here = ~decided & ~_taken_at(taken, volume, len(numbers))
            numbers[open_here] = np.where(self.reach(node_terms(volume)).where[open_here], number, NO_VOLUME)
            decided |= open_here
        return VolumeMatch([*meant, *rest.volumes], numbers)

    def _meant_for_claim(self, claim: PersistentVolumeClaim, want: ClaimRequirements) -> list[PersistentVolume]:
        reserved = self._meant_for.get((claim.metadata.namespace, claim.metadata.name))
        if not reserved:
            return []
        return [
            volume
            for _, volume in sorted(reserved.items())
            if volume.storage_class == want.storage_class and is_prebound_to(volume, claim) and satisfies(volume, want)
        ]

    def _pool(self, want: ClaimRequirements) -> _Pool:
        pools = self._pools.setdefault(want.storage_class, {})
        pool = pools.get(want)
        if pool is None or not pool.is_current(self._selections.revision):
            if len(pools) >= _WANTS:
                pools.clear()
            suitable = [
                volume for volume in self._free.get(want.storage_class, {}).values() if is_available_for(volume, want)
            ]
            reaches = [self.reach(node_terms(volume)) for volume in suitable]
            pool = pools[want] = _Pool(suitable, reaches, self._selections)
        return pool

    def _add(self, volume: PersistentVolume) -> None:
        claim = volume.spec.claim_ref
        if claim is not None:
            self._meant_for.setdefault((claim.namespace, claim.name), {})[volume.metadata.name] = volume
            return
        self._free.setdefault(volume.storage_class, {})[volume.metadata.name] = volume
        pools = self._pools.get(volume.storage_class, {})
        for want in [want for want in pools if is_available_for(volume, want)]:
            if not pools[want].put_back(volume):
                del pools[want]

    def _remove(self, volume: PersistentVolume) -> None:
        claim = volume.spec.claim_ref
        if claim is not None:
            reserved = self._meant_for[claim.namespace, claim.name]
            del reserved[volume.metadata.name]
            if not reserved:
                del self._meant_for[claim.namespace, claim.name]
            return
        free = self._free[volume.storage_class]
        del free[volume.metadata.name]
        if not free:
            del self._free[volume.storage_class]
        for pool in self._pools.get(volume.storage_class, {}).values():
            pool.take(volume)


class _Pool:
    """The free volumes that answer one want, in the order in which they are preferred: smallest first, then by name."""

    def __init__(
        self, volumes: list[PersistentVolume], reaches: list[NodeSelection], selections: NodeSelections
    ) -> None:
        order = sorted(range(len(volumes)), key=lambda i: (capacity_of(volumes[i]), volumes[i].metadata.name))
        self.volumes = [volumes[i] for i in order]
        self._revision = selections.revision
        self._total = selections.total
        self._position = {volume.metadata.name: place for place, volume in enumerate(self.volumes)}
        self._free = np.ones(len(order), np.bool_)
        self._first_choice: VolumeMatch | None = None
        groups: dict[int, int] = {}
        numbers = [groups.setdefault(id(reaches[i]), len(groups)) for i in order]
        self._group_of = np.array(numbers, np.int64)
        by_group = {groups[id(reach)]: reach.rows for reach in reaches}
        #: One entry for each pair of a group of volumes and a row that reaches them.
        self._rows = np.concatenate([by_group[g] for g in range(len(groups))] or [np.empty(0, np.intp)])
        sizes = np.array([len(by_group[g]) for g in range(len(groups))], np.intp)
        self._groups = np.repeat(np.arange(len(groups)), sizes)
        self._group_count = len(groups)

    def is_current(self, revision: int) -> bool:
        return self._revision == revision

    def take(self, volume: PersistentVolume) -> None:
        """A volume is no longer free."""
        place = self._position.get(volume.metadata.name)
        if place is not None:
            self._free[place] = False
            self._first_choice = None

    def put_back(self, volume: PersistentVolume) -> bool:
        """A volume is free; False when the pool has no place for it."""
        place = self._position.get(volume.metadata.name)
        if place is None or not _same_offer(self.volumes[place], volume):
            return False
        self.volumes[place] = volume
        self._free[place] = True
        self._first_choice = None
        return True

    def choose(self, taken: Sequence[VolumeMatch]) -> VolumeMatch:
        """The first volume in order, for each row, that reaches it and is not taken there."""
        if taken:
            return self._chosen(taken)
        if self._first_choice is None:
            self._first_choice = self._chosen(taken)
        return self._first_choice

    def _chosen(self, taken: Sequence[VolumeMatch]) -> VolumeMatch:
        nothing = len(self.volumes)
        first = self._first_of_groups(len(taken) + 1)
        found = first[0][self._groups]
        if taken:
            elsewhere = [self._translated(choice)[self._rows] for choice in taken]
            found = np.full(len(self._groups), nothing)
            for candidates in first[::-1]:  # the preferred ones last, so that they win
                here = candidates[self._groups]
                free = np.all([here != other for other in elsewhere], axis=0)
                found = np.where(free, here, found)
        best = np.full(self._total, nothing)
        np.minimum.at(best, self._rows, found)
        return VolumeMatch(self.volumes, np.where(best == nothing, NO_VOLUME, best))

    def _first_of_groups(self, count: int) -> list[NDArray[np.int64]]:
        """The first free volume of each group, the second, and so on; a number past the last where there is none."""
        free = self._free.copy()
        first = []
        for _ in range(count):
            places = np.flatnonzero(free)[::-1]
            places_of = np.full(self._group_count, len(self.volumes))
            places_of[self._group_of[places]] = places  # of several the last one written stays: the first in order
            first.append(places_of)
            free[places_of[places_of < len(free)]] = False
        return first

    def _translated(self, choice: VolumeMatch) -> NDArray[np.int64]:
        """A choice from elsewhere in terms of this pool's volumes, NO_CHOICE where it has none of them."""
        if choice.volumes is self.volumes:
            return choice.numbers
        chosen, where = np.unique(choice.numbers, return_inverse=True)
        names = (choice.volumes[number].metadata.name if number >= 0 else "" for number in chosen.tolist())
        return np.array([self._position.get(name, NO_VOLUME) for name in names], np.int64)[where]


# -- what suits what -----------------------------------------------------------------------------------------------


def satisfies(volume: PersistentVolume, want: ClaimRequirements) -> bool:
    """Whether a volume could serve at all, be it reserved for the claim or free for anyone."""
    return (
        capacity_of(volume) >= want.size
        and (volume.spec.volume_mode or _FILESYSTEM) == want.volume_mode
        and (volume.spec.volume_attributes_class_name or "") == want.attributes_class
        and volume.metadata.deletion_timestamp is None
    )


def is_available_for(volume: PersistentVolume, want: ClaimRequirements) -> bool:
    """Whether a free volume serves a claim that has none reserved."""
    return (
        satisfies(volume, want)
        and volume.status.phase == _AVAILABLE
        and want.selector.matches(volume.metadata.labels)
        and want.access_modes.issubset(volume.spec.access_modes)
    )


def is_prebound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reserved = volume.spec.claim_ref
    return reserved is not None and reserved.uid in ("", claim.metadata.uid)


def capacity_of(volume: PersistentVolume) -> int:
    """In nano bytes; a volume whose capacity cannot be read serves nobody."""
    try:
        return nanos(volume.spec.capacity.get(STORAGE, 0))
    except InvalidQuantity:
        return -(2**200)


def node_terms(volume: PersistentVolume) -> Terms | None:
    """The terms of a volume's node affinity; None when it can be reached from everywhere."""
    affinity = volume.spec.node_affinity
    return None if affinity is None or affinity.required is None else affinity.required.node_selector_terms


def _same_offer(one: PersistentVolume, other: PersistentVolume) -> bool:
    return capacity_of(one) == capacity_of(other) and node_terms(one) == node_terms(other)


def _taken_at(taken: Sequence[VolumeMatch], volume: PersistentVolume, total: int) -> NDArray[np.bool_]:
    where = np.zeros(total, np.bool_)
    for choice in taken:
        numbers = [n for n, other in enumerate(choice.volumes) if other.metadata.name == volume.metadata.name]
        where |= np.isin(choice.numbers, numbers)
    return where
