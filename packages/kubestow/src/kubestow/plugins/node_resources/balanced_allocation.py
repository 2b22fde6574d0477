"""NodeResourcesBalancedAllocation prefers nodes whose resources stay evenly used (semantics 8.9).

A pod scores by the difference between the balance of a node (:mod:`.node_balance`) with it and without it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.int64 import as_int64
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import NodeResourcesBalancedAllocationArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import MAX_SCORE, Handle, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status
from kubestow.plugins.dynamic_resources.device_counts import DeviceCounts
from kubestow.plugins.dynamic_resources.extended_resources import is_dra_extended_resource_name
from kubestow.plugins.node_resources.node_balance import KeptBalances, NodeBalances, balance_of_node
from kubestow.plugins.node_resources.scoring import is_unrequested_scalar

__all__ = ["NodeResourcesBalancedAllocation"]

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _BalancedAllocationPreScoreState:
    """The resources to score: name and the pod's request (millicores, bytes or count)."""

    requests: Sequence[tuple[str, int]]


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Scores how much the pod improves or worsens the balance of a node."""

    name = "NodeResourcesBalancedAllocation"
    label_keys = ()
    events_to_register = (
        on(EventResource.POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, requeues=False),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, requeues=False),
    )

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._resources = [spec.name for spec in args.resources]
        self._device_resources = frozenset(filter(is_dra_extended_resource_name, self._resources))
        self._devices = DeviceCounts(handle)
        pod_events, node_events = self.events_to_register
        self._balances = KeptBalances(handle.cluster, pod_bits=pod_events.event.bits, node_bits=node_events.event.bits)

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The requests of the configured resources. None if devices may be scored: any claim changes their usage."""
        requests = pod.shape.requests
        if any(requests.get(name, 0) for name in self._device_resources):
            return None
        return tuple([requests.get(name, 0) for name in self._resources])

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips a pod that requests none of the configured resources."""
        if not self._requests_any(pod):
            return Status.skip()
        state.put(self._pre_score_state(pod))
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """50 + (50 + balance with the pod − balance without it) / 2, so that an unchanged balance scores 75.

        Where PreScore is disabled, a pod that it would have skipped scores 0.
        """
        pre_score = state.get(_BalancedAllocationPreScoreState)
        if pre_score is None:
            if not self._requests_any(pod):
                return np.zeros(len(nodes), np.int64)
            pre_score = self._pre_score_state(pod)
        balances, used = self._without_pod(nodes, [name for name, _ in pre_score.requests])
        requests = [request for _, request in pre_score.requests]
        score = balances.with_use([before + request for before, request in zip(used, requests, strict=True)])
        score -= balances.balance
        score += MAX_SCORE + MAX_SCORE // 2
        score >>= 1  # rounds down, as // does
        return score

    def _without_pod(self, nodes: Nodes, names: Sequence[str]) -> tuple[NodeBalances, Sequence[Int64s]]:
        """The balances of nodes by some resources, and the used amounts (int64 per node)."""
        used_by_pods = self._device_resources.isdisjoint(names)
        if used_by_pods and not isinstance(nodes, HypotheticalNodes):
            return self._balances.of(tuple(names), nodes.rows), [nodes.requested(name) for name in names]
        usages = [self._devices.usage(name, nodes) for name in names]
        return NodeBalances.of(usages), [used for _, used in usages]

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        pre_score = state.get(_BalancedAllocationPreScoreState)
        if pre_score is None:
            if not self._requests_any(pod):
                return 0
            pre_score = self._pre_score_state(pod)
        usages = [(*self._devices.usage_of_row(name, node), request) for name, request in pre_score.requests]
        before = balance_of_node([(capacity, used) for capacity, used, _ in usages if capacity > 0])
        after = balance_of_node([(c, as_int64(used + request)) for c, used, request in usages if c > 0])
        return (after - before + MAX_SCORE // 2) // 2 + MAX_SCORE // 2

    def _requests_any(self, pod: PodInfo) -> bool:
        return any(pod.shape.requests.get(name, 0) for name in self._resources)

    def _pre_score_state(self, pod: PodInfo) -> _BalancedAllocationPreScoreState:
        names = [name for name in self._resources if not is_unrequested_scalar(pod.shape.requests, name)]
        return _BalancedAllocationPreScoreState([(name, pod.shape.requests.get(name, 0)) for name in names])
