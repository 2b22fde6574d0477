"""HighNodeUtilization: evicts pods from nodes that are used little, so that they can be packed on fewer nodes.

It is meant for clusters whose scheduler packs: NodeResourcesFit with the scoring strategy MostAllocated.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.interface import BalancePlugin, Evictor, Problem
from kubestow.descheduling.pod_selection import Namespaces
from kubestow.descheduling.strategies.node_utilization.balancing import Balancing
from kubestow.descheduling.strategies.node_utilization.thresholds import (
    first_of,
    first_threshold_problem,
    namespace_problems,
)
from kubestow.descheduling.strategies.node_utilization.usage import NodeUsage

__all__ = ["HighNodeUtilization", "HighNodeUtilizationArgs"]

_ONLY_THRESHOLDING_RESOURCES = "OnlyThresholdingResources"


class HighNodeUtilizationArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of HighNodeUtilization; thresholds are in per cent."""

    thresholds: dict[str, float] = {}
    number_of_nodes: int = 0
    eviction_modes: tuple[str, ...] = ()
    evictable_namespaces: Namespaces | None = None


class HighNodeUtilization(BalancePlugin):
    """Evicts pods from nodes below the thresholds, the emptiest first, while the other nodes have room."""

    name = "HighNodeUtilization"
    Args = HighNodeUtilizationArgs

    @classmethod
    def validate(cls, args: HighNodeUtilizationArgs) -> Iterator[Problem]:
        return first_of(_problems(args))

    def balance(self, cluster: ClusterState, evictor: Evictor) -> None:
        args: HighNodeUtilizationArgs = self.args
        usage = NodeUsage(cluster, args.thresholds)
        is_low = usage.below(args.thresholds)
        low, others = np.flatnonzero(is_low), np.flatnonzero(usage.schedulable & ~is_low)
        if len(low) <= max(0, args.number_of_nodes) or len(low) == len(usage.rows) or not len(others):
            return
        emptiest_first = low[np.argsort(usage.total()[low], kind="stable")]
        balancing = Balancing(
            cluster,
            evictor,
            usage,
            others,
            usage.capped({}),
            why="its node uses so little that it could be emptied",
            excluded_namespaces=frozenset(args.evictable_namespaces.exclude if args.evictable_namespaces else ()),
        )
        balancing.run(emptiest_first.tolist(), lambda pod: evictor.filter(pod) and self._is_meant(pod))

    def _is_meant(self, pod: AssignedPod) -> bool:
        args: HighNodeUtilizationArgs = self.args
        if _ONLY_THRESHOLDING_RESOURCES not in args.eviction_modes:
            return True
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        return any(name in container.resources.requests for container in containers for name in args.thresholds)


def _problems(args: HighNodeUtilizationArgs) -> Iterator[Problem]:
    yield from namespace_problems(args.evictable_namespaces)
    if problem := first_threshold_problem("thresholds", args.thresholds):
        yield problem
    for index, mode in enumerate(args.eviction_modes):
        if mode != _ONLY_THRESHOLDING_RESOURCES:
            yield Problem(f"evictionModes[{index}]", f"invalid eviction mode {mode}")
    if args.number_of_nodes < 0:
        yield Problem("numberOfNodes", f"must be 0 or more, got {args.number_of_nodes}")
