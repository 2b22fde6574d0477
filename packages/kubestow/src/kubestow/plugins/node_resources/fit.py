"""NodeResourcesFit rejects nodes without enough free resources for a pod and scores by utilization (semantics 8.8).

Resources that DeviceClasses back are left to DynamicResources on nodes that do not offer them themselves. Among the
placements of a gang the most allocated one scores highest, so that small gaps are filled first.

The arithmetic of the scorers is kube-scheduler's: integers, division truncating toward zero. Each scorer has a form for
arrays of nodes and one for a single node: after a pod is placed only one node is scored again, and Python integers are
several times faster there than arrays of length one. A property test checks that both forms agree. Nodes with amounts
whose percentages may not fit into 64 bits are scored one by one, where kube-scheduler's wrap around.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.api.formats.int64 import BEYOND_ORDINARY, MOST, exact_sum
from kubestow.api.formats.names import is_extended_resource
from kubestow.api.resource import DeviceClass
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRows, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import NodeResourcesFitArgs, ScoringStrategy, UtilizationShapePoint
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import (
    HintKeys,
    Invalidation,
    events_of_nodes_without_hints,
    every_pod_if,
    for_every_pod,
    on,
    placed_pods,
)
from kubestow.framework.gang import Gang, PlacementScorePlugin, Proposal
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Code, Status, Verdict
from kubestow.plugins.dynamic_resources.extended_resources import (
    DEVICE_CLASS_PREFIX,
    DeviceCounts,
    is_dra_extended_resource_name,
)
from kubestow.rules.minors import Behaviour
from kubestow.rules.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, allocatable_amounts

Int64s = NDArray[np.int64]

#: The resources that are not scalar resources, in the order in which kube-scheduler checks them.
NATIVE_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)

#: One resource of many nodes: its capacity and used amount (int64 per node; millicores, bytes or count), the pod's
#: request, and its weight.
ResourceUsage = tuple[Int64s, Int64s, int, int]
#: One resource of a single node: its capacity, the amount that would be used, and its weight.
NodeResourceUsage = tuple[int, int, int]

#: Shape points have scores from 0 to 10.
_SHAPE_SCALE = MAX_SCORE // 10

_TOO_MANY_PODS = "Too many pods"
_INSUFFICIENT = "Insufficient {}"
_SIDECARS_DISABLED = Status.unresolvable(
    "Pod has a restartable init container and the SidecarContainers feature is disabled"
)

#: Bits of a verdict's key: a request exceeds the node's allocatable amount; the node has as many pods as it allows;
#: from the third bit on, one per requested resource. The 27th and all further resources share the last bit.
_UNRESOLVABLE_BIT, _PODS_BIT, _FIRST_RESOURCE_BIT = 1, 2, 4
_LAST_RESOURCE = 26


@dataclass(frozen=True, slots=True)
class _FitPreFilterState:
    """The requests to compare, in the order of the reasons: resource, amount, bit of the verdict's key.

    ``too_small`` is the code of nodes whose allocatable amount is less than a request.
    """

    requests: Sequence[tuple[str, int, int]]
    too_small: Code

    @classmethod
    def of(cls, amounts: Sequence[tuple[str, int]], too_small: Code) -> _FitPreFilterState:
        numbered = enumerate(amounts)
        requests = [(name, amount, _FIRST_RESOURCE_BIT << min(n, _LAST_RESOURCE)) for n, (name, amount) in numbered]
        return cls(requests, too_small)

    def status(self, key: int) -> Status:
        """The status of a verdict's key, with all its reasons."""
        reasons = [_TOO_MANY_PODS] if key & _PODS_BIT else []
        reasons += [_INSUFFICIENT.format(name) for name, _, bit in self.requests if key & bit]
        code = self.too_small if key & _UNRESOLVABLE_BIT else Code.UNSCHEDULABLE
        return Status(code, tuple(reasons))


@dataclass(frozen=True, slots=True)
class _FitPreScoreState:
    """The resources to score: name, the pod's request (millicores, bytes or count), weight."""

    resources: Sequence[tuple[str, int, int]]


class NodeResourcesFit(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, PlacementScorePlugin):
    """Compares requests with allocatable amounts, and scores by the configured strategy."""

    name = "NodeResourcesFit"
    label_keys = ()
    scores_hypothetical_nodes = True
    missing_pre_filter_error = 'error reading "PreFilterNodeResourcesFit" from cycleState: not found'

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._ignored_resources = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._scorer = resource_scorer(args.scoring_strategy)
        self._scored_resources = args.scoring_strategy.resources
        self._scored_device_resources = [
            spec.name for spec in self._scored_resources if is_dra_extended_resource_name(spec.name)
        ]
        self._devices = DeviceCounts(handle)
        unresolvable = handle.emulates(Behaviour.NODES_TOO_SMALL_ARE_UNRESOLVABLE)
        self._code_if_too_small = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE
        self._rejects_sidecars = not handle.feature_enabled("SidecarContainers")
        self._counts = placed_pods(handle, Behaviour.HINTS_LOOK_AT_NOMINATED_PODS)
        self.events_to_register = (
            on(EventResource.POD, Action.ADD | Action.UPDATE | Action.UPDATE_POD_SCALE_UP, requeues=False),
            on(
                EventResource.POD,
                Action.DELETE,
                hint=for_every_pod(self._frees_resources),
                hint_keys=every_pod_if(self._frees_resources),
            ),
            on(
                EventResource.POD,
                Action.UPDATE_POD_SCALE_DOWN,
                hint=_is_schedulable_after_pod_scale_down,
                hint_keys=_keys_of_pod_scale_down,
                requeues=handle.feature_enabled("InPlacePodVerticalScaling"),
            ),
            on(
                EventResource.NODE,
                Action.ADD | Action.UPDATE_NODE_ALLOCATABLE,
                hint=self._is_schedulable_after_node_change,
                hint_keys=self._keys_of_node_change,
            ),
            on(
                EventResource.DEVICE_CLASS,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.ALL,
                hint=_is_schedulable_after_device_class_change,
                hint_keys=_keys_of_device_class_change,
                requeues=handle.feature_enabled("DRAExtendedResource"),
            ),
            *events_of_nodes_without_hints(handle),
        )

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The requests, for filtering and for scoring. None if devices may be scored: any claim changes their usage."""
        requests = pod.shape.requests
        if any(requests.get(name, 0) for name in self._scored_device_resources):
            return None
        return tuple(sorted(requests.items())), tuple(sorted(pod.shape.scored_requests.items()))

    def hint_signature(self, pod: PodInfo) -> Hashable:
        """The requests."""
        return tuple(sorted(pod.shape.requests.items()))

    def hint_keys(self, pod: PodInfo) -> HintKeys | None:
        """The names of the requested resources, and what a node must have: see :meth:`_keys_of_node_change`.

        None if a request is negative or ignored, so that a node may help although it lacks the resource.
        """
        requests = pod.shape.requests
        scalars = sorted(name for name, amount in requests.items() if name not in NATIVE_RESOURCES and amount)
        if any(amount < 0 for amount in requests.values()) or any(map(self._is_ignored, scalars)):
            return None
        needed = (*(requests.get(name, 0) for name in NATIVE_RESOURCES), *(requests[name] for name in scalars[:1]))
        return {**{name: () for name, amount in requests.items() if amount}, (*scalars[:1],): needed}

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Never skips: the number of pods is checked for every pod. Rejects sidecars without SidecarContainers."""
        if self._rejects_sidecars and any(one.restart_policy == "Always" for one in pod.spec.init_containers):
            return _SIDECARS_DISABLED
        state.put(_FitPreFilterState.of(self.checked_requests(pod.shape.requests), self._code_if_too_small))
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        """All insufficient resources of a node are among its reasons."""
        fit = state[_FitPreFilterState]
        keys = np.zeros(len(nodes), np.int32)
        extreme = nodes.extreme.tolist()
        full = nodes.pod_count >= nodes.allowed_pods
        if len(full) and full[full.argmax()]:
            keys |= full * np.int32(_PODS_BIT)
        for name, amount, bit in fit.requests:
            allocatable = nodes.allocatable(name)
            requested = nodes.requested(name)
            # Every ordinary node has room for a request below the negative of its largest amount.
            insufficient = requested > _distinct(allocatable) - max(amount, -BEYOND_ORDINARY)
            for position in extreme:  # a difference of extreme amounts may not fit into 64 bits
                insufficient[position] = allocatable.item(position) - requested.item(position) < amount
            if self._devices.is_backed(name):
                insufficient &= allocatable > 0  # on other nodes DynamicResources allocates devices
            if insufficient.any():
                keys |= insufficient * np.int32(bit)
                keys |= (insufficient & (allocatable < amount)) * np.int32(_UNRESOLVABLE_BIT)
        return Verdict(keys, fit.status)

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> list[int]:
        """The same for a few nodes."""
        keys = [
            _PODS_BIT if count >= most else 0 for count, most in zip(nodes.pod_count, nodes.allowed_pods, strict=True)
        ]
        for name, amount, bit in state[_FitPreFilterState].requests:
            amounts = zip(nodes.allocatable(name), nodes.requested(name), strict=True)
            for position, (allocatable, requested) in enumerate(amounts):
                insufficient = allocatable - requested < amount
                if insufficient and (allocatable > 0 or not self._devices.is_backed(name)):
                    keys[position] |= bit | _UNRESOLVABLE_BIT if allocatable < amount else bit
        return keys

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        """Never skips."""
        state.put(self._pre_score_state(pod))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """By the configured strategy, over the configured resources; 0 if none of them counts for the pod."""
        pre_score = state.get(_FitPreScoreState) or self._pre_score_state(pod)
        if not pre_score.resources or not len(nodes):
            return np.zeros(len(nodes), np.int64)
        usages = [(*self._usage(nodes, name), request, weight) for name, request, weight in pre_score.resources]
        scores = self._scorer.score_nodes(
            # A request that no ordinary node has room for uses all of the resource, however large it is.
            [(capacity, used, min(request, BEYOND_ORDINARY), weight) for capacity, used, request, weight in usages]
        )
        is_negative = any(request < 0 for _, request, _ in pre_score.resources)
        for position in range(len(nodes)) if is_negative else nodes.extreme.tolist():
            scores[position] = self._scorer.score_node(
                [(c.item(position), used.item(position) + request, weight) for c, used, request, weight in usages]
            )
        return scores

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> list[int]:
        """The same for a few nodes."""
        pre_score = state.get(_FitPreScoreState) or self._pre_score_state(pod)
        usages: list[tuple[Sequence[int], Sequence[int], int]] = []
        capacities: Sequence[int]
        used: Sequence[int]
        for name, request, weight in pre_score.resources:
            if name == CPU:
                capacities, used = nodes.allocatable(name), nodes.nonzero_cpu
            elif name == MEMORY:
                capacities, used = nodes.allocatable(name), nodes.nonzero_memory
            else:
                capacities, used = self._devices.usage_of_rows(name, nodes)
            usages.append((capacities, [amount + request for amount in used], weight))
        return self._scorer.score_rows(usages) if usages else [0] * len(nodes)

    def score_placement(self, gang: Gang, proposal: Proposal) -> int:
        """The utilization of all nodes of the placement together, with the gang's pods on them."""
        requests = [pod.shape.scored_requests for pod, _ in proposal.assignments]
        usages = []
        for spec in self._scored_resources:
            if all(is_unrequested_scalar(of_pod, spec.name) for of_pod in requests):
                continue
            capacity, used = self._usage(proposal.placement.nodes, spec.name)
            requested = sum(of_pod.get(spec.name, 0) for of_pod in requests)
            usages.append((exact_sum(capacity), exact_sum(used) + requested, spec.weight or 1))
        return _PLACEMENT_SCORER.score_node(usages)

    def checked_requests(self, requests: Mapping[str, int]) -> list[tuple[str, int]]:
        """The requests to compare, in the order of the reasons: scalar resources follow, sorted by name."""
        native = [(name, requests[name]) for name in NATIVE_RESOURCES if requests.get(name, 0) > 0]
        scalars = sorted(name for name, amount in requests.items() if name not in NATIVE_RESOURCES and amount)
        return native + [(name, requests[name]) for name in scalars if not self._is_ignored(name)]

    def is_backed_by_devices(self, name: str) -> bool:
        """Whether DynamicResources allocates devices for a resource on nodes that do not offer it themselves."""
        return self._devices.is_backed(name)

    def _is_ignored(self, name: str) -> bool:
        if not is_extended_resource(name):
            return False
        return name in self._ignored_resources or name.partition("/")[0] in self._ignored_groups

    def _pre_score_state(self, pod: PodInfo) -> _FitPreScoreState:
        requests = pod.shape.scored_requests
        specs = [spec for spec in self._scored_resources if not is_unrequested_scalar(requests, spec.name)]
        return _FitPreScoreState([(spec.name, requests.get(spec.name, 0), spec.weight or 1) for spec in specs])

    def _usage(self, nodes: Nodes, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Capacity and used amount of a resource, int64 per node; CPU and memory with defaults for missing requests."""
        if name == CPU:
            return nodes.allocatable(name), nodes.nonzero_cpu
        if name == MEMORY:
            return nodes.allocatable(name), nodes.nonzero_memory
        return self._devices.usage(name, nodes)

    # -- queueing hints ------------------------------------------------------------------------------------------

    def _is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        """Whether the pod fits the empty node, and the node is new or has more of a resource that the pod requests."""
        allocatable = allocatable_amounts(new.status.allocatable)
        requests = self.checked_requests(pod.shape.requests)
        delegated = {name for name, _ in requests if not allocatable.get(name, 0) and self._devices.is_backed(name)}
        fits = all(allocatable.get(name, 0) >= amount for name, amount in requests if name not in delegated)
        if allocatable.get(PODS, 0) < 1 or not fits:
            return False
        if old is None or delegated:
            return True
        old_allocatable = allocatable_amounts(old.status.allocatable)
        grown = [name for name, amount in allocatable.items() if amount > old_allocatable.get(name, 0)]
        return PODS in grown or any(pod.shape.requests.get(name, 0) for name in grown)

    def _keys_of_node_change(self, old: Node | None, new: Node) -> HintKeys:
        """The native resources that a pod may request at most, alone or together with one scalar resource.

        A pod that requests several scalar resources is found by one of them. The names are in tuples, to tell them from
        those of other events.
        """
        allocatable = allocatable_amounts(new.status.allocatable)
        if allocatable.get(PODS, 0) < 1:
            return ()
        limits = {name: max(amount, 0) for name, amount in allocatable.items()}
        backed = [name for name in self._devices.backed_resources if not allocatable.get(name, 0)]
        limits |= dict.fromkeys(backed, MOST)
        before = {} if old is None else allocatable_amounts(old.status.allocatable)
        grown = {*backed, *(name for name, amount in allocatable.items() if amount > before.get(name, 0))}
        if old is not None and not grown:
            return ()
        native = tuple(limits.get(name, 0) for name in NATIVE_RESOURCES)
        keys: dict[Hashable, Sequence[int]] = {
            (name,): (*native, limit) for name, limit in limits.items() if limit and name not in NATIVE_RESOURCES
        }
        if old is None or not grown.isdisjoint((PODS, *NATIVE_RESOURCES)):
            keys[()] = native
        return keys

    def _frees_resources(self, old: PodInfo, new: None) -> bool:
        return self._counts(old)


def _is_schedulable_after_pod_scale_down(pod: PodInfo, old: PodInfo, new: PodInfo) -> bool:
    """Whether it is the pod itself, or a pod on a node that requests less now of a resource that the pod requests."""
    if new.uid == pod.uid:
        return True
    return bool(new.spec.node_name) and any(
        new.requests.get(name, 0) < old.requests.get(name, 0) for name, amount in pod.shape.requests.items() if amount
    )


def _keys_of_pod_scale_down(old: PodInfo, new: PodInfo) -> HintKeys:
    """The resources of which a pod on a node requests less now."""
    if not new.spec.node_name:
        return ()
    before, after = old.requests, new.requests
    return [name for name in {**before, **after} if after.get(name, 0) < before.get(name, 0)]


def _is_schedulable_after_device_class_change(pod: PodInfo, old: DeviceClass | None, new: DeviceClass) -> bool:
    """Whether the class backs a resource that the pod requests and that it did not back before."""
    name = new.spec.extended_resource_name
    if old is not None:
        return name != old.spec.extended_resource_name and bool(name and pod.shape.requests.get(name, 0))
    return any(pod.shape.requests.get(resource, 0) for resource in _keys_of_device_class_change(old, new))


def _keys_of_device_class_change(old: DeviceClass | None, new: DeviceClass) -> Sequence[str]:
    """The resources that the class may back now and did not before."""
    name = new.spec.extended_resource_name or ""
    return (DEVICE_CLASS_PREFIX + new.metadata.name, name) if old is None else (name,)


def _distinct(capacity: Int64s) -> Int64s:
    """The capacities of all nodes, or a single one if all are the same entry, which takes no pass over the nodes."""
    return capacity[:1] if capacity.strides == (0,) else capacity


# -- scoring -------------------------------------------------------------------------------------------------------


def is_unrequested_scalar(requests: Mapping[str, int], resource: str) -> bool:
    """Whether a resource is left out of the scores of a pod: a scalar resource that it does not request."""
    return resource not in NATIVE_RESOURCES and not requests.get(resource, 0)


def resource_scorer(strategy: ScoringStrategy) -> ResourceScorer:
    """The scorer of a ``scoringStrategy``."""
    if strategy.type == "RequestedToCapacityRatio":
        ratio = strategy.requested_to_capacity_ratio
        return _RequestedToCapacityRatio(ratio.shape if ratio else ())
    return _AllocationScorer(scores_free=strategy.type != "MostAllocated")


class ResourceScorer(ABC):
    """Scores nodes from 0 to MAX_SCORE by the usage of one or more resources."""

    @abstractmethod
    def score_nodes(self, usages: Sequence[ResourceUsage]) -> Int64s:
        """The scores of many nodes, int64 per node."""

    @abstractmethod
    def score_node(self, usages: Sequence[NodeResourceUsage]) -> int:
        """The score of a single node."""

    def score_rows(self, usages: Sequence[tuple[Sequence[int], Sequence[int], int]]) -> list[int]:
        """The scores of a few nodes, whose capacities and used amounts of each resource are in sequences."""
        weights = [weight for _, _, weight in usages]
        capacities, used = (zip(*(usage[index] for usage in usages), strict=True) for index in (0, 1))
        return [
            self.score_node(list(zip(*of_node, weights, strict=True))) for of_node in zip(capacities, used, strict=True)
        ]


class _AllocationScorer(ResourceScorer):
    """The weighted mean of one fraction per resource, in percent, over the resources with capacity; 0 without any.

    The fraction is that of the free capacity (LeastAllocated) or of the used capacity (MostAllocated).
    """

    def __init__(self, *, scores_free: bool) -> None:
        self._scores_free = scores_free

    def _scored_amount(self, capacity: Int64s, used: Int64s, request: int) -> Int64s:
        """The amount of a resource whose fraction of the capacity is the score."""
        if not self._scores_free:
            used = used + request
            return np.minimum(used, capacity, out=used)
        free: Int64s = (capacity - request) - used
        return np.maximum(free, 0, out=free) if free[free.argmin()] < 0 else free

    def score_nodes(self, usages: Sequence[ResourceUsage]) -> Int64s:
        total: Int64s | None = None
        weights: Any = 0
        for capacity, used, request, weight in usages:
            percent = self._scored_amount(_distinct(capacity), used, request)
            percent *= MAX_SCORE
            everywhere = capacity[0 if capacity.strides == (0,) else capacity.argmin()] > 0
            percent //= capacity if everywhere else np.maximum(capacity, 1)
            if weight != 1:
                percent *= weight
            total = percent if total is None else np.add(total, percent, out=percent)
            weights += weight if everywhere else (capacity > 0) * weight
        assert total is not None
        if isinstance(weights, int) and weights == 2:
            total >>= 1  # rounds as // does, in a third of the time
        else:
            total //= np.maximum(weights, 1)
        return total

    def score_node(self, usages: Sequence[NodeResourceUsage]) -> int:
        total = weights = 0
        for capacity, used, weight in usages:
            if capacity > 0:
                amount = max(capacity - used, 0) if self._scores_free else min(used, capacity)
                total += amount * MAX_SCORE // capacity * weight
                weights += weight
        return _clamped(total // max(weights, 1))

    def score_rows(self, usages: Sequence[tuple[Sequence[int], Sequence[int], int]]) -> list[int]:
        if not all(min(capacities) > 0 <= min(used) for capacities, used, _ in usages):
            return super().score_rows(usages)
        totals = [0] * len(usages[0][0])
        for capacities, used, weight in usages:
            amounts = zip(totals, capacities, used, strict=True)
            if self._scores_free:
                totals = [total + (c - u) * MAX_SCORE // c * weight if u < c else total for total, c, u in amounts]
            else:
                totals = [total + (u if u < c else c) * MAX_SCORE // c * weight for total, c, u in amounts]
        weights = sum(weight for _, _, weight in usages)
        return [total // weights for total in totals]


class _RequestedToCapacityRatio(ResourceScorer):
    """The shape's score of each resource's utilization, averaged over the resources with a score above 0."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._shape = UtilizationShape(shape)

    def score_nodes(self, usages: Sequence[ResourceUsage]) -> Int64s:
        total: Any = 0
        weights: Any = 0
        for capacity, used, request, weight in usages:
            scores = np.where(capacity > 0, self._shape.scores(used + request, capacity), 0)
            total += scores * weight
            weights += (scores > 0) * weight
        mean = total / np.maximum(weights, 1)
        rounded: Int64s = np.floor(mean + 0.5).astype(np.int64)  # half away from zero, as no score is negative
        return rounded

    def score_node(self, usages: Sequence[NodeResourceUsage]) -> int:
        total = weights = 0
        for capacity, used, weight in usages:
            score = self._shape.score(used, capacity) if capacity > 0 else 0
            total += score * weight
            weights += (score > 0) * weight
        return _clamped(int(total / max(weights, 1) + 0.5))  # half away from zero, as no score is negative


def _clamped(score: int) -> int:
    """A score from 0 to MAX_SCORE. Of amounts that are not negative no other results."""
    return max(0, min(score, MAX_SCORE))


class UtilizationShape:
    """A piecewise linear function from utilization (0 to 100) to a score (0 to MAX_SCORE), constant beyond its ends."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._points = [(point.utilization, point.score * _SHAPE_SCALE) for point in shape]

    def score(self, used: int, capacity: int) -> int:
        """The score of one pair of amounts of any size."""
        utilization = MAX_SCORE if used > capacity or not capacity else used * MAX_SCORE // max(capacity, 1)
        if utilization <= self._points[0][0]:
            return self._points[0][1]
        for (low, low_score), (high, high_score) in zip(self._points, self._points[1:], strict=False):
            if utilization <= high:
                rise = (high_score - low_score) * (utilization - low)
                return low_score + (abs(rise) // (high - low)) * (1 if rise >= 0 else -1)  # truncates toward zero
        return self._points[-1][1]

    def scores(self, used: Int64s, capacity: Int64s) -> Int64s:
        """The score of each pair of amounts, int64; utilization is 100 without capacity and above it."""
        share = used * MAX_SCORE // np.maximum(capacity, 1)
        utilization = np.where((used > capacity) | (capacity == 0), MAX_SCORE, share)
        points = self._points
        scores = np.full(utilization.shape, points[-1][1], np.int64)
        for (low, low_score), (high, high_score) in zip(points[-2::-1], points[:0:-1], strict=True):
            rise = (high_score - low_score) * (utilization - low)
            slope = np.sign(rise) * (np.abs(rise) // (high - low))  # truncates toward zero
            np.copyto(scores, low_score + slope, where=utilization <= high)
        np.copyto(scores, points[0][1], where=utilization <= points[0][0])
        return scores


#: Placements are scored by this strategy, whatever the arguments configure for nodes.
_PLACEMENT_SCORER = resource_scorer(ScoringStrategy(type="MostAllocated"))
