"""Node fit: whether a pod would fit on a node, by the rules of the descheduler.

They are a subset of the scheduler's: the node is schedulable, the pod selects it and tolerates its NoSchedule and
NoExecute taints, its own required anti-affinity conflicts with no pod on that very node, and the node has room. Spread
constraints, volumes, host ports and the anti-affinity of other pods do not count. The dry run asks the scheduler
instead (:mod:`kubestow.descheduling.dry_run`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.selectors import selected_by
from kubestow.cluster.pods.shapes import Shape, ShapeFamily
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.pod_selection import MatchingPods, required_anti_affinity
from kubestow.errors import InvalidSelector
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, untolerated

Mask = NDArray[np.bool_]


class NodeFit:
    """Node fit in one cluster. Results are kept per shape until a pod is evicted; masks are bool, one per node."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster, self._nodes = cluster, cluster.view()
        self._selected: dict[ShapeFamily, Mask] = {}
        self._tolerated: dict[ShapeFamily, Mask] = {}
        self._admitting: dict[ShapeFamily, Mask] = {}
        self._room: dict[ShapeFamily, Mask] = {}
        self._matching: dict[object, MatchingPods] = {}
        #: How many of the evicted pods have been taken into account.
        self._seen_evictions = 0

    def selects(self, shape: Shape) -> Mask:
        """The nodes that match the node selector and the required node affinity."""
        mask = self._selected.get(shape.family)
        if mask is None:
            mask = self._selected[shape.family] = selected_by(self._nodes, shape.spec)
        return mask

    def tolerates(self, shape: Shape) -> Mask:
        """The nodes whose NoSchedule and NoExecute taints are all tolerated."""
        mask = self._tolerated.get(shape.family)
        if mask is None:
            tolerations, effects = shape.spec.tolerations, (NO_SCHEDULE, NO_EXECUTE)
            mask = self._tolerated[shape.family] = self._nodes.by_taints(
                lambda taints: not untolerated(taints, tolerations, effects=effects, comparisons=True), np.bool_
            )
        return mask

    def fits_other(self, pod: AssignedPod, candidates: Mask) -> bool:
        """Whether a pod fits on one of the candidates other than its own node."""
        self._catch_up()
        fitting = self._fitting(pod) & self._with_room(pod.shape) & candidates
        return bool(np.count_nonzero(fitting) > fitting[pod.row])

    def each_fits_other(self, pods: Sequence[AssignedPod], candidates: Mask) -> dict[AssignedPod, bool]:
        """What :meth:`fits_other` says about each pod; pods of one kind are judged at once."""
        self._catch_up()
        found: dict[AssignedPod, bool] = {}
        by_family: dict[ShapeFamily, list[AssignedPod]] = {}
        for pod in pods:
            by_family.setdefault(pod.shape.family, []).append(pod)
        for alike in by_family.values():
            shape = alike[0].shape
            if shape.spec.affinity is not None and shape.spec.affinity.pod_anti_affinity is not None:
                found |= {pod: self.fits_other(pod, candidates) for pod in alike}
            else:
                fitting = self._admitting_nodes(shape) & self._with_room(shape) & candidates
                others = int(np.count_nonzero(fitting)) - fitting[[pod.row for pod in alike]]
                found |= dict(zip(alike, (others > 0).tolist(), strict=True))
        return found

    def fits_any(self, pod: AssignedPod, candidates: Mask) -> bool:
        """Whether a pod fits on one of the candidates; on its own node it has room."""
        self._catch_up()
        fitting = self._fitting(pod) & candidates
        return bool(fitting[pod.row] or (fitting & self._with_room(pod.shape)).any())

    def _fitting(self, pod: AssignedPod) -> Mask:
        """The nodes that fit, apart from their room."""
        admitting = self._admitting_nodes(pod.shape)
        try:
            terms = required_anti_affinity(pod.shape)
        except InvalidSelector:
            return np.zeros(len(self._nodes), np.bool_)
        for term in terms:
            matching = self._matching.get(term.pods_key)
            if matching is None:
                pods = self._cluster.unfinished_pods_of(term.matches)
                matching = self._matching[term.pods_key] = MatchingPods(pods, len(self._nodes))
            others = matching.counts_without(pod.name)
            admitting = admitting & ((others == 0) | (self._nodes.label(term.topology_key) == 0))
        return admitting

    def _admitting_nodes(self, shape: Shape) -> Mask:
        """The nodes that fit, apart from their room and the pods on them."""
        admitting = self._admitting.get(shape.family)
        if admitting is None:
            admitting = ~self._nodes.unschedulable & self.selects(shape) & self.tolerates(shape)
            self._admitting[shape.family] = admitting
        return admitting

    def _with_room(self, shape: Shape) -> Mask:
        room = self._room.get(shape.family)
        if room is None:
            room = self._nodes.allowed_pods > self._cluster.pod_count
            for resource, amount in shape.requests.items():
                room &= self._nodes.allocatable(resource) - self._cluster.requested(resource) >= amount
            self._room[shape.family] = room
        return room

    def _catch_up(self) -> None:
        """Take the evictions since the last call into account."""
        evicted = self._cluster.evicted
        if self._seen_evictions == len(evicted):
            return
        for pod in evicted[self._seen_evictions :]:
            for matching in self._matching.values():
                matching.discard(pod)
        self._room.clear()
        self._seen_evictions = len(evicted)
