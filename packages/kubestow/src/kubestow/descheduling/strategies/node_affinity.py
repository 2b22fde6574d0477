"""RemovePodsViolatingNodeAffinity: evicts pods whose node no longer matches their node affinity."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeAffinity
from kubestow.api.meta import LabelSelector
from kubestow.cluster.nodes.selectors import matches_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import Shape, ShapeFamily
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.interface import ArgumentProblem, DeschedulePlugin, Evictor, evict_of_node
from kubestow.descheduling.node_fit import NodeFit
from kubestow.descheduling.pod_selection import Namespaces, PodSelection, selection_problems
from kubestow.errors import InvalidSelector

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TYPES = (_REQUIRED, _PREFERRED)


class RemovePodsViolatingNodeAffinityArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of RemovePodsViolatingNodeAffinity; the types of affinity are handled in their order."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None
    node_affinity_type: tuple[str, ...] = ()


class RemovePodsViolatingNodeAffinity(DeschedulePlugin):
    """Evicts pods that required affinity bars from their node, or that preferred affinity likes better on another."""

    name = "RemovePodsViolatingNodeAffinity"
    Args = RemovePodsViolatingNodeAffinityArgs

    @classmethod
    def validate(cls, args: RemovePodsViolatingNodeAffinityArgs) -> Iterator[ArgumentProblem]:
        if not args.node_affinity_type:
            yield ArgumentProblem("nodeAffinityType", "nodeAffinityType needs to be set")
        yield from selection_problems(args.namespaces, args.label_selector)

    def __init__(self, args: RemovePodsViolatingNodeAffinityArgs) -> None:
        super().__init__(args)
        self._selection = PodSelection(args.namespaces, args.label_selector)

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
