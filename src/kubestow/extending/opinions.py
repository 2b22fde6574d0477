"""What a profile's filters and scores say, as an extender says it (semantics 5.5).

The same evaluation answers as in a scheduler of our own, remembered answers and all, so an opinion is that of the
plugin in process; only scores are coarser, for the protocol knows 0 to 10 where a plugin gives 0 to 100. Nothing here
knows of HTTP, nor of where the cluster's state comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Pod
from kubestow.api.extender import MAX_SCORE, MetaVictims
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Change, HypotheticalNodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.evaluation import Evaluation, Feasible
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status

__all__ = ["Opinions", "Verdicts"]

_UNKNOWN = "node is not known to the extender (yet)"


@dataclass(slots=True)
class Verdicts:
    """Which nodes pass, and why others do not: for reasons that evictions may cure, or that they cannot."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)

    def refuse(self, name: str, status: Status) -> None:
        """A node does not pass."""
        into = self.unresolvable if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE else self.failed
        into[name] = status.message or f"refused by {status.plugin}"


class Opinions:
    """The filters and scores of one profile about one cluster."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile

    def filter(self, pod: Pod, names: Sequence[str]) -> Verdicts:
        """What the filters say of some nodes. Raises KubestowError when they cannot be asked, or fail."""
        verdicts = Verdicts()
        known = self._known(names)
        for name in names:
            if name not in known:
                verdicts.failed[name] = _UNKNOWN
        if not known:
            return verdicts
        _, _, found = self._ask(pod)
        passes = np.zeros(len(self._cluster.nodes), np.bool_)
        passes[found.rows] = True
        verdicts.passed = [name for name, row in known.items() if passes[row]]
        if len(verdicts.passed) < len(known):
            statuses = self._statuses(found.diagnose(), known)
            for name in known.keys() - verdicts.passed:
                verdicts.refuse(name, statuses[name])
        return verdicts

    def _statuses(self, diagnosis: Diagnosis, known: Mapping[str, int]) -> dict[str, Status]:
        """Why each of some nodes does not pass."""
        names = self._cluster.nodes.names
        wanted = np.zeros(len(names), np.bool_)
        wanted[list(known.values())] = True
        statuses = dict.fromkeys(known, diagnosis.absent)
        for refusal in diagnosis.refusals:
            for status, where in refusal.verdict.by_status(refusal.where & wanted):
                said = status.by(refusal.plugin)
                statuses |= {names[row]: said for row in np.flatnonzero(where).tolist()}
        return statuses

    def prioritize(self, pod: Pod, names: Sequence[str]) -> list[tuple[str, int]]:
        """The scores of some nodes, 0 to 10; those that are not known get none. Raises KubestowError as above."""
        known = self._known(names)
        highest = self._profile.evaluations.highest_total
        if not known or not highest:
            return [(name, 0) for name in known]
        info, evaluation, _ = self._ask(pod)
        rows = np.array(sorted(known.values()), np.intp)
        totals = evaluation.totals(self._cluster, info, rows)
        scores: NDArray[np.int64] = (totals * MAX_SCORE + highest // 2) // highest
        table = self._cluster.nodes
        return [(table.names[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

    def preempt(self, pod: Pod, victims: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Those of some candidates that the filters let pass without the victims. Raises KubestowError as above."""
        known = self._known(victims)
        if not known:
            return {}
        _, _, found = self._ask(pod)
        if not found.count and found.diagnose().pre_filter is not None:
            return {}
        rows = np.array(sorted(known.values()), np.intp)
        names = [self._cluster.nodes.names[row] for row in rows.tolist()]
        changes = [self._without(row, victims[name]) for row, name in zip(rows.tolist(), names, strict=True)]
        suits = np.ones(len(self._cluster.nodes), np.bool_)
        for refusal in found.filters.refusals(HypotheticalNodes(self._cluster.nodes, rows, changes)):
            suits &= ~refusal.where
        return {name: victims[name] for name, row in zip(names, rows.tolist(), strict=True) if suits[row]}

    def _without(self, row: int, victims: MetaVictims) -> Change:
        there = self._cluster.nodes.pods[row]
        return Change(removed=tuple(there[pod.uid] for pod in victims.pods if pod.uid in there))

    # -- asking ----------------------------------------------------------------------------------------------------

    def _ask(self, pod: Pod) -> tuple[PodInfo, Evaluation, Feasible]:
        """What the filters say of all nodes."""
        # Nodes that were promised to the pod are the business of the scheduler that asks.
        status = msgspec.structs.replace(pod.status, nominated_node_name="")
        info = self._cluster.shapes.info(msgspec.structs.replace(pod, status=status))
        evaluation = self._profile.evaluations.of(self._cluster, info)
        found = evaluation.feasible(self._cluster, info)
        if found.error is not None:
            raise KubestowError(found.error.message)
        return info, evaluation, found

    def _known(self, names: Sequence[str] | Mapping[str, MetaVictims]) -> dict[str, int]:
        rows = self._cluster.nodes.rows
        return {name: rows[name] for name in names if name in rows}
