"""Finds the volumes of a pod's claims on many nodes at once (semantics 8.12).

PreFilter classifies the claims: bound, delayed or immediate. A pod with a missing, lost or deleted claim is rejected,
and so is a pod with an unbound immediate claim: the volume controller binds that one before the pod can be scheduled.

A bound claim needs a node that its volume's affinity matches. Unbound claims are matched with available volumes, the
smallest claim first; a claim without a match is provisioned by its storage class. All steps work with masks over the
rows of a view; node selections are shared by all volumes and classes with the same terms. The caches do not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelectorRequirement, NodeSelectorTerm
from kubestow.api.formats.quantity import units
from kubestow.api.storage import (
    SELECTED_NODE,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.selectors import matches_any_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.available_volumes import NO_VOLUME, node_terms
from kubestow.cluster.storage.capacities import NO_CAPACITY
from kubestow.cluster.storage.csi import in_tree_plugin, translated_terms
from kubestow.cluster.storage.pod_volumes import PodClaim, claims_of
from kubestow.errors import InvalidObject
from kubestow.framework.interface import Handle
from kubestow.framework.status import Status
from kubestow.rules.claims import ownership_problem
from kubestow.rules.minors import Behaviour
from kubestow.rules.volumes import ClaimRequirements, requirements_of

Mask = NDArray[np.bool_]

_REASON_BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
_REASON_NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
_REASON_PV_NOT_EXIST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

#: Bits of a verdict key, in the order in which their reasons are reported. Keys from _FIRST_ERROR on are errors.
_NODE_CONFLICT, _BIND_CONFLICT, _NOT_ENOUGH_SPACE, _PV_NOT_EXIST, _FIRST_ERROR = 1, 2, 4, 8, 16
_REASONS = {
    _BIND_CONFLICT: _REASON_BIND_CONFLICT,
    _NOT_ENOUGH_SPACE: _REASON_NOT_ENOUGH_SPACE,
    _PV_NOT_EXIST: _REASON_PV_NOT_EXIST,
}
_NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")

_encode = msgspec.json.Encoder(order="deterministic").encode

_ATTRIBUTES_CLASS_DISABLED = (
    "unsupported volumeAttributesClassName is set on claim {} when the feature-gate VolumeAttributesClass is disabled"
)
_UNBOUND_IMMEDIATE = Status.unresolvable("pod has unbound immediate PersistentVolumeClaims")


_REASON_NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
_FORMER_REASON_NODE_CONFLICT = "node(s) had volume node affinity conflict"


@dataclass(frozen=True, slots=True)
class BindingRules:
    """What the minor version and its gates change: the reason for a volume that a node cannot reach.

    ``attributes_classes`` is the feature gate VolumeAttributesClass.
    """

    reason_node_conflict: str = _REASON_NODE_CONFLICT
    attributes_classes: bool = True

    @classmethod
    def of(cls, handle: Handle) -> BindingRules:
        """Those of a scheduler."""
        attributes_classes = handle.feature_enabled("VolumeAttributesClass")
        if handle.emulates(Behaviour.VOLUME_AFFINITY_REASON_NAMES_THE_VOLUME):
            return cls(attributes_classes=attributes_classes)
        return cls(_FORMER_REASON_NODE_CONFLICT, attributes_classes)


@dataclass(slots=True)
class PodVolumeClaims:
    """The bound claims of a pod and the unbound claims with delayed binding.

    ``errors`` are the texts of errors that occurred while finding volumes; their positions are part of verdict keys.
    """

    bound: Sequence[PersistentVolumeClaim] = ()
    unbound: Sequence[PersistentVolumeClaim] = ()
    rules: BindingRules = field(default_factory=BindingRules)
    errors: list[str] = field(default_factory=list)

    def error_key(self, error: str) -> int:
        """The verdict key of an error, the same in all verdicts of this pod."""
        if error not in self.errors:
            self.errors.append(error)
        return _FIRST_ERROR + self.errors.index(error)

    def status(self, key: int) -> Status:
        """The status of a verdict key other than 0."""
        if key >= _FIRST_ERROR:
            return Status.error(self.errors[key - _FIRST_ERROR])
        reasons = {_NODE_CONFLICT: self.rules.reason_node_conflict} | _REASONS
        return Status.unresolvable(*(reason for bit, reason in reasons.items() if key & bit))


@dataclass(frozen=True, slots=True)
class StaticBinding:
    """A claim and the available volume for it on each row: ``numbers`` (int64) index ``volumes``, or are NO_VOLUME."""

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume]
    numbers: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DynamicProvision:
    """A claim and the rows on which it would be provisioned (``where``, bool).

    ``capacities`` (int64) are the numbers of the CSIStorageCapacity objects with enough capacity for each row, or
    NO_CAPACITY; None if the driver does not track capacity.
    """

    claim: PersistentVolumeClaim
    where: Mask
    capacities: NDArray[np.int64] | None


@dataclass(slots=True)
class PodVolumes:
    """The volumes of a pod's claims on the rows of a view: ``keys`` (int32) is 0 where all claims have one."""

    keys: NDArray[np.int32]
    static_bindings: list[StaticBinding] = field(default_factory=list)
    dynamic_provisions: list[DynamicProvision] = field(default_factory=list)

    @property
    def has_errors(self) -> bool:
        """Whether the key of any row is an error."""
        return bool((self.keys >= _FIRST_ERROR).any())


def pod_volume_claims(cluster: Cluster, pod: PodInfo, rules: BindingRules) -> PodVolumeClaims | Status:
    """The bound and the delayed claims of a pod, or a status if a claim is unusable, invalid or immediate."""
    bound, unbound = [], []
    has_immediate = False
    claims = _usable_claims(cluster, pod)
    if isinstance(claims, Status):
        return claims
    for claim in claims:
        if claim.is_bound:
            bound.append(claim)
            continue
        is_delayed = _is_delayed(cluster, claim)
        if isinstance(is_delayed, Status):
            return is_delayed
        has_immediate |= not is_delayed
        unbound.append(claim)
    return _UNBOUND_IMMEDIATE if has_immediate else PodVolumeClaims(bound, unbound, rules)


def _usable_claims(cluster: Cluster, pod: PodInfo) -> list[PersistentVolumeClaim] | Status:
    catalog = cluster.catalog(PersistentVolumeClaim)
    claims = []
    for reference in claims_of(pod):
        name = reference.name
        claim = catalog.get(pod.namespace, name)
        if claim is None and reference.ephemeral:
            return Status.unresolvable(
                f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            )
        if claim is None:
            return Status.unresolvable(f'persistentvolumeclaim "{name}" not found')
        if (problem := _problem(pod, reference, claim)) is not None:
            return Status.unresolvable(problem)
        claims.append(claim)
    return claims


def _problem(pod: PodInfo, reference: PodClaim, claim: PersistentVolumeClaim) -> str | None:
    name = claim.metadata.name
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return ownership_problem(claim, pod=pod.key, pod_uid=pod.uid) if reference.ephemeral else None


def _is_delayed(cluster: Cluster, claim: PersistentVolumeClaim) -> bool | Status:
    """Whether an unbound claim waits for the pod's node (WaitForFirstConsumer)."""
    name = claim.storage_class
    storage_class = cluster.catalog(StorageClass).get("", name) if name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        return Status.error(f'VolumeBindingMode not set for StorageClass "{name}"')
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER and not claim.spec.volume_name


def find_pod_volumes(cluster: Cluster, claims: PodVolumeClaims, nodes: Nodes) -> PodVolumes:
    """Find the volumes of a pod's claims on every row of a view."""
    return _Finder(cluster, claims, nodes).run()


class _Finder:
    """One run. ``_passing`` (bool) are the rows without a conflict or error among the claims checked so far."""

    def __init__(self, cluster: Cluster, claims: PodVolumeClaims, nodes: Nodes) -> None:
        self._cluster = cluster
        self._claims = claims
        self._nodes = nodes
        self._passing = np.ones(len(nodes), np.bool_)
        self._failed = np.zeros(len(nodes), np.bool_)
        self._found = PodVolumes(np.zeros(len(nodes), np.int32))

    def run(self) -> PodVolumes:
        for claim in self._claims.bound:
            if not self._check_bound_claim(claim):
                break
        if self._claims.unbound:
            # Conflicts of bound claims do not hide those of unbound claims, only errors do.
            self._passing = ~self._failed
            self._bind_or_provision()
        return self._found

    def _reject(self, where: Mask, reason: int) -> None:
        rejected = where & self._passing
        self._found.keys |= rejected * np.int32(reason)
        self._passing &= ~rejected

    def _fail(self, where: Mask, error: str) -> None:
        failed = where & self._passing
        if failed.any():
            self._found.keys[failed] = self._claims.error_key(error)
            self._failed |= failed
            self._passing &= ~failed

    # -- bound claims ----------------------------------------------------------------------------------------------

    def _check_bound_claim(self, claim: PersistentVolumeClaim) -> bool:
        """Reject the nodes that the volume's affinity does not match; False if the volume does not exist."""
        volume = self._cluster.catalog(PersistentVolume).get("", claim.spec.volume_name)
        if volume is None:
            self._reject(self._passing, _PV_NOT_EXIST)
            return False
        available, rows = self._cluster.volumes.available, self._nodes.rows
        matching = available.accessible_from(node_terms(volume))
        plugin, migrated = in_tree_plugin(volume.spec), None
        if plugin is not None and plugin.migrates:
            migrated = self._cluster.volumes.csi_nodes.migrated(plugin.name)[rows]
        if plugin is None or migrated is None or not migrated.any():
            if not matching.everywhere:
                self._reject(~matching.where[rows], _NODE_CONFLICT)
            return True
        # Where the CSINode reports the in-tree plugin as migrated, the terms are those of the CSI driver.
        try:
            translated = available.accessible_from(translated_terms(plugin, volume))
            self._reject(~translated.where[rows] & migrated, _NODE_CONFLICT)
        except InvalidObject as error:
            self._fail(migrated, f"could not translate pv: {error}")
        self._reject(~matching.where[rows] & ~migrated, _NODE_CONFLICT)
        return True

    # -- unbound claims --------------------------------------------------------------------------------------------

    def _bind_or_provision(self) -> None:
        requirements = self._requirements()
        if requirements is None:
            return
        to_provision = self._claims_with_selected_node()
        if not self._claims.rules.attributes_classes and (text := self._disabled_attributes_class(requirements)):
            self._fail(self._passing, text)
            return
        matching = self._cluster.volumes.available.matching(self._nodes)
        for want, claim in requirements:
            if SELECTED_NODE not in claim.metadata.annotations:
                self._found.static_bindings.append(StaticBinding(claim, *matching.match(claim, want)))
        to_provision += [(binding.claim, binding.numbers == NO_VOLUME) for binding in self._found.static_bindings]
        for claim, where in to_provision:
            self._check_provisioning(claim, where & self._passing)

    def _requirements(self) -> list[tuple[ClaimRequirements, PersistentVolumeClaim]] | None:
        """What the unbound claims require of a volume, smallest claim first; None if a claim is invalid."""
        requirements = []
        for claim in self._claims.unbound:
            try:
                requirements.append((requirements_of(claim), claim))
            except InvalidObject as error:
                self._fail(self._passing, f'claim "{claim.key}": {error}')
                return None
        return sorted(requirements, key=lambda pair: pair[0].size)

    @staticmethod
    def _disabled_attributes_class(requirements: Iterable[tuple[ClaimRequirements, PersistentVolumeClaim]]) -> str:
        """The error for the first claim with an attributes class that no provisioner handles; empty without one."""
        for want, claim in requirements:
            if want.attributes_class and SELECTED_NODE not in claim.metadata.annotations:
                return _ATTRIBUTES_CLASS_DISABLED.format(claim.key)
        return ""

    def _claims_with_selected_node(self) -> list[tuple[PersistentVolumeClaim, Mask]]:
        """The claims that a provisioner already handles, each with a mask of its selected node; rejects other nodes."""
        claims = []
        for claim in self._claims.unbound:
            node_name = claim.metadata.annotations.get(SELECTED_NODE)
            if node_name is not None:
                selected = self._nodes.named(node_name)
                self._reject(~selected, _BIND_CONFLICT)
                claims.append((claim, selected))
        return claims

    def _check_provisioning(self, claim: PersistentVolumeClaim, where: Mask) -> None:
        """Reject those of the rows ``where`` for which the claim's class cannot provision a volume."""
        if not where.any():
            return
        volumes, rows = self._cluster.volumes, self._nodes.rows
        storage_class = self._cluster.catalog(StorageClass).get("", claim.storage_class)
        if storage_class is None:
            self._fail(where, f'failed to find storage class "{claim.storage_class}"')
            return
        if storage_class.provisioner in _NO_PROVISIONER:
            self._reject(where, _BIND_CONFLICT)
            return
        if storage_class.allowed_topologies:
            topologies = storage_class.allowed_topologies
            key = ("topologies", _encode(topologies))
            allowed = volumes.node_masks.get(key, lambda nodes: _in_topologies(nodes, topologies))
            self._reject(where & ~allowed.where[rows], _BIND_CONFLICT)
        capacities = None
        size = claim.spec.resources.requests.get(STORAGE)
        driver = self._cluster.catalog(CSIDriver).get("", storage_class.provisioner)
        if size is not None and driver is not None and driver.spec.storage_capacity:
            capacities = volumes.capacities.first_sufficient(storage_class.metadata.name, units(size))[rows]
            self._reject(where & (capacities == NO_CAPACITY), _NOT_ENOUGH_SPACE)
        self._found.dynamic_provisions.append(DynamicProvision(claim, where & self._passing, capacities))


def _in_topologies(nodes: Nodes, topologies: Sequence[TopologySelectorTerm]) -> Mask:
    terms = []
    for topology in topologies:
        expressions = topology.match_label_expressions
        required = [NodeSelectorRequirement(key=each.key, operator="In", values=each.values) for each in expressions]
        terms.append(NodeSelectorTerm(match_expressions=required))
    return matches_any_term(nodes, terms)
