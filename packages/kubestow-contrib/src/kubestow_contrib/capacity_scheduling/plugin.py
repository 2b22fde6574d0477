"""CapacityScheduling: pods are admitted as long as quotas allow, and preempt to get back what is guaranteed to them.

PreFilter rejects a pod whose namespace would exceed its maximum, or with which all namespaces together would exceed
what is guaranteed to them. PostFilter preempts. A namespace that uses less than its minimum evicts pods of others that
use more than theirs, whatever their priority; one that is above its minimum evicts its own pods of lower priority. Pods
without a quota evict others without a quota, by priority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.invalidation import Generation
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.pods.table import PodChanges
from kubestow.config.plugin_args import DefaultPreemptionArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.event_registration import on
from kubestow.framework.interface import (
    FilterRunner,
    Handle,
    PostFilterResult,
    PreFilterPlugin,
    ReservePlugin,
)
from kubestow.framework.status import Code, Status
from kubestow.plugins.default_preemption.candidates import Candidates
from kubestow.plugins.default_preemption.plugin import DefaultPreemption
from kubestow_contrib.capacity_scheduling.borrowed import using_borrowed
from kubestow_contrib.capacity_scheduling.elastic_quotas import Amounts, ElasticQuota, ElasticQuotas
from kubestow_contrib.node_checks import NodeChecks

__all__ = ["CapacityScheduling"]

_TERMINATING = "not eligible due to a terminating pod on the nominated node."
_NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
_MAX_EXCEEDED = Status.unschedulable("global quota max exceeded")
#: Kinds of nominated pods: of the quota of the pod that is scheduled, and of others.
_OWN, _OTHER = 1, 2


class _Requests(NamedTuple):
    """What a pod requests, together with nominated pods: those of its quota, and those of all quotas."""

    in_quota: Amounts
    in_total: Amounts


class _Kept(NamedTuple):
    """The requests of the pod that was asked about last, and the generation of the cluster that they hold in."""

    pod: PodInfo
    generation: Generation
    requests: _Requests


class CapacityScheduling(PreFilterPlugin, ReservePlugin, DefaultPreemption):
    """Enforces elastic quotas."""

    name = "CapacityScheduling"
    Args = None
    applies_to_identical_pods = False

    def __init__(self, args: Any, handle: Handle) -> None:
        # All nodes are candidates, as upstream has it.
        super().__init__(DefaultPreemptionArgs(min_candidate_nodes_percentage=100), handle)
        self.events_to_register = (
            on(EventResource.ASSIGNED_POD, Action.DELETE),
            on(ElasticQuota, Action.ADD | Action.UPDATE | Action.DELETE),
        )
        self._quotas = ElasticQuotas(handle.cluster)
        #: One attempt to schedule a pod asks several times.
        self._kept: _Kept | None = None

    # -- admission ---------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Whether the quotas admit the pod."""
        quota = self._quotas.by_namespace.get(pod.namespace)
        if quota is None:
            return None
        requests = self._requests(pod)
        if quota.above_max(self._quotas.used(pod.namespace), requests.in_quota):
            return Status.unschedulable(
                f"Pod {pod.key} is rejected in PreFilter because ElasticQuota {pod.namespace} is more than Max"
            )
        if self._quotas.above_min_in_total(requests.in_total):
            return Status.unschedulable(
                f"Pod {pod.key} is rejected in PreFilter because total ElasticQuota used is more than min"
            )
        return None

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Nothing: pods count as soon as they are assumed."""
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Nothing, as at Reserve."""

    def _requests(self, pod: PodInfo) -> _Requests:
        cluster, kept = self.handle.cluster, self._kept
        if not cluster.has_nominations:
            return _Requests(pod.requests, pod.requests)
        if kept is None or kept.pod is not pod or kept.generation != cluster.cycle.begin():
            kept = self._kept = _Kept(pod, cluster.cycle.generation, self._requests_with_nominated(pod))
        return kept.requests

    def _requests_with_nominated(self, pod: PodInfo) -> _Requests:
        table = self.handle.cluster.nodes
        nominated = table.nominated
        rows = np.flatnonzero(table.nominated_count.readonly).tolist()
        pods = PodChanges(nominated, *nominated.slots_on(rows), +1)
        kinds = pods.values_of(partial(self._kind_of_nominated, pod.namespace))
        own = (kinds == _OWN) & (nominated.priority[pods.slots] >= pod.priority)
        if (slot := nominated.slot(pod.uid)) is not None:
            own &= pods.slots != slot
        in_quota, in_total = Counter(pod.requests), Counter(pod.requests)
        for resource in nominated.resources:
            requested = nominated.requested(resource)[pods.slots]
            for amounts, counted in ((in_quota, own), (in_total, own | (kinds == _OTHER))):
                if amount := int(requested[counted].sum()):
                    amounts[resource] += amount
        return _Requests(in_quota, in_total)

    def _kind_of_nominated(self, namespace: str, shape: Shape) -> int:
        """Whether a nominated pod counts for a pod of a namespace: as one of its quota, as another, or not (0)."""
        if shape.namespace == namespace:
            return _OWN
        is_within_min = shape.namespace in self._quotas.by_namespace and shape.namespace not in self._quotas.above_min
        return _OTHER if is_within_min else 0

    # -- preemption --------------------------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        """Nominates the pod to a node and names the victims, or returns the reasons of all nodes."""
        if pod.namespace in self._quotas.by_namespace:
            filters = _QuotaFilters(filters, self._quotas, pod, self._requests(pod))
        return super().post_filter(state, pod, diagnosis, filters)

    def _candidates(self, pod: PodInfo, filters: FilterRunner) -> Candidates:
        """Nodes without victims are known. Former results do not hold, because quotas are in use on all nodes."""
        candidates = Candidates(self.handle.cluster.nodes)
        if pod.namespace in self._quotas.by_namespace:
            borrowing = (namespace for namespace in self._quotas.above_min if namespace != pod.namespace)
            present = self._quotas.present(borrowing if self._evicts_others(pod) else (pod.namespace,))
            candidates.exclude(np.flatnonzero(~present))
        return candidates

    def _ineligibility(self, pod: PodInfo, diagnosis: Diagnosis) -> str | None:
        """Why a pod is not eligible to preempt others; None when it is."""
        if pod.spec.preemption_policy == "Never":
            return _NEVER_PREEMPTS
        row = self.handle.cluster.nodes.rows.get(pod.status.nominated_node_name or "")
        if row is None or diagnosis.status(row).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return None
        terminating = [info for info in self.handle.cluster.nodes.pods[row].values() if info.terminating]
        return _TERMINATING if any(self._makes_room(pod, info) for info in terminating) else None

    def may_evict(self, pod: PodInfo, others: PodChanges) -> NDArray[np.bool_]:
        """Which of the pods of some nodes may be evicted for a pod, bool."""
        quotas, namespace = self._quotas.by_namespace, pod.namespace
        if self._evicts_others(pod):
            return using_borrowed(self._quotas, others, lender=namespace)
        if namespace in quotas:
            comparable = others.values_of(lambda shape: shape.namespace == namespace)
        else:
            comparable = others.values_of(lambda shape: shape.namespace not in quotas)
        found: NDArray[np.bool_] = super().may_evict(pod, others) & (comparable != 0)
        return found

    def _evicts_others(self, pod: PodInfo) -> bool:
        """Whether a pod gets back what is guaranteed to its namespace, which does not exceed its minimum with it."""
        quota = self._quotas.by_namespace.get(pod.namespace)
        if quota is None:
            return False
        return not quota.above_min(self._requests(pod).in_quota, beside=self._quotas.used(pod.namespace))

    def _makes_room(self, pod: PodInfo, terminating: PodInfo) -> bool:
        """Whether a pod may use what a terminating one frees, as if it had preempted it."""
        quotas = self._quotas.by_namespace
        if pod.namespace not in quotas:
            return terminating.namespace not in quotas and terminating.priority < pod.priority
        if terminating.namespace == pod.namespace:
            return terminating.priority < pod.priority
        return terminating.namespace in self._quotas.above_min and self._evicts_others(pod)


class _QuotaFilters(NodeChecks):
    """The filters of a cycle, and after them the quotas, judged by the pods that each hypothetical node loses.

    At first by what the pod requests itself, then with the requests of nominated pods.
    """

    def __init__(self, filters: FilterRunner, quotas: ElasticQuotas, pod: PodInfo, requests: _Requests) -> None:
        super().__init__(filters, CapacityScheduling.name, _MAX_EXCEEDED)
        self._quotas, self._namespace = quotas.by_namespace, pod.namespace
        above_max, used = self._quotas[pod.namespace].above_max, quotas.used(pod.namespace)
        self._own_excess = above_max(used, pod.requests), quotas.above_min_in_total(pod.requests)
        self._excess = above_max(used, requests.in_quota), quotas.above_min_in_total(requests.in_total)

    def rejects(self, nodes: Nodes) -> NDArray[np.bool_]:
        return self._keep_excess(nodes, *self._excess)

    def rejects_first(self, nodes: Nodes) -> NDArray[np.bool_]:
        return self._keep_excess(nodes, *self._own_excess)

    def _keep_excess(self, nodes: Nodes, in_quota: Amounts, in_total: Amounts) -> NDArray[np.bool_]:
        """Where the pods that leave do not free all that is in excess, bool. No pods are added to any node."""
        found = np.zeros(len(nodes), np.bool_)
        for excess, counts in ((in_quota, self._is_of_quota), (in_total, self._is_of_any_quota)):
            for resource, amount in excess.items():
                found |= -_change(nodes, resource, counts) < amount
        return found

    def _is_of_quota(self, shape: Shape) -> bool:
        return shape.namespace == self._namespace

    def _is_of_any_quota(self, shape: Shape) -> bool:
        return shape.namespace in self._quotas


def _change(nodes: Nodes, resource: str, kind: Callable[[Shape], bool]) -> NDArray[np.int64]:
    """The change of what pods of some kind request on each node, int64."""
    if isinstance(nodes, HypotheticalNodes):
        return nodes.change_of_requests(resource, kind)
    return np.zeros(len(nodes), np.int64)
