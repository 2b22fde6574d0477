"""Placing copies of a pod where each one changes the results of its own node only.

A node's total then depends on the number of copies on it and on nothing else. So the totals are computed in rounds: in
each, one copy is placed on every node that still fits one, with a single evaluation for all of them. The order of the
placements follows from the totals: each copy goes to a node with the highest total for its next copy, as it would if
the copies were decided about one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from random import Random

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.profile import Profile

#: Percentages of nodes to score that mean all of them.
_EVERY_NODE = (0, 100)


def are_independent(cluster: Cluster, profile: Profile, pod: PodInfo) -> bool:
    """Whether placing a pod changes the results of its node only, and no plugin takes part in the placement.

    Raises PluginError.
    """
    if not fill_independently(cluster, profile, pod):
        return False
    evaluation = profile.evaluations.of(pod)
    feasibility = evaluation.find_feasible(pod)
    evaluation.compute_totals(pod, feasibility.rows)
    return evaluation.is_local()


def fill_independently(cluster: Cluster, profile: Profile, pod: PodInfo) -> bool:
    """Whether how many copies of a pod fit on a node depends on that node only; which one is preferred may not.

    Raises PluginError.
    """
    if cluster.has_nominations or profile.percentage_of_nodes_to_score not in _EVERY_NODE:
        return False
    if pod.spec.volumes or pod.spec.resource_claims:
        return False
    evaluation = profile.evaluations.of(pod)
    feasibility = evaluation.find_feasible(pod)
    if feasibility.error is not None or not feasibility.count:
        return False
    return evaluation.filters_are_local() and evaluation.reserves_nothing()


def place_in_rounds(cluster: Cluster, profile: Profile, copies: Iterator[PodInfo]) -> dict[str, list[int]]:
    """Place copies until none fits any more. Returns the totals of each node, one for each copy on it, in order.

    Raises PluginError.
    """
    totals_by_node: dict[str, list[int]] = {}
    pod = next(copies)
    while True:
        evaluation = profile.evaluations.of(pod)
        feasibility = evaluation.find_feasible(pod)
        if not feasibility.count:
            return totals_by_node
        totals = evaluation.compute_totals(pod, feasibility.rows)
        for name, total in zip(Nodes(cluster.nodes, feasibility.rows).names, totals.tolist(), strict=True):
            totals_by_node.setdefault(name, []).append(total)
            cluster.assume(pod, name)
            pod = next(copies)


def place_as_many(cluster: Cluster, profile: Profile, copies: Sequence[PodInfo]) -> int:
    """Place copies that :func:`fill_independently` until none is left or fits. Returns how many were placed.

    They get nodes in no particular order. Raises PluginError.
    """
    placed = 0
    while placed < len(copies):
        feasibility = profile.evaluations.of(copies[placed]).find_feasible(copies[placed])
        if not feasibility.count:
            break
        for name, pod in zip(Nodes(cluster.nodes, feasibility.rows).names, copies[placed:], strict=False):
            cluster.assume(pod, name)
            placed += 1
    return placed


def first_by_name(totals_by_node: dict[str, list[int]]) -> Iterator[str]:
    """The nodes in the order of the placements; of those with the highest total, the first by name."""
    heap = [(-totals[0], name, 0) for name, totals in totals_by_node.items()]
    heapq.heapify(heap)
    while heap:
        _, name, index = heap[0]
        yield name
        totals = totals_by_node[name]
        if index + 1 < len(totals):
            heapq.heapreplace(heap, (-totals[index + 1], name, index + 1))
        else:
            heapq.heappop(heap)


def random_order(totals_by_node: dict[str, list[int]], random: Random) -> Iterator[str]:
    """The nodes in the order of the placements; of those with the highest total, each has the same chance."""
    names = list(totals_by_node)
    remaining = [iter(totals_by_node[name]) for name in names]
    by_total: dict[int, list[int]] = {}
    best: list[int] = []  # the negated totals in use, as a heap; a total may be in it twice

    def offer(node: int) -> None:
        """Enter a node with the total of its next copy."""
        total = next(remaining[node], None)
        if total is not None:
            tied = by_total.setdefault(total, [])
            if not tied:
                heapq.heappush(best, -total)
            tied.append(node)

    for node in range(len(names)):
        offer(node)
    while best:
        tied = by_total[-best[0]]
        if not tied:
            heapq.heappop(best)
            continue
        position = random.randrange(len(tied))
        tied[position], tied[-1] = tied[-1], tied[position]
        node = tied.pop()
        yield names[node]
        offer(node)
