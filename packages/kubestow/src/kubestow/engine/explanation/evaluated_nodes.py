"""What all plugins of a profile returned for all nodes and one pod, copied from the evaluation.

The arrays of an evaluation are valid until the next scheduling cycle; these are kept, so that any node can be looked up
after further decisions. All arrays have one entry per row of the node table as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError
from kubestow.framework.evaluation.evaluation import ScoreResult
from kubestow.framework.evaluation.feasibility import Feasibility, FilterResult
from kubestow.framework.profile import Profile
from kubestow.framework.status import SUCCESS, Status

Mask = NDArray[np.bool_]
Scores = NDArray[np.int64]

#: The codes of :class:`FilterColumn` that are no statuses.
_NOT_RUN, _SKIPPED, _PASSED = -2, -1, 0


class VerdictKind(StrEnum):
    """What became of a Filter plugin on a node."""

    PASSED = "passed"
    REJECTED = "rejected"
    #: The plugin has nothing to check for this pod.
    SKIPPED = "skipped"
    #: An earlier plugin had rejected the node, or PreFilter had left it out.
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class PluginVerdict:
    """The verdict of a plugin on a node; ``status`` has code and reasons of a rejection."""

    plugin: str
    kind: VerdictKind
    status: Status = SUCCESS


@dataclass(frozen=True, slots=True)
class PluginScore:
    """The score of a plugin for a node: raw, normalized to 0 to 100, and multiplied by the weight of the plugin."""

    plugin: str
    weight: int
    raw: int
    normalized: int

    @property
    def weighted(self) -> int:
        """What it contributes to the total."""
        return self.normalized * self.weight


@dataclass(frozen=True, slots=True)
class NodeEvaluation:
    """All verdicts and scores of one node; ``total`` and ``rank`` (1 is best) are None if it is not feasible."""

    node: str
    verdicts: tuple[PluginVerdict, ...]
    scores: tuple[PluginScore, ...] = ()
    total: int | None = None
    rank: int | None = None

    @property
    def feasible(self) -> bool:
        """Whether the pod fits."""
        return self.total is not None

    @property
    def rejections(self) -> tuple[PluginVerdict, ...]:
        """The verdicts that reject the node, the one that the scheduler reports first."""
        return tuple(verdict for verdict in self.verdicts if verdict.kind is VerdictKind.REJECTED)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The nodes with the same rejections, by all plugins that reject them; the first one is what is reported."""

    rejections: tuple[PluginVerdict, ...]
    nodes: tuple[str, ...]


class FilterColumn(NamedTuple):
    """The verdicts of one plugin on all nodes.

    ``codes`` (int32) are -2 where it was not run, -1 where it has nothing to check, 0 where the node passes, else the
    number of one of the ``statuses``, counted from 1.
    """

    plugin: str
    codes: NDArray[np.int32]
    statuses: Sequence[Status]


@dataclass(frozen=True, slots=True)
class _Filter:
    """One plugin's keys (int32, 0 where it does not reject), the statuses of the keys, and the nodes it ran on."""

    plugin: str
    keys: NDArray[np.int32]
    statuses: Mapping[int, Status]
    ran: Mask

    @classmethod
    def of(cls, result: FilterResult) -> _Filter:
        keys = np.zeros(len(result.ran), np.int32)
        verdict = result.verdict
        if verdict is None:
            return cls(result.plugin, keys, {}, result.ran.copy())
        keys[result.rejects] = verdict.keys[result.rejects]
        statuses = {key: verdict.legend(key) for key in np.unique(keys).tolist() if key}
        return cls(result.plugin, keys, statuses, result.ran.copy())

    def at(self, row: int) -> PluginVerdict:
        if key := int(self.keys[row]):
            return PluginVerdict(self.plugin, VerdictKind.REJECTED, self.statuses[key].by(self.plugin))
        return PluginVerdict(self.plugin, VerdictKind.PASSED if self.ran[row] else VerdictKind.NOT_RUN)


@dataclass(frozen=True, slots=True)
class EvaluatedNodes:
    """The verdicts on all nodes, and the scores of the feasible ones.

    ``left_out`` are the nodes that PreFilter left out (bool), all with the ``left_out_status``. ``rows`` are the
    feasible ones in order of their ``totals``, the highest first and equal ones by name.
    """

    names: Sequence[str]
    positions: Mapping[str, int]
    left_out: Mask
    left_out_status: Status
    rows: NDArray[np.intp]
    totals: Scores
    #: The names of all Filter plugins of the profile, in order.
    filter_plugins: Sequence[str]
    filters: Sequence[_Filter]
    #: The scores of the feasible nodes, in their order.
    scores: Sequence[ScoreResult]

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.names)

    @property
    def feasible(self) -> Mask:
        """Where the pod fits, bool."""
        feasible = np.zeros(len(self), np.bool_)
        feasible[self.rows] = True
        return feasible

    @property
    def tied(self) -> int:
        """How many nodes have the highest total."""
        return int(np.count_nonzero(self.totals == self.totals[0])) if len(self.totals) else 0

    def groups(self) -> list[tuple[tuple[PluginVerdict, ...], NDArray[np.intp]]]:
        """The nodes that are not feasible, as rows, by all their rejections; the largest group first."""
        rows = np.flatnonzero(~self.feasible)
        if not len(rows):
            return []
        table = np.stack([self.left_out[rows], *(found.keys[rows] for found in self.filters)], axis=1)
        # One number per row of the table: np.unique sorts numbers much faster than rows.
        numbers = np.zeros(len(rows), np.int64)
        for column in table.T:
            _, ids = np.unique(column, return_inverse=True)
            numbers = np.unique(numbers * (int(ids.max()) + 1) + ids, return_inverse=True)[1]
        order = np.argsort(numbers, kind="stable")
        runs = np.split(rows[order], np.flatnonzero(np.diff(numbers[order])) + 1)
        merged: dict[tuple[PluginVerdict, ...], list[NDArray[np.intp]]] = {}
        for run in runs:  # plugins may have several keys for one status
            merged.setdefault(self.at(int(run[0])).rejections, []).append(run)
        groups = [(rejections, np.sort(np.concatenate(found))) for rejections, found in merged.items()]
        return sorted(groups, key=lambda group: -len(group[1]))

    def columns(self) -> Iterator[FilterColumn]:
        """The verdicts as one column per plugin: one for PreFilter if it left nodes out, then all Filter plugins."""
        if self.left_out.any():
            yield FilterColumn(self.left_out_status.plugin, self.left_out.astype(np.int32), [self.left_out_status])
        for plugin in self.filter_plugins:
            results = [result for result in self.filters if result.plugin == plugin]
            codes = np.full(len(self), _NOT_RUN if results else _SKIPPED, np.int32)
            codes[self.left_out] = _NOT_RUN
            numbers: dict[Status, int] = {}
            for result in results:
                codes[result.ran & (codes < _PASSED)] = _PASSED
                for key, status in result.statuses.items():
                    number = numbers.setdefault(status, len(numbers) + 1)
                    codes[(result.keys == key) & (codes <= _PASSED)] = number
            yield FilterColumn(plugin, codes, list(numbers))

    def node(self, name: str) -> NodeEvaluation:
        """The evaluation of one node. Raises KeyError."""
        return self.at(self.positions[name])

    def at(self, row: int) -> NodeEvaluation:
        """The evaluation of the node at a row."""
        verdicts = self._verdicts(row)
        place = np.flatnonzero(self.rows == row)
        if not len(place):
            return NodeEvaluation(self.names[row], verdicts)
        position = int(place[0])
        scores = tuple(
            PluginScore(found.plugin, found.weight, int(found.raw[position]), int(found.normalized[position]))
            for found in self.scores
        )
        rank = 1 + int(np.count_nonzero(self.totals > self.totals[position]))
        return NodeEvaluation(self.names[row], verdicts, scores, int(self.totals[position]), rank)

    def _verdicts(self, row: int) -> tuple[PluginVerdict, ...]:
        verdicts = []
        if self.left_out[row]:
            verdicts.append(PluginVerdict(self.left_out_status.plugin, VerdictKind.REJECTED, self.left_out_status))
        found: dict[str, PluginVerdict] = {}
        for result in self.filters:
            known = found.get(result.plugin)
            if known is None or known.kind is not VerdictKind.REJECTED:
                found[result.plugin] = result.at(row)
        for plugin in self.filter_plugins:
            missing = VerdictKind.NOT_RUN if self.left_out[row] else VerdictKind.SKIPPED
            verdicts.append(found.get(plugin) or PluginVerdict(plugin, missing))
        return tuple(verdicts)


def evaluate_nodes(cache: ClusterCache, profile: Profile, pod: PodInfo) -> tuple[EvaluatedNodes, Feasibility]:
    """Filter all nodes for a pod that is not nominated, and score all feasible ones.

    The feasibility is valid until the next scheduling cycle. Raises PluginError, and KubestowError with the message of
    the scheduler where a plugin returns an error.
    """
    evaluation = profile.evaluations.of(pod)
    feasibility = evaluation.find_feasible(pod)
    if feasibility.error is not None:
        raise KubestowError(feasibility.error.message)
    filters = [_Filter.of(result) for result in feasibility.filter_results()]
    rows = Nodes(cache.nodes, feasibility.rows).row_numbers
    results = list(evaluation.score_by_plugin(pod, feasibility.rows)) if len(rows) else []
    totals = sum((result.weighted for result in results), start=np.zeros(len(rows), np.int64))
    order = np.lexsort((cache.nodes.name_rank()[rows], -totals))
    diagnosis = feasibility.diagnose()
    status = diagnosis.absent_nodes_status
    evaluated = EvaluatedNodes(
        names=tuple(cache.nodes.names),
        positions=dict(cache.nodes.rows),
        left_out=~diagnosis.filtered,
        left_out_status=status if status.plugin else status.by(" ".join(diagnosis.narrowed_by)),
        rows=rows[order].copy(),
        totals=totals[order],
        filter_plugins=tuple(plugin.name for plugin in profile.runtime.plugins.filter),
        filters=filters,
        scores=[result._replace(raw=result.raw[order], normalized=result.normalized[order]) for result in results],
    )
    return evaluated, feasibility
