"""VolumeBinding finds volumes for a pod's claims, reserves them and binds them before the pod (semantics 8.12).

Filter finds available volumes, or nodes on which volumes can be provisioned. Reserve assumes the result in the caches
of volumes and claims, where it applies to other pods at once. PreBind patches the API objects with their
resourceVersion as precondition, and waits until the volume controller has completed the bindings: there only objects
that the API server has reported count, never assumed ones.

With the gate StorageCapacityScoring, Score compares per storage class the requested bytes with the capacity of the
chosen volumes or, on nodes without static bindings, with that of the CSIStorageCapacity objects. A utilization shape
maps each class to a score; the node's score is their mean. Minor versions without that gate have
VolumeCapacityPriority, which compares the chosen volumes alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kubestow.api.formats.quantity import Quantity, units
from kubestow.api.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    STORAGE,
    ClaimReference,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.available_volumes import NO_VOLUME, node_terms
from kubestow.cluster.storage.capacities import NO_CAPACITY, CSIStorageCapacities
from kubestow.cluster.storage.csi import in_tree_plugin, migrated_plugins, translated_terms
from kubestow.cluster.storage.pod_volumes import claim_keys, claims_of, is_claim_of_pod, keys_of_claim
from kubestow.config.plugin_args import VolumeBindingArgs
from kubestow.errors import APIError, InvalidObject, InvalidQuantity, KubestowError, Unreachable
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import HintKeys, Invalidation, every_pod_if, for_every_pod, on
from kubestow.framework.interface import (
    FilterPlugin,
    Handle,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubestow.framework.status import SUCCESS, Status, Verdict
from kubestow.plugins.node_resources.fit import UtilizationShape
from kubestow.plugins.volume_binding.finder import (
    BindingRules,
    PodVolumeClaims,
    PodVolumes,
    find_pod_volumes,
    pod_volume_claims,
)
from kubestow.rules.minors import Behaviour

_STATE_NOT_FOUND = "not found"
_DEADLINE_EXCEEDED = "context deadline exceeded"

Int64s = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class AssumedVolumes:
    """Volumes with the claims that they are bound to, and claims to provision, as they are to be written.

    ``versions`` are the resourceVersions of the written objects by namespace and name.
    """

    static_bindings: list[tuple[PersistentVolume, PersistentVolumeClaim]]
    claims_to_provision: list[PersistentVolumeClaim]
    versions: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def on_node(cls, found: PodVolumes, node_name: str) -> AssumedVolumes:
        """From what was found for this node, the only row of ``found``."""
        bindings = [
            (_bound_to(binding.volumes[int(binding.numbers[0])], binding.claim), binding.claim)
            for binding in found.static_bindings
            if binding.numbers[0] != NO_VOLUME
        ]
        provisions = []
        for provision in found.dynamic_provisions:
            if provision.where[0]:
                metadata = provision.claim.metadata
                metadata = replace(metadata, annotations=metadata.annotations | {SELECTED_NODE: node_name})
                provisions.append(replace(provision.claim, metadata=metadata))
        return cls(bindings, provisions)

    def assume(self, cluster: Cluster) -> None:
        """Put the objects into the caches. Raises KubestowError, and then nothing is assumed."""
        try:
            for volume, _ in self.static_bindings:
                cluster.catalog(PersistentVolume).assume(volume)
            for claim in self.claims_to_provision:
                cluster.catalog(PersistentVolumeClaim).assume(claim)
        except KubestowError:
            self.restore(cluster)
            raise

    def restore(self, cluster: Cluster) -> None:
        """Restore the objects in the caches, except those that a newer watch event has replaced."""
        for volume, _ in self.static_bindings:
            cluster.catalog(PersistentVolume).restore("", volume.metadata.name)
        for claim in self.claims_to_provision:
            cluster.catalog(PersistentVolumeClaim).restore(claim.metadata.namespace, claim.metadata.name)

    async def write(self, handle: Handle) -> None:
        """Patch the objects. Raises APIError or Unreachable; patches that succeeded before that remain."""
        for volume, _ in self.static_bindings:
            patch: dict[str, Any] = {"spec": {"claimRef": msgspec.to_builtins(volume.spec.claim_ref)}}
            if BOUND_BY_CONTROLLER in (annotations := volume.metadata.annotations):
                patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: annotations[BOUND_BY_CONTROLLER]}}
            self.versions[_key(volume)] = await handle.patch(volume, patch)
        for claim in self.claims_to_provision:
            selected = {SELECTED_NODE: claim.metadata.annotations[SELECTED_NODE]}
            self.versions[_key(claim)] = await handle.patch(claim, {"metadata": {"annotations": selected}})

    def is_outdated(self, observed: PersistentVolume | PersistentVolumeClaim) -> bool:
        """Whether an observed object is older than what was written of it."""
        version, written = observed.metadata.resource_version, self.versions.get(_key(observed), "")
        return version.isdigit() and written.isdigit() and int(version) < int(written)


class VolumeBinding(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, ReservePlugin, PreBindPlugin):
    """Binds the claims of a pod to volumes that its node can use.

    Keeps :class:`PodVolumeClaims` from PreFilter on, and :class:`AssumedVolumes` from Reserve on.
    """

    name = "VolumeBinding"
    reads_requests = False
    label_keys = ()
    missing_pre_filter_error = _STATE_NOT_FOUND
    reserves_only_for_filtered_pods = True
    pre_binds_only_filtered_pods = True
    time_limit = None  # bindTimeoutSeconds applies instead
    parallel = True
    scoring_gate = "StorageCapacityScoring"

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._rules = BindingRules.of(handle)
        self._bind_timeout = float(args.bind_timeout_seconds)
        scores_capacity = handle.feature_enabled(self.scoring_gate)
        self._utilization_shape = UtilizationShape(args.shape or ()) if scores_capacity else None
        add_or_update = Action.ADD | Action.UPDATE
        has_driver_hint = handle.emulates(Behaviour.CSI_DRIVER_HINT)
        self.events_to_register = (
            on(
                EventResource.STORAGE_CLASS,
                add_or_update,
                invalidates=Invalidation.ALL,
                hint=for_every_pod(_has_new_topologies),
                hint_keys=every_pod_if(_has_new_topologies),
            ),
            on(
                EventResource.PERSISTENT_VOLUME_CLAIM,
                add_or_update,
                invalidates=Invalidation.ALL,
                hint=is_claim_of_pod,
                hint_keys=keys_of_claim,
            ),
            on(EventResource.PERSISTENT_VOLUME, add_or_update, invalidates=Invalidation.ALL),
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            on(
                EventResource.CSI_NODE,
                add_or_update,
                invalidates=Invalidation.ALL,
                hint=for_every_pod(_has_new_migrated_plugins),
                hint_keys=every_pod_if(_has_new_migrated_plugins),
            ),
            on(
                EventResource.CSI_DRIVER,
                Action.UPDATE if has_driver_hint else add_or_update,
                invalidates=Invalidation.ALL,
                hint=_is_schedulable_after_csi_driver_change if has_driver_hint else None,
                hint_keys=_keys_of_csi_driver if has_driver_hint else None,
            ),
            on(
                EventResource.CSI_STORAGE_CAPACITY,
                add_or_update,
                invalidates=Invalidation.ALL,
                hint=for_every_pod(_has_more_capacity),
                hint_keys=every_pod_if(_has_more_capacity),
            ),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with claims; all pods where capacity is scored, because then PreScore never skips."""
        return self._utilization_shape is not None or any(pod.shape.family.claims)

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The claims; None for a pod with an ephemeral volume, whose claim no other pod has."""
        claims = claims_of(pod)
        return None if any(claim.ephemeral for claim in claims) else (pod.namespace, tuple(c.name for c in claims))

    def hint_signature(self, pod: PodInfo) -> Hashable | None:
        """The claims, and the drivers of inline volumes."""
        claims = self.signature(pod)
        return None if claims is None else (claims, tuple(_inline_drivers(pod)))

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        """The claims, and the drivers of inline volumes."""
        return (*claim_keys(pod), *_inline_drivers(pod))

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Rejects pods with missing, lost, deleted or immediate unbound claims; skips pods without claims."""
        claims = pod_volume_claims(self.handle.cluster, pod, self._rules)
        if isinstance(claims, Status):
            return claims
        state.put(claims)
        return None if claims.bound or claims.unbound else Status.skip()

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Passes nodes that can use all bound volumes, and on which the other claims can be bound or provisioned."""
        claims = state[PodVolumeClaims]
        volumes = find_pod_volumes(self.handle.cluster, claims, nodes)
        return Verdict(volumes.keys, claims.status, has_errors=volumes.has_errors) if volumes.keys.any() else None

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips unless the gate for scoring is on."""
        return Status.skip() if self._utilization_shape is None else None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The utilization of the storage that the unbound claims would use."""
        claims = state.get(PodVolumeClaims) or PodVolumeClaims()
        if self._utilization_shape is None or not claims.unbound:
            return np.zeros(len(nodes), np.int64)
        volumes = find_pod_volumes(self.handle.cluster, claims, nodes)
        return _storage_scores(self._resources(volumes), len(nodes), self._utilization_shape)

    def _resources(self, volumes: PodVolumes) -> list[_StorageResource]:
        """What is scored: the volumes to bind or, on nodes without them, the capacity to provision from."""
        return [*_static_resources(volumes), *_dynamic_resources(volumes, self.handle.cluster.volumes.capacities)]

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Assumes volumes for the unbound claims, and the node for the claims to provision."""
        claims = state.get(PodVolumeClaims)
        if claims is None:
            return Status.error(_STATE_NOT_FOUND) if any(pod.shape.family.claims) else None
        if not claims.unbound:
            return None
        cluster = self.handle.cluster
        row = cluster.nodes.rows[node_name]
        volumes = find_pod_volumes(cluster, claims, Nodes(cluster.nodes, slice(row, row + 1)))
        assumed = AssumedVolumes.on_node(volumes, node_name)
        try:
            assumed.assume(cluster)
        except KubestowError as error:
            return Status.error(str(error))
        state.put(assumed)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Restores the assumed volumes and claims."""
        assumed = state.get(AssumedVolumes)
        if assumed is not None:
            assumed.restore(self.handle.cluster)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Skips pods without assumed volumes."""
        return Status.skip() if state.get(AssumedVolumes) is None else SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Writes the assumed volumes and claims, then waits until all claims are bound. All failures are errors."""
        assumed = state.get(AssumedVolumes)
        if assumed is None:
            return None
        try:
            await assumed.write(self.handle)
        except (APIError, Unreachable) as error:
            return Status.error(str(error))
        check = _BindingCheck(self.handle.cluster, assumed, pod, node_name)
        status = await self.handle.wait_for(check.status, self._bind_timeout)
        return _binding_error(_DEADLINE_EXCEEDED) if status is None else status


class ScoringOfVolumesToBind(VolumeBinding):
    """The plugin before :attr:`Behaviour.CAPACITY_TO_PROVISION_IS_SCORED`: it scores the volumes to bind alone."""

    scoring_gate = "VolumeCapacityPriority"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips unless the gate is on and a claim can be bound to a volume on one of the nodes."""
        claims = state.get(PodVolumeClaims) or PodVolumeClaims()
        if self._utilization_shape is None or not claims.unbound:
            return Status.skip()
        bindings = find_pod_volumes(self.handle.cluster, claims, nodes).static_bindings
        return None if any((binding.numbers != NO_VOLUME).any() for binding in bindings) else Status.skip()

    def _resources(self, volumes: PodVolumes) -> list[_StorageResource]:
        return _static_resources(volumes)


# -- queueing hints ------------------------------------------------------------------------------------------------


def _has_new_topologies(old: StorageClass | None, new: StorageClass) -> bool:
    return old is None or old.allowed_topologies != new.allowed_topologies


def _has_new_migrated_plugins(old: CSINode | None, new: CSINode) -> bool:
    return old is None or migrated_plugins(old) != migrated_plugins(new)


def _is_schedulable_after_csi_driver_change(pod: PodInfo, old: CSIDriver, new: CSIDriver) -> bool:
    """Whether the driver of an inline volume of the pod no longer tracks capacity."""
    no_longer_tracks = old.spec.storage_capacity and not new.spec.storage_capacity
    return bool(no_longer_tracks and new.metadata.name in _inline_drivers(pod))


def _keys_of_csi_driver(old: CSIDriver, new: CSIDriver) -> HintKeys:
    return (new.metadata.name,)


def _inline_drivers(pod: PodInfo) -> list[str]:
    return [volume.csi.driver for volume in pod.spec.volumes if volume.csi is not None]


def _has_more_capacity(old: CSIStorageCapacity | None, new: CSIStorageCapacity) -> bool:
    if old is None:
        return True
    before, after = _limit(old), _limit(new)
    return after is not None and (before is None or after > before)


def _limit(capacity: CSIStorageCapacity) -> int | None:
    """The limit in bytes; None if it is missing or invalid."""
    try:
        return None if capacity.limit is None else units(capacity.limit)
    except InvalidQuantity:
        return None


# -- binding -------------------------------------------------------------------------------------------------------


def _key(obj: PersistentVolume | PersistentVolumeClaim) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name


def _bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """A volume with ``claimRef`` set, and marked as bound by the controller unless it was pre-bound."""
    claim_ref = ClaimReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
    )
    annotations = volume.metadata.annotations
    if volume.spec.claim_ref is None:
        annotations = annotations | {BOUND_BY_CONTROLLER: "yes"}
    metadata, spec = replace(volume.metadata, annotations=annotations), replace(volume.spec, claim_ref=claim_ref)
    return replace(volume, metadata=metadata, spec=spec)


def _binding_error(error: str) -> Status:
    """The status of a binding that failed."""
    return Status.error(f"binding volumes: {error}")


class _BindingCheck:
    """Whether the claims of a pod are bound, asked again after every change of the cluster.

    Volumes come before claims to provision. As in kube-scheduler, those after the first that is not bound yet are not
    checked. Those before it are checked again once all others are bound, so that a change costs one check, not n.
    """

    def __init__(self, cluster: Cluster, assumed: AssumedVolumes, pod: PodInfo, node_name: str) -> None:
        self._cluster, self._assumed, self._pod, self._node_name = cluster, assumed, pod, node_name
        self._bound = 0

    def status(self) -> Status | None:
        """SUCCESS once all claims are bound, an error once a binding has failed, None until then."""
        if self._node_name not in self._cluster.nodes.rows:
            name = self._node_name
            return _binding_error(f'failed to get node "{name}": node "{name}" not found')
        if self._cluster.placed_pod(self._pod.uid) is None:
            return _binding_error(f'pod does not exist any more: pod "{self._pod.name}" not found')
        start = self._bound
        status = self._first_not_bound(start)
        if status is SUCCESS and start:
            status = self._first_not_bound(0)
        return status

    def _first_not_bound(self, start: int) -> Status | None:
        """The status of the first claim from ``start`` on that is not bound; SUCCESS if all are."""
        bindings, provisions = self._assumed.static_bindings, self._assumed.claims_to_provision
        for self._bound in range(start, len(bindings) + len(provisions)):
            if self._bound < len(bindings):
                status = _check_binding(self._cluster, self._assumed, *bindings[self._bound], self._node_name)
            else:
                claim = provisions[self._bound - len(bindings)]
                status = _check_provisioning(self._cluster, self._assumed, claim, self._node_name)
            if status is not SUCCESS:
                return status
        return SUCCESS


def _check_binding(
    cluster: Cluster,
    assumed: AssumedVolumes,
    assumed_volume: PersistentVolume,
    assumed_claim: PersistentVolumeClaim,
    node_name: str,
) -> Status | None:
    name, key = assumed_volume.metadata.name, assumed_claim.key
    volume = cluster.catalog(PersistentVolume).as_observed("", name)
    claim = _observed(cluster, assumed_claim)
    if volume is None:
        return _binding_error(f'failed to check binding: could not find v1.PersistentVolume "{name}"')
    if claim is None:
        return _binding_error(f'failed to check binding: could not find v1.PersistentVolumeClaim "{key}"')
    if assumed.is_outdated(volume):
        return None
    if not _matches_node(cluster, volume, node_name):
        return _affinity_error(volume, node_name)
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        return _binding_error(f'ClaimRef got reset for pv "{name}"')
    return SUCCESS if claim.is_bound else None


def _check_provisioning(
    cluster: Cluster, assumed: AssumedVolumes, assumed_claim: PersistentVolumeClaim, node_name: str
) -> Status | None:
    name, key, claim = assumed_claim.metadata.name, assumed_claim.key, _observed(cluster, assumed_claim)
    if claim is None:
        return _binding_error(f'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "{key}"')
    if assumed.is_outdated(claim):
        return None
    if not claim.metadata.annotations:
        return _binding_error(f'selectedNode annotation reset for PVC "{name}"')
    if claim.metadata.annotations.get(SELECTED_NODE) != node_name:
        return _binding_error(f'provisioning failed for PVC "{name}"')
    if claim.spec.volume_name:
        volume = cluster.catalog(PersistentVolume).as_observed("", claim.spec.volume_name)
        if volume is None:
            return None  # the watch of volumes lags behind that of claims
        if not _matches_node(cluster, volume, node_name):
            return _affinity_error(volume, node_name)
    # The controller writes the phase after the rest. kube-scheduler looks once a second and thus sees it, too.
    return SUCCESS if claim.is_bound and claim.status.phase == "Bound" else None


def _observed(cluster: Cluster, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
    return cluster.catalog(PersistentVolumeClaim).as_observed(claim.metadata.namespace, claim.metadata.name)


def _matches_node(cluster: Cluster, volume: PersistentVolume, node_name: str) -> bool:
    """Whether the volume's node affinity, translated where its plugin is migrated, matches a node."""
    row = cluster.nodes.rows[node_name]
    plugin = in_tree_plugin(volume.spec)
    terms = node_terms(volume)
    if plugin is not None and plugin.migrates and cluster.volumes.csi_nodes.migrated(plugin.name)[row]:
        try:
            terms = translated_terms(plugin, volume)
        except InvalidObject:
            return False
    return bool(cluster.volumes.available.accessible_from(terms).where[row])


def _affinity_error(volume: PersistentVolume, node_name: str) -> Status:
    name = volume.metadata.name
    return _binding_error(f'pv "{name}" node affinity doesn\'t match node "{node_name}": no matching NodeSelectorTerms')


# -- scoring -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _StorageResource:
    """The requested bytes and the capacity in bytes of one class per row; ``where`` (bool) the class is used."""

    where: Mask
    requested: Int64s
    capacity: Int64s

    @classmethod
    def empty(cls, rows: int) -> _StorageResource:
        return cls(np.zeros(rows, np.bool_), np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def _storage_scores(resources: Iterable[_StorageResource], rows: int, shape: UtilizationShape) -> Int64s:
    """The score of each row, 0 to 100, int64; 0 for rows that use none of the resources."""
    total = np.zeros(rows, np.int64)
    classes = np.zeros(rows, np.int64)
    for resource in resources:
        total += np.where(resource.where, shape.scores(resource.requested, resource.capacity), 0)
        classes += resource.where
    mean = total / np.maximum(classes, 1)
    return np.floor(mean + 0.5).astype(np.int64)  # rounds half away from zero: scores are not negative


def _static_resources(volumes: PodVolumes) -> list[_StorageResource]:
    by_class: dict[str, _StorageResource] = {}
    for binding in volumes.static_bindings:
        chosen, which = np.unique(binding.numbers, return_inverse=True)
        found = [None if number == NO_VOLUME else binding.volumes[number].spec for number in chosen.tolist()]
        sizes = np.array([0 if spec is None else _bytes(spec.capacity.get(STORAGE)) for spec in found], np.int64)
        for name in dict.fromkeys(spec.storage_class_name for spec in found if spec is not None):
            is_of_class = [spec is not None and spec.storage_class_name == name for spec in found]
            of_class: Mask = np.array(is_of_class, np.bool_)[which]
            resource = by_class.setdefault(name, _StorageResource.empty(len(volumes.keys)))
            resource.where |= of_class
            resource.requested += of_class * _bytes(binding.claim.spec.resources.requests.get(STORAGE))
            resource.capacity += np.where(of_class, sizes[which], 0)
    return list(by_class.values())


def _dynamic_resources(volumes: PodVolumes, capacities: CSIStorageCapacities) -> list[_StorageResource]:
    without_static = np.ones(len(volumes.keys), np.bool_)
    for binding in volumes.static_bindings:
        without_static &= binding.numbers == NO_VOLUME
    by_class: dict[str, _StorageResource] = {}
    for provision in volumes.dynamic_provisions:
        if provision.capacities is None:
            continue
        name = provision.claim.storage_class
        where = provision.where & without_static & (provision.capacities != NO_CAPACITY)
        resource = by_class.setdefault(name, _StorageResource.empty(len(volumes.keys)))
        resource.where |= where
        resource.requested += where * _bytes(provision.claim.spec.resources.requests.get(STORAGE))
        # Not added up: claims of one class are provisioned from the same capacity.
        resource.capacity = np.where(where, capacities.capacity(name, provision.capacities), resource.capacity)
    return list(by_class.values())


def _bytes(quantity: Quantity | None) -> int:
    try:
        return 0 if quantity is None else units(quantity)
    except InvalidQuantity:
        return 0
