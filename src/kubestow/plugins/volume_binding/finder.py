"""Where a pod's volumes are, or could be: the search behind VolumeBinding, for all nodes at once (semantics 8.12).

Bound claims need nodes that reach their volumes. The others are matched with free volumes, smallest claim first; what
finds none must be provided by its storage class. All of it is masks over rows, from selections that are shared by
every volume and class that says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelectorRequirement, NodeSelectorTerm
from kubestow.api.quantity import units
from kubestow.api.storage import (
    SELECTED_NODE,
    STORAGE,
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.selectors import matches_any_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.storage.available_volumes import NO_CHOICE, Choice, Want, node_terms, want_of
from kubestow.cluster.storage.capacities import NOWHERE
from kubestow.cluster.storage.csi_migration import in_tree_plugin, translated_terms
from kubestow.errors import InvalidObject
from kubestow.framework.status import Status

__all__ = ["Finding", "Match", "PodClaims", "Provision", "find"]

Mask = NDArray[np.bool_]

_NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")

#: Bits of a verdict's key, in the order of the reasons they stand for. Keys from _FIRST_ERROR on are errors.
_NODE_CONFLICT, _BIND_CONFLICT, _NOT_ENOUGH_SPACE, _NO_SUCH_VOLUME = 1, 2, 4, 8
_REASONS = {
    _NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    _BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
    _NOT_ENOUGH_SPACE: "node(s) did not have enough free storage",
    _NO_SUCH_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
_FIRST_ERROR = 16

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(slots=True)
class PodClaims:
    """A pod's claims: those that are bound, and those that are to be bound now that the pod gets its node.

    ``errors`` are what went wrong in looking for volumes, by the keys of verdicts.
    """

    bound: Sequence[PersistentVolumeClaim] = ()
    unbound: Sequence[PersistentVolumeClaim] = ()
    errors: list[str] = field(default_factory=list)

    def error_key(self, text: str) -> int:
        """The key that stands for an error."""
        if text not in self.errors:
            self.errors.append(text)
        return _FIRST_ERROR + self.errors.index(text)

    def status(self, key: int) -> Status:
        """What a key means."""
        if key >= _FIRST_ERROR:
            return Status.error(self.errors[key - _FIRST_ERROR])
        return Status.unresolvable(*(reason for bit, reason in _REASONS.items() if key & bit))


@dataclass(frozen=True, slots=True)
class Match:
    """A claim and the free volume it would get, row by row: ``numbers`` (int64) into ``volumes``, or NO_CHOICE."""

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume]
    numbers: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim, ``where`` (bool) a volume would have to be provided for it, and the capacity objects that could."""

    claim: PersistentVolumeClaim
    where: Mask
    capacities: NDArray[np.int64] | None


@dataclass(slots=True)
class Finding:
    """What was found for the rows of a view: ``keys`` is int32, 0 where all claims can be served."""

    keys: NDArray[np.int32]
    matches: list[Match] = field(default_factory=list)
    provisions: list[Provision] = field(default_factory=list)

    @property
    def has_errors(self) -> bool:
        """Whether any row ended with an error."""
        return bool((self.keys >= _FIRST_ERROR).any())


def find(cluster: Cluster, claims: PodClaims, nodes: Nodes) -> Finding:
    """Look for the volumes of a pod's claims on every row of a view."""
    return _Search(cluster, claims, nodes).run()


class _Search:
    """One search. ``open`` (bool) are the rows on which nothing has gone wrong so far with the claims looked at."""

    def __init__(self, cluster: Cluster, claims: PodClaims, nodes: Nodes) -> None:
        self._cluster = cluster
        self._claims = claims
        self._nodes = nodes
        self._open = np.ones(len(nodes), np.bool_)
        self._failed = np.zeros(len(nodes), np.bool_)
        self._found = Finding(np.zeros(len(nodes), np.int32))

    def run(self) -> Finding:
        for claim in self._claims.bound:
            if not self._check_bound(claim):
                break
        if self._claims.unbound:
            self._open = ~self._failed
            self._serve_unbound()
        return self._found

    def _refuse(self, where: Mask, bit: int) -> None:
        refused = where & self._open
        self._found.keys |= refused * np.int32(bit)
        self._open &= ~refused

    def _fail(self, where: Mask, text: str) -> None:
        failed = where & self._open
        if failed.any():
            self._found.keys[failed] = self._claims.error_key(text)
            self._failed |= failed
            self._open &= ~failed

    # -- bound claims --------------------------------------------------------------------------------------------

    def _check_bound(self, claim: PersistentVolumeClaim) -> bool:
        """Refuse the nodes that do not reach a claim's volume; False when there is nothing more to check."""
        volume = self._cluster.catalog(PersistentVolume).get("", claim.spec.volume_name)
        if volume is None:
            self._refuse(self._open, _NO_SUCH_VOLUME)
            return False
        reach = self._cluster.volumes.supply.reach(node_terms(volume))
        migrated = self._where_migrated(volume)
        if migrated is not None:
            self._check_migrated(volume, migrated)
            self._refuse(~reach.where[self._nodes.rows] & ~migrated, _NODE_CONFLICT)
        elif not reach.everywhere:
            self._refuse(~reach.where[self._nodes.rows], _NODE_CONFLICT)
        return True

    def _where_migrated(self, volume: PersistentVolume) -> Mask | None:
        """Where an in-tree volume is attached by a CSI driver; None for nowhere."""
        plugin = in_tree_plugin(volume.spec)
        if plugin is None or not plugin.migrates:
            return None
        migrated: Mask = self._cluster.volumes.csi_nodes.migrated(plugin.name)[self._nodes.rows]
        return migrated if migrated.any() else None

    def _check_migrated(self, volume: PersistentVolume, where: Mask) -> None:
        plugin = in_tree_plugin(volume.spec)
        assert plugin is not None
        try:
            reach = self._cluster.volumes.supply.reach(translated_terms(plugin, volume))
        except InvalidObject as error:
            self._fail(where, f"could not translate pv: {error}")
            return
        self._refuse(~reach.where[self._nodes.rows] & where, _NODE_CONFLICT)

    # -- unbound claims ------------------------------------------------------------------------------------------

    def _serve_unbound(self) -> None:
        wants = self._wants()
        if wants is None:
            return
        to_provide = self._already_selected()
        wanted = [(want, claim) for want, claim in wants if SELECTED_NODE not in claim.metadata.annotations]
        self._match(wanted)
        to_provide += [(match.claim, match.numbers == NO_CHOICE) for match in self._found.matches]
        for claim, where in to_provide:
            self._provide(claim, where & self._open)

    def _wants(self) -> list[tuple[Want, PersistentVolumeClaim]] | None:
        """What the unbound claims ask for, the smallest first; None when one of them cannot be read."""
        wants = []
        for claim in self._claims.unbound:
            try:
                wants.append((want_of(claim), claim))
            except InvalidObject as error:
                self._fail(self._open, f'claim "{claim.key}": {error}')
                return None
        return sorted(wants, key=lambda pair: pair[0].size)

    def _already_selected(self) -> list[tuple[PersistentVolumeClaim, Mask]]:
        """Claims whose volume is being provided for a node already: no other node will do."""
        selected = []
        for claim in self._claims.unbound:
            node_name = claim.metadata.annotations.get(SELECTED_NODE)
            if node_name is not None:
                here = np.zeros(len(self._nodes), np.bool_)
                position = self._nodes.position(node_name)
                if position is not None:
                    here[position] = True
                self._refuse(~here, _BIND_CONFLICT)
                selected.append((claim, here))
        return selected

    def _match(self, wanted: Sequence[tuple[Want, PersistentVolumeClaim]]) -> None:
        taken: list[Choice] = []
        for want, claim in wanted:
            choice = self._cluster.volumes.supply.choose(claim, want, taken)
            taken.append(choice)
            self._found.matches.append(Match(claim, choice.volumes, choice.numbers[self._nodes.rows]))

    def _provide(self, claim: PersistentVolumeClaim, where: Mask) -> None:
        """Refuse those of the given rows to which a claim's class cannot provide a volume."""
        if not where.any():
            return
        storage_class = self._cluster.catalog(StorageClass).get("", claim.storage_class)
        if storage_class is None:
            self._fail(where, f'failed to find storage class "{claim.storage_class}"')
            return
        if storage_class.provisioner in _NO_PROVISIONER:
            self._refuse(where, _BIND_CONFLICT)
            return
        if storage_class.allowed_topologies:
            self._refuse(where & ~self._allowed(storage_class.allowed_topologies), _BIND_CONFLICT)
        capacities = self._with_room(claim, storage_class)
        if capacities is not None:
            self._refuse(where & (capacities == NOWHERE), _NOT_ENOUGH_SPACE)
        self._found.provisions.append(Provision(claim, where & self._open, capacities))

    def _allowed(self, topologies: Sequence[TopologySelectorTerm]) -> Mask:
        key = ("topologies", _encode(topologies))
        allowed = self._cluster.volumes.selections.get(key, lambda nodes: _in_topologies(nodes, topologies))
        return allowed.where[self._nodes.rows]

    def _with_room(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> NDArray[np.int64] | None:
        """The capacity object with room for a claim, row by row; None where the driver does not track capacity."""
        size = claim.spec.resources.requests.get(STORAGE)
        driver = self._cluster.catalog(CSIDriver).get("", storage_class.provisioner)
        if size is None or driver is None or not driver.spec.storage_capacity:
            return None
        numbers = self._cluster.volumes.capacities.with_room(storage_class.metadata.name, units(size))
        return numbers[self._nodes.rows]


def _in_topologies(nodes: Nodes, topologies: Sequence[TopologySelectorTerm]) -> Mask:
    terms = [
        NodeSelectorTerm(
            match_expressions=[
                NodeSelectorRequirement(key=wanted.key, operator="In", values=wanted.values)
                for wanted in term.match_label_expressions
            ]
        )
        for term in topologies
    ]
    return matches_any_term(nodes, terms)
