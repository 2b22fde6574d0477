"""Strategies that spread pods: the copies of an owner over nodes, and pods over topology domains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import TopologySpreadConstraint
from kubestow.api.selectors import Requirement, Selector, compile_selector
from kubestow.cluster.pods.shapes import Shape, ShapeFamily
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.eviction import eviction_order
from kubestow.descheduling.interface import ArgumentProblem, BalancePlugin, Evictor, evict_of_node
from kubestow.descheduling.node_fit import Mask, NodeFit
from kubestow.descheduling.pod_selection import (
    Namespaces,
    PodSelection,
    SelectingPlugin,
    SelectionArgs,
    selection_problems,
)
from kubestow.errors import InvalidSelector


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
                images = tuple(sorted(container.image for container in pod.spec.containers))
                owners = pod.owners
                keys = tuple(sorted(_OwnerKey(pod.namespace, owner.kind, owner.name, images) for owner in owners))
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


def _target_nodes(duplicates: Iterable[list[AssignedPod]], fit: NodeFit, cluster: ClusterState) -> int:
    """How many nodes some duplicate selects and tolerates, among duplicates that can go to more than one node."""
    targets: NDArray[np.bool_] = np.zeros(len(cluster.ready), np.bool_)
    families: dict[ShapeFamily, AssignedPod] = {pod.shape.family: pod for pods in duplicates for pod in pods}
    for pod in families.values():
        matching = (fit.selects(pod.shape) & fit.tolerates(pod.shape))[cluster.ready]
        if np.count_nonzero(matching) > 1:
            targets |= matching
    return int(np.count_nonzero(targets))


_DO_NOT_SCHEDULE, _SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"
_HONOR, _IGNORE = "Honor", "Ignore"


class RemovePodsViolatingTopologySpreadConstraintArgs(SelectionArgs, frozen=True, rename="camel"):
    """The arguments; without ``constraints`` those with DoNotSchedule count."""

    constraints: tuple[str, ...] = ()
    topology_balance_node_fit: bool | None = None


class RemovePodsViolatingTopologySpreadConstraint(SelectingPlugin, BalancePlugin):
    """Evicts pods from domains that are too large; only pods that may be evicted count. minDomains is ignored."""

    name = "RemovePodsViolatingTopologySpreadConstraint"
    Args = RemovePodsViolatingTopologySpreadConstraintArgs

    @classmethod
    def validate(cls, args: RemovePodsViolatingTopologySpreadConstraintArgs) -> Iterator[ArgumentProblem]:
        yield from super().validate(args)
        for index, constraint in enumerate(args.constraints):
            if constraint not in (_DO_NOT_SCHEDULE, _SCHEDULE_ANYWAY):
                text = f"constraint {constraint} is not one of map[{_DO_NOT_SCHEDULE}:{{}} {_SCHEDULE_ANYWAY}:{{}}]"
                yield ArgumentProblem(f"constraints[{index}]", text)

    def __init__(self, args: RemovePodsViolatingTopologySpreadConstraintArgs) -> None:
        super().__init__(args)
        self._constraints = frozenset(args.constraints or (_DO_NOT_SCHEDULE,))

    def balance(self, cluster: ClusterState, evictor: Evictor) -> None:
        pods = [pod for pod in cluster.pods() if self._selection.matches(pod) and evictor.filter(pod)]
        balance_node_fit = self.args.topology_balance_node_fit is not False
        balancer = _DomainBalancer(cluster, evictor, requires_fit=balance_node_fit)
        chosen: dict[AssignedPod, str] = {}
        for constraint, of_namespace in self._constraints_of(pods):
            why = f"its domain of {constraint.topology_key} has more pods than others"
            chosen |= dict.fromkeys(balancer.surplus(constraint, of_namespace), why)
        full_nodes: set[int] = set()
        for pod in chosen:
            if pod.row in full_nodes or not evictor.may_evict(pod):
                continue
            outcome = evictor.evict(pod, chosen[pod])
            if outcome.ends_plugin:
                return
            if outcome.ends_node:
                full_nodes.add(pod.row)

    def _constraints_of(self, pods: Sequence[AssignedPod]) -> Iterator[tuple[_Constraint, _PodsByShape]]:
        """The distinct constraints of each namespace, with all pods of the namespace."""
        by_namespace: dict[str, _PodsByShape] = {}
        for pod in pods:
            by_namespace.setdefault(pod.namespace, {}).setdefault(pod.shape, []).append(pod)
        for by_shape in by_namespace.values():
            distinct: dict[Hashable, _Constraint] = {}
            for shape in by_shape:
                for declared in shape.spec.topology_spread_constraints:
                    if declared.when_unsatisfiable not in self._constraints:
                        continue
                    try:
                        constraint = _Constraint.of(declared, shape)
                    except InvalidSelector:
                        continue
                    distinct.setdefault(constraint.identity, constraint)
            yield from ((constraint, by_shape) for constraint in distinct.values())


_PodsByShape = dict[Shape, list[AssignedPod]]


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A spread constraint; ``shape`` is the pod's whose node affinity and tolerations it honors."""

    max_skew: int
    topology_key: str
    selector: Selector
    honors_affinity: bool
    honors_taints: bool
    shape: Shape

    @classmethod
    def of(cls, declared: TopologySpreadConstraint, shape: Shape) -> _Constraint:
        """Raises InvalidSelector."""
        labels = shape.labels
        own = (Requirement(key, "In", frozenset({labels[key]})) for key in declared.match_label_keys if key in labels)
        return cls(
            declared.max_skew,
            declared.topology_key,
            compile_selector(declared.label_selector).with_requirements(own),
            (declared.node_affinity_policy or _HONOR) == _HONOR,
            (declared.node_taints_policy or _IGNORE) == _HONOR,
            shape,
        )

    @property
    def identity(self) -> Hashable:
        """What distinguishes it from other constraints of the namespace."""
        return (
            self.max_skew,
            self.topology_key,
            self.selector,
            self.shape.node_selection if self.honors_affinity else None,
            msgspec.json.encode(self.shape.spec.tolerations) if self.honors_taints else None,
        )


@dataclass(slots=True)
class _Domain:
    """A topology domain: the number of its label value, and the pods in it, those that are evicted first at the end."""

    number: int
    pods: list[AssignedPod]


class _DomainBalancer:
    """Chooses which pods leave the large domains of a constraint."""

    def __init__(self, cluster: ClusterState, evictor: Evictor, *, requires_fit: bool) -> None:
        self._cluster, self._evictor, self._requires_fit = cluster, evictor, requires_fit
        self._fit, self._nodes = NodeFit(cluster), cluster.view()
        self._ready = np.zeros(len(cluster.nodes), np.bool_)
        self._ready[cluster.ready] = True

    def surplus(self, constraint: _Constraint, pods: _PodsByShape) -> list[AssignedPod]:
        """The pods whose eviction evens the domains out, if they come back where there are few."""
        numbers: NDArray[np.int32] = self._nodes.label(constraint.topology_key)
        eligible: Mask = self._ready.copy()
        if constraint.honors_affinity:
            eligible &= self._fit.selects(constraint.shape)
        if constraint.honors_taints:
            eligible &= self._fit.tolerates(constraint.shape)
        in_domain: dict[int, list[AssignedPod]] = {int(n): [] for n in dict.fromkeys(numbers[eligible].tolist()) if n}
        for shape, of_shape in pods.items():
            if constraint.selector.matches(shape.labels):
                for pod in of_shape:
                    number = int(numbers[pod.row])
                    if number and not pod.terminating:
                        in_domain.setdefault(number, []).append(pod)
        sizes = [len(in_one) for in_one in in_domain.values()]
        if not sizes or max(sizes) - min(sizes) <= constraint.max_skew:
            return []
        in_order = self._evictor.in_order
        domains = [_Domain(number, in_order(pods, key=_default_order)[::-1]) for number, pods in in_domain.items()]
        domains.sort(key=lambda domain: len(domain.pods))
        average = sum(sizes) / len(sizes)
        small = [domain.number for domain in domains if len(domain.pods) < average]
        return list(self._move(domains, average, constraint.max_skew, eligible & np.isin(numbers, small)))

    def _move(self, domains: list[_Domain], average: float, max_skew: int, targets: Mask) -> Iterator[AssignedPod]:
        """Move pods from the largest domains to the smallest ones until these differ by ``max_skew`` at most.

        No domain falls below the average, and none rises above it. Pods that fit on no target stay, but count as moved.
        """
        i, j = 0, len(domains) - 1
        while i < j:
            if len(domains[j].pods) <= average:
                j -= 1
            large, small = domains[j], domains[i]
            skew = len(large.pods) - len(small.pods)
            if skew <= max_skew:
                i += 1
                continue
            above, below = math.ceil(len(large.pods) - average), math.ceil(average - len(small.pods))
            count = min(above, below, math.ceil((skew - max_skew) / 2))
            if count <= 0:
                i += 1
                continue
            fits = self._fit.each_fits_other(large.pods, targets)
            large.pods.sort(key=fits.__getitem__)
            moved, large.pods = large.pods[-count:], large.pods[:-count]
            small.pods.extend(moved)
            yield from (pod for pod in moved if fits[pod] or not self._requires_fit)


def _default_order(pod: AssignedPod) -> tuple[bool, bool, int]:
    """Pods that select nodes go last, before them those without a priority.

    QUIRK: among the others, those of the highest priority go first.
    """
    affinity = pod.spec.affinity
    selects_nodes = bool(pod.spec.node_selector) or (affinity is not None and affinity.node_affinity is not None)
    return selects_nodes, pod.priority is None, -(pod.priority or 0)
