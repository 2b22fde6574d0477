"""RemovePodsViolatingTopologySpreadConstraint: evens out pods over topology domains."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import TopologySpreadConstraint
from kubestow.api.meta import LabelSelector
from kubestow.api.selectors import Requirement, Selector, compile_selector
from kubestow.cluster.pods.shapes import Shape
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.interface import ArgumentProblem, BalancePlugin, Evictor
from kubestow.descheduling.node_fit import Mask, NodeFit
from kubestow.descheduling.pod_selection import Namespaces, PodSelection, selection_problems
from kubestow.errors import InvalidSelector

_DO_NOT_SCHEDULE, _SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"
_HONOR, _IGNORE = "Honor", "Ignore"


class RemovePodsViolatingTopologySpreadConstraintArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments; without ``constraints`` those with DoNotSchedule count."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None
    constraints: tuple[str, ...] = ()
    topology_balance_node_fit: bool | None = None


class RemovePodsViolatingTopologySpreadConstraint(BalancePlugin):
    """Evicts pods from domains that are too large; only pods that may be evicted count. minDomains is ignored."""

    name = "RemovePodsViolatingTopologySpreadConstraint"
    Args = RemovePodsViolatingTopologySpreadConstraintArgs

    @classmethod
    def validate(cls, args: RemovePodsViolatingTopologySpreadConstraintArgs) -> Iterator[ArgumentProblem]:
        yield from selection_problems(args.namespaces, args.label_selector)
        for index, constraint in enumerate(args.constraints):
            if constraint not in (_DO_NOT_SCHEDULE, _SCHEDULE_ANYWAY):
                text = f"constraint {constraint} is not one of map[{_DO_NOT_SCHEDULE}:{{}} {_SCHEDULE_ANYWAY}:{{}}]"
                yield ArgumentProblem(f"constraints[{index}]", text)

    def __init__(self, args: RemovePodsViolatingTopologySpreadConstraintArgs) -> None:
        super().__init__(args)
        self._selection = PodSelection(args.namespaces, args.label_selector)
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
        eligible = self._ready & self._eligible(constraint)
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
        ordered = (self._in_reverse_order(in_one) for in_one in in_domain.values())
        domains = [_Domain(number, in_one) for number, in_one in zip(in_domain, ordered, strict=True)]
        domains.sort(key=lambda domain: len(domain.pods))
        average = sum(sizes) / len(sizes)
        small = [domain.number for domain in domains if len(domain.pods) < average]
        return list(self._move(domains, average, constraint.max_skew, eligible & np.isin(numbers, small)))

    def _eligible(self, constraint: _Constraint) -> Mask:
        eligible: Mask = np.ones(len(self._nodes), np.bool_)
        if constraint.honors_affinity:
            eligible &= self._fit.selects(constraint.shape)
        if constraint.honors_taints:
            eligible &= self._fit.tolerates(constraint.shape)
        return eligible

    def _in_reverse_order(self, pods: list[AssignedPod]) -> list[AssignedPod]:
        """The pods of a domain, those that are evicted first at the end."""
        return self._evictor.in_order(pods, key=_default_order)[::-1]

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
    return _selects_nodes(pod), pod.priority is None, -(pod.priority or 0)


def _selects_nodes(pod: AssignedPod) -> bool:
    affinity = pod.spec.affinity
    return bool(pod.spec.node_selector) or (affinity is not None and affinity.node_affinity is not None)
