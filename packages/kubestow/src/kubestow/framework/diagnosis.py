"""Why no node is feasible: the rejections of all nodes, by plugin, and the message for the pod's condition.

The message is kube-scheduler's FitError (semantics 5.9). A diagnosis holds the arrays it was made from, which
PostFilter plugins read; it is valid until the next scheduling cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kubestow.framework.status import Code, Status, Verdict


@dataclass(slots=True)
class Rejection:
    """The nodes that one plugin rejected first: ``where`` (bool, one per node), and the verdict on all nodes."""

    plugin: str
    where: NDArray[np.bool_]
    verdict: Verdict
    _tally: list[tuple[Status, int, int]] | None = None

    def tally(self) -> Sequence[tuple[Status, int, int]]:
        """Each distinct status, with the number of nodes that have it and its key in the verdict."""
        if self._tally is None:
            self._tally = self.verdict.tally(self.where)
        return self._tally


@dataclass(slots=True)
class Diagnosis:
    """The statuses of all nodes that are not feasible.

    ``total`` is the number of nodes. The ``filtered`` ones (bool) went through the filters; the other nodes have the
    ``absent_nodes_status``, because PreFilter rejected the pod (``pre_filter_status`` is set then) or narrowed the
    nodes. With ``within`` (bool, one per node) only those nodes were candidates at all; None stands for all nodes.
    """

    total: int
    rejections: Sequence[Rejection] = ()
    filtered: NDArray[np.bool_] = field(kw_only=True)
    pre_filter_status: Status | None = None
    absent_nodes_status: Status = field(default_factory=Status.unresolvable)
    #: The plugins whose PreFilter narrowed the nodes.
    narrowed_by: Sequence[str] = ()
    within: NDArray[np.bool_] | None = None

    def overridden_by(self, rejection: Rejection) -> Diagnosis:
        """The diagnosis in which a later rejection takes the place of earlier ones of the same nodes."""
        earlier = [Rejection(r.plugin, r.where & ~rejection.where, r.verdict) for r in self.rejections]
        return replace(self, rejections=[*earlier, rejection], filtered=self.filtered | rejection.where)

    @property
    def candidate_count(self) -> int:
        """The number of nodes that were candidates."""
        return self.total if self.within is None else int(np.count_nonzero(self.within))

    @property
    def unschedulable_plugins(self) -> set[str]:
        """The plugins whose events can make the pod schedulable, except those in :attr:`pending_plugins`."""
        names = set(self.narrowed_by)
        if self.pre_filter_status is not None and self.pre_filter_status.plugin:
            names.add(self.pre_filter_status.plugin)
        for rejection in self.rejections:
            if any(status.code is not Code.PENDING for status, _, _ in rejection.tally()):
                names.add(rejection.plugin)
        return names

    @property
    def pending_plugins(self) -> set[str]:
        """The plugins that returned Pending: they expect an event soon."""
        return {r.plugin for r in self.rejections if any(status.code is Code.PENDING for status, _, _ in r.tally())}

    def message(self) -> str:
        """The FitError message, without what PostFilter appends."""
        if self.pre_filter_status is not None:
            return f"0/{self.candidate_count} nodes are available: {self.pre_filter_status.message}."
        tally = [(status, nodes) for rejection in self.rejections for status, nodes, _ in rejection.tally()]
        absent = int(np.count_nonzero(self._absent()))
        if absent:
            tally.append((self.absent_nodes_status, absent))
        return fit_error(self.candidate_count, tally)

    def status(self, row: int) -> Status:
        """The status of the node at a row of the table; ``plugin`` names the plugin that rejected it."""
        for rejection in self.rejections:
            if rejection.where[row]:
                return rejection.verdict.status(row).by(rejection.plugin)
        return self.absent_nodes_status

    @property
    def rejected(self) -> NDArray[np.bool_]:
        """The nodes that were rejected, or are absent for a reason, bool."""
        rejected = self._absent() if self.absent_nodes_status.reasons else np.zeros(self.total, np.bool_)
        for rejection in self.rejections:
            rejected |= rejection.where
        return rejected

    def with_code(self, code: Code) -> NDArray[np.bool_]:
        """The nodes whose status has a code, bool."""
        chosen = self._absent() if self.absent_nodes_status.code is code else np.zeros(self.total, np.bool_)
        for rejection in self.rejections:
            for status, _, key in rejection.tally():
                if status.code is code:
                    chosen |= rejection.where & np.equal(rejection.verdict.keys, key)
        return chosen

    def _absent(self) -> NDArray[np.bool_]:
        """The candidates that the filters were not run on, bool."""
        return ~self.filtered if self.within is None else self.within & ~self.filtered


def fit_error(total: int, tally: Iterable[tuple[Status, int]]) -> str:
    """``0/N nodes are available: …`` from statuses with the number of nodes that have each (semantics 5.9)."""
    counts: Counter[str] = Counter()
    for status, nodes in tally:
        for reason in status.reasons:
            counts[reason] += nodes
    entries = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{total} nodes are available:" + (f" {', '.join(entries)}." if entries else "")
