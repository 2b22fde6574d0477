"""The StatefulSet controller: pods with stable names and claims, created, updated and deleted in ordinal order.

``OrderedReady`` creates a pod only when all pods with lower ordinals are available, and deletes the one with the
highest ordinal only when all others are; ``Parallel`` does not wait. A rolling update replaces pods from the highest
ordinal down to the partition, within maxUnavailable. Each reconciliation takes the steps that the current state allows.

Its pods have one PersistentVolumeClaim for each claim template, which outlives the pod.
A claim without an owner is kept. Where the retention policy is Delete, the claim gets an owner reference to the set, or
to a pod that is being scaled down, and the garbage collector deletes it with that owner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from kubestow.rules.workloads import REVISION_LABEL, mount_claims, stateful_pod_labels, stateful_set_claims
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.kinds.object_fields import scaled_value
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.component_base.stored_objects import is_terminating, new_controller_ref, owner_refs_of
from kubestow_devcluster.controllers.controller import (
    AdoptingController,
    ControllerContext,
    ControllerRevisionHistory,
    ObjectChange,
    PodController,
)
from kubestow_devcluster.controllers.pod_index import PodView


class StatefulSetClaims:
    """Creates claims and updates their owner references, for the StatefulSet controller."""

    def __init__(self, controller: PodController) -> None:
        self._controller, self._registry = controller, controller.registry
        self._kind: Kind = controller.registry.scheme["persistentvolumeclaims"]

    def ensure(self, stateful_set: Object, pod: str, uid: str = "") -> bool:
        """Create the missing claims of a pod. Returns whether none of its claims is being deleted. Raises StatusError.

        ``uid`` is the pod's, empty if the pod does not exist yet.
        """
        is_ready = True
        for _, claim in stateful_set_claims(stateful_set, pod):
            stored = self._find(stateful_set, claim["metadata"]["name"])
            if stored is None:
                self._create(stateful_set, pod, claim)
            else:
                is_ready = is_ready and not is_terminating(stored) and not _is_owned_by_former_pod(stored, pod, uid)
        return is_ready

    def update_owner_references(self, stateful_set: Object, pod: str, uid: str, *, is_condemned: bool) -> None:
        """Make the owner references of a pod's claims those that the retention policy asks for."""
        for _, claim in stateful_set_claims(stateful_set, pod):
            stored = self._find(stateful_set, claim["metadata"]["name"])
            if stored is None or is_terminating(stored):
                continue
            reference = self._owner_reference(stateful_set, pod, uid, is_condemned=is_condemned)
            references = [reference] if reference else []
            desired = {reference["uid"] for reference in references}
            managed = {stateful_set["metadata"]["uid"], uid}
            if {owner.uid for owner in owner_refs_of(stored)} & managed != desired:
                self._controller.update_owner_references(
                    self._kind, stored.namespace, stored.name, remove=managed, add=references
                )

    def _owner_reference(self, stateful_set: Object, pod: str, uid: str, *, is_condemned: bool) -> Object | None:
        """The owner reference of a pod's claim by the set's retention policy; None if the claim is kept."""
        policy = stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]
        if is_condemned and policy["whenScaled"] == "Delete":
            return new_controller_ref(self._controller.pod_kind, {"metadata": {"name": pod, "uid": uid}})
        if policy["whenDeleted"] == "Delete":
            return new_controller_ref(self._controller.kind, stateful_set)
        return None

    def _find(self, stateful_set: Object, name: str) -> StoredObject | None:
        collection = self._registry.store.collection(self._kind.storage)
        return collection.get(f"{stateful_set['metadata']['namespace']}/{name}")

    def _create(self, stateful_set: Object, pod: str, claim: Object) -> None:
        name, set_name = claim["metadata"]["name"], stateful_set["metadata"]["name"]
        if reference := self._owner_reference(stateful_set, pod, "", is_condemned=False):
            claim["metadata"]["ownerReferences"] = [reference]
        new = self._kind.struct.read(claim, [])
        try:
            self._registry.create(self._kind, stateful_set["metadata"]["namespace"], new)
        except statuses.StatusError as failure:
            message = f"create Claim {name} for Pod {pod} in StatefulSet {set_name} failed error: {failure.message}"
            self._controller.record_warning(stateful_set, "FailedCreate", message)
            raise
        message = f"create Claim {name} Pod {pod} in StatefulSet {set_name} success"
        self._controller.record_event(stateful_set, "SuccessfulCreate", message)


def _is_owned_by_former_pod(claim: StoredObject, pod: str, uid: str) -> bool:
    """Whether the claim is owned by a deleted pod of the same name, and so will be deleted."""
    return any(owner.kind == "Pod" and owner.name == pod and owner.uid != uid for owner in owner_refs_of(claim))


#: Pods created per reconciliation.
BATCH = 500

_POD_NAME = re.compile(r"(.+)-([0-9]+)")


@dataclass(frozen=True, slots=True)
class _SetState:
    """A StatefulSet with its pods and the revisions of its rolling update."""

    stateful_set: Object
    #: By ordinal, the pods within ``spec.replicas``; None for a missing pod, of which only the first BATCH are here.
    replicas: dict[int, PodView | None]
    #: The pods beyond ``spec.replicas``, highest ordinal first.
    condemned: list[PodView]
    current_revision: Object
    update_revision: Object

    @property
    def name(self) -> str:
        return str(self.stateful_set["metadata"]["name"])

    @property
    def is_ordered(self) -> bool:
        return bool(self.stateful_set["spec"]["podManagementPolicy"] == "OrderedReady")

    @property
    def pods(self) -> list[PodView]:
        return [*(pod for pod in self.replicas.values() if pod is not None), *self.condemned]

    @property
    def partition(self) -> int:
        """The lowest ordinal that a rolling update replaces."""
        rolling_update = self.stateful_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
        return _start_ordinal(self.stateful_set) + int(rolling_update.get("partition", 0))

    def revision_for(self, ordinal: int) -> Object:
        """The revision from which a missing pod is created."""
        is_rolling = self.stateful_set["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        return self.current_revision if is_rolling and ordinal < self.partition else self.update_revision

    def is_updated(self, pod: PodView) -> bool:
        return bool(pod.metadata.labels.get(REVISION_LABEL) == self.update_revision["metadata"]["name"])


class StatefulSetController(AdoptingController):
    resource = "statefulsets.apps"
    watched = frozenset({"pods", "persistentvolumeclaims"})
    component = "statefulset-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._history = ControllerRevisionHistory(self, hash_label="controller.kubernetes.io/hash")
        self._claims = StatefulSetClaims(self)

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        if change.resource == "persistentvolumeclaims" and change.is_deletion:
            # A pod is not created before the claim of its predecessor is deleted.
            namespace = change.event.object.namespace
            for stored in self.registry.store.collection(self.resource).snapshot(f"{namespace}/"):
                self.enqueue(stored.key)

    def can_adopt(self, owner: Object, pod: PodView) -> bool:
        return _ordinal(owner, pod) >= 0

    def sync(self, key: str, stateful_set: Object) -> None:
        pods = self.claim_pods(stateful_set)
        revisions = self._history.sync(stateful_set)
        start, update_revision = _start_ordinal(stateful_set), revisions[-1]
        by_ordinal = {ordinal: pod for pod in pods if (ordinal := _ordinal(stateful_set, pod)) >= 0}
        ordinals = range(start, start + stateful_set["spec"]["replicas"])
        surplus = sorted((ordinal for ordinal in by_ordinal if ordinal not in ordinals), reverse=True)
        current_name = (stateful_set.get("status") or {}).get("currentRevision")
        current_revision = next(
            (revision for revision in revisions if revision["metadata"]["name"] == current_name), update_revision
        )
        missing = islice((ordinal for ordinal in ordinals if ordinal not in by_ordinal), BATCH)
        listed = sorted({*missing, *(ordinal for ordinal in by_ordinal if ordinal in ordinals)})
        state = _SetState(
            stateful_set,
            {ordinal: by_ordinal.get(ordinal) for ordinal in listed},
            [by_ordinal[ordinal] for ordinal in surplus],
            current_revision,
            update_revision,
        )
        try:
            if "deletionTimestamp" not in stateful_set["metadata"]:
                self._manage_pods(state)
        finally:
            self._sync_status(state)
            live = {pod.metadata.labels.get(REVISION_LABEL, "") for pod in pods}
            live |= {state.current_revision["metadata"]["name"], state.update_revision["metadata"]["name"]}
            self._history.truncate(stateful_set, revisions, live)

    def _manage_pods(self, state: _SetState) -> None:
        """Create and repair replicas, then scale down, then update; each only when the one before has nothing to do."""
        for pods, is_condemned in ((state.replicas.values(), False), (state.condemned, True)):
            for pod in pods:
                if pod is not None:
                    self._claims.update_owner_references(
                        state.stateful_set, pod.name, pod.metadata.uid, is_condemned=is_condemned
                    )
        if self._process_replicas(state) and self._scale_down(state):
            self._rolling_update(state)

    def _process_replicas(self, state: _SetState) -> bool:
        """Create missing pods and recreate finished ones. Returns whether scaling down may proceed."""
        may_proceed = True
        for ordinal, pod in state.replicas.items():
            if pod is None:
                self._create_replica(state, ordinal)
                is_settled = False
            else:
                is_settled = self._repair_replica(state, ordinal, pod)
            if not is_settled and state.is_ordered:
                return False
            may_proceed = may_proceed and (is_settled or (pod is not None and not pod.is_finished))
        return may_proceed

    def _create_replica(self, state: _SetState, ordinal: int) -> None:
        """Create a pod and its claims, unless claims of its predecessor are still being deleted."""
        if self._claims.ensure(state.stateful_set, f"{state.name}-{ordinal}"):
            revision = state.revision_for(ordinal)
            template = {name: part for name, part in revision["data"]["spec"]["template"].items() if name != "$patch"}
            self.create_pods(
                state.stateful_set,
                1,
                template=template,
                customize=lambda pod, _: _customize(state.stateful_set, pod, ordinal, revision["metadata"]["name"]),
            )

    def _repair_replica(self, state: _SetState, ordinal: int, pod: PodView) -> bool:
        """Delete a finished pod, restore identity labels and claims. Returns whether the pod is available."""
        if pod.is_finished:
            if not pod.is_terminating:
                self.delete_pod(state.stateful_set, pod)
            return False
        if pod.status.phase == "Pending":
            self._claims.ensure(state.stateful_set, pod.name, pod.metadata.uid)
        labels = stateful_pod_labels(pod.name, ordinal)
        if not pod.is_terminating and not labels.items() <= pod.metadata.labels.items():
            self.update_pod_metadata(
                pod, lambda metadata: metadata.update(labels={**(metadata.get("labels") or {}), **labels})
            )
        return not pod.is_terminating and self._check_availability(state, pod)

    def _scale_down(self, state: _SetState) -> bool:
        """Delete condemned pods, highest ordinal first. Returns whether there are none left."""
        unhealthy = [pod for pod in state.condemned if pod.is_terminating or not _is_running_and_ready(pod)]
        # OrderedReady would wait for unhealthy pods for ever, so the unhealthy one with the lowest ordinal is deleted.
        first_unhealthy = unhealthy[-1] if unhealthy else None
        for pod in state.condemned:
            must_wait = pod.is_terminating or (not self._check_availability(state, pod) and pod is not first_unhealthy)
            if not pod.is_terminating and not (must_wait and state.is_ordered):
                self.delete_pod(state.stateful_set, pod)
            if state.is_ordered:
                return False
        return not state.condemned

    def _rolling_update(self, state: _SetState) -> None:
        """Delete pods of other revisions, highest ordinal first: unavailable ones, and others within maxUnavailable."""
        strategy = state.stateful_set["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        max_unavailable = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        available = {
            pod.name
            for pod in state.replicas.values()
            if pod is not None and not pod.is_terminating and self._check_availability(state, pod)
        }
        replicas = state.stateful_set["spec"]["replicas"]
        budget = max(1, scaled_value(max_unavailable, replicas, round_up=False)) - (replicas - len(available))
        for ordinal, pod in sorted(state.replicas.items(), reverse=True):
            if pod is None or ordinal < state.partition or pod.is_terminating or state.is_updated(pod):
                continue
            if pod.name in available:
                if budget <= 0:
                    continue
                budget -= 1
            self.delete_pod(state.stateful_set, pod)

    def _check_availability(self, state: _SetState, pod: PodView) -> bool:
        return _is_running_and_ready(pod) and self.check_availability(state.stateful_set, pod)

    # Status

    def _sync_status(self, state: _SetState) -> None:
        stateful_set, pods = state.stateful_set, state.pods
        old = stateful_set.get("status") or {}
        live = [pod for pod in pods if not pod.is_terminating]
        current, update = state.current_revision["metadata"]["name"], state.update_revision["metadata"]["name"]
        counts = {
            "readyReplicas": sum(_is_running_and_ready(pod) for pod in pods),
            "currentReplicas": sum(pod.metadata.labels.get(REVISION_LABEL) == current for pod in live),
            "updatedReplicas": sum(state.is_updated(pod) for pod in live),
        }
        replicas = stateful_set["spec"]["replicas"]
        is_complete = counts["updatedReplicas"] == counts["readyReplicas"] == len(pods) == replicas
        if is_complete and stateful_set["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            current, counts["currentReplicas"] = update, counts["updatedReplicas"]
        status: Object = {"observedGeneration": stateful_set["metadata"]["generation"], "replicas": len(pods)}
        status |= {field: count for field, count in counts.items() if count}
        status |= {"currentRevision": current, "updateRevision": update}
        status["collisionCount"] = old.get("collisionCount", 0)
        status["availableReplicas"] = sum(self._check_availability(state, pod) for pod in pods)
        self.update_status(stateful_set, status)

    # Events

    def record_pod_created(self, owner: Object, pod: str) -> None:
        name = owner["metadata"]["name"]
        self.record_event(owner, "SuccessfulCreate", f"create Pod {pod} in StatefulSet {name} successful")

    def record_pod_create_failure(self, owner: Object, pod: str, failure: statuses.StatusError) -> None:
        message = f"create Pod {pod} in StatefulSet {owner['metadata']['name']} failed error: {failure.message}"
        self.record_warning(owner, "FailedCreate", message)

    def record_pod_deleted(self, owner: Object, pod: str) -> None:
        name = owner["metadata"]["name"]
        self.record_event(owner, "SuccessfulDelete", f"delete Pod {pod} in StatefulSet {name} successful")


def _start_ordinal(stateful_set: Object) -> int:
    return int((stateful_set["spec"].get("ordinals") or {}).get("start", 0))


def _ordinal(stateful_set: Object, pod: PodView) -> int:
    """The ordinal in a pod's name; -1 if the name is not ``set-ordinal``."""
    match = _POD_NAME.fullmatch(pod.name)
    return int(match[2]) if match is not None and match[1] == stateful_set["metadata"]["name"] else -1


def _is_running_and_ready(pod: PodView) -> bool:
    return pod.status.phase == "Running" and pod.is_ready


def _customize(stateful_set: Object, pod: Object, ordinal: int, revision: str) -> None:
    """Add a replica's identity to a pod created from the template: name, labels, hostname and claims."""
    metadata, spec = pod["metadata"], pod["spec"]
    del metadata["generateName"]
    name = metadata["name"] = f"{stateful_set['metadata']['name']}-{ordinal}"
    metadata.setdefault("labels", {}).update({**stateful_pod_labels(name, ordinal), REVISION_LABEL: revision})
    spec["hostname"] = name
    if stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = stateful_set["spec"]["serviceName"]
    mount_claims(spec, stateful_set, name)
