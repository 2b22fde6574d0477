"""The disruption controller: the status of PodDisruptionBudgets, which the eviction subresource consumes.

An eviction decrements ``disruptionsAllowed`` and adds the pod to ``disruptedPods``. This controller recomputes the
status whenever a covered pod, or the scale of a pod's controller, changes. A disrupted pod counts as unhealthy until it
is deleted, or until :data:`DELETION_TIMEOUT` has passed without its deletion.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.resources.int_or_percent import scaled_value
from kubestow.devcluster.apiserver.resources.kind import value_at
from kubestow.devcluster.apiserver.selectors import matches_label_selector
from kubestow.devcluster.controllers.conditions import with_condition
from kubestow.devcluster.controllers.controller import Controller, ControllerContext, ObjectChange
from kubestow.devcluster.controllers.owner_references import OwnerRef, controller_of, owner_refs_of
from kubestow.devcluster.controllers.pods import PodView
from kubestow.devcluster.stored_objects import uid_of
from kubestow.errors import KubestowError

__all__ = ["DisruptionController"]

#: Seconds from an eviction until the pod must be deleted.
DELETION_TIMEOUT = 120.0


class _ScaleUnknown(KubestowError):
    """The controllers of the covered pods do not have a scale, so the number of expected pods is unknown."""


class _PodCounts(NamedTuple):
    """The pod counts of a budget's status; ``disrupted`` has the time of the eviction by the pod's name."""

    expected: int
    desired_healthy: int
    healthy: int
    disrupted: dict[str, str]

    @property
    def disruptions_allowed(self) -> int:
        return max(0, self.healthy - self.desired_healthy) if self.expected > 0 else 0


class DisruptionController(Controller):
    resource = "poddisruptionbudgets.policy"
    component = "controllermanager"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pod_kind: Kind = context.registry.scheme["pods"]
        self._scalable: set[str] = set()
        self._catalog_revision = 0
        #: The selectors of all budgets, by namespace and key.
        self._selectors: dict[str, dict[str, Object | None]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        event = change.event
        selectors = self._selectors.setdefault(event.object.namespace, {})
        if change.resource == self.resource:
            if change.is_deletion:
                selectors.pop(change.key, None)
            else:
                selectors[change.key] = self.kind.decode(event.object)["spec"].get("selector")
        elif change.resource == "pods":
            previous_labels = event.previous.labels if event.previous is not None else event.object.labels
            for key, selector in selectors.items():
                if matches_label_selector(selector, event.object.labels) or matches_label_selector(
                    selector, previous_labels
                ):
                    self.enqueue(key)
        elif selectors and self._is_scalable(change.resource):
            for key in selectors:
                self.enqueue(key)

    def _is_scalable(self, resource: str) -> bool:
        """Whether the resource has the scale subresource; custom resources may have it too."""
        scheme = self.registry.scheme
        if self._catalog_revision != scheme.revision:
            self._catalog_revision = scheme.revision
            self._scalable = {kind.storage for kind in scheme if kind.subresources.scale}
        return resource in self._scalable

    def reconcile(self, key: str) -> None:
        budget = self.get(key)
        if budget is None:
            return
        namespace = budget["metadata"]["namespace"]
        selector = budget["spec"].get("selector")
        pods = [
            pod for pod in self.pods.in_namespace(namespace) if matches_label_selector(selector, pod.metadata.labels)
        ]
        self.throttle(key, len(pods))
        try:
            self._sync_status(budget, self._count_pods(key, budget, pods), has_pods=bool(pods))
        except _ScaleUnknown as problem:
            message = f"Failed to calculate the number of expected pods: {problem}"
            self.record_warning(budget, "CalculateExpectedPodCountFailed", message)
            self._fail_safe(budget, str(problem))

    def _count_pods(self, key: str, budget: Object, pods: list[PodView]) -> _PodCounts:
        expected, desired_healthy = self._expected_pods(budget["spec"], pods)
        disrupted = self._disrupted_pods(key, budget, pods)
        healthy = sum(pod.is_ready and not pod.is_terminating and pod.name not in disrupted for pod in pods)
        return _PodCounts(expected, desired_healthy, healthy, disrupted)

    def _expected_pods(self, spec: Object, pods: list[PodView]) -> tuple[int, int]:
        """expectedPods and desiredHealthy. Raises _ScaleUnknown."""
        max_unavailable, min_available = spec.get("maxUnavailable"), spec.get("minAvailable")
        if max_unavailable is not None:
            expected = self._expected_scale(pods)
            return expected, max(0, expected - scaled_value(max_unavailable, expected, round_up=True))
        if isinstance(min_available, str):
            expected = self._expected_scale(pods)
            return expected, scaled_value(min_available, expected, round_up=True)
        return (0, 0) if min_available is None else (len(pods), min_available)

    def _expected_scale(self, pods: list[PodView]) -> int:
        """The sum of the scales of the pods' controllers; pods without a controller do not count."""
        scales: dict[str, int] = {}
        seen: set[str] = set()
        for pod in pods:
            controller = pod.controller
            if controller is None or controller.uid in seen:
                continue
            seen.add(controller.uid)
            found = self._controller_scale(pod.metadata.namespace, controller)
            if found is None:
                raise _ScaleUnknown(f'found no controllers for pod "{pod.name}"')
            scales[found[0]] = found[1]
        return sum(scales.values())

    def _controller_scale(self, namespace: str, controller: OwnerRef) -> tuple[str, int] | None:
        """The uid and scale of a controller, or of its Deployment; None if the controller does not exist."""
        group = controller.api_version.rpartition("/")[0]
        kind = self.registry.scheme.kind_for(group, controller.kind)
        if kind is None or not kind.subresources.scale:
            name = f"{controller.kind}.{group}" if kind is None else kind.resource
            raise _ScaleUnknown(f"{name} does not implement the scale subresource")
        stored = self.registry.store.collection(kind.storage).get(kind.key(namespace, controller.name))
        if stored is None or uid_of(stored) != controller.uid:
            return None
        parent = controller_of(owner_refs_of(stored))
        if parent is not None and parent.kind == "Deployment":
            return self._controller_scale(namespace, parent)
        replicas = value_at(kind.decode(stored), kind.subresources.scale.spec_replicas)
        if not isinstance(replicas, int):
            raise _ScaleUnknown(f'the spec replicas field ".{kind.subresources.scale.spec_replicas}" does not exist')
        return controller.uid, replicas

    def _disrupted_pods(self, key: str, budget: Object, pods: list[PodView]) -> dict[str, str]:
        """The evicted pods that are not deleted yet; records a warning about those whose timeout has passed."""
        recorded: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
        disrupted: dict[str, str] = {}
        for pod in pods if recorded else ():
            if pod.is_terminating or pod.name not in recorded:
                continue
            elapsed = self.registry.clock() - datetime.fromisoformat(recorded[pod.name])
            remaining = DELETION_TIMEOUT - elapsed.total_seconds()
            if remaining >= 0:
                disrupted[pod.name] = recorded[pod.name]
                self.enqueue_after(key, remaining + 1)
                continue
            current = self._pod_kind.decode(self.registry.get(self._pod_kind, pod.metadata.namespace, pod.name))
            message = f"Pod was expected by PDB {key} to be deleted but it wasn't"
            self.recorder.warning(self.component, self._pod_kind, current, "NotDeleted", message)
        return disrupted

    # Status

    def _sync_status(self, budget: Object, counts: _PodCounts, *, has_pods: bool) -> None:
        old = budget.get("status") or {}
        generation = budget["metadata"]["generation"]
        if not has_pods and (old.get("expectedPods") or old.get("observedGeneration") != generation):
            self.record_event(budget, "NoPods", "No matching pods found")
        status: Object = {"observedGeneration": generation}
        if counts.disrupted:
            status["disruptedPods"] = counts.disrupted
        allowed = counts.disruptions_allowed
        status |= {
            "disruptionsAllowed": allowed,
            "currentHealthy": counts.healthy,
            "desiredHealthy": counts.desired_healthy,
            "expectedPods": counts.expected,
        }
        reason = "SufficientPods" if allowed else "InsufficientPods"
        status["conditions"] = self._conditions(old, "True" if allowed else "False", reason, "", generation)
        self.update_status(budget, status)

    def _fail_safe(self, budget: Object, problem: str) -> None:
        """Allow no disruptions, because the number of expected pods is unknown."""
        old = budget["status"]
        conditions = self._conditions(old, "False", "SyncFailed", problem, old.get("observedGeneration", 0))
        self.update_status(budget, {**old, "disruptionsAllowed": 0, "conditions": conditions})

    def _conditions(self, old: Object, status: str, reason: str, message: str, generation: int) -> list[Object]:
        condition: Object = {"type": "DisruptionAllowed", "status": status}
        if generation:
            condition["observedGeneration"] = generation
        condition |= {"reason": reason, "message": message}
        return with_condition(old, condition, self.registry.now())
