"""CapacityScheduling: pods are admitted as long as quotas allow, and preempt to get back what is guaranteed to them.

PreFilter rejects a pod whose namespace would exceed its maximum, or with which all namespaces together would exceed
what is guaranteed to them. PostFilter preempts. A namespace that uses less than its minimum evicts pods of others that
use more than theirs, whatever their priority; one that is above its minimum evicts its own pods of lower priority. Pods
without a quota evict others without a quota, by priority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges
from kubestow.config.plugin_args import DefaultPreemptionArgs
from kubestow.contrib.capacity_scheduling.elastic_quotas import Amounts, ElasticQuota, ElasticQuotas
from kubestow.contrib.node_checks import NodeChecks
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

__all__ = ["CapacityScheduling"]

_TERMINATING = "not eligible due to a terminating pod on the nominated node."
_NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
_MAX_EXCEEDED = Status.unschedulable("global quota max exceeded")


class _Requests(NamedTuple):
    """What a pod requests, together with nominated pods: those of its quota, and those of all quotas."""

    in_quota: Amounts
    in_total: Amounts


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

    # -- admission ---------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Whether the quotas admit the pod."""
        quota = self._quotas.by_namespace.get(pod.namespace)
        if quota is None:
            return None
        requests = self._requests(pod)
        if quota.over_max(self._quotas.used(pod.namespace), requests.in_quota):
            return Status.unschedulable(
                f"Pod {pod.key} is rejected in PreFilter because ElasticQuota {pod.namespace} is more than Max"
            )
        if self._quotas.over_min_in_total(requests.in_total):
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
        in_quota, in_total = Counter(pod.requests), Counter(pod.requests)
        quotas = self._quotas.by_namespace
        for nominated in self._nominated():
            quota = quotas.get(nominated.namespace)
            if quota is None or nominated.uid == pod.uid:
                continue
            if nominated.namespace == pod.namespace:
                if nominated.priority >= pod.priority:
                    in_quota.update(nominated.requests)
                    in_total.update(nominated.requests)
            elif not quota.over_min(self._quotas.used(nominated.namespace)):
                in_total.update(nominated.requests)
        return _Requests(in_quota, in_total)

    def _nominated(self) -> Iterator[PodInfo]:
        cluster = self.handle.cluster
        if cluster.has_nominations:
            for row in np.flatnonzero(cluster.nodes.nominated_count.readonly).tolist():
                yield from cluster.nominated_pods(cluster.nodes.names[row])

    # -- preemption --------------------------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        """Nominates the pod to a node and names the victims, or returns the reasons of all nodes."""
        if pod.namespace in self._quotas.by_namespace:
            filters = _QuotaFilters(filters, self._quotas, pod, self._requests(pod))
        return super().post_filter(state, pod, diagnosis, filters)

    def _candidates(self, pod: PodInfo, filters: FilterRunner) -> Candidates:
        """None: former results do not hold, because quotas are in use on all nodes."""
        return Candidates(self.handle.cluster.nodes)

    def _ineligibility(self, pod: PodInfo, diagnosis: Diagnosis) -> str | None:
        """Why a pod is not eligible to preempt others; None when it is."""
        if pod.spec.preemption_policy == "Never":
            return _NEVER_PREEMPTS
        row = self.handle.cluster.nodes.rows.get(pod.status.nominated_node_name or "")
        if row is None or diagnosis.status(row).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return None
        terminating = [info for info in self.handle.cluster.nodes.pods[row].values() if info.terminating]
        return _TERMINATING if any(self._may_evict_one(pod, victim) for victim in terminating) else None

    def may_evict(self, pod: PodInfo, others: PodChanges) -> NDArray[np.bool_]:
        """Which of the pods of some nodes may be evicted for a pod, bool.

        Of other namespaces, on each node, only as many as their quotas are over their minimum, the least important
        first.
        """
        infos, start_time = others.infos, others.table.start_time[others.slots]
        if not self._evicts_others(pod):
            return np.fromiter((self._may_evict_one(pod, info) for info in infos), np.bool_, len(infos))
        by_node: dict[int, list[int]] = {}
        for position, info in enumerate(infos):
            if self._may_evict_one(pod, info):
                by_node.setdefault(int(others.row_of[position]), []).append(position)
        found = np.zeros(len(infos), np.bool_)
        for positions in by_node.values():
            positions.sort(key=lambda position: (infos[position].priority, -start_time.item(position)))
            used: dict[str, Counter[str]] = {}
            for position in positions:
                info = infos[position]
                left = used.setdefault(info.namespace, Counter(self._quotas.used(info.namespace)))
                if self._quotas.by_namespace[info.namespace].over_min(left):
                    found[position] = True
                    left.subtract(info.requests)
        return found

    def _evicts_others(self, pod: PodInfo) -> bool:
        """Whether a pod gets back what is guaranteed to its namespace, which does not exceed its minimum with it."""
        quota = self._quotas.by_namespace.get(pod.namespace)
        if quota is None:
            return False
        used = Counter(self._quotas.used(pod.namespace))
        used.update(self._requests(pod).in_quota)
        return not quota.over_min(used)

    def _may_evict_one(self, pod: PodInfo, victim: PodInfo) -> bool:
        quotas = self._quotas.by_namespace
        quota = quotas.get(victim.namespace)
        if pod.namespace not in quotas:
            return quota is None and victim.priority < pod.priority
        if quota is None:
            return False
        if self._evicts_others(pod):
            return victim.namespace != pod.namespace and quota.over_min(self._quotas.used(victim.namespace))
        return victim.namespace == pod.namespace and victim.priority < pod.priority


class _QuotaFilters(NodeChecks):
    """The filters of a cycle, and after them the quotas, judged by the pods that each hypothetical node loses.

    At first by what the pod requests itself, then with the requests of nominated pods.
    """

    def __init__(self, filters: FilterRunner, quotas: ElasticQuotas, pod: PodInfo, requests: _Requests) -> None:
        super().__init__(filters, CapacityScheduling.name, _MAX_EXCEEDED)
        self._quotas, self._pod, self._requests = quotas, pod, requests
        own = Counter(pod.requests)
        self._own_requests = _Requests(own, own)

    def rejects(self, nodes: Nodes, position: int) -> bool:
        return self._exceeds(nodes, position, self._requests)

    def rejects_first(self, nodes: Nodes, position: int) -> bool:
        return self._exceeds(nodes, position, self._own_requests)

    def _exceeds(self, nodes: Nodes, position: int, requests: _Requests) -> bool:
        removed: dict[str, Counter[str]] = {}
        if isinstance(nodes, HypotheticalNodes):
            for sign, info in nodes.change(position).signed_pods():
                amounts = removed.setdefault(info.namespace, Counter())
                for name, amount in info.requests.items():
                    amounts[name] -= sign * amount
        namespace = self._pod.namespace
        used = Counter(self._quotas.used(namespace))
        used.subtract(removed.get(namespace, {}))
        quota = self._quotas.by_namespace[namespace]
        return quota.over_max(used, requests.in_quota) or self._quotas.over_min_in_total(requests.in_total, removed)
