"""The feasible nodes of a pod, and why the others are not feasible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Rows
from kubestow.framework.diagnosis import Diagnosis, Rejection
from kubestow.framework.evaluation.filter_runner import CycleFilterRunner
from kubestow.framework.status import Status, Verdict

Mask = NDArray[np.bool_]


class FilterResult(NamedTuple):
    """What one Filter plugin returned, whatever the plugins before it: the nodes it ran on and those it rejects.

    ``ran`` and ``rejects`` are bool, one per row of the node table; ``verdict`` is over all rows, None when all pass.
    """

    plugin: str
    ran: Mask
    rejects: Mask
    verdict: Verdict | None


@dataclass(slots=True)
class Feasibility:
    """The feasible nodes of a pod: where all filters pass (bool, one per row of the node table), and their number.

    ``error`` ends the cycle. Valid until the next scheduling cycle, like the diagnosis made from it.
    """

    passing: Mask
    count: int
    #: The filters of this cycle, for hypothetical nodes.
    filters: CycleFilterRunner
    error: Status | None = None
    diagnosis: Diagnosis | None = None
    #: The number of the cycle whose ranking covers these nodes; 0 where their totals have to be computed.
    ranked_in: int = 0
    #: What the diagnosis is made from: the nodes that were filtered, the verdicts on them, and where those pass.
    candidates: Mask | None = None
    nominated_rejections: Sequence[Rejection] = ()
    verdicts: Sequence[tuple[str, Verdict, Mask]] = ()
    pre_filtered: PreFiltered | None = None
    within: Mask | None = None
    _rows: Rows | None = None

    @property
    def rows(self) -> Rows:
        """The feasible rows, a slice over all rows when every node is feasible."""
        if self._rows is None:
            all_pass = self.count == len(self.passing)
            self._rows = slice(0, self.count) if all_pass else np.flatnonzero(self.passing)
        return self._rows

    @property
    def walked_candidates(self) -> Mask | None:
        """The nodes among which feasible ones were searched for; None if only the nominated node was tried, or none."""
        return None if self.pre_filtered is None else self.candidates

    def filter_results(self) -> Iterator[FilterResult]:
        """The result of each Filter plugin, in order; none when PreFilter has rejected the pod.

        Unlike the diagnosis it has all rejections of a node, not only the first. A plugin whose results are not cached
        runs only on the nodes that have passed before it. A rejection due to nominated pods comes first, as in the
        diagnosis.
        """
        if self.candidates is None:
            return
        passing = self.candidates
        for rejection in self.nominated_rejections:
            yield FilterResult(rejection.plugin, passing, rejection.where, rejection.verdict)
            passing = passing & ~rejection.where
        found = {plugin: (verdict, passes) for plugin, verdict, passes in self.verdicts}
        for results in self.filters.active:
            ran = passing if results.bound_plugin.filters_passing_nodes else self.candidates
            verdict, passes = found.get(results.plugin.name, (None, ran))
            yield FilterResult(results.plugin.name, ran, ran & ~passes, verdict)
            passing = passing & passes

    def diagnose(self) -> Diagnosis:
        """Why the other nodes are not feasible. Raises PluginError."""
        if self.diagnosis is not None:
            return self.diagnosis
        assert self.candidates is not None
        passing = self.candidates.copy()
        rejections = list(self.nominated_rejections)
        for rejection in rejections:
            passing &= ~rejection.where
        for plugin, verdict, passes in self.verdicts:
            where = passing & ~passes
            if where.any():
                rejections.append(Rejection(plugin, where, verdict))
                passing &= passes
        diagnosis = Diagnosis(len(passing), rejections, filtered=self.candidates, within=self.within)
        if self.pre_filtered is not None:
            diagnosis.absent_nodes_status = self.pre_filtered.absent_nodes_status
            diagnosis.narrowed_by = self.pre_filtered.plugins
        self.diagnosis = diagnosis
        return diagnosis


class PreFiltered(NamedTuple):
    """The outcome of PreFilter: a rejection, or the ``node_names`` that are left by some plugins (None: all)."""

    rejection: Status | None
    node_names: frozenset[str] | None
    plugins: tuple[str, ...]

    def mask(self, cluster: Cluster) -> Mask:
        """The nodes that are left, bool, read-only."""
        rows = cluster.nodes.rows
        if self.node_names is None:
            return cluster.nodes.every.readonly
        mask = np.zeros(len(rows), np.bool_)
        mask[[rows[name] for name in self.node_names if name in rows]] = True
        return mask

    @property
    def absent_nodes_status(self) -> Status:
        """The status of the nodes that are not left."""
        if self.node_names is None:
            return Status.unresolvable()
        return Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(self.plugins)}]")
