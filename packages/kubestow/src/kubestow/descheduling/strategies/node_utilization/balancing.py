"""Moving pods from source nodes to destination nodes, as far as these have room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Taint
from kubestow.cluster.pods.shapes import ShapeFamily
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.eviction import Outcome
from kubestow.descheduling.eviction_order import eviction_order
from kubestow.descheduling.interface import Evictor
from kubestow.descheduling.strategies.node_utilization.usage import NodeUsage
from kubestow.rules.matching import tolerates

__all__ = ["Balancing"]


class Balancing:
    """Evicts pods from source nodes while the destinations have room of every resource.

    ``sources`` and ``destinations`` are positions in ``usage``; ``capacity`` are the amounts up to which destinations
    may be filled, int64 by resource. ``why`` is the message of the evictions. Where it is not known what pods use,
    nothing but ``node_limit`` ends the evictions of a node.
    """

    def __init__(
        self,
        cluster: ClusterState,
        evictor: Evictor,
        usage: NodeUsage,
        destinations: NDArray[np.intp],
        capacity: Mapping[str, NDArray[np.int64]],
        *,
        why: str,
        excluded_namespaces: frozenset[str] = frozenset(),
        node_limit: int | None = None,
    ) -> None:
        self._cluster, self._evictor, self._usage = cluster, evictor, usage
        self._why, self._excluded, self._node_limit = why, excluded_namespaces, node_limit
        #: The room that is left in all destinations together.
        self._room = {name: int((capacity[name] - usage.used[name])[destinations].sum()) for name in usage.resources}
        rows = usage.rows[destinations].tolist()
        self._taints = {tuple(cluster.nodes[row].spec.taints) for row in rows}
        self._tolerating: dict[ShapeFamily, bool] = {}

    def run(
        self,
        sources: Sequence[int],
        is_movable: Callable[[AssignedPod], bool],
        is_done: Callable[[int, Mapping[str, int]], bool] = lambda position, used: False,
    ) -> None:
        """Evict pods from one source after the other.

        ``is_movable`` selects the pods of a source; ``is_done`` gets the position of a source and what is still used
        there, and says whether enough has been evicted.
        """
        for position in sources:
            if not self._has_room():
                return
            used = {name: int(amounts[position]) for name, amounts in self._usage.used.items()}
            if is_done(position, used):
                continue
            pods = [pod for pod in self._cluster.pods_on(int(self._usage.rows[position])) if is_movable(pod)]
            if self._evict(pods, position, used, is_done).ends_plugin:
                return

    def _has_room(self) -> bool:
        return min(self._room.values()) > 0

    def _evict(
        self,
        pods: Sequence[AssignedPod],
        position: int,
        used: dict[str, int],
        is_done: Callable[[int, Mapping[str, int]], bool],
    ) -> Outcome:
        """Evict pods of one node, until it is done or the room is used up. The outcome of the last eviction."""
        evicted, outcome = 0, Outcome.REFUSED
        for pod in self._evictor.in_order(pods, key=eviction_order):
            if is_done(position, used) or not self._has_room() or evicted == self._node_limit:
                break
            if not self._tolerates_a_destination(pod) or pod.namespace in self._excluded:
                continue
            if not self._evictor.pre_eviction_filter(pod):
                continue
            amounts = self._usage.of_pod(pod)
            if amounts is None:
                continue
            outcome = self._evictor.evict(pod, self._why)
            if outcome.evicted:
                evicted += 1
                for name, amount in amounts.items():
                    used[name] -= amount
                    self._room[name] -= amount
            elif outcome.ends_node:
                break
        return outcome

    def _tolerates_a_destination(self, pod: AssignedPod) -> bool:
        family = pod.shape.family
        if family not in self._tolerating:
            self._tolerating[family] = any(_tolerates_all(pod, taints) for taints in self._taints)
        return self._tolerating[family]


def _tolerates_all(pod: AssignedPod, taints: Sequence[Taint]) -> bool:
    """Whether a pod tolerates all taints, PreferNoSchedule included.

    QUIRK: it must also have at least as many tolerations as there are taints.
    """
    tolerations = pod.spec.tolerations
    return len(tolerations) >= len(taints) and all(
        any(tolerates(toleration, taint, comparisons=True) for toleration in tolerations) for taint in taints
    )
