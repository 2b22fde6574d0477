"""The feasible nodes of a pod and why the others are not; the filters of a cycle on nodes that differ from the cluster.

Preemption filters nodes without some of their pods. Filtering itself has to respect nominated pods (semantics 4.3): a
node that pods of no lower priority are nominated to must pass twice, with those pods added and as it is. Both run the
filters on hypothetical rows, after PreFilter of the cycle and without the result cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import POD_BITS
from kubestow.cluster.changes.journal import InvalidationMask
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges, PodTable, offsets_of
from kubestow.framework.diagnosis import Diagnosis, Rejection
from kubestow.framework.evaluation.result_cache import PluginResults
from kubestow.framework.status import Status, Verdict

Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Nominated:
    """The positions of the nodes in a view that have nominated pods, and those pods, one run per position."""

    positions: NDArray[np.intp]
    pods: PodChanges


class CycleFilterRunner:
    """The Filter plugins for one pod; implements :class:`~kubestow.framework.interface.FilterRunner`."""

    def __init__(self, cluster: Cluster, pod: PodInfo, filters: Sequence[PluginResults]) -> None:
        self._cluster = cluster
        self._pod = pod
        self._filters = filters

    @cached_property
    def active(self) -> tuple[PluginResults, ...]:
        """The filters whose PreFilter did not return a skip."""
        return tuple(results for results in self._filters if not results.skips_filter)

    @property
    def invalidation_mask(self) -> InvalidationMask | None:
        """What invalidates the results of this runner; None when they are valid for this cycle only."""
        joined = InvalidationMask()
        for results in self.active:
            if results.invalidation_mask is None:
                return None
            joined |= results.invalidation_mask
        return joined

    @property
    def is_node_local(self) -> bool:
        """Whether the result for a node depends on no pods but those on that node."""
        mask = self.invalidation_mask
        return mask is not None and not mask.all_bits & POD_BITS

    # -- running ---------------------------------------------------------------------------------------------------

    def rejections(self, nodes: Nodes) -> list[Rejection]:
        """The rejections of nodes, each with nominated pods added first, then as it is."""
        rejections: list[Rejection] = []
        if (nominated := self._nominated_among(nodes)) is not None:
            rejections = self._rejections(nodes.select(nominated.positions).with_pod_changes(nominated.pods))
            for rejection in rejections:
                nodes = nodes.select(~rejection.where[nodes.row_numbers])
        return rejections + self._rejections(nodes)

    def nominated_rejections(self, among: Mask) -> list[Rejection]:
        """The rejections among some rows (bool, one per node) that are due to nominated pods."""
        if not self._cluster.has_nominations or not among[self._nominated_rows].any():
            return []
        rows, others = self._nominated
        some = np.flatnonzero(among[rows])
        nodes = Nodes(self._cluster.nodes, rows[some])
        return self._rejections(nodes.with_pod_changes(others.select(some)))

    def still_pass(self, nodes: Nodes) -> Mask:
        """Which nodes pass (bool, one per node), given that they passed before and only their pods have changed."""
        if (nominated := self._nominated_among(nodes)) is None:
            return self._pass(nodes)
        passes = np.ones(len(nodes), np.bool_)
        passes[nominated.positions] = self._pass(nodes.select(nominated.positions).with_pod_changes(nominated.pods))
        passing = np.flatnonzero(passes)
        passes[passing] = self._pass(nodes.select(passing))
        return passes

    def _pass(self, nodes: Nodes) -> Mask:
        passes = np.ones(len(nodes), np.bool_)
        for _, verdict, positions in _rejecting(self._pod_dependent, self._pod, nodes):
            passes[positions] = verdict.passes
        return passes

    def _rejections(self, nodes: Nodes) -> list[Rejection]:
        rejections = []
        for plugin, verdict, positions in _rejecting(self.active, self._pod, nodes):
            whole = over_all_rows(verdict, nodes.select(positions))
            rejections.append(Rejection(plugin, ~whole.passes, whole))
        return rejections

    @cached_property
    def _pod_dependent(self) -> tuple[PluginResults, ...]:
        """The filters whose results can depend on the pods of a node."""
        return tuple(
            results
            for results in self.active
            if results.invalidation_mask is None or results.invalidation_mask.includes_pods
        )

    # -- nominated pods --------------------------------------------------------------------------------------------

    @cached_property
    def _nominated_rows(self) -> NDArray[np.intp]:
        """The rows with nominated pods of any priority."""
        return np.flatnonzero(self._cluster.nodes.nominated_count.values)

    @cached_property
    def _nominated(self) -> tuple[NDArray[np.intp], PodChanges]:
        """The rows with nominated pods of no lower priority, this pod excepted, and those pods, one run per row."""
        rows, pods = self._nominated_rows, self._cluster.nodes.nominated
        slots, offsets = pods.slots_on(rows.tolist())
        counts = pods.priority[slots] >= self._pod.priority
        own = pods.slot(self._pod.uid)
        if own is not None:
            counts &= slots != own
        others = PodChanges(pods, slots, offsets, +1).among(counts)
        some = np.flatnonzero(others.lengths)
        return rows[some], others.select(some)

    @cached_property
    def _run_of(self) -> NDArray[np.intp]:
        """The number of the run of nominated pods for each row of the table, -1 for a row without one."""
        rows, _ = self._nominated
        run_of = np.full(len(self._cluster.nodes), -1, np.intp)
        run_of[rows] = np.arange(len(rows))
        return run_of

    def _nominated_among(self, nodes: Nodes) -> _Nominated | None:
        """The nominated pods of some nodes, None when there are none."""
        if not self._cluster.has_nominations:
            return None
        runs = self._run_of[nodes.row_numbers]
        positions = np.flatnonzero(runs >= 0)
        return _Nominated(positions, self._nominated[1].select(runs[positions])) if len(positions) else None


def _rejecting(
    filters: Sequence[PluginResults], pod: PodInfo, nodes: Nodes
) -> Iterator[tuple[str, Verdict, NDArray[np.intp]]]:
    """Each plugin that rejects some of the nodes that passed the earlier ones, its verdict and their positions."""
    positions = np.arange(len(nodes))
    for results in filters:
        if not len(nodes):
            return
        verdict = results.run_filter(pod, nodes)
        if verdict is None or not verdict.keys.any():
            continue
        yield results.plugin.name, verdict, positions
        passes = verdict.passes
        nodes, positions = nodes.select(passes), positions[passes]


def over_all_rows(verdict: Verdict, nodes: Nodes) -> Verdict:
    """A verdict over some nodes as one over all rows of the table, in which the other rows pass."""
    keys = np.zeros(nodes.total, np.int32)
    keys[nodes.row_numbers] = verdict.keys
    return Verdict(keys, verdict.legend, has_errors=verdict.has_errors)


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
    #: The number of the evaluation's run whose ranking covers these nodes; 0 where their totals have to be computed.
    ranked_in: int = 0
    #: Whether the nominated node passed, so that no other was filtered.
    tried_nominated_node_only: bool = False
    #: What the diagnosis is made from: the nodes that were filtered, the verdicts on them, and where those pass.
    candidates: Mask | None = None
    verdicts: Sequence[tuple[str, Verdict, Mask]] = ()
    pre_filtered: PreFiltered | None = None
    within: Mask | None = None
    #: When the filters ended, in seconds of the runtime's clock.
    ended: float = 0.0
    _nominated_rejections: Sequence[Rejection] | None = None
    _rows: Rows | None = None

    @property
    def rows(self) -> Rows:
        """The feasible rows, a slice over all rows when every node is feasible."""
        if self._rows is None:
            all_pass = self.count == len(self.passing)
            self._rows = slice(0, self.count) if all_pass else np.flatnonzero(self.passing)
        return self._rows

    @property
    def nominated_rejections(self) -> Sequence[Rejection]:
        """The rejections of candidates that are due to nominated pods, also of those that the filters reject anyway.

        PreFilter must not have rejected the pod, so that there are candidates.
        """
        if self._nominated_rejections is None:
            assert self.candidates is not None
            self._nominated_rejections = self.filters.nominated_rejections(self.candidates)
        return self._nominated_rejections

    def filter_results(self) -> Iterator[FilterResult]:
        """The result of each Filter plugin, in order; none when PreFilter has rejected the pod.

        Unlike the diagnosis it has all rejections of a node, not only the first. A plugin that declares
        ``uncached`` runs only on the nodes that have passed before it. A rejection due to nominated pods comes first,
        as in the diagnosis.
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
    """The outcome of PreFilter: a rejection, or the ``node_names`` that are left by some plugins (None: all).

    The other nodes are among the reasons if ``reports_nodes_left_out``.
    """

    rejection: Status | None
    node_names: frozenset[str] | None
    plugins: tuple[str, ...]
    reports_nodes_left_out: bool = True

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
        if self.node_names is None or not self.reports_nodes_left_out:
            return Status.unresolvable()
        return Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(self.plugins)}]")


#: Of up to so many copies most nodes take all or none.
_FEW_COPIES = 16
#: How many times as many copies as are known to fit the search for a count tries at most.
_GROWTH = 4


class PodCapacity:
    """The capacity of nodes for copies of a ``pod``, counted up to ``most`` copies per node.

    The pods of a gang are mostly copies of each other, so the number of them that fit into a part of the cluster is the
    sum of the capacities of its nodes. To count, copies are added to hypothetical rows and the filters run on those.
    That is right for filters that look at one node and its pods; affinity, spread constraints, volumes and devices need
    a simulation.

    ``candidates`` (bool, one per row of the node table) are the nodes that PreFilter has left.
    """

    def __init__(self, pod: PodInfo, filters: CycleFilterRunner, candidates: NDArray[np.bool_], most: int) -> None:
        self._filters, self._candidates = filters, candidates
        self._most = 1 if pod.shape.host_ports else most
        self._copies = PodTable()
        self._slots = np.array([self._copies.add(pod, None) for _ in range(self._most)], np.intp)

    def on(self, nodes: Nodes) -> Counts:
        """How many copies fit on each of some nodes, real or hypothetical, int64. Raises PluginError."""
        fits = self._candidates[nodes.row_numbers]
        for rejection in self._filters.rejections(nodes.select(fits)):
            fits &= ~rejection.where[nodes.row_numbers]
        counts = fits.astype(np.int64)
        positions = np.flatnonzero(fits)
        counts[positions] = self.on_feasible(nodes.select(positions))
        return counts

    def on_feasible(self, nodes: Nodes) -> Counts:
        """The counts for nodes on which at least one copy fits, by binary search on all of them at once.

        If the copies are few, all of them are tried first. Of many a step adds up to three times as many as are known
        to fit, so that the hypothetical pods are in proportion to the counts.
        """
        low = np.ones(len(nodes), np.int64)
        high = np.full(len(nodes), self._most, np.int64)
        tries_all = self._most <= _FEW_COPIES
        while len(open_ := np.flatnonzero(low < high)):
            least, most = low[open_], high[open_]
            middle = most if tries_all else np.minimum((least + most + 1) // 2, least * _GROWTH)
            tries_all = False
            passes = self._filters.still_pass(self.with_copies(nodes.select(open_), middle - 1))
            low[open_] = np.where(passes, middle, low[open_])
            high[open_] = np.where(passes, high[open_], middle - 1)
        return low

    def with_copies(self, nodes: Nodes, counts: Counts) -> HypotheticalNodes:
        """Some nodes with as many copies added to each as ``counts`` (int64, at most ``most``) says."""
        offsets = offsets_of(counts.astype(np.intp))
        numbers = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return nodes.with_pod_changes(PodChanges(self._copies, self._slots[numbers], offsets, +1))
