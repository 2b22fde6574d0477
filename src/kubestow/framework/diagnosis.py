"""Why no node takes a pod: the refusals of all nodes, counted, and the sentence that people read.

The sentence is kube-scheduler's FitError, character for character (reference 5.9). A diagnosis keeps the arrays it was
made of, so PostFilter can ask which nodes preemption might help on; it is valid until the next scheduling cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.framework.status import Code, Status, Verdict

__all__ = ["Diagnosis", "Refusal", "fit_error"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One plugin's refusals: ``where`` (bool, one per node) it was the first to say no, and what it said."""

    plugin: str
    where: NDArray[np.bool_]
    verdict: Verdict

    def tally(self) -> Iterator[tuple[Status, int]]:
        """Each distinct status with the number of nodes that got it."""
        return self.verdict.tally(self.where)


@dataclass(slots=True)
class Diagnosis:
    """What every node said, for a pod that fits on none.

    ``total`` is the number of nodes; ``absent`` is the status of nodes that no filter was asked about, because
    PreFilter ended the cycle (``pre_filter`` is set then) or left them out.
    """

    total: int
    refusals: Sequence[Refusal] = ()
    pre_filter: Status | None = None
    absent: Status = field(default_factory=Status.unresolvable)
    narrowed_by: Sequence[str] = ()

    @property
    def rejectors(self) -> set[str]:
        """The plugins whose change of mind could make the pod schedulable (Pending ones excluded)."""
        names = set(self.narrowed_by)
        if self.pre_filter is not None and self.pre_filter.plugin:
            names.add(self.pre_filter.plugin)
        for refusal in self.refusals:
            names.update(refusal.plugin for status, _ in refusal.tally() if status.code is not Code.PENDING)
        return names

    @property
    def pending(self) -> set[str]:
        """The plugins that refused but expect an event soon."""
        return {r.plugin for r in self.refusals if any(s.code is Code.PENDING for s, _ in r.tally())}

    def message(self) -> str:
        """The sentence, without what PostFilter adds."""
        if self.pre_filter is not None:
            return f"0/{self.total} nodes are available: {self.pre_filter.message}."
        return fit_error(self.total, self._tally())

    def status(self, row: int) -> Status:
        """What one node said."""
        for refusal in self.refusals:
            if refusal.where[row]:
                return refusal.verdict.status(row).by(refusal.plugin)
        return self.absent

    def with_code(self, code: Code) -> NDArray[np.bool_]:
        """Which nodes answered with a code, bool."""
        answered = np.zeros(self.total, np.bool_)
        chosen = np.zeros(self.total, np.bool_)
        for refusal in self.refusals:
            answered |= refusal.where
            for row in np.flatnonzero(refusal.where):
                chosen[row] = refusal.verdict.status(int(row)).code is code
        if self.absent.code is code:
            chosen |= ~answered
        return chosen

    def _tally(self) -> Iterator[tuple[Status, int]]:
        answered = 0
        for refusal in self.refusals:
            for status, count in refusal.tally():
                answered += count
                yield status, count
        if answered < self.total:
            yield self.absent, self.total - answered


def fit_error(total: int, tally: Iterable[tuple[Status, int]]) -> str:
    """``0/N nodes are available: …`` over statuses and the number of nodes that got each (reference 5.9)."""
    counts: Counter[str] = Counter()
    for status, nodes in tally:
        for reason in status.reasons:
            counts[reason] += nodes
    entries = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{total} nodes are available:" + (f" {', '.join(entries)}." if entries else "")
