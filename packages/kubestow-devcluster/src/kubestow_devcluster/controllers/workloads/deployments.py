"""The Deployment controller: one ReplicaSet per pod template, and updates from the old ones to the new one.

A rolling update keeps at least ``replicas - maxUnavailable`` pods available and at most ``replicas + maxSurge`` pods in
total; each reconciliation takes the step that the status of the ReplicaSets allows. Revisions are annotations of the
ReplicaSets. A rollback is a change of the template like any other; it finds the earlier ReplicaSet and scales it up.

The conditions are Available, Progressing and ReplicaFailure. Proportional scaling distributes a change of the replicas
over the ReplicaSets during a rolling update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from kubestow.api.formats.timestamps import timestamp
from kubestow.rules.owners import template_hash
from kubestow.rules.workloads import POD_TEMPLATE_HASH, replica_set_of
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.kinds.object_fields import get_condition, scaled_value, with_condition
from kubestow_devcluster.apiserver.registry.registry import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import matches_label_selector
from kubestow_devcluster.component_base.stored_objects import (
    controller_of,
    is_terminating,
    new_controller_ref,
    owner_refs_of,
)
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange, key_of

_PREFIX = "deployment.kubernetes.io/"
_REVISION = f"{_PREFIX}revision"
_DESIRED_REPLICAS, _MAX_REPLICAS = f"{_PREFIX}desired-replicas", f"{_PREFIX}max-replicas"
#: Annotations of a Deployment that are not copied to its ReplicaSets.
_NOT_COPIED = {"kubectl.kubernetes.io/last-applied-configuration", _REVISION, _DESIRED_REPLICAS, _MAX_REPLICAS}


class DeploymentController(Controller):
    resource = "deployments.apps"
    watched = frozenset({"replicasets.apps", "pods"})
    owned = "replicasets.apps"
    component = "deployment-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._replica_set_kind: Kind = context.registry.scheme["replicasets.apps"]

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        if change.resource == self.owned and controller_of(change.owner_refs) is None and not change.is_deletion:
            # Enqueue the Deployments that could adopt the ReplicaSet.
            orphan = change.event.object
            for stored in self.registry.store.collection(self.resource).snapshot(f"{orphan.namespace}/"):
                if matches_label_selector(self.kind.decode(stored)["spec"]["selector"], orphan.labels):
                    self.enqueue(stored.key)
        elif change.resource == "pods" and change.is_deletion:
            # Recreate waits until the last old pod, which no status counts, is deleted.
            for key in change.controller_keys("ReplicaSet"):
                replica_set = self.registry.store.collection(self.owned).get(key)
                owner = None if replica_set is None else controller_of(owner_refs_of(replica_set))
                if replica_set is not None and owner is not None and owner.kind == self.kind.name:
                    self.enqueue(f"{replica_set.namespace}/{owner.name}")

    def sync(self, key: str, deployment: Object) -> None:
        replica_sets = self._claim_replica_sets(deployment)
        if "deletionTimestamp" in deployment["metadata"]:
            self._sync_status(deployment, replica_sets)
            return
        spec = deployment["spec"]
        if spec.get("paused") or _is_scaling_event(deployment, replica_sets):
            self._sync_status(deployment, self._scale_all(deployment, replica_sets))
            return
        deployment, replica_sets, new = self._sync_new_replica_set(deployment, replica_sets)
        if spec["strategy"]["type"] == "Recreate":
            replica_sets = self._recreate(deployment, replica_sets, new)
        else:
            replicas = spec["replicas"]
            max_surge, max_unavailable = max_surge_and_unavailable(spec)
            new_set = _named(replica_sets, new)
            desired = new_set["spec"]["replicas"]
            if desired > replicas:
                desired = replicas
            elif desired < replicas:
                total = _total_replicas(replica_sets)
                desired += max(0, min(replicas + max_surge - total, replicas - desired))
            replica_sets = self._scale(deployment, replica_sets, new_set, desired)
            replica_sets = self._scale_down_old(deployment, replica_sets, new, min_available=replicas - max_unavailable)
        self._sync_status(deployment, replica_sets)
        self._clean_up(deployment, replica_sets)

    def _claim_replica_sets(self, deployment: Object) -> list[Object]:
        """The ReplicaSets of the Deployment, oldest first.

        Matching orphans are adopted, and ReplicaSets that no longer match released, unless the Deployment or they are
        being deleted.
        """
        metadata, selector, kind = deployment["metadata"], deployment["spec"]["selector"], self._replica_set_kind
        may_claim = "deletionTimestamp" not in metadata
        claimed = []
        for stored in self.registry.store.collection(kind.storage).snapshot(f"{metadata['namespace']}/"):
            owner = controller_of(owner_refs_of(stored))
            can_change = may_claim and not is_terminating(stored)
            matches = matches_label_selector(selector, stored.labels)
            if owner is None and matches and can_change:
                reference = new_controller_ref(self.kind, deployment)
                self.update_owner_references(kind, stored.namespace, stored.name, add=[reference])
                claimed.append(kind.decode(self.registry.get(kind, stored.namespace, stored.name)))
            elif owner is not None and owner.uid == metadata["uid"]:
                if matches or not can_change:
                    claimed.append(kind.decode(stored))
                else:
                    self.update_owner_references(kind, stored.namespace, stored.name, remove={metadata["uid"]})
        return sorted(claimed, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))

    # The new ReplicaSet

    def _sync_new_replica_set(self, deployment: Object, replica_sets: list[Object]) -> tuple[Object, list[Object], str]:
        """Create or update the ReplicaSet of the current template.

        Returns the Deployment, all its ReplicaSets, and the name of the new one.
        """
        new = _find_new(deployment, replica_sets)
        if new is None:
            new = self._create_replica_set(deployment, replica_sets)
            replica_sets = [*replica_sets, new]
        else:
            others = [replica_set for replica_set in replica_sets if replica_set is not new]
            desired = self._annotations_for(deployment, max(_next_revision(others), _revision(new)))
            for name in (_DESIRED_REPLICAS, _MAX_REPLICAS):
                # These are updated when the ReplicaSet is scaled.
                del desired[name]
            current = new["metadata"].get("annotations") or {}
            if not desired.items() <= current.items():
                updated = self._patch_replica_set(new, metadata={"annotations": {**current, **desired}})
                replica_sets = [updated if replica_set is new else replica_set for replica_set in replica_sets]
                new = updated
        annotations = deployment["metadata"].get("annotations") or {}
        revision = str(_revision(new))
        if annotations.get(_REVISION) != revision:
            # As a part of the status, so that it counts as no new generation.
            revised = {"annotations": {**annotations, _REVISION: revision}}
            deployment = self.patch(deployment, metadata=revised, subresource="status")
        return deployment, replica_sets, new["metadata"]["name"]

    def _create_replica_set(self, deployment: Object, replica_sets: list[Object]) -> Object:
        deployment_metadata, spec = deployment["metadata"], deployment["spec"]
        taken = {replica_set["metadata"]["name"].rpartition("-")[2] for replica_set in replica_sets}
        hash_ = template_hash(spec["template"], taken)
        new = replica_set_of(deployment, hash_, new_controller_ref(self.kind, deployment), replicas=0)
        new["metadata"]["annotations"] = self._annotations_for(deployment, _next_revision(replica_sets))
        kind = self._replica_set_kind
        try:
            stored = self.registry.create(kind, deployment_metadata["namespace"], kind.struct.read(new, []))
        except statuses.StatusError as failure:
            message = f"Failed to create new replica set: {failure.message}"
            self.record_warning(deployment, "ReplicaSetCreateError", message)
            raise
        return kind.decode(stored)

    def _annotations_for(self, deployment: Object, revision: int) -> dict[str, str]:
        annotations = deployment["metadata"].get("annotations") or {}
        return {
            **{name: value for name, value in annotations.items() if name not in _NOT_COPIED},
            _REVISION: str(revision),
            **_scale_annotations(deployment["spec"]),
        }

    # Updates

    def _scale_down_old(
        self, deployment: Object, replica_sets: list[Object], new: str, *, min_available: int
    ) -> list[Object]:
        """Scale the old ReplicaSets down as far as ``min_available`` allows, unavailable replicas first."""
        new_set = _named(replica_sets, new)
        new_unavailable = new_set["spec"]["replicas"] - available_replicas(new_set)
        budget = _total_replicas(replica_sets) - min_available - max(0, new_unavailable)
        if budget <= 0:
            return replica_sets
        for old in _old(replica_sets, new):
            unavailable = min(budget, max(0, old["spec"]["replicas"] - available_replicas(old)))
            if unavailable:
                replica_sets = self._scale(deployment, replica_sets, old, old["spec"]["replicas"] - unavailable)
                budget -= unavailable
        budget = sum(map(available_replicas, replica_sets)) - min_available
        for old in _old(replica_sets, new):
            step = min(max(0, budget), old["spec"]["replicas"])
            if step:
                replica_sets = self._scale(deployment, replica_sets, old, old["spec"]["replicas"] - step)
                budget -= step
        return replica_sets

    def _recreate(self, deployment: Object, replica_sets: list[Object], new: str) -> list[Object]:
        """Scale the old ReplicaSets to 0; scale the new one up when all old pods have finished or are deleted."""
        old = _old(replica_sets, new)
        if any(replica_set["spec"]["replicas"] for replica_set in old):
            for replica_set in old:
                replica_sets = self._scale(deployment, replica_sets, replica_set, 0)
            return replica_sets
        for replica_set in old:
            pods = self.pods.of_controller("ReplicaSet", key_of(replica_set), replica_set["metadata"]["uid"])
            if any(not pod.is_finished for pod in pods):
                return replica_sets
        return self._scale(deployment, replica_sets, _named(replica_sets, new), deployment["spec"]["replicas"])

    def _scale_all(self, deployment: Object, replica_sets: list[Object]) -> list[Object]:
        """Apply the Deployment's replicas: to the only active ReplicaSet, or to several in proportion."""
        spec = deployment["spec"]
        active = [replica_set for replica_set in replica_sets if replica_set["spec"]["replicas"]]
        if len(active) < 2:
            if not replica_sets:
                return replica_sets
            only = active[0] if active else _find_new(deployment, replica_sets) or max(replica_sets, key=_revision)
            return self._scale(deployment, replica_sets, only, spec["replicas"])
        max_surge, _ = max_surge_and_unavailable(spec)
        current = [
            ReplicaSetSize(one["metadata"]["name"], one["spec"]["replicas"], _scale_annotation(one, _MAX_REPLICAS))
            for one in active
        ]
        sizes = scale_proportionally(current, spec["replicas"] + max_surge if spec["replicas"] else 0)
        for replica_set in active:
            replica_sets = self._scale(deployment, replica_sets, replica_set, sizes[replica_set["metadata"]["name"]])
        return replica_sets

    def _scale(self, deployment: Object, replica_sets: list[Object], target: Object, replicas: int) -> list[Object]:
        """Scale one ReplicaSet. Returns all of them, updated."""
        before, current = target["spec"]["replicas"], target["metadata"].get("annotations") or {}
        annotations = _scale_annotations(deployment["spec"])
        if before == replicas and annotations.items() <= current.items():
            return replica_sets
        updated = self._patch_replica_set(
            target, spec={"replicas": replicas}, metadata={"annotations": {**current, **annotations}}
        )
        name = target["metadata"]["name"]
        if before != replicas:
            direction = "up" if replicas > before else "down"
            message = f"Scaled {direction} replica set {name} from {before} to {replicas}"
            self.record_event(deployment, "ScalingReplicaSet", message)
        return [updated if replica_set["metadata"]["name"] == name else replica_set for replica_set in replica_sets]

    def _patch_replica_set(
        self, replica_set: Object, *, spec: Object | None = None, metadata: Object | None = None
    ) -> Object:
        return self.patch(replica_set, spec=spec, metadata=metadata, kind=self._replica_set_kind)

    def _clean_up(self, deployment: Object, replica_sets: list[Object]) -> None:
        """Delete the oldest ReplicaSets beyond revisionHistoryLimit once all old ones are scaled to 0."""
        spec = deployment["spec"]
        new = _find_new(deployment, replica_sets)
        old = [replica_set for replica_set in replica_sets if replica_set is not new]
        empty = [one for one in old if not one["spec"]["replicas"] and not (one.get("status") or {}).get("replicas")]
        if len(empty) < len(old):
            return
        limit = spec.get("revisionHistoryLimit", 10)
        for replica_set in sorted(empty, key=_revision)[: max(0, len(old) - limit)]:
            metadata = replica_set["metadata"]
            deletion = DeleteOptions(uid=metadata["uid"])
            self.registry.delete(self._replica_set_kind, metadata["namespace"], metadata["name"], deletion)

    def _sync_status(self, deployment: Object, replica_sets: list[Object]) -> None:
        new = _find_new(deployment, replica_sets)
        update = compute_status(deployment, replica_sets, new, self.registry.clock())
        self.update_status(deployment, update.status)
        if update.recheck_after is not None:
            self.enqueue_after(key_of(deployment), update.recheck_after)


def _find_new(deployment: Object, replica_sets: list[Object]) -> Object | None:
    """The ReplicaSet of the Deployment's current template."""
    template = _without_hash(deployment["spec"]["template"])
    return next((one for one in replica_sets if _without_hash(one["spec"]["template"]) == template), None)


def _without_hash(template: Object) -> Object:
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != POD_TEMPLATE_HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _is_scaling_event(deployment: Object, replica_sets: list[Object]) -> bool:
    """Whether the Deployment's replicas changed since an active ReplicaSet was last scaled."""
    spec = deployment["spec"]
    active = [replica_set for replica_set in replica_sets if replica_set["spec"]["replicas"]]
    return spec["strategy"]["type"] == "RollingUpdate" and any(
        _scale_annotation(replica_set, _DESIRED_REPLICAS) not in (spec["replicas"], -1) for replica_set in active
    )


def _scale_annotation(replica_set: Object, name: str) -> int:
    """The number in an annotation of :func:`_scale_annotations`; -1 if it is missing or not a number."""
    text = (replica_set["metadata"].get("annotations") or {}).get(name, "")
    return int(text) if text.isdigit() else -1


def _scale_annotations(spec: Object) -> dict[str, str]:
    """The annotations that record the Deployment's scale on a ReplicaSet when it is scaled."""
    max_surge, _ = max_surge_and_unavailable(spec)
    return {_DESIRED_REPLICAS: str(spec["replicas"]), _MAX_REPLICAS: str(spec["replicas"] + max_surge)}


def _named(replica_sets: list[Object], name: str) -> Object:
    return next(replica_set for replica_set in replica_sets if replica_set["metadata"]["name"] == name)


def _old(replica_sets: list[Object], new: str) -> list[Object]:
    return [replica_set for replica_set in replica_sets if replica_set["metadata"]["name"] != new]


def _total_replicas(replica_sets: list[Object]) -> int:
    return sum(replica_set["spec"]["replicas"] for replica_set in replica_sets)


def _revision(replica_set: Object) -> int:
    text = (replica_set["metadata"].get("annotations") or {}).get(_REVISION, "")
    return int(text) if text.isdigit() else 0


def _next_revision(replica_sets: list[Object]) -> int:
    return max([_revision(replica_set) for replica_set in replica_sets], default=0) + 1


_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A new status, and the seconds until the progress deadline may change it; None without a deadline."""

    status: Object
    recheck_after: float | None = None


def compute_status(
    deployment: Object, replica_sets: Sequence[Object], new: Object | None, now: datetime
) -> StatusUpdate:
    """The status from all ReplicaSets of a Deployment; ``new`` is the one of the current template, if it exists."""
    spec, old = deployment["spec"], deployment.get("status") or {}
    now_text = timestamp(now)
    counts = _replica_counts(replica_sets, new)
    status: Object = {"observedGeneration": deployment["metadata"]["generation"]}
    status |= {field: counts[field] for field in _COUNTS if counts[field]}
    if "collisionCount" in old:
        status["collisionCount"] = old["collisionCount"]
    _, max_unavailable = max_surge_and_unavailable(spec)
    if counts["availableReplicas"] >= spec["replicas"] - max_unavailable:
        fields = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        fields = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    available = {"type": "Available", **dict(zip(("status", "reason", "message"), fields, strict=True))}
    with_available = {**old, "conditions": with_condition(old, available, now_text, update_field="lastUpdateTime")}
    progress = _Progress(deployment, with_available, counts, new, now_text)
    status["conditions"], recheck_after = progress.evaluate(now)
    status["conditions"] = [condition for condition in status["conditions"] if condition["type"] != "ReplicaFailure"]
    # The new ReplicaSet's ReplicaFailure comes first.
    ordered = [*([new] if new is not None else []), *replica_sets]
    failures = (get_condition(replica_set.get("status") or {}, "ReplicaFailure") for replica_set in ordered)
    if (failure := next(filter(None, failures), None)) is not None:
        condition = {field: failure[field] for field in ("type", "status", "reason", "message")}
        previous = get_condition(old, "ReplicaFailure")
        with_previous = {**status, "conditions": [*status["conditions"], *([previous] if previous else [])]}
        status["conditions"] = with_condition(with_previous, condition, now_text, update_field="lastUpdateTime")
    return StatusUpdate(status, recheck_after)


def max_surge_and_unavailable(spec: Object) -> tuple[int, int]:
    """maxSurge and maxUnavailable in pods. Percentages are rounded up for maxSurge, down for maxUnavailable."""
    if spec["strategy"]["type"] == "Recreate":
        return 0, spec["replicas"]
    rolling_update = spec["strategy"]["rollingUpdate"]
    max_surge = scaled_value(rolling_update["maxSurge"], spec["replicas"], round_up=True)
    max_unavailable = min(
        scaled_value(rolling_update["maxUnavailable"], spec["replicas"], round_up=False), spec["replicas"]
    )
    # If both were 0, the update could not proceed.
    return max_surge, max_unavailable if max_surge or max_unavailable else 1


def available_replicas(replica_set: Object) -> int:
    return _count(replica_set, "availableReplicas")


def _count(replica_set: Object, field: str) -> int:
    return int((replica_set.get("status") or {}).get(field, 0))


def _replica_counts(replica_sets: Sequence[Object], new: Object | None) -> dict[str, int]:
    available = sum(available_replicas(replica_set) for replica_set in replica_sets)
    desired = sum(replica_set["spec"]["replicas"] for replica_set in replica_sets)
    return {
        "replicas": sum(_count(replica_set, "replicas") for replica_set in replica_sets),
        "updatedReplicas": _count(new, "replicas") if new is not None else 0,
        "readyReplicas": sum(_count(replica_set, "readyReplicas") for replica_set in replica_sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, desired - available),
    }


@dataclass(frozen=True, slots=True)
class _Progress:
    """Evaluates the Progressing condition; ``old`` is the old status, ``timestamp`` the current time."""

    deployment: Object
    old: Object
    counts: dict[str, int]
    new: Object | None
    timestamp: str

    def evaluate(self, now: datetime) -> tuple[list[Object], float | None]:
        """All conditions with Progressing updated, and the seconds until the deadline if it is running."""
        progressing = get_condition(self.old, "Progressing")
        if self.deployment["spec"].get("paused"):
            return self._with("Unknown", "DeploymentPaused", "Deployment is paused"), None
        counts = {self.counts[field] for field in ("updatedReplicas", "replicas", "availableReplicas")}
        if counts == {self.deployment["spec"]["replicas"]}:
            message = f"{self._subject} has successfully progressed."
            return self._with("True", "NewReplicaSetAvailable", message), None
        if progressing is None:
            message = f"Created new {self._subject.replace('ReplicaSet', 'replica set')}"
            conditions = self._with("True", "NewReplicaSetCreated", message)
            return conditions, self._until_deadline(conditions[-1], now)
        if self._has_progressed() or progressing["reason"] in ("NewReplicaSetAvailable", "DeploymentPaused"):
            # Progressing is replaced even if it is equal, so that its lastUpdateTime is now.
            others = [condition for condition in self.old["conditions"] if condition is not progressing]
            condition = self._condition("True", "ReplicaSetUpdated", f"{self._subject} is progressing.")
            conditions = with_condition(
                {**self.old, "conditions": others}, condition, self.timestamp, update_field="lastUpdateTime"
            )
            if progressing["status"] == "True":
                conditions[-1]["lastTransitionTime"] = progressing["lastTransitionTime"]
            return conditions, self._until_deadline(conditions[-1], now)
        if (remaining := self._until_deadline(progressing, now)) > 0:
            return list(self.old["conditions"]), remaining
        return self._with("False", "ProgressDeadlineExceeded", f"{self._subject} has timed out progressing."), None

    @property
    def _subject(self) -> str:
        if self.new is not None:
            return f'ReplicaSet "{self.new["metadata"]["name"]}"'
        return f'Deployment "{self.deployment["metadata"]["name"]}"'

    def _has_progressed(self) -> bool:
        """Whether there are more updated, ready or available replicas, fewer old ones, or a new generation."""

        def increase(field: str) -> int:
            return int(self.counts[field] - self.old.get(field, 0))

        has_more = any(increase(field) > 0 for field in ("updatedReplicas", "readyReplicas", "availableReplicas"))
        has_fewer_old = increase("replicas") < increase("updatedReplicas")
        is_new_generation = self.old.get("observedGeneration", 0) < self.deployment["metadata"]["generation"]
        return has_more or has_fewer_old or is_new_generation

    def _with(self, status: str, reason: str, message: str) -> list[Object]:
        condition = self._condition(status, reason, message)
        return with_condition(self.old, condition, self.timestamp, update_field="lastUpdateTime")

    def _condition(self, status: str, reason: str, message: str) -> Object:
        return {"type": "Progressing", "status": status, "reason": reason, "message": message}

    def _until_deadline(self, progressing: Object, now: datetime) -> float:
        """Seconds until the deadline, plus one because timestamps are truncated to seconds."""
        deadline = timedelta(seconds=self.deployment["spec"]["progressDeadlineSeconds"] + 1)
        return (datetime.fromisoformat(progressing["lastUpdateTime"]) + deadline - now).total_seconds()


class ReplicaSetSize(NamedTuple):
    """The replicas of a ReplicaSet, and the Deployment's replicas plus maxSurge when it was last scaled."""

    name: str
    replicas: int
    max_replicas: int


def scale_proportionally(replica_sets: Sequence[ReplicaSetSize], allowed: int) -> dict[str, int]:
    """The replicas of each set by name, ``allowed`` in total. ``replica_sets`` is ordered oldest first."""
    missing = allowed - sum(replica_set.replicas for replica_set in replica_sets)
    ordered = list(reversed(replica_sets)) if missing > 0 else list(replica_sets)
    ordered.sort(key=lambda replica_set: replica_set.replicas, reverse=True)
    sizes = {replica_set.name: replica_set.replicas for replica_set in ordered}
    remaining = missing
    for replica_set in ordered:
        step = _proportional_size(replica_set, allowed) - replica_set.replicas
        step = min(step, remaining) if missing > 0 else max(step, remaining)
        sizes[replica_set.name] += step
        remaining -= step
    if ordered:
        largest = ordered[0].name
        sizes[largest] = max(0, sizes[largest] + remaining)
    return sizes


def _proportional_size(replica_set: ReplicaSetSize, allowed: int) -> int:
    """The size in proportion to the change of the total, rounded half away from zero."""
    if replica_set.max_replicas <= 0:
        return replica_set.replicas if allowed else 0
    return (2 * replica_set.replicas * allowed + replica_set.max_replicas) // (2 * replica_set.max_replicas)
