"""Strategies for pods that must not, or should not, be on their nodes any more: taints, node and anti-affinity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeAffinity, Taint
from kubestow.cluster.nodes.selectors import matches_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import Shape, ShapeFamily
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.eviction import eviction_order
from kubestow.descheduling.interface import ArgumentProblem, DeschedulePlugin, Evictor, evict_of_node
from kubestow.descheduling.node_fit import NodeFit
from kubestow.descheduling.pod_selection import (
    AntiAffinityTerm,
    MatchingPods,
    SelectingPlugin,
    SelectionArgs,
    required_anti_affinity,
)
from kubestow.errors import InvalidSelector
from kubestow.rules.matching import NO_SCHEDULE, PREFER_NO_SCHEDULE, untolerated


class RemovePodsViolatingNodeTaintsArgs(SelectionArgs, frozen=True, rename="camel"):
    """The arguments of RemovePodsViolatingNodeTaints. Taints are named by ``key`` or ``key=value``."""

    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] | None = None


class RemovePodsViolatingNodeTaints(SelectingPlugin, DeschedulePlugin):
    """Evicts pods from nodes with NoSchedule taints that they do not tolerate; NoExecute is a matter of others."""

    name = "RemovePodsViolatingNodeTaints"
    Args = RemovePodsViolatingNodeTaintsArgs

    @classmethod
    def validate(cls, args: RemovePodsViolatingNodeTaintsArgs) -> Iterator[ArgumentProblem]:
        yield from super().validate(args)
        if args.excluded_taints and args.included_taints:
            yield ArgumentProblem("includedTaints", "either includedTaints or excludedTaints can be set, but not both")

    def __init__(self, args: RemovePodsViolatingNodeTaintsArgs) -> None:
        super().__init__(args)
        self._effects = (NO_SCHEDULE, PREFER_NO_SCHEDULE) if args.include_prefer_no_schedule else (NO_SCHEDULE,)

    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        for row in cluster.ready.tolist():
            taints = [taint for taint in cluster.nodes[row].spec.taints if self._counts(taint)]
            if not taints:
                continue
            violated: dict[ShapeFamily, list[Taint]] = {}
            pods: list[AssignedPod] = []
            for pod in cluster.pods_on(row):
                family = pod.shape.family
                if family not in violated:
                    tolerations = pod.spec.tolerations
                    violated[family] = untolerated(taints, tolerations, effects=self._effects, comparisons=True)
                if violated[family] and self._selection.matches(pod) and evictor.may_evict(pod):
                    pods.append(pod)
            reasons = [(pod, _why(violated[pod.shape.family])) for pod in evictor.in_order(pods)]
            if not evict_of_node(reasons, evictor):
                return

    def _counts(self, taint: Taint) -> bool:
        args: RemovePodsViolatingNodeTaintsArgs = self.args
        names = {taint.key, f"{taint.key}={taint.value}"} if taint.value else {taint.key}
        if taint.effect not in self._effects or names & set(args.excluded_taints):
            return False
        return args.included_taints is None or bool(names & set(args.included_taints))


def _why(violated: list[Taint]) -> str:
    return "it does not tolerate " + ", ".join(f"{taint.key}:{taint.effect}" for taint in violated)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TYPES = (_REQUIRED, _PREFERRED)


class RemovePodsViolatingNodeAffinityArgs(SelectionArgs, frozen=True, rename="camel"):
    """The arguments of RemovePodsViolatingNodeAffinity; the types of affinity are handled in their order."""

    node_affinity_type: tuple[str, ...] = ()


class RemovePodsViolatingNodeAffinity(SelectingPlugin, DeschedulePlugin):
    """Evicts pods that required affinity bars from their node, or that preferred affinity likes better on another."""

    name = "RemovePodsViolatingNodeAffinity"
    Args = RemovePodsViolatingNodeAffinityArgs

    @classmethod
    def validate(cls, args: RemovePodsViolatingNodeAffinityArgs) -> Iterator[ArgumentProblem]:
        if not args.node_affinity_type:
            yield ArgumentProblem("nodeAffinityType", "nodeAffinityType needs to be set")
        yield from super().validate(args)

    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        affinities = _Affinities(cluster)
        violations = {
            _REQUIRED: (affinities.violates_required, "its node does not match its required node affinity"),
            _PREFERRED: (affinities.prefers_another, "another node matches its preferred node affinity better"),
        }
        for affinity_type in self.args.node_affinity_type:
            if affinity_type in violations and not self._process(cluster, evictor, *violations[affinity_type]):
                return

    def _process(
        self, cluster: ClusterState, evictor: Evictor, violates: Callable[[AssignedPod], bool], why: str
    ) -> bool:
        for row in cluster.ready.tolist():
            meant = (pod for pod in cluster.pods_on(row) if pod.spec.affinity and pod.spec.affinity.node_affinity)
            pods = [pod for pod in meant if self._selection.matches(pod) and evictor.may_evict(pod) and violates(pod)]
            if not evict_of_node(((pod, why) for pod in evictor.in_order(pods)), evictor):
                return False
        return True


class _Affinities:
    """What node affinities say about the ready nodes of a cluster."""

    def __init__(self, cluster: ClusterState) -> None:
        self._fit, self._nodes = NodeFit(cluster), cluster.view()
        self._ready = np.zeros(len(cluster.nodes), np.bool_)
        self._ready[cluster.ready] = True
        self._weights: dict[ShapeFamily, NDArray[np.int64]] = {}

    def violates_required(self, pod: AssignedPod) -> bool:
        """Whether a pod with required affinity does not match its node, and fits on some node."""
        required = _affinity(pod.shape).required_during_scheduling_ignored_during_execution
        if required is None or self._fit.selects(pod.shape)[pod.row]:
            return False
        return self._fit.fits_any(pod, self._ready)

    def prefers_another(self, pod: AssignedPod) -> bool:
        """Whether a pod with preferred affinity gives another node more weight, and fits on some node."""
        if not _affinity(pod.shape).preferred_during_scheduling_ignored_during_execution:
            return False
        family = pod.shape.family
        weights = self._weights.get(family)
        if weights is None:
            weights = self._weights[family] = _weights(self._nodes, pod.shape)
        best = max(0, int(weights[self._ready].max(initial=0)))
        return best > weights[pod.row] and self._fit.fits_any(pod, self._ready)


def _affinity(shape: Shape) -> NodeAffinity:
    affinity = shape.spec.affinity
    return (affinity.node_affinity if affinity else None) or NodeAffinity()


def _weights(nodes: Nodes, shape: Shape) -> NDArray[np.int64]:
    """The sum of the weights of the preferred terms that match, int64 per node; invalid terms do not match."""
    weights = np.zeros(len(nodes), np.int64)
    for preferred in _affinity(shape).preferred_during_scheduling_ignored_during_execution:
        try:
            weights += matches_term(nodes, preferred.preference) * np.int64(preferred.weight)
        except InvalidSelector:
            continue
    return weights


class RemovePodsViolatingInterPodAntiAffinity(SelectingPlugin, DeschedulePlugin):
    """Evicts pods with violated anti-affinity, those of low priority first; an evicted pod no longer conflicts.

    Pods that are not selected are neither evicted nor kept away from.
    """

    name = "RemovePodsViolatingInterPodAntiAffinity"

    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        conflicts = _Conflicts(cluster, [pod for pod in cluster.pods() if self._selection.matches(pod)])
        for row in cluster.ready.tolist():
            candidates = [pod for pod in conflicts.pods_with_terms(row) if cluster.contains(pod)]
            for pod in evictor.in_order(candidates, key=eviction_order):
                if not conflicts.has_any(pod) or not evictor.may_evict(pod):
                    continue
                outcome = evictor.evict(pod, "it is near pods that its required anti-affinity excludes")
                if outcome.evicted:
                    conflicts.remove(pod)
                elif outcome.ends_plugin:
                    return
                elif outcome.ends_node:
                    break


class _Conflicts:
    """Which of some pods are near others that their required anti-affinity excludes."""

    def __init__(self, cluster: ClusterState, pods: Sequence[AssignedPod]) -> None:
        self._cluster, self._nodes = cluster, cluster.view()
        self._by_shape: dict[Shape, list[AssignedPod]] = {}
        for pod in pods:
            self._by_shape.setdefault(pod.shape, []).append(pod)
        self._terms = {shape: terms for shape in self._by_shape if (terms := _terms(shape))}
        self._with_terms: dict[int, list[AssignedPod]] = {}
        for shape in self._terms:
            for pod in self._by_shape[shape]:
                self._with_terms.setdefault(pod.row, []).append(pod)
        self._matching: dict[object, MatchingPods] = {}

    def pods_with_terms(self, row: int) -> list[AssignedPod]:
        return self._with_terms.get(row, [])

    def has_any(self, pod: AssignedPod) -> bool:
        return any(self._violates(pod, term) for term in self._terms[pod.shape])

    def remove(self, pod: AssignedPod) -> None:
        """Leave an evicted pod out."""
        for matching in self._matching.values():
            matching.discard(pod)

    def _violates(self, pod: AssignedPod, term: AntiAffinityTerm) -> bool:
        matching = self._matching.get(term.pods_key)
        if matching is None:
            shapes = (shape for shape in self._by_shape if term.matches(shape))
            pods = (found for shape in shapes for found in self._by_shape[shape] if self._cluster.contains(found))
            matching = self._matching[term.pods_key] = MatchingPods(pods, len(self._nodes))
        counts = matching.counts_without(pod.name)
        if counts[pod.row]:
            return True
        domains = self._nodes.label(term.topology_key)
        domain = domains[pod.row]
        return bool(domain and np.any(counts[domains == domain]))


def _terms(shape: Shape) -> list[AntiAffinityTerm]:
    """The terms of a shape; an invalid one makes all of them void."""
    try:
        return required_anti_affinity(shape)
    except InvalidSelector:
        return []
