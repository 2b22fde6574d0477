"""RemoveDuplicates: spreads the pods of one owner over the nodes that can run them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.pods.shapes import ShapeFamily
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.eviction import eviction_order
from kubestow.descheduling.interface import ArgumentProblem, BalancePlugin, Evictor, evict_of_node
from kubestow.descheduling.node_fit import NodeFit
from kubestow.descheduling.pod_selection import Namespaces, PodSelection, selection_problems


class RemoveDuplicatesArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of RemoveDuplicates."""

    namespaces: Namespaces | None = None
    exclude_owner_kinds: tuple[str, ...] = ()


class _OwnerKey(NamedTuple):
    """Pods with a common key are copies of each other: an owner, and the images of all containers."""

    namespace: str
    kind: str
    name: str
    images: tuple[str, ...]


class RemoveDuplicates(BalancePlugin):
    """Evicts pods from nodes that have more than their share of the pods of an owner."""

    name = "RemoveDuplicates"
    Args = RemoveDuplicatesArgs

    @classmethod
    def validate(cls, args: RemoveDuplicatesArgs) -> Iterable[ArgumentProblem]:
        return selection_problems(args.namespaces)

    def __init__(self, args: RemoveDuplicatesArgs) -> None:
        super().__init__(args)
        self._selection = PodSelection(args.namespaces)
        self._excluded = frozenset(args.exclude_owner_kinds)

    def balance(self, cluster: ClusterState, evictor: Evictor) -> None:
        occurrences: Counter[_OwnerKey] = Counter()
        #: The duplicates by owner and node; the first pod of a kind on a node is none.
        duplicates: dict[_OwnerKey, dict[int, list[AssignedPod]]] = {}
        for row in cluster.ready.tolist():
            seen: set[tuple[_OwnerKey, ...]] = set()
            pods = [pod for pod in cluster.pods_on(row) if self._is_meant(pod) and evictor.may_evict(pod)]
            for pod in reversed(evictor.in_order(pods, key=eviction_order)):  # the first of each kind stays
                keys = _owner_keys(pod)
                occurrences.update(keys)
                if keys in seen:
                    for key in keys:
                        duplicates.setdefault(key, {}).setdefault(row, []).append(pod)
                seen.add(keys)
        fit = NodeFit(cluster)
        for key, on_nodes in duplicates.items():
            targets = _target_nodes(on_nodes.values(), fit, cluster)
            if targets < 2:
                continue
            share = math.ceil(occurrences[key] / targets)
            for of_node in on_nodes.values():
                why = f"there are {len(of_node) + 1} copies of it on its node, {share} would be an equal share"
                surplus = of_node[share - 1 :][::-1]
                if not evict_of_node([(pod, why) for pod in surplus], evictor):
                    return

    def _is_meant(self, pod: AssignedPod) -> bool:
        if not pod.owners or not pod.spec.containers or not self._selection.matches(pod):
            return False
        return not any(owner.kind in self._excluded for owner in pod.owners)


def _owner_keys(pod: AssignedPod) -> tuple[_OwnerKey, ...]:
    images = tuple(sorted(container.image for container in pod.spec.containers))
    return tuple(sorted(_OwnerKey(pod.namespace, owner.kind, owner.name, images) for owner in pod.owners))


def _target_nodes(duplicates: Iterable[list[AssignedPod]], fit: NodeFit, cluster: ClusterState) -> int:
    """How many nodes some duplicate selects and tolerates, among duplicates that can go to more than one node."""
    targets: NDArray[np.bool_] = np.zeros(len(cluster.ready), np.bool_)
    families: dict[ShapeFamily, AssignedPod] = {pod.shape.family: pod for pods in duplicates for pod in pods}
    for pod in families.values():
        matching = (fit.selects(pod.shape) & fit.tolerates(pod.shape))[cluster.ready]
        if np.count_nonzero(matching) > 1:
            targets |= matching
    return int(np.count_nonzero(targets))
