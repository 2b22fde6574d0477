"""VolumeBinding finds a pod's volumes, promises them to it, and has them bound before the pod is (semantics 8.12).

Promises are assumptions in the catalogs of volumes and claims: everybody who looks sees them at once. The binding cycle
then writes them through the cluster API and waits until the volume controller has completed the binding.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.storage.available_volumes import NO_CHOICE
from kubestow.cluster.storage.pod_volumes import claims_of, ownership_problem
from kubestow.config.plugin_args import VolumeBindingArgs
from kubestow.errors import APIError, KubestowError, Unreachable
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
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
from kubestow.plugins.node_resources.scoring import UtilizationShape
from kubestow.plugins.volume_binding import hints as volume_hints
from kubestow.plugins.volume_binding.assumed_volumes import Promises, outcome
from kubestow.plugins.volume_binding.finder import PodClaims, find
from kubestow.plugins.volume_binding.scoring import storage_scores

__all__ = ["VolumeBinding"]

_UNBOUND = Status.unresolvable("pod has unbound immediate PersistentVolumeClaims")
_UNPREPARED = Status.error("not found")


class VolumeBinding(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, ReservePlugin, PreBindPlugin):
    """From a pod's claims to volumes on its node."""

    name = "VolumeBinding"
    missing_pre_filter_error = "not found"
    time_limit = None  # its args have a limit of their own
    parallel = True
    events_to_register = (
        on(
            EventResource.STORAGE_CLASS,
            Action.ADD | Action.UPDATE,
            invalidates=Invalidation.ALL,
            hint=volume_hints.class_helps,
        ),
        on(
            EventResource.PERSISTENT_VOLUME_CLAIM,
            Action.ADD | Action.UPDATE,
            invalidates=Invalidation.ALL,
            hint=volume_hints.is_own_claim,
        ),
        on(EventResource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE, invalidates=Invalidation.ALL),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        on(
            EventResource.CSI_NODE,
            Action.ADD | Action.UPDATE,
            invalidates=Invalidation.ALL,
            hint=volume_hints.migration_changed,
        ),
        on(
            EventResource.CSI_DRIVER,
            Action.UPDATE,
            invalidates=Invalidation.ALL,
            hint=volume_hints.stopped_tracking_capacity,
        ),
        on(
            EventResource.CSI_STORAGE_CAPACITY,
            Action.ADD | Action.UPDATE,
            invalidates=Invalidation.ALL,
            hint=volume_hints.capacity_grew,
        ),
    )

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._timeout = float(args.bind_timeout_seconds)
        scores = handle.feature_enabled("StorageCapacityScoring")
        self._shape = UtilizationShape(args.shape or ()) if scores else None

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with claims; where capacity is scored all pods, because then the score is never skipped."""
        return self._shape is not None or _has_claims(pod.shape)

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The claims. An ephemeral volume's is the pod's own, so then nothing is shared."""
        claims = claims_of(pod)
        return None if any(claim.ephemeral for claim in claims) else (pod.namespace, tuple(c.name for c in claims))

    # -- filter --------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Every claim must be there, and bound unless it waits for the pod's node."""
        bound, unbound = [], []
        immediate = False
        found = self._claims(pod)
        if isinstance(found, Status):
            return found
        for claim in found:
            if claim.is_bound:
                bound.append(claim)
                continue
            waits = self._waits_for_node(claim)
            if isinstance(waits, Status):
                return waits
            immediate |= not waits
            unbound.append(claim)
        if immediate:
            return _UNBOUND
        state.put(PodClaims(bound, unbound))
        return None if found else Status.skip()

    def _claims(self, pod: PodInfo) -> list[PersistentVolumeClaim] | Status:
        catalog = self.handle.cluster.catalog(PersistentVolumeClaim)
        found = []
        for wanted in claims_of(pod):
            claim = catalog.get(pod.namespace, wanted.name)
            if claim is None:
                return Status.unresolvable(_missing(wanted.name, ephemeral=wanted.ephemeral))
            if claim.status.phase == "Lost":
                volume = claim.spec.volume_name
                problem = f'persistentvolumeclaim "{wanted.name}" bound to non-existent persistentvolume "{volume}"'
                return Status.unresolvable(problem)
            if claim.metadata.deletion_timestamp is not None:
                return Status.unresolvable(f'persistentvolumeclaim "{wanted.name}" is being deleted')
            if wanted.ephemeral and (other_owner := ownership_problem(pod, claim)):
                return Status.unresolvable(other_owner)
            found.append(claim)
        return found

    def _waits_for_node(self, claim: PersistentVolumeClaim) -> bool | Status:
        """Whether an unbound claim gets its volume once the pod's node is known."""
        name = claim.storage_class
        storage_class = self.handle.cluster.catalog(StorageClass).get("", name) if name else None
        if storage_class is None:
            return False
        if storage_class.volume_binding_mode is None:
            return Status.error(f'VolumeBindingMode not set for StorageClass "{name}"')
        return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER and not claim.spec.volume_name

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Nodes that reach all bound volumes, and on which the other claims can be served."""
        claims = state[PodClaims]
        found = find(self.handle.cluster, claims, nodes)
        return Verdict(found.keys, claims.status, has_errors=found.has_errors) if found.keys.any() else None

    # -- score ---------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Scores only behind the gate StorageCapacityScoring."""
        return Status.skip() if self._shape is None else None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """How well the volumes to be bound use what they are taken from."""
        claims = state.get(PodClaims) or PodClaims()
        if self._shape is None or not claims.unbound:
            return np.zeros(len(nodes), np.int64)
        found = find(self.handle.cluster, claims, nodes)
        return storage_scores(found, self._shape, self.handle.cluster.volumes.capacities, len(nodes))

    # -- reserve -------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Promise volumes to the pod's unbound claims, and claims to the provisioners on its node."""
        claims = state.get(PodClaims)
        if claims is None:
            return _UNPREPARED if _has_claims(pod.shape) else None
        if not claims.unbound:
            return None
        promises = self._promises(claims, node_name)
        try:
            promises.assume(self.handle.cluster)
        except KubestowError as error:
            return Status.error(str(error))
        state.put(promises)
        return None

    def _promises(self, claims: PodClaims, node_name: str) -> Promises:
        cluster = self.handle.cluster
        row = cluster.nodes.rows[node_name]
        found = find(cluster, claims, Nodes(cluster.nodes, slice(row, row + 1)))
        matched = [
            (_bound_to(match.volumes[int(match.numbers[0])], match.claim), match.claim)
            for match in found.matches
            if match.numbers[0] != NO_CHOICE
        ]
        provided = [_selecting(p.claim, node_name) for p in found.provisions if p.where[0]]
        return Promises(matched, provided)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Take the promises back."""
        promises = state.get(Promises)
        if promises is not None:
            promises.restore(self.handle.cluster)

    # -- bind ----------------------------------------------------------------------------------------------------

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Nothing to do for a pod whose volumes were all bound."""
        return Status.skip() if state.get(Promises) is None else SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Write what was promised and wait for the volume controller; a failure is an error, to be tried again."""
        promises = state.get(Promises)
        if promises is None:
            return None
        try:
            await promises.write(self.handle)
        except (APIError, Unreachable) as error:
            return Status.error(str(error))
        cluster = self.handle.cluster
        answer = await self.handle.wait_for(lambda: outcome(cluster, promises, pod, node_name), self._timeout)
        problem = "context deadline exceeded" if answer is None else answer.problem
        return Status.error(f"binding volumes: {problem}") if problem else None


def _has_claims(shape: Shape) -> bool:
    volumes = shape.spec.volumes
    return any(volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in volumes)


def _missing(name: str, *, ephemeral: bool) -> str:
    if ephemeral:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
    return f'persistentvolumeclaim "{name}" not found'


def _bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """A volume as it will be once it is bound to a claim."""
    metadata, reserved = claim.metadata, volume.spec.claim_ref
    reference = ClaimReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
    )
    annotations = volume.metadata.annotations
    if reserved is None:
        annotations = annotations | {BOUND_BY_CONTROLLER: "yes"}
    return msgspec.structs.replace(
        volume,
        metadata=msgspec.structs.replace(volume.metadata, annotations=annotations),
        spec=msgspec.structs.replace(volume.spec, claim_ref=reference),
    )


def _selecting(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """A claim as it will be once a volume is to be provided for it on a node."""
    annotations = claim.metadata.annotations | {SELECTED_NODE: node_name}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))
