"""The disruption controller: the status of PodDisruptionBudgets, which the eviction subresource consumes.

An eviction decrements ``disruptionsAllowed`` and adds the pod to ``disruptedPods``. This controller recomputes the
status whenever a covered pod, or the scale of a pod's controller, changes. A disrupted pod counts as unhealthy until it
is deleted, or until :data:`DELETION_TIMEOUT` has passed without its deletion.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from kubestow.errors import KubestowError
from kubestow_devcluster.apiserver.kinds.kind import value_at
from kubestow_devcluster.apiserver.kinds.object_fields import scaled_value, with_condition
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import matches_label_selector
from kubestow_devcluster.component_base.stored_objects import OwnerRef, controller_of, owner_refs_of, uid_of
from kubestow_devcluster.controllers.controller import LONGEST_THROTTLE, Controller, ControllerContext, ObjectChange
from kubestow_devcluster.controllers.pod_index import PodView

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


class GuardedPods:
    """The pods that a budget's selector matches, with counts that are kept as pods change."""

    def __init__(self, selector: Object | None) -> None:
        self.selector = selector
        self._pods: dict[str, PodView] = {}
        #: The number of pods that are ready and not terminating.
        self.healthy = 0
        #: The pods by the uid of their controller and by name.
        self._by_controller: dict[str, dict[str, PodView]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, name: str) -> PodView | None:
        return self._pods.get(name)

    def one_per_controller(self) -> Iterator[PodView]:
        """A pod of every controller; pods without one are left out."""
        for pods in self._by_controller.values():
            yield next(iter(pods.values()))

    def update(self, name: str, pod: PodView | None) -> bool:
        """Apply a change of the pod ``name``, None for its deletion. Returns whether it concerns the budget."""
        old = self._pods.pop(name, None)
        if old is not None:
            self._count(old, -1)
        if pod is None or not matches_label_selector(self.selector, pod.metadata.labels):
            return old is not None
        self._pods[name] = pod
        self._count(pod, 1)
        return True

    def _count(self, pod: PodView, change: int) -> None:
        self.healthy += change * _is_healthy(pod)
        if (controller := pod.controller) is None:
            return
        if change > 0:
            self._by_controller.setdefault(controller.uid, {})[pod.name] = pod
            return
        pods = self._by_controller[controller.uid]
        del pods[pod.name]
        if not pods:
            del self._by_controller[controller.uid]


def _is_healthy(pod: PodView) -> bool:
    return pod.is_ready and not pod.is_terminating


class DisruptionController(Controller):
    resource = "poddisruptionbudgets.policy"
    watched = None  # custom resources with a scale subresource can be defined at any time
    component = "controllermanager"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._scalable: set[str] = set()
        self._catalog_revision = 0
        #: The pods of all budgets, by namespace and key.
        self._guarded: dict[str, dict[str, GuardedPods]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        stored = change.event.object
        if change.resource == self.resource:
            self._handle_budget(change)
            return
        guarded = self._guarded.get(stored.namespace)
        if not guarded:
            return
        if change.resource == "pods":
            pod = self.pods.get(change.key)
            for key, pods in guarded.items():
                if pods.update(stored.name, pod):
                    self.enqueue(key)
        elif self._is_scalable(change.resource):
            for key in guarded:
                self.enqueue(key)

    def _handle_budget(self, change: ObjectChange) -> None:
        stored = change.event.object
        guarded = self._guarded.setdefault(stored.namespace, {})
        if change.is_deletion:
            guarded.pop(change.key, None)
            if not guarded:
                del self._guarded[stored.namespace]
            return
        selector = self.kind.decode(stored)["spec"].get("selector")
        known = guarded.get(change.key)
        if known is None or known.selector != selector:
            pods = guarded[change.key] = GuardedPods(selector)
            for pod in self.pods.in_namespace(stored.namespace):
                pods.update(pod.name, pod)

    def _is_scalable(self, resource: str) -> bool:
        """Whether the resource has the scale subresource; custom resources may have it too."""
        scheme = self.registry.scheme
        if self._catalog_revision != scheme.revision:
            self._catalog_revision = scheme.revision
            self._scalable = {kind.storage for kind in scheme if kind.subresources.scale}
        return resource in self._scalable

    def sync(self, key: str, budget: Object) -> None:
        pods = self._guarded.get(budget["metadata"]["namespace"], {}).get(key)
        if pods is None:
            return
        self.throttle(key, len(pods), longest=LONGEST_THROTTLE)
        try:
            self._sync_status(budget, self._count_pods(key, budget, pods), has_pods=bool(pods))
        except _ScaleUnknown as problem:
            message = f"Failed to calculate the number of expected pods: {problem}"
            self.record_warning(budget, "CalculateExpectedPodCountFailed", message)
            # Allow no disruptions, because the number of expected pods is unknown.
            old = budget["status"]
            conditions = self._conditions(old, "False", "SyncFailed", str(problem), old.get("observedGeneration", 0))
            self.update_status(budget, {**old, "disruptionsAllowed": 0, "conditions": conditions})

    def _count_pods(self, key: str, budget: Object, pods: GuardedPods) -> _PodCounts:
        expected, desired_healthy = self._expected_pods(budget["spec"], pods)
        disrupted = self._disrupted_pods(key, budget, pods)
        evicted = [pod for name in disrupted if (pod := pods.get(name)) is not None]
        return _PodCounts(expected, desired_healthy, pods.healthy - sum(map(_is_healthy, evicted)), disrupted)

    def _expected_pods(self, spec: Object, pods: GuardedPods) -> tuple[int, int]:
        """expectedPods and desiredHealthy. Raises _ScaleUnknown."""
        max_unavailable, min_available = spec.get("maxUnavailable"), spec.get("minAvailable")
        if max_unavailable is not None:
            expected = self._expected_scale(pods)
            return expected, max(0, expected - scaled_value(max_unavailable, expected, round_up=True))
        if isinstance(min_available, str):
            expected = self._expected_scale(pods)
            return expected, scaled_value(min_available, expected, round_up=True)
        return (0, 0) if min_available is None else (len(pods), min_available)

    def _expected_scale(self, pods: GuardedPods) -> int:
        """The sum of the scales of the pods' controllers; pods without a controller do not count."""
        scales: dict[str, int] = {}
        for pod in pods.one_per_controller():
            controller = pod.controller
            assert controller is not None
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

    def _disrupted_pods(self, key: str, budget: Object, pods: GuardedPods) -> dict[str, str]:
        """The evicted pods that are not deleted yet; records a warning about those whose timeout has passed."""
        recorded: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
        disrupted: dict[str, str] = {}
        for name in recorded:
            pod = pods.get(name)
            if pod is None or pod.is_terminating:
                continue
            elapsed = self.registry.clock() - datetime.fromisoformat(recorded[pod.name])
            remaining = DELETION_TIMEOUT - elapsed.total_seconds()
            if remaining >= 0:
                disrupted[pod.name] = recorded[pod.name]
                self.enqueue_after(key, remaining + 1)
                continue
            current = self.pod_kind.decode(self.registry.get(self.pod_kind, pod.metadata.namespace, pod.name))
            message = f"Pod was expected by PDB {key} to be deleted but it wasn't"
            self.recorder.warning(self.component, self.pod_kind, current, "NotDeleted", message)
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

    def _conditions(self, old: Object, status: str, reason: str, message: str, generation: int) -> list[Object]:
        condition: Object = {"type": "DisruptionAllowed", "status": status}
        if generation:
            condition["observedGeneration"] = generation
        condition |= {"reason": reason, "message": message}
        return with_condition(old, condition, self.registry.now())
