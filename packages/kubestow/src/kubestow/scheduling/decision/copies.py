"""Decisions about pods that no plugin can tell apart, all at once for one part of the cluster after another.

They are the decisions of the pipeline about one pod after the other, each assumed before the next, ties included. It
takes a walk through tables (:mod:`kubestow.framework.evaluation.copies`) instead of an evaluation for each pod.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.journal import NEVER
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.evaluation.copies import CopyTotals
from kubestow.framework.profile import Profile
from kubestow.scheduling.decision.node_selection import TieBreak
from kubestow.scheduling.extenders.stages import Extenders


class Copies:
    """Some pods of a profile, at least one, to be decided about together; they may turn out not to be copies."""

    def __init__(
        self,
        pods: Sequence[PodInfo],
        cluster: Cluster,
        profile: Profile,
        ties: TieBreak,
        extenders: Extenders | None,
    ) -> None:
        self._pods, self._cluster, self._profile, self._ties = pods, cluster, profile, ties
        self._has_extenders = extenders is not None and any(map(extenders.take_part, pods))
        #: The totals for the copies, None if they have to be decided about one by one, and the state of the cluster.
        self._totals: CopyTotals | None = None
        self._generation = NEVER

    def capacity(self) -> NDArray[np.int64] | None:
        """How many of the pods fit on each node (int64, one per row); None where that is not known."""
        totals = self._current_totals()
        return None if totals is None else totals.capacity

    def nodes_among(self, nodes: Nodes) -> list[str] | None:
        """The node of each pod, when each is decided about on these nodes after those before it have been assumed.

        None where this is not known without deciding about one pod after the other, or if they do not all fit.
        """
        totals, rows = self._current_totals(), nodes.row_numbers
        if totals is None:
            return None
        if (rows[1:] <= rows[:-1]).any():
            rows = np.unique(rows)
        try:
            chosen = totals.place(rows, len(self._pods), lambda best: self._ties.choose(self._cluster, best))
        except PluginError:  # the decision about the pod that it concerns fails with it, too
            return None
        names = self._cluster.nodes.names
        return None if chosen is None else [names[row] for row in chosen]

    def _current_totals(self) -> CopyTotals | None:
        window = self._cluster.change_window
        window.begin()
        if not window.is_undone(self._generation):
            self._totals = self._find_totals()
            self._generation = window.generation
        return self._totals

    def _find_totals(self) -> CopyTotals | None:
        cluster, evaluations, first = self._cluster, self._profile.evaluations, self._pods[0]
        if self._has_extenders or self._profile.samples_nodes:
            return None
        if any(pod.status.nominated_node_name or cluster.nomination(pod.uid) for pod in self._pods):
            return None
        try:
            group = evaluations.group(first)
            if any(pod.shape is not first.shape and evaluations.group(pod) != group for pod in self._pods):
                return None
            return CopyTotals.of(evaluations.of(first), first, len(self._pods), cluster)
        except PluginError:
            return None
