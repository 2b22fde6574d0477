"""NodeResourcesBalancedAllocation prefers nodes whose resources stay evenly used (semantics 8.9).

A pod scores by the difference between the balance of a node with it and without it. The balance of a node is
100 × (1 − standard deviation of the used fractions of its resources).

The order of the floating-point operations is kube-scheduler's. There is a form for many nodes and one for a single
node, without arrays of length one; a property test checks that they agree. The balance of the nodes as they are is the
same for all pods and is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.int64 import BEYOND_ORDINARY
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.changes.journal import FEW_ROWS, NEVER, Generation, InvalidationMask
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeRows, Nodes, Rows
from kubestow.cluster.pods.caches import BoundedCache
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import NodeResourcesBalancedAllocationArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import MAX_SCORE, Handle, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status
from kubestow.plugins.dynamic_resources.extended_resources import DeviceCounts, is_dra_extended_resource_name
from kubestow.plugins.node_resources.fit import is_unrequested_scalar
from kubestow.rules.minors import Behaviour

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Percents = NDArray[np.int16]
Mask = NDArray[np.bool_]

#: Used amounts are negative if pods request negative amounts, so deviations have no bound; this one is as good as more.
_LARGEST = 2.0**53

#: Pods that request different scalar resources have different resources scored; balances are kept for so many.
_KEPT = 4


@dataclass(frozen=True, slots=True)
class _BalancedAllocationPreScoreState:
    """The resources to score: name and the pod's request (millicores, bytes or count)."""

    requests: Sequence[tuple[str, int]]


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Scores how much the pod improves or worsens the balance of a node."""

    name = "NodeResourcesBalancedAllocation"
    label_keys = ()
    scores_hypothetical_nodes = True
    events_to_register = (
        on(EventResource.POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, requeues=False),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, requeues=False),
    )

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._resources = [spec.name for spec in args.resources]
        self._device_resources = frozenset(filter(is_dra_extended_resource_name, self._resources))
        self._devices = DeviceCounts(handle)
        self._skips_without_requests = handle.emulates(Behaviour.BALANCE_SKIPS_PODS_WITHOUT_REQUESTS)
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
        if self._skips_without_requests and not self._requests_any(pod):
            return Status.skip()
        state.put(self._pre_score_state(pod))
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """50 + (50 + balance with the pod − balance without it) / 2, so that an unchanged balance scores 75.

        Where PreScore is disabled, a pod that it would have skipped scores 0.
        """
        pre_score = state.get(_BalancedAllocationPreScoreState)
        if pre_score is None:
            if self._skips_without_requests and not self._requests_any(pod):
                return np.zeros(len(nodes), np.int64)
            pre_score = self._pre_score_state(pod)
        names = [name for name, _ in pre_score.requests]
        if not names:
            return np.full(len(nodes), self._score_of_node(()), np.int64)
        balances, usages = self._without_pod(nodes, names)
        requests = [request for _, request in pre_score.requests]
        # A request that no ordinary node has room for uses all of the resource, however large it is.
        percent = balances.with_requests([min(request, BEYOND_ORDINARY) for request in requests])
        self._compare(percent, balances.balance)
        score = percent.astype(np.int64)
        is_negative = any(request < 0 for request in requests)
        for position in range(len(nodes)) if is_negative else nodes.extreme.tolist():
            of_node = zip(usages, requests, strict=True)
            score[position] = self._score_of_node(
                [(c.item(position), u.item(position), request) for (c, u), request in of_node]
            )
        return score

    def _without_pod(self, nodes: Nodes, names: Sequence[str]) -> tuple[NodeBalances, Sequence[tuple[Int64s, Int64s]]]:
        """The balances of nodes by some resources, and the capacity and used amount (int64 per node) of each."""
        used_by_pods = self._device_resources.isdisjoint(names)
        if used_by_pods and not isinstance(nodes, HypotheticalNodes):
            usages = [(nodes.allocatable(name), nodes.requested(name)) for name in names]
            return self._balances.of(tuple(names), nodes.rows), usages
        usages = [self._devices.usage(name, nodes) for name in names]
        return NodeBalances.of(usages), usages

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> list[int]:
        """The same for a few nodes."""
        pre_score = state.get(_BalancedAllocationPreScoreState)
        if pre_score is None:
            if self._skips_without_requests and not self._requests_any(pod):
                return [0] * len(nodes)
            pre_score = self._pre_score_state(pod)
        usages: list[tuple[Sequence[int], Sequence[int], int]] = []
        for name, request in pre_score.requests:
            if name in self._device_resources:
                usages.append((*self._devices.usage_of_rows(name, nodes), request))
            else:
                usages.append((nodes.allocatable(name), nodes.requested(name), request))
        if len(usages) == 2:
            first, second = usages
            least = min(*first[1], *second[1], first[2], second[2])
            if least >= 0 and min(*first[0], *second[0]) > 0:
                return self._scores_by_two(first, second)
        return [
            self._score_of_node([(capacity[i], used[i], request) for capacity, used, request in usages])
            for i in range(len(nodes))
        ]

    def _scores_by_two(
        self, first: tuple[Sequence[int], Sequence[int], int], second: tuple[Sequence[int], Sequence[int], int]
    ) -> list[int]:
        """The scores of nodes that have both of two resources: capacities, used amounts, and the pod's request of each.

        No amount is negative, so fractions are from 0 to 1, and balances from 50 to 100.
        """
        (capacities, used, request), (others, others_used, other_request) = first, second
        scores = []
        for capacity, amount, other, other_amount in zip(capacities, used, others, others_used, strict=True):
            x, y = amount / capacity, other_amount / other
            before = int((1.0 - abs((x if x < 1.0 else 1.0) - (y if y < 1.0 else 1.0)) / 2) * MAX_SCORE)
            x, y = (amount + request) / capacity, (other_amount + other_request) / other
            after = int((1.0 - abs((x if x < 1.0 else 1.0) - (y if y < 1.0 else 1.0)) / 2) * MAX_SCORE)
            scores.append(self._score_of_balances(after, before))
        return scores

    def _requests_any(self, pod: PodInfo) -> bool:
        return any(pod.shape.requests.get(name, 0) for name in self._resources)

    def _pre_score_state(self, pod: PodInfo) -> _BalancedAllocationPreScoreState:
        names = [name for name in self._resources if not is_unrequested_scalar(pod.shape.requests, name)]
        return _BalancedAllocationPreScoreState([(name, pod.shape.requests.get(name, 0)) for name in names])

    @staticmethod
    def _compare(balance: Percents, before: Percents) -> None:
        """Turn the balance of each node with the pod into the score, by that ``before`` it."""
        balance -= before
        balance += MAX_SCORE + MAX_SCORE // 2
        balance >>= 1  # rounds down, as // does

    @staticmethod
    def _score_of_node(usages: Sequence[tuple[int, int, int]]) -> int:
        """The score of a node by the capacity, the used amount and the pod's request of each resource, of any size."""
        before = balance_of_node([(capacity, used) for capacity, used, _ in usages if capacity > 0])
        after = balance_of_node([(capacity, used + request) for capacity, used, request in usages if capacity > 0])
        return max(0, min(NodeResourcesBalancedAllocation._score_of_balances(after, before), MAX_SCORE))

    @staticmethod
    def _score_of_balances(after: int, before: int) -> int:
        """The score of a node by its balance with the pod and without it."""
        return (after - before + MAX_SCORE // 2) // 2 + MAX_SCORE // 2


class BalanceAfterPlacement(NodeResourcesBalancedAllocation):
    """The plugin before ``SCORES_CHANGE_OF_BALANCE``: the balance of the node with the pod is the score."""

    @staticmethod
    def _compare(balance: Percents, before: Percents) -> None:
        pass

    @staticmethod
    def _score_of_node(usages: Sequence[tuple[int, int, int]]) -> int:
        return balance_of_node([(capacity, used + request) for capacity, used, request in usages if capacity > 0])

    @staticmethod
    def _score_of_balances(after: int, before: int) -> int:
        return after


# -- balances of many nodes ----------------------------------------------------------------------------------------


class NodeBalances(NamedTuple):
    """Nodes as they are: used amounts and capacities of some resources, and their balance (int16, one per node).

    Per resource, ``used`` are the used amounts (float64), ``divisors`` the capacities (float64, at least 1), and
    ``present`` is where they are not 0 (None: everywhere). All are meaningless for nodes with amounts that are negative
    or beyond 2**53.
    """

    used: Sequence[Floats]
    divisors: Sequence[Floats]
    present: Sequence[Mask] | None
    balance: Percents

    @classmethod
    def of(cls, usages: Sequence[tuple[Int64s, Int64s]]) -> NodeBalances:
        """The balances of nodes by capacity and used amount (int64, one per node) of each resource."""
        everywhere = all(capacity[capacity.argmin()] > 0 for capacity, _ in usages if len(capacity))
        present = None if everywhere else [capacity > 0 for capacity, _ in usages]
        divisors = [(c if everywhere else np.maximum(c, 1)).astype(np.float64) for c, _ in usages]
        used = [amount.astype(np.float64) for _, amount in usages]
        return cls(used, divisors, present, _balance([amount.copy() for amount in used], divisors, present))

    def on(self, rows: Rows) -> NodeBalances:
        """Those of some of the nodes."""
        present = None if self.present is None else [mask[rows] for mask in self.present]
        used, divisors = [amount[rows] for amount in self.used], [divisor[rows] for divisor in self.divisors]
        return NodeBalances(used, divisors, present, self.balance[rows])

    def with_requests(self, requests: Sequence[int]) -> Percents:
        """The balance of each node with a pod that requests so much of each resource, int16."""
        amounts = [used + request for used, request in zip(self.used, requests, strict=True)]
        return _balance(amounts, self.divisors, self.present)


_NO_BALANCES = NodeBalances((), (), None, np.zeros(0, np.int16))


@dataclass(slots=True)
class _Kept:
    """The balances of all nodes, and the generation of the cluster that they are of."""

    balances: NodeBalances
    generation: Generation


class KeptBalances:
    """The balances of all nodes as they are. They change row by row with the pods, and with the capacity of a node.

    ``pod_bits`` and ``node_bits`` are the events of such changes.
    """

    def __init__(self, cluster: Cluster, *, pod_bits: int, node_bits: int) -> None:
        self._cluster = cluster
        self._invalidation_mask = InvalidationMask(row_bits=pod_bits, all_bits=node_bits)
        self._by_resources: BoundedCache[tuple[str, ...], _Kept] = BoundedCache(_KEPT)

    def of(self, resources: tuple[str, ...], rows: Rows) -> NodeBalances:
        """The balances of some nodes, by resources of which requested amounts are used, no devices."""
        kept = self._by_resources.get(resources)
        if kept is None:
            kept = self._by_resources.put(resources, _Kept(_NO_BALANCES, NEVER))
        window = self._cluster.change_window
        if kept.generation != window.begin():
            invalid = window.invalid_rows(kept.generation, self._invalidation_mask)
            if invalid is None:
                nodes = self._cluster.all_nodes()
                usages = [(nodes.allocatable(name), nodes.requested(name)) for name in resources]
                kept.balances = NodeBalances.of(usages)
            else:
                self._refresh(kept.balances, resources, invalid)
            kept.generation = window.generation
        is_whole = isinstance(rows, slice) and rows == slice(0, len(self._cluster.nodes))
        return kept.balances if is_whole else kept.balances.on(rows)

    def _refresh(self, balances: NodeBalances, resources: Sequence[str], rows: Sequence[int]) -> None:
        table = self._cluster.nodes
        if len(rows) > FEW_ROWS:
            some = np.array(rows, np.intp)
            nodes = Nodes(table, some)
            for name, used in zip(resources, balances.used, strict=True):
                used[some] = nodes.requested(name)
            balances.balance[some] = balances.on(some).with_requests([0] * len(resources))
            return
        columns = [(table.allocatable[name].entries, table.requested[name].entries) for name in resources]
        for row in rows:
            usages = [(capacity[row], used[row]) for capacity, used in columns]
            for used, (_, amount) in zip(balances.used, usages, strict=True):
                used[row] = amount
            if not table.extreme.entries[row]:
                balances.balance[row] = balance_of_node([usage for usage in usages if usage[0] > 0])


def _balance(amounts: Sequence[Floats], divisors: Sequence[Floats], present: Sequence[Mask] | None) -> Percents:
    """int((1 − deviation) × 100) over the resources that each node has (``present``; None: all of them), int16.

    The arrays of ``amounts`` are overwritten.
    """
    for amount, capacity in zip(amounts, divisors, strict=True):
        amount /= capacity
        if len(amount) and amount[amount.argmax()] > 1.0:
            np.minimum(amount, 1.0, out=amount)
    # Of all terms the double is computed, which is rounded alike: the distance of two fractions is twice the deviation.
    if present is None and len(amounts) == 2:
        balance, other = amounts
        balance -= other
        np.abs(balance, out=balance)
    else:
        fractions = np.array(amounts)
        balance = _deviation(fractions, np.ones(fractions.shape, np.bool_) if present is None else np.array(present))
        balance *= 2.0
    np.subtract(2.0, balance, out=balance)
    balance *= MAX_SCORE / 2
    with np.errstate(invalid="ignore"):  # of nodes with negative amounts
        return balance.astype(np.int16)


def _deviation(fractions: Floats, present: Mask) -> Floats:
    """The standard deviation of each node's fractions; both arrays have shape (resources, nodes)."""
    nodes = fractions.shape[1]
    count = present.sum(axis=0)
    total = np.zeros(nodes)
    for fraction, where in zip(fractions, present, strict=True):
        total += np.where(where, fraction, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros(nodes)
    for fraction, where in zip(fractions, present, strict=True):
        squares += np.where(where, (fraction - mean) * (fraction - mean), 0.0)
    deviation = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
    # Of two, half the distance between the first and the last present fraction.
    columns = np.arange(nodes)
    first: Floats = fractions[present.argmax(axis=0), columns]
    last: Floats = fractions[len(present) - 1 - present[::-1].argmax(axis=0), columns]
    return np.where(count == 2, np.abs(first - last) / 2, deviation)


# -- a single node ----------------------------------------------------------------------------------------------------


def balance_of_node(usages: Sequence[tuple[int, int]]) -> int:
    """The balance of a node by capacity (above 0) and used amount of each resource that it has."""
    fractions = [min(used / capacity, 1.0) for capacity, used in usages]
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs(fractions[0] - fractions[1]) / 2
    elif len(fractions) > 2:
        total = squares = 0.0
        for fraction in fractions:  # summed up from left to right
            total += fraction
        mean = total / len(fractions)
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = sqrt(squares / len(fractions))
    return int(max(1.0 - deviation, -_LARGEST) * MAX_SCORE)
