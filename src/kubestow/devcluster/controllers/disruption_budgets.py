"""Disruption budgets: how many of the pods they cover are healthy, and how many may be evicted now.

The eviction subresource spends what stands in the status and notes the pod there; this controller counts anew whenever
a covered pod or the scale of its controller changes. A noted pod counts as gone until it is, or until
:data:`EVICTION_TIMEOUT` has passed without its deletion.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.resources.int_or_percent import scaled
from kubestow.devcluster.apiserver.resources.kind import value_at
from kubestow.devcluster.apiserver.selectors import selects
from kubestow.devcluster.controllers.conditions import with_condition
from kubestow.devcluster.controllers.controller import Controller, Happening, World
from kubestow.devcluster.controllers.owners import Owner, controller_among, owners_of, uid_of
from kubestow.devcluster.controllers.pods import Pod
from kubestow.errors import KubestowError

__all__ = ["DisruptionBudgetController"]

#: Seconds within which an evicted pod has to be deleted.
EVICTION_TIMEOUT = 120.0


class _Uncountable(KubestowError):
    """The controllers of the covered pods do not say how many pods there should be."""


class _Count(NamedTuple):
    """What a budget's status counts, in pods; ``disrupted`` gives when pods that still exist were evicted."""

    expected: int
    desired: int
    healthy: int
    disrupted: dict[str, str]

    @property
    def allowed(self) -> int:
        return max(0, self.healthy - self.desired) if self.expected > 0 else 0


class DisruptionBudgetController(Controller):
    resource = "poddisruptionbudgets.policy"
    component = "controllermanager"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pod_kind: Kind = world.registry.catalog["pods"]
        self._scalable: set[str] = set()
        self._revision = 0
        #: The selectors of all budgets, by namespace and key.
        self._selectors: dict[str, dict[str, Object | None]] = {}

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        event = happening.event
        budgets = self._selectors.setdefault(event.object.namespace, {})
        if happening.resource == self.resource:
            if event.type == "DELETED":
                budgets.pop(happening.key, None)
            else:
                budgets[happening.key] = self.kind.decode(event.object)["spec"].get("selector")
        elif happening.resource == "pods":
            before = event.previous.labels if event.previous is not None else event.object.labels
            for key, selector in budgets.items():
                if selects(selector, event.object.labels) or selects(selector, before):
                    self.reconcile_soon(key)
        elif budgets and self._is_scalable(happening.resource):
            for key in budgets:
                self.reconcile_soon(key)

    def _is_scalable(self, resource: str) -> bool:
        """Whether objects of this resource have a scale; kinds that were defined meanwhile count."""
        catalog = self.registry.catalog
        if self._revision != catalog.revision:
            self._revision = catalog.revision
            self._scalable = {kind.storage for kind in catalog if kind.scale}
        return resource in self._scalable

    def reconcile(self, key: str) -> None:
        budget = self.find(key)
        if budget is None:
            return
        namespace = budget["metadata"]["namespace"]
        selector = budget["spec"].get("selector")
        pods = [pod for pod in self.pods.within(namespace) if selects(selector, pod.metadata.labels)]
        self.rest_after(key, len(pods))
        try:
            self._report(budget, self._count(key, budget, pods), any_pods=bool(pods))
        except _Uncountable as problem:
            message = f"Failed to calculate the number of expected pods: {problem}"
            self.warn(budget, "CalculateExpectedPodCountFailed", message)
            self._allow_nothing(budget, str(problem))

    def _count(self, key: str, budget: Object, pods: list[Pod]) -> _Count:
        expected, desired = self._wanted(budget["spec"], pods)
        disrupted = self._still_disrupted(key, budget, pods)
        healthy = sum(pod.is_ready and not pod.is_deleted and pod.name not in disrupted for pod in pods)
        return _Count(expected, desired, healthy, disrupted)

    def _wanted(self, spec: Object, pods: list[Pod]) -> tuple[int, int]:
        """How many pods there should be, and how many of them have to be healthy. Raises _Uncountable."""
        most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
        if most is not None:
            expected = self._scale(pods)
            return expected, max(0, expected - scaled(most, expected, up=True))
        if isinstance(least, str):
            expected = self._scale(pods)
            return expected, scaled(least, expected, up=True)
        return (0, 0) if least is None else (len(pods), least)

    def _scale(self, pods: list[Pod]) -> int:
        """The sum of what the pods' controllers are asked for; pods without one do not count."""
        scales: dict[str, int] = {}
        seen: set[str] = set()
        for pod in pods:
            owner = pod.controller
            if owner is None or owner.uid in seen:
                continue
            seen.add(owner.uid)
            found = self._controller_scale(pod.metadata.namespace, owner)
            if found is None:
                raise _Uncountable(f'found no controllers for pod "{pod.name}"')
            scales[found[0]] = found[1]
        return sum(scales.values())

    def _controller_scale(self, namespace: str, owner: Owner) -> tuple[str, int] | None:
        """The uid and the replicas of a controller, or of that controller's own; None for one that is gone."""
        group = owner.api_version.rpartition("/")[0]
        kind = self.registry.catalog.named((group, owner.kind))
        if kind is None or not kind.scale:
            name = f"{owner.kind}.{group}" if kind is None else kind.resource
            raise _Uncountable(f"{name} does not implement the scale subresource")
        stored = self.registry.store.collection(kind.storage).get(kind.key(namespace, owner.name))
        if stored is None or uid_of(stored) != owner.uid:
            return None
        above = controller_among(owners_of(stored))
        if above is not None and above.kind == "Deployment":
            return self._controller_scale(namespace, above)
        wanted = value_at(kind.decode(stored), kind.scale[0])
        if not isinstance(wanted, int):
            raise _Uncountable(f'the spec replicas field ".{kind.scale[0]}" does not exist')
        return owner.uid, wanted

    def _still_disrupted(self, key: str, budget: Object, pods: list[Pod]) -> dict[str, str]:
        """The evicted pods that are about to be deleted; those that should have been long ago are told of."""
        noted: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
        waiting: dict[str, str] = {}
        for pod in pods if noted else ():
            if pod.is_deleted or pod.name not in noted:
                continue
            since = self.registry.moment() - datetime.fromisoformat(noted[pod.name])
            left = EVICTION_TIMEOUT - since.total_seconds()
            if left >= 0:
                waiting[pod.name] = noted[pod.name]
                self.reconcile_after(key, left + 1)
                continue
            stored = self.registry.get(self._pod_kind, pod.metadata.namespace, pod.name)
            message = f"Pod was expected by PDB {key} to be deleted but it wasn't"
            about = self._pod_kind.decode(stored)
            self.recorder.warning(self.component, self._pod_kind, about, "NotDeleted", message)
        return waiting

    # Status

    def _report(self, budget: Object, count: _Count, *, any_pods: bool) -> None:
        before = budget.get("status") or {}
        generation = budget["metadata"]["generation"]
        if not any_pods and (before.get("expectedPods") or before.get("observedGeneration") != generation):
            self.tell(budget, "NoPods", "No matching pods found")
        status: Object = {"observedGeneration": generation}
        if count.disrupted:
            status["disruptedPods"] = count.disrupted
        status |= {
            "disruptionsAllowed": count.allowed,
            "currentHealthy": count.healthy,
            "desiredHealthy": count.desired,
            "expectedPods": count.expected,
        }
        reason = "SufficientPods" if count.allowed else "InsufficientPods"
        status["conditions"] = self._condition(before, "True" if count.allowed else "False", reason, "", generation)
        self.set_status(budget, status)

    def _allow_nothing(self, budget: Object, problem: str) -> None:
        """What is not known to be safe is not done."""
        before = budget["status"]
        conditions = self._condition(before, "False", "SyncFailed", problem, before.get("observedGeneration", 0))
        self.set_status(budget, {**before, "disruptionsAllowed": 0, "conditions": conditions})

    def _condition(self, before: Object, status: str, reason: str, message: str, generation: int) -> list[Object]:
        condition: Object = {"type": "DisruptionAllowed", "status": status}
        if generation:
            condition["observedGeneration"] = generation
        condition |= {"reason": reason, "message": message}
        return with_condition(before, condition, self.registry.now())
