"""CapacityScheduling of scheduler-plugins: elastic quotas of namespaces, which borrow from each other.

ElasticQuota objects with what the pods of their namespaces use, the pods that give back what their namespaces borrow,
and the plugin: admission by quota, and preemption within and across namespaces.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.api.custom import CustomObject
from kubestow.api.formats.int64 import exact_sum, saturated
from kubestow.api.formats.quantity import Quantity
from kubestow.api.meta import APIObject
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.changes.journal import Generation
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.pods.table import PodChanges
from kubestow.cluster.topology.counters import PodCounter
from kubestow.config.plugin_args import DefaultPreemptionArgs
from kubestow.errors import InvalidQuantity
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.event_registration import on
from kubestow.framework.interface import FilterRunner, Handle, PostFilterResult, PreFilterPlugin, ReservePlugin
from kubestow.framework.status import Code, Status
from kubestow.log_fields import fields
from kubestow.plugins.default_preemption.candidates import Candidates
from kubestow.plugins.default_preemption.default_preemption import DefaultPreemption
from kubestow_contrib.node_checks import NodeChecks
from kubestow_contrib.shares import Amounts, amounts_of

_log = logging.getLogger(__name__)

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_UNLIMITED = 2**63 - 1


class ElasticQuotaSpec(APIObject, frozen=True):
    """``spec``."""

    min: dict[str, Quantity] | None = None
    max: dict[str, Quantity] | None = None


class ElasticQuota(CustomObject, frozen=True):
    """The quota of a namespace; of several, the first by name counts."""

    resource: ClassVar[str] = "elasticquotas.v1alpha1.scheduling.x-k8s.io"
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


@dataclass(frozen=True, slots=True)
class Quota:
    """The amounts of an ElasticQuota; None stands for a missing list."""

    min: Amounts | None
    max: Amounts | None

    def above_min(self, amounts: Amounts, *, beside: Amounts | None = None) -> Amounts:
        """What some amounts, with what is ``beside`` them, exceed the minimum by."""
        return excess(amounts, self.min or {}, beside=beside)

    def above_max(self, used: Amounts, request: Amounts) -> Amounts:
        """What a request would exceed the maximum by."""
        return {} if self.max is None else excess(request, self.max, beside=used, otherwise=_UNLIMITED)


def excess(amounts: Amounts, bounds: Amounts, *, beside: Amounts | None = None, otherwise: int = 0) -> dict[str, int]:
    """What each amount, together with what is ``beside`` it, exceeds its bound by; only resources that do.

    Resources other than the native ones are compared if they are among the ``amounts``, with the bound ``otherwise`` if
    they have none.
    """
    others = beside or {}
    found = {name: amounts.get(name, 0) + others.get(name, 0) - bounds.get(name, 0) for name in _NATIVE}
    for name in amounts:
        if name not in found:
            found[name] = amounts[name] + others.get(name, 0) - bounds.get(name, otherwise)
    return {name: amount for name, amount in found.items() if amount > 0}


class ElasticQuotas:
    """The quotas by namespace, and what the placed pods of these namespaces use."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._catalog = cluster.catalog(ElasticQuota)
        self._version = -1
        self._quotas: dict[str, Quota] = {}
        self._guaranteed: Counter[str] = Counter()
        #: What the pods of each namespace use, whether or not it has a quota.
        self._used: dict[str, Counter[str]] = {}
        #: What the pods of all namespaces with a quota use together.
        self._used_in_total: Counter[str] = Counter()
        self._above_min: dict[str, Amounts] = {}
        #: The namespaces with a quota that use more or less than when that was computed.
        self._changed: set[str] = set()
        #: For namespaces with a quota, if it was asked for.
        self._pods: dict[str, PodCounter] = {}
        cluster.listen_to_placements(self)

    def __bool__(self) -> bool:
        """Whether there is any quota."""
        return bool(self.by_namespace)

    @property
    def by_namespace(self) -> Mapping[str, Quota]:
        """The quotas."""
        self._refresh()
        return self._quotas

    def _refresh(self) -> None:
        if self._version != self._catalog.version:
            self._version = self._catalog.version
            self._quotas = _quotas(self._catalog)
            self._guaranteed, self._used_in_total = Counter(), Counter()
            for namespace, quota in self._quotas.items():
                self._guaranteed.update(quota.min or {})
                self._used_in_total.update(self.used(namespace))
            self._above_min, self._changed = {}, set(self._quotas)
            self._pods = {name: pods for name, pods in self._pods.items() if name in self._quotas}

    def used(self, namespace: str) -> Amounts:
        """What the pods of a namespace use."""
        return self._used.get(namespace, {})

    @property
    def above_min(self) -> Mapping[str, Amounts]:
        """By namespace what its pods use above its minimum; only those that do, and only such resources."""
        quotas = self.by_namespace
        for namespace in self._changed:
            above = quotas[namespace].above_min(self.used(namespace))
            if above:
                self._above_min[namespace] = above
            else:
                self._above_min.pop(namespace, None)
        self._changed.clear()
        return self._above_min

    def present(self, namespaces: Iterable[str]) -> NDArray[np.bool_]:
        """Which nodes have pods of some namespaces with a quota, bool by row of the node table."""
        self._refresh()
        count = np.zeros(len(self._cluster.nodes), np.int64)
        for namespace in namespaces:
            if namespace not in self._pods:
                key, index_keys = (ElasticQuota.resource, namespace), frozenset((namespace,))
                self._pods[namespace] = self._cluster.counter(
                    key, lambda shape: 1, index_keys=index_keys, terminating=True
                )
            count += self._pods[namespace].by_row
        return count > 0

    def above_min_in_total(self, request: Amounts) -> Amounts:
        """What all namespaces with a quota would use, with a request, beyond what all of them are guaranteed."""
        self._refresh()
        used = self._used_in_total
        together = {name: used[name] + request.get(name, 0) for name in used.keys() | request.keys()}
        return excess(together, self._guaranteed)

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Count a pod."""
        if info.namespace in self.by_namespace:
            self._used_in_total.update(info.requests)
            self._changed.add(info.namespace)
        self._used.setdefault(info.namespace, Counter()).update(info.requests)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Do not count a pod any more."""
        if info.namespace in self.by_namespace:
            self._used_in_total.subtract(info.requests)
            self._changed.add(info.namespace)
        used = self._used.setdefault(info.namespace, Counter())
        used.subtract(info.requests)
        if not any(used.values()):
            del self._used[info.namespace]


def _quotas(objects: Iterable[ElasticQuota]) -> dict[str, Quota]:
    """The quotas by namespace; those with problems are logged, and left out if they cannot be used."""
    quotas: dict[str, Quota] = {}
    for obj in objects:
        namespace, key = obj.metadata.namespace, f"{obj.metadata.namespace}/{obj.metadata.name}"
        if namespace in quotas:
            _warn(key, f"is ignored: namespace {namespace} has another one")
            continue
        try:
            quota = Quota(
                None if obj.spec.min is None else amounts_of(obj.spec.min, "spec.min"),
                None if obj.spec.max is None else amounts_of(obj.spec.max, "spec.max"),
            )
        except InvalidQuantity as error:
            _warn(key, f"is ignored: {error}")
            continue
        for name, amount in (quota.min or {}).items():
            if quota.max is not None and amount > quota.max.get(name, amount):
                _warn(key, f"spec.min.{name} is above spec.max.{name}, which limits the namespace")
        quotas[namespace] = quota
    return quotas


def _warn(key: str, problem: str) -> None:
    _log.warning("ElasticQuota %s: %s", key, problem, extra=fields(elasticQuota=key, err=problem))


def using_borrowed(quotas: ElasticQuotas, pods: PodChanges, *, lender: str) -> NDArray[np.bool_]:
    """The pods of some nodes that may be evicted for a pod of the namespace ``lender``, bool per pod."""
    found = np.zeros(len(pods.slots), np.bool_)
    above = {namespace: amounts for namespace, amounts in quotas.above_min.items() if namespace != lender}
    numbers = {namespace: number for number, namespace in enumerate(above, start=1)}
    number_of = pods.values_of(lambda shape: numbers.get(shape.namespace, 0))
    positions = np.flatnonzero(number_of)
    priority, start_time = pods.table.priority[pods.slots[positions]], pods.table.start_time[pods.slots[positions]]
    positions = positions[np.lexsort((-start_time, priority, number_of[positions], pods.row_of[positions]))]
    slots, rows, numbers_of = pods.slots[positions], pods.row_of[positions], number_of[positions]
    # Consecutive pods of one namespace on one node are evicted one after the other.
    is_first = np.ones(len(positions), np.bool_)
    is_first[1:] = (rows[1:] != rows[:-1]) | (numbers_of[1:] != numbers_of[:-1])
    run_of = np.cumsum(is_first) - 1
    for resource in {name for amounts in above.values() for name in amounts}:
        requested: NDArray[Any] = pods.table.requested(resource)[slots]
        if pods.table.extreme_pods:
            requested = requested.astype(object)  # Python's integers: sums may not fit into 64 bits
        evicted_before = np.cumsum(requested) - requested
        evicted_before -= evicted_before[is_first][run_of]
        most = [0, *(saturated(amounts.get(resource, 0)) for amounts in above.values())]
        found[positions] |= np.greater(np.array(most, np.int64)[numbers_of], evicted_before).astype(np.bool_)
    return found


_TERMINATING = "not eligible due to a terminating pod on the nominated node."
_NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
_MAX_EXCEEDED = Status.unschedulable("global quota max exceeded")
#: Kinds of nominated pods: of the quota of the pod that is scheduled, and of others.
_OWN, _OTHER = 1, 2


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
        #: The requests of the pod that was asked about last, and the generation of the cluster that they hold in: one
        #: attempt to schedule a pod asks several times.
        self._kept: tuple[PodInfo, Generation, _Requests] | None = None

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
        if kept is None or kept[0] is not pod or kept[1] != cluster.change_window.begin():
            kept = self._kept = pod, cluster.change_window.generation, self._requests_with_nominated(pod)
        return kept[2]

    def _requests_with_nominated(self, pod: PodInfo) -> _Requests:
        table = self.handle.cluster.nodes
        nominated = table.nominated
        rows = np.flatnonzero(table.nominated_count.readonly).tolist()
        pods = PodChanges(nominated, *nominated.slots_on(rows), +1)
        quotas, above_min = self._quotas.by_namespace, self._quotas.above_min

        def kind(shape: Shape) -> int:
            """Of the quota of the pod, of another one, or 0: not counted, because it borrows."""
            if shape.namespace == pod.namespace:
                return _OWN
            return _OTHER if shape.namespace in quotas and shape.namespace not in above_min else 0

        kinds = pods.values_of(kind)
        own = (kinds == _OWN) & (nominated.priority[pods.slots] >= pod.priority)
        if (slot := nominated.slot(pod.uid)) is not None:
            own &= pods.slots != slot
        in_quota, in_total = Counter(pod.requests), Counter(pod.requests)
        for resource in nominated.resources:
            requested = nominated.requested(resource)[pods.slots]
            for amounts, counted in ((in_quota, own), (in_total, own | (kinds == _OTHER))):
                if amount := exact_sum(requested[counted]):
                    amounts[resource] += amount
        return _Requests(in_quota, in_total)

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
        kinds: list[tuple[Amounts, Callable[[Shape], bool]]] = [
            (in_quota, lambda shape: shape.namespace == self._namespace),
            (in_total, lambda shape: shape.namespace in self._quotas),
        ]
        for excess, counts in kinds:
            for resource, amount in excess.items():
                change = nodes.change_of_requests(resource, counts) if isinstance(nodes, HypotheticalNodes) else 0
                found |= -change < amount
        return found
