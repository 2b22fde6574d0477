"""NodeResourcesFit rejects nodes without room for what a pod requests, and scores the room left (semantics 8.8).

Of the placements of a gang it prefers those that are used up most, so that small gaps are filled first.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.api.names import is_extended_resource
from kubestow.api.resource import DeviceClass
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.requests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    allocatable_amounts,
)
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import NodeResourcesFitArgs, ScoringStrategy
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.gang import Gang
from kubestow.framework.interface import FilterPlugin, Handle, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.placement import PlacementScorePlugin, Proposal
from kubestow.framework.status import Code, Status, Verdict
from kubestow.plugins.dynamic_resources.device_counts import DeviceCounts
from kubestow.plugins.dynamic_resources.extended_resources import DEVICE_CLASS_PREFIX, is_dra_extended_resource_name
from kubestow.plugins.node_resources.scoring import strategy

__all__ = ["NodeResourcesFit"]

_FIRST = (CPU, MEMORY, EPHEMERAL_STORAGE)
#: Bits of a verdict's key: beyond what the node will ever have, too many pods, then one per requested resource.
_NEVER, _TOO_MANY_PODS, _FIRST_RESOURCE = 1, 2, 4
#: A verdict's key is an int32, so this many resources can be told apart; further ones share the last bit.
_MOST_RESOURCES = 28
#: How placements are scored, whatever the args say of nodes (semantics 8.8).
_BY_USE = strategy(ScoringStrategy(type="MostAllocated"))


class NodeResourcesFit(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, PlacementScorePlugin):
    """Filter and score by requested and allocatable amounts."""

    name = "NodeResourcesFit"
    missing_pre_filter_error = 'error reading "PreFilterNodeResourcesFit" from cycleState: not found'

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._strategy = strategy(args.scoring_strategy)
        self._scored = args.scoring_strategy.resources
        self._devices = DeviceCounts(handle)
        self.events_to_register = (
            on(EventResource.POD, Action.ADD | Action.UPDATE | Action.UPDATE_POD_SCALE_UP, requeues=False),
            on(EventResource.POD, Action.DELETE, hint=_left_a_node),
            on(EventResource.POD, Action.UPDATE_POD_SCALE_DOWN, hint=self._shrank),
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, hint=self._has_more),
            on(
                EventResource.DEVICE_CLASS,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.ALL,
                hint=_class_stands_for,
            ),
        )

    def signature(self, pod: PodInfo) -> Hashable | None:
        """What the pod requests, and what it is scored by; what devices score changes with every claim."""
        requests = pod.shape.requests
        if any(requests.get(spec.name, 0) and is_dra_extended_resource_name(spec.name) for spec in self._scored):
            return None
        return tuple(sorted(pod.shape.requests.items())), pod.shape.scored_requests

    # -- filter --------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        """Settles what to compare."""
        wanted = self._wanted(pod.shape.requests)
        state.put(_Wanted(wanted, _Legend([name for name, _ in wanted])))

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        """Every insufficient resource is a bit of the key, so all reasons of a node are kept."""
        wanted = state[_Wanted]
        if len(nodes) == 1:
            return Verdict(np.array([self._key(nodes, wanted.amounts)], np.int32), wanted.legend)
        keys = (nodes.pod_count >= nodes.allowed_pods) * np.int32(_TOO_MANY_PODS)
        bit = _FIRST_RESOURCE
        for name, amount in wanted.amounts:
            allocatable = nodes.allocatable(name)
            short = allocatable - nodes.requested(name) < amount
            if self._devices.is_backed(name):
                short &= allocatable > 0  # elsewhere devices stand for it, which DynamicResources looks for
            if short.any():
                keys |= short * np.int32(bit)
                keys |= (short & (allocatable < amount)) * np.int32(_NEVER)
            bit <<= bit < 1 << _MOST_RESOURCES
        return Verdict(keys, wanted.legend)

    def _key(self, nodes: Nodes, amounts: Sequence[tuple[str, int]]) -> int:
        """The key of a single node; numbers are quicker there than arrays of one."""
        key = _TOO_MANY_PODS if nodes.pod_count.item() >= nodes.allowed_pods.item() else 0
        bit = _FIRST_RESOURCE
        for name, amount in amounts:
            allocatable: int = nodes.allocatable(name).item()
            short = allocatable - nodes.requested(name).item() < amount
            if short and (allocatable > 0 or not self._devices.is_backed(name)):
                key |= bit | _NEVER if allocatable < amount else bit
            bit <<= bit < 1 << _MOST_RESOURCES
        return key

    def _wanted(self, requests: Mapping[str, int]) -> list[tuple[str, int]]:
        """The amounts to compare, in the order in which reasons are given."""
        first = [(name, requests[name]) for name in _FIRST if requests.get(name, 0) > 0]
        scalars = sorted(name for name, amount in requests.items() if name not in _FIRST and amount)
        return first + [(name, requests[name]) for name in scalars if not self._leaves_to_others(name)]

    def _leaves_to_others(self, name: str) -> bool:
        return is_extended_resource(name) and (name in self._ignored or name.partition("/")[0] in self._ignored_groups)

    # -- score ---------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        """Settles which resources count."""
        state.put(self._counted(pod))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """By the configured strategy, over the configured resources."""
        counted = state.get(_Counted) or self._counted(pod)
        if not counted.resources:
            return np.zeros(len(nodes), np.int64)
        usages = [(*self._usage(nodes, name), request, weight) for name, request, weight in counted.resources]
        if len(nodes) == 1:
            of_one = [(capacity.item(), used.item() + request, weight) for capacity, used, request, weight in usages]
            return np.array([self._strategy.score(of_one)], np.int64)
        return self._strategy.scores([(capacity, used + request, weight) for capacity, used, request, weight in usages])

    def _usage(self, nodes: Nodes, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What there is and what is in use already: with defaults for CPU and memory, as requested for the others."""
        if name == CPU:
            return nodes.allocatable(name), nodes.nonzero_cpu
        if name == MEMORY:
            return nodes.allocatable(name), nodes.nonzero_memory
        return self._devices.usage(name, nodes)

    def _counted(self, pod: PodInfo) -> _Counted:
        specs = [spec for spec in self._scored if not _is_unrequested_scalar(pod, spec.name)]
        requests = _scored_requests(pod)
        return _Counted([(spec.name, requests.get(spec.name, 0), spec.weight or 1) for spec in specs])

    def score_placement(self, gang: Gang, proposal: Proposal) -> int:
        """How much of all its nodes would be in use, by the weights of the configured resources."""
        pods = [pod for pod, _ in proposal.assignments]
        names = {spec.name for spec in self._scored if any(not _is_unrequested_scalar(p, spec.name) for p in pods)}
        amounts = []
        for spec in (spec for spec in self._scored if spec.name in names):
            there, used = self._usage(proposal.placement.nodes, spec.name)
            requested = sum(_scored_requests(pod).get(spec.name, 0) for pod in pods)
            amounts.append((int(there.sum()), int(used.sum()) + requested, spec.weight or 1))
        return _BY_USE.score(amounts)

    # -- queueing hints ------------------------------------------------------------------------------------------

    def _shrank(self, pod: PodInfo, old: PodInfo, new: PodInfo) -> bool:
        if new.uid == pod.uid:
            return True
        return bool(new.spec.node_name) and any(
            new.requests.get(name, 0) < old.requests.get(name, 0)
            for name, amount in pod.shape.requests.items()
            if amount
        )

    def _has_more(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        has = allocatable_amounts(new.status.allocatable)
        wanted = self._wanted(pod.shape.requests)
        delegated = {name for name, _ in wanted if not has.get(name, 0) and self._devices.is_backed(name)}
        if has.get(PODS, 0) < 1 or any(has.get(name, 0) < amount for name, amount in wanted if name not in delegated):
            return False
        if old is None or delegated:
            return True
        had = allocatable_amounts(old.status.allocatable)
        grown = [name for name, amount in has.items() if amount > had.get(name, 0)]
        return PODS in grown or any(pod.shape.requests.get(name, 0) for name in grown)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What filtering compares, in the order in which reasons are given, and how to read the keys that come of it."""

    amounts: Sequence[tuple[str, int]]
    legend: _Legend


@dataclass(frozen=True, slots=True)
class _Counted:
    """What scoring counts: resources, each with the pod's request of it and its weight."""

    resources: Sequence[tuple[str, int, int]]


class _Legend:
    """Reads the bits of a key back as a status."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __call__(self, key: int) -> Status:
        reasons = ["Too many pods"] if key & _TOO_MANY_PODS else []
        for position, name in enumerate(self._names):
            if key & (_FIRST_RESOURCE << min(position, _MOST_RESOURCES - 2)):
                reasons.append(f"Insufficient {name}")
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if key & _NEVER else Code.UNSCHEDULABLE
        return Status(code, tuple(reasons))


def _scored_requests(pod: PodInfo) -> Mapping[str, int]:
    """What a pod is scored by, per resource."""
    cpu, memory = pod.shape.scored_requests
    return {**pod.shape.requests, CPU: cpu, MEMORY: memory}


def _is_unrequested_scalar(pod: PodInfo, name: str) -> bool:
    return name not in _FIRST and not pod.shape.requests.get(name, 0)


def _left_a_node(pod: PodInfo, old: PodInfo, new: None) -> bool:
    return bool(old.spec.node_name or old.status.nominated_node_name)


def _class_stands_for(pod: PodInfo, old: DeviceClass | None, new: DeviceClass) -> bool:
    """Whether a class newly stands for something that the pod requests."""
    name = new.spec.extended_resource_name
    if old is not None:
        return name != old.spec.extended_resource_name and bool(name and pod.shape.requests.get(name, 0))
    names = (DEVICE_CLASS_PREFIX + new.metadata.name, name or "")
    return any(pod.shape.requests.get(stood_for, 0) for stood_for in names)
