"""A profile's filters, to be asked about nodes that are not as they are.

Preemption wants to know whether a pod would fit if some others were gone; filtering beside nominated pods, whether it
would if they were there already (semantics 4.3). Both ask the same filters, after PreFilter has run for the pod, about
hypothetical rows and never from memory. A node that has been promised to pods of no lower priority must suit the pod
twice: with them, and as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.events import POD_BITS
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges
from kubestow.framework.diagnosis import Refusal
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.result_cache import Answers, Staleness
from kubestow.framework.status import Verdict

__all__ = ["Filters", "spread_out"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Promised:
    """Positions of nodes that have been promised to others, and those others."""

    positions: NDArray[np.intp]
    pods: PodChanges


class Filters:
    """The filters that have a say about one pod, as this scheduling cycle's PreFilter left them."""

    def __init__(self, cluster: Cluster, pod: PodInfo, filters: Sequence[Answers]) -> None:
        self._cluster = cluster
        self._pod = pod
        self._filters = filters

    @cached_property
    def active(self) -> tuple[Answers, ...]:
        """The filters that PreFilter did not leave out."""
        return tuple(answers for answers in self._filters if not answers.skips_filter)

    @property
    def staleness(self) -> Staleness | None:
        """What spoils the answers given here; None when they are good for this cycle only."""
        joined = Staleness()
        for answers in self.active:
            if answers.staleness is None:
                return None
            joined |= answers.staleness
        return joined

    @property
    def count_by_node(self) -> bool:
        """Whether what is said of a node depends on the pods of that node alone."""
        staleness = self.staleness
        return staleness is not None and not staleness.all_bits & POD_BITS

    # -- asking --------------------------------------------------------------------------------------------------

    def refusals(self, nodes: Nodes) -> list[Refusal]:
        """What is refused and why, with promised pods and without."""
        refusals: list[Refusal] = []
        if (promised := self._promised_among(nodes)) is not None:
            refusals = self._refusals(nodes.select(promised.positions).with_pod_changes(promised.pods))
            for refusal in refusals:
                nodes = nodes.select(~refusal.where[nodes.row_numbers])
        return refusals + self._refusals(nodes)

    def refusals_beside_promised(self, alive: Mask) -> list[Refusal]:
        """What is refused because of pods that were promised nodes, among the rows (bool, one per node) given."""
        if not self._cluster.has_nominations:
            return []
        nodes = Nodes(self._cluster.nodes, np.flatnonzero(alive))
        promised = self._promised_among(nodes)
        return (
            [] if promised is None else self._refusals(nodes.select(promised.positions).with_pod_changes(promised.pods))
        )

    def still_pass(self, nodes: Nodes) -> Mask:
        """Which of some nodes that passed before (bool, one per node) still do when only their pods have changed."""
        if (promised := self._promised_among(nodes)) is None:
            return self._pass(nodes)
        passes = np.ones(len(nodes), np.bool_)
        passes[promised.positions] = self._pass(nodes.select(promised.positions).with_pod_changes(promised.pods))
        standing = np.flatnonzero(passes)
        passes[standing] = self._pass(nodes.select(standing))
        return passes

    def _pass(self, nodes: Nodes) -> Mask:
        passes = np.ones(len(nodes), np.bool_)
        for _, verdict, positions in _refusing(self._minding_pods, self._pod, nodes):
            passes[positions] = verdict.passes
        return passes

    def _refusals(self, nodes: Nodes) -> list[Refusal]:
        refusals = []
        for plugin, verdict, positions in _refusing(self.active, self._pod, nodes):
            whole = spread_out(verdict, nodes.select(positions))
            refusals.append(Refusal(plugin.name, ~whole.passes, whole))
        return refusals

    @cached_property
    def _minding_pods(self) -> tuple[Answers, ...]:
        """The filters whose answer can depend on the pods of a node."""
        return tuple(a for a in self.active if a.staleness is None or a.staleness.minds_pods)

    # -- promised nodes ------------------------------------------------------------------------------------------

    @cached_property
    def _promised(self) -> tuple[NDArray[np.intp], PodChanges]:
        """The pods of no lower priority that have been promised nodes, this pod excepted, one run per such node.

        Also the number of its run for every row of the table, -1 for rows that nobody has been promised.
        """
        table = self._cluster.nodes
        rows = np.flatnonzero(table.nominated_count.values)
        pods = table.nominated
        slots, offsets = pods.slots_on(rows.tolist())
        counts = pods.priority[slots] >= self._pod.priority
        own = pods.slot(self._pod.uid)
        if own is not None:
            counts &= slots != own
        others = PodChanges(pods, slots, offsets, +1).among(counts)
        some = np.flatnonzero(others.lengths)
        run_of = np.full(len(table), -1, np.intp)
        run_of[rows[some]] = np.arange(len(some))
        return run_of, others.select(some)

    def _promised_among(self, nodes: Nodes) -> _Promised | None:
        """The promised ones among some nodes, None when there are none."""
        if not self._cluster.has_nominations:
            return None
        run_of, others = self._promised
        runs = run_of[nodes.row_numbers]
        positions = np.flatnonzero(runs >= 0)
        return _Promised(positions, others.select(runs[positions])) if len(positions) else None


def _refusing(
    filters: Sequence[Answers], pod: PodInfo, nodes: Nodes
) -> Iterator[tuple[FilterPlugin, Verdict, NDArray[np.intp]]]:
    """Each filter that refuses some of the nodes the earlier ones left over, its verdict and their positions."""
    positions = np.arange(len(nodes))
    for answers in filters:
        if not len(nodes):
            return
        plugin = answers.bound_plugin.filter_plugin
        assert plugin is not None
        verdict = answers.ask_filter(pod, nodes)
        if verdict is None or not verdict.keys.any():
            continue
        yield plugin, verdict, positions
        passes = verdict.passes
        nodes, positions = nodes.select(passes), positions[passes]


def spread_out(verdict: Verdict, nodes: Nodes) -> Verdict:
    """A verdict over some nodes as one over all rows of the table; those that were not asked about pass."""
    keys = np.zeros(nodes.total, np.int32)
    keys[nodes.row_numbers] = verdict.keys
    return Verdict(keys, verdict.legend, has_errors=verdict.has_errors)
