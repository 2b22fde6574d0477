"""Why no node takes a pod: the refusals of all nodes, counted, and the sentence that people read.

The sentence is kube-scheduler's FitError, character for character (semantics 5.9). A diagnosis keeps the arrays it was
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
    """What every node that does not fit said.

    ``total`` is the number of nodes, ``asked`` (bool) those that the filters were asked about; ``absent`` is the status
    of the others, because PreFilter ended the cycle (``pre_filter`` is set then) or left them out. Where only some
    nodes were in question at all, ``within`` says which; nothing is said of the others.
    """

    total: int
    refusals: Sequence[Refusal] = ()
    asked: NDArray[np.bool_] = field(kw_only=True)
    pre_filter: Status | None = None
    absent: Status = field(default_factory=Status.unresolvable)
    narrowed_by: Sequence[str] = ()
    #: bool, one per node; None when all are in question.
    within: NDArray[np.bool_] | None = None

    def overruled_by(self, later: Refusal) -> Diagnosis:
        """The same with somebody's later word on some nodes, in place of what was said of them before."""
        others = [Refusal(r.plugin, r.where & ~later.where, r.verdict) for r in self.refusals]
        return Diagnosis(
            self.total,
            [*others, later],
            asked=self.asked | later.where,
            pre_filter=self.pre_filter,
            absent=self.absent,
            narrowed_by=self.narrowed_by,
            within=self.within,
        )

    @property
    def in_question(self) -> int:
        """How many nodes there would have been to choose from."""
        return self.total if self.within is None else int(np.count_nonzero(self.within))

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
            return f"0/{self.in_question} nodes are available: {self.pre_filter.message}."
        return fit_error(self.in_question, self._tally())

    def status(self, row: int) -> Status:
        """What one node said."""
        for refusal in self.refusals:
            if refusal.where[row]:
                return refusal.verdict.status(row).by(refusal.plugin)
        return self.absent

    @property
    def refused(self) -> NDArray[np.bool_]:
        """The nodes that were refused, or left out for a reason, bool."""
        refused = np.zeros(self.total, np.bool_) if not self.absent.reasons else self._left_out()
        for refusal in self.refusals:
            refused |= refusal.where
        return refused

    def with_code(self, code: Code) -> NDArray[np.bool_]:
        """Which nodes answered with a code, bool."""
        chosen = np.zeros(self.total, np.bool_) if self.absent.code is not code else self._left_out()
        for refusal in self.refusals:
            for status, where in refusal.verdict.by_status(refusal.where):
                if status.code is code:
                    chosen |= where
        return chosen

    def _tally(self) -> Iterator[tuple[Status, int]]:
        for refusal in self.refusals:
            yield from refusal.tally()
        left_out = int(np.count_nonzero(self._left_out()))
        if left_out:
            yield self.absent, left_out

    def _left_out(self) -> NDArray[np.bool_]:
        """The nodes in question that nobody was asked about, bool."""
        return ~self.asked if self.within is None else self.within & ~self.asked


def fit_error(total: int, tally: Iterable[tuple[Status, int]]) -> str:
    """``0/N nodes are available: …`` over statuses and the number of nodes that got each (semantics 5.9)."""
    counts: Counter[str] = Counter()
    for status, nodes in tally:
        for reason in status.reasons:
            counts[reason] += nodes
    entries = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{total} nodes are available:" + (f" {', '.join(entries)}." if entries else "")
