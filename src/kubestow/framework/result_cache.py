"""Remembered answers: what one plugin said about every node, for pods of one signature.

The runtime never asks twice. Answers are kept as arrays over the rows of the node table, together with the journal's
position at the time; when they are needed again, only the rows that changed since, in a way the plugin declared an
interest in, are asked about anew. A plugin that gives a pod no signature is simply asked about everything every time,
so remembering can never change a decision: a property test holds the one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.events import POD_BITS
from kubestow.cluster.journal import EVERY_ROW, ROLLED_BACK
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation
from kubestow.framework.interface import (
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
)
from kubestow.framework.runtime import FrameworkRuntime
from kubestow.framework.status import SUCCESS, Code, Status, Verdict
from kubestow.framework.validation import in_range

__all__ = ["Answers", "BoundPlugin", "Memory", "Round", "Staleness"]

#: More changed rows than this share of all are not worth asking one by one.
_ASK_ALL_BEYOND = 8
_MANY = 16


@dataclass(frozen=True, slots=True)
class Staleness:
    """What of some answers an event spoils: journal bits that spoil one row, and bits that spoil all."""

    row_bits: int = 0
    all_bits: int = 0

    @classmethod
    def of(cls, plugin: Plugin) -> Staleness:
        """What spoils a plugin's answers, by its interests."""
        row_bits = all_bits = 0
        for interest in plugin.events_to_register:
            if interest.invalidates is Invalidation.ROW:
                row_bits |= interest.event.bits
            elif interest.invalidates is Invalidation.ALL:
                all_bits |= interest.event.bits
        return cls(row_bits, all_bits)

    def __or__(self, other: Staleness) -> Staleness:
        """What spoils answers that depend on both."""
        return Staleness(self.row_bits | other.row_bits, self.all_bits | other.all_bits)

    @property
    def minds_pods(self) -> bool:
        """Whether anything that happens to pods spoils the answers."""
        return bool((self.row_bits | self.all_bits) & POD_BITS)

    def rows(self, entries: Sequence[tuple[int, int]]) -> list[int] | None:
        """The rows to ask about again, None for all of them."""
        rows: list[int] = []
        all_bits, row_bits = self.all_bits, self.row_bits
        for row, bits in entries:
            if bits & all_bits:
                return None
            if bits & row_bits:
                if row == EVERY_ROW:
                    return None
                if row not in rows:
                    rows.append(row)
                    if len(rows) > _MANY:
                        return self._many(entries)
        return rows

    def _many(self, entries: Sequence[tuple[int, int]]) -> list[int] | None:
        journal = np.array(entries, np.int64)
        if (journal[:, 1] & self.all_bits).any():
            return None
        rows = np.unique(journal[(journal[:, 1] & self.row_bits) != 0, 0])
        return None if len(rows) and rows[0] == EVERY_ROW else rows.tolist()


class BoundPlugin:
    """A plugin in its profile: what it is asked at, and what of its answers an event spoils.

    ``filter_plugin`` and the like are the plugin where it is called at that extension point, otherwise None.
    """

    __slots__ = (
        "filter_plugin",
        "normalizes",
        "plugin",
        "pre_filter_plugin",
        "pre_score_plugin",
        "runtime",
        "score_plugin",
        "staleness",
    )

    def __init__(
        self, plugin: Plugin, runtime: FrameworkRuntime, *, runs_pre_filter: bool, runs_pre_score: bool
    ) -> None:
        self.plugin = plugin
        self.runtime = runtime
        self.filter_plugin = plugin if isinstance(plugin, FilterPlugin) else None
        self.score_plugin = plugin if isinstance(plugin, ScorePlugin) else None
        self.normalizes = (
            self.score_plugin is not None and type(self.score_plugin).normalize is not ScorePlugin.normalize
        )
        self.pre_filter_plugin = plugin if runs_pre_filter and isinstance(plugin, PreFilterPlugin) else None
        self.pre_score_plugin = plugin if runs_pre_score and isinstance(plugin, PreScorePlugin) else None
        self.staleness = Staleness.of(plugin)


class Memory:
    """When a set of answers was given, and which of them have gone stale since."""

    __slots__ = ("_position", "_structure")

    def __init__(self) -> None:
        self._position = self._structure = -1

    def stale_rows(self, cluster: Cluster, staleness: Staleness) -> list[int] | None:
        """The rows to ask about again, None for all."""
        journal = cluster.journal
        if self._position == journal.position:
            return []
        if self._structure != cluster.nodes.structure:
            return None
        entries = journal.since(self._position)
        rows = None if entries is None else staleness.rows(entries)
        return None if rows is not None and len(rows) * _ASK_ALL_BEYOND > len(cluster.nodes) else rows

    def note(self, cluster: Cluster) -> None:
        """The answers are as of now."""
        self._position, self._structure = cluster.journal.position, cluster.nodes.structure


class Round:
    """When answers were last brought up to date together, so that those which nothing has happened to are passed over.

    Most of what happens in a cluster concerns few plugins; this tells them apart by one look at the journal for all.
    """

    __slots__ = ("_position", "_structure")

    def __init__(self) -> None:
        self._position = self._structure = -1

    def news(self, cluster: Cluster) -> int:
        """The journal bits of everything that has happened since; every bit when that cannot be told."""
        if self._structure != cluster.nodes.structure:
            return _EVERYTHING
        entries = cluster.journal.since(self._position)
        if entries is None or len(entries) > _WORTH_A_LOOK:
            return _EVERYTHING
        news = _NEXT_CYCLE
        for _, bits in entries:
            news |= bits
        return news

    def note(self, cluster: Cluster) -> None:
        """All answers are up to date as of now."""
        self._position, self._structure = cluster.journal.position, cluster.nodes.structure


#: Beyond the journal's bits: what has happened cannot be told, which all answers mind; and another cycle has begun,
#: which those mind that are not to be remembered.
_UNTOLD, _NEXT_CYCLE = 1 << 64, 1 << 65
_EVERYTHING = -1
_WORTH_A_LOOK = 64


class Answers:
    """One plugin's answers for one signature. ``minds`` are the journal bits that may make them stale."""

    __slots__ = (
        "__weakref__",
        "_filter_memory",
        "_nothing",
        "_score_memory",
        "bound_plugin",
        "minds",
        "outcome",
        "passes",
        "plugin",
        "remembered",
        "scores",
        "scores_nothing",
        "skips_filter",
        "state",
        "verdict",
    )

    def __init__(self, bound_plugin: BoundPlugin, *, remembered: bool) -> None:
        self.plugin = bound_plugin.plugin
        self.state = CycleState()
        #: What PreFilter said: a status, or the names it narrows the nodes to.
        self.outcome: Status | PreFilterResult = SUCCESS
        #: Whether that left the filter out.
        self.skips_filter = False
        #: Filter's verdict over all rows and where it passes (bool); None when every row passes.
        self.verdict: Verdict | None = None
        self.passes: NDArray[np.bool_] | None = None
        #: Raw scores, int64, one per row; None when the plugin skips scoring.
        self.scores: NDArray[np.int64] | None = None
        #: Whether all of them are 0, so that nothing distinguishes one node from another.
        self.scores_nothing = False
        self._nothing: NDArray[np.int64] | None = None
        self.bound_plugin = bound_plugin
        self.remembered = remembered
        self.minds = (
            bound_plugin.staleness.row_bits | bound_plugin.staleness.all_bits | ROLLED_BACK | _UNTOLD
            if remembered
            else _EVERYTHING
        )
        self._filter_memory = Memory()
        self._score_memory = Memory()

    @property
    def staleness(self) -> Staleness | None:
        """What spoils these answers; None when they are never remembered."""
        uncached = self.bound_plugin.filter_plugin is not None and self.bound_plugin.filter_plugin.uncached
        return None if uncached or not self.remembered else self.bound_plugin.staleness

    def begin(self) -> None:
        """A scheduling cycle begins: nothing is remembered from the last one. For answers that must not be."""
        self._start_afresh()

    def _start_afresh(self, state: CycleState | None = None) -> None:
        self.state = state or CycleState()  # a new one: cycles that are still binding keep the old
        self._filter_memory = Memory()
        self._score_memory = Memory()

    # -- filtering -----------------------------------------------------------------------------------------------

    def refresh_pre_filter(self, cluster: Cluster, pod: PodInfo) -> list[int] | None:
        """Bring the PreFilter outcome up to date; the rows whose verdict is stale are returned, None for all."""
        stale = self._filter_memory.stale_rows(cluster, self.bound_plugin.staleness)
        if stale is None:
            state = CycleState()
            plugin = self.bound_plugin.pre_filter_plugin
            if plugin is not None:
                self.outcome = outcome = self.bound_plugin.runtime.run_pre_filter_plugin(
                    plugin, state, pod, cluster.all_nodes()
                )
                self.skips_filter = isinstance(outcome, Status) and outcome.code is Code.SKIP
            self._start_afresh(state)
        return stale

    def refresh_filter(self, cluster: Cluster, pod: PodInfo, stale: list[int] | None) -> None:
        """Bring the verdict up to date, after PreFilter: all rows pass where PreFilter left the filter out."""
        if stale is None:
            verdict = None if self.skips_filter else self.ask_filter(pod, cluster.all_nodes())
            self.verdict, self.passes = verdict, None if verdict is None else verdict.passes
        elif stale and not self.skips_filter:
            self._ask_rows(cluster, pod, stale)
        self._filter_memory.note(cluster)

    def ask_filter(self, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """The filter's verdict on some nodes, real or hypothetical, never from memory; None when all pass."""
        plugin = self.bound_plugin.filter_plugin
        assert plugin is not None
        return self.bound_plugin.runtime.run_filter_plugin(plugin, self.state, pod, nodes)

    def _ask_rows(self, cluster: Cluster, pod: PodInfo, rows: list[int]) -> None:
        nodes = _rows(cluster, rows)
        verdict = self.ask_filter(pod, nodes)
        if verdict is None and self.verdict is None:
            return
        if self.verdict is None or self.passes is None:
            assert verdict is not None
            self.verdict = Verdict(np.zeros(len(cluster.nodes), np.int32), verdict.legend)
            self.passes = self.verdict.passes
        keys = 0 if verdict is None else verdict.keys
        self.verdict.keys[nodes.rows], self.passes[nodes.rows] = keys, np.equal(keys, 0)
        if verdict is not None:
            self.verdict.legend = verdict.legend
            self.verdict.has_errors |= verdict.has_errors

    # -- scoring -------------------------------------------------------------------------------------------------

    def refresh_scores(self, cluster: Cluster, pod: PodInfo) -> None:
        """Bring the raw scores of all rows up to date."""
        stale = self._score_memory.stale_rows(cluster, self.bound_plugin.staleness)
        if stale is None:
            nodes = cluster.all_nodes()
            self.scores = None if self._skips_scoring(pod, nodes) else self._scored(pod, nodes)
            self.scores_nothing = self.scores is not None and not self.scores.any()
            self._nothing = None
        elif stale and self.scores is not None:
            nodes = _rows(cluster, stale)
            scores = self.scores[nodes.rows] = self._scored(pod, nodes)
            self.scores_nothing = self.scores_nothing and not scores.any()
        self._score_memory.note(cluster)

    def prepare(self, pod: PodInfo, nodes: Nodes) -> None:
        """Ask PreScore of a plugin that does not score."""
        self._skips_scoring(pod, nodes)

    def score_feasible(self, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64] | None:
        """Raw scores of just the feasible nodes, for a plugin whose scores depend on which those are."""
        return None if self._skips_scoring(pod, nodes) else self._scored(pod, nodes)

    def normalized_nothing(self, pod: PodInfo, cluster: Cluster) -> NDArray[np.int64]:
        """What raw scores of 0 become, int64 of one entry: normalising treats equal scores alike, whatever the node."""
        if self._nothing is None:
            assert self.scores is not None
            self._nothing = self.normalized(pod, self.scores[:1], Nodes(cluster.nodes, slice(0, 1)))
        return self._nothing

    def normalized(self, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """The feasible nodes' raw scores brought to 0 .. MAX_SCORE. Raises PluginError when they are not."""
        plugin = self.bound_plugin.score_plugin
        if not self.bound_plugin.normalizes:
            return scores  # their range was checked when they were given
        assert plugin is not None
        return self.bound_plugin.runtime.run_normalize_score_plugin(plugin, self.state, pod, scores, nodes)

    def _scored(self, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        plugin = self.bound_plugin.score_plugin
        assert plugin is not None
        scores = self.bound_plugin.runtime.run_score_plugin(plugin, self.state, pod, nodes)
        return scores if self.bound_plugin.normalizes else in_range(plugin, "Score", scores)

    def _skips_scoring(self, pod: PodInfo, nodes: Nodes) -> bool:
        plugin = self.bound_plugin.pre_score_plugin
        return (
            plugin is not None and not self.bound_plugin.runtime.run_pre_score_plugin(plugin, self.state, pod, nodes).ok
        )


def _rows(cluster: Cluster, rows: list[int]) -> Nodes:
    if len(rows) == 1:
        return Nodes(cluster.nodes, slice(rows[0], rows[0] + 1))
    return Nodes(cluster.nodes, np.array(rows, np.intp))
