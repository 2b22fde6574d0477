"""RemovePodsViolatingInterPodAntiAffinity: evicts pods that must not be near others which are already there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from kubestow.api.meta import LabelSelector
from kubestow.cluster.pods.shapes import Shape
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.eviction import eviction_order
from kubestow.descheduling.interface import ArgumentProblem, DeschedulePlugin, Evictor
from kubestow.descheduling.pod_selection import (
    AntiAffinityTerm,
    MatchingPods,
    Namespaces,
    PodSelection,
    required_anti_affinity,
    selection_problems,
)
from kubestow.errors import InvalidSelector


class RemovePodsViolatingInterPodAntiAffinityArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of RemovePodsViolatingInterPodAntiAffinity; other pods are neither evicted nor kept away from."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None


class RemovePodsViolatingInterPodAntiAffinity(DeschedulePlugin):
    """Evicts pods with violated anti-affinity, those of low priority first; an evicted pod no longer conflicts."""

    name = "RemovePodsViolatingInterPodAntiAffinity"
    Args = RemovePodsViolatingInterPodAntiAffinityArgs

    @classmethod
    def validate(cls, args: RemovePodsViolatingInterPodAntiAffinityArgs) -> Iterable[ArgumentProblem]:
        return selection_problems(args.namespaces, args.label_selector)

    def __init__(self, args: RemovePodsViolatingInterPodAntiAffinityArgs) -> None:
        super().__init__(args)
        self._selection = PodSelection(args.namespaces, args.label_selector)

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
        """The pods on a node that have anti-affinity terms."""
        return self._with_terms.get(row, [])

    def has_any(self, pod: AssignedPod) -> bool:
        """Whether a pod is near another that it must not be near."""
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
