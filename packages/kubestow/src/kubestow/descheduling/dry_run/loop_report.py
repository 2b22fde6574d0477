"""One descheduling loop on a snapshot, and where the evicted pods come back as the scheduler would place them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kubestow.descheduling.budgets import DryRunEvictions
from kubestow.descheduling.dry_run.rescheduling import (
    Mode,
    PredictedState,
    Prediction,
    Rescheduler,
    ReschedulingBackend,
)
from kubestow.descheduling.eviction import Eviction, EvictionBackend, EvictionObserver
from kubestow.descheduling.loop import Descheduler, LoopResult
from kubestow.descheduling.snapshot import Snapshot

__all__ = ["LoopReport", "run_loop"]


@dataclass(frozen=True, slots=True)
class LoopReport:
    """The result of a loop, what becomes of the pods, and the pending pods that got a node, as (pod, node).

    ``predictions`` are by uid; without a rescheduler there are none.
    """

    result: LoopResult
    predictions: dict[str, Prediction] = field(default_factory=dict)
    admitted: Sequence[tuple[str, str]] = ()

    def prediction(self, eviction: Eviction) -> Prediction | None:
        """What becomes of a pod, None if the scheduler was not asked."""
        return self.predictions.get(eviction.pod.uid)

    def nodes(self) -> dict[str, tuple[int, int]]:
        """How many pods leave each node, and how many come, by node name."""
        leaving = Counter(eviction.pod.node_name for eviction in self.result.evicted)
        coming = Counter(node for _, node in self.admitted)
        for eviction in self.result.evicted:
            if (found := self.prediction(eviction)) is not None and found.node:
                coming[found.node] += 1
        return {node: (leaving[node], coming[node]) for node in sorted({*leaving, *coming})}

    def count(self, state: PredictedState) -> int:
        """How many evicted pods come to an end."""
        found = (self.prediction(eviction) for eviction in self.result.evicted)
        return sum(1 for prediction in found if prediction is not None and prediction.state is state)


def run_loop(
    descheduler: Descheduler,
    snapshot: Snapshot,
    *,
    now: datetime,
    backend: EvictionBackend | None = None,
    observer: EvictionObserver | None = None,
    rescheduler: Rescheduler | None = None,
    mode: Mode = Mode.REFUSE,
) -> LoopReport:
    """Run one loop, by default as a dry run that evicts nothing.

    ``rescheduler`` has the same cluster; without one the scheduler is not asked where pods come back. Raises
    InvalidQuantity, and what the backend raises.
    """
    backend = backend or DryRunEvictions(snapshot.budgets)
    if rescheduler is None:
        return LoopReport(descheduler.run(snapshot, now=now, backend=backend, observer=observer))
    rescheduling = ReschedulingBackend(backend, rescheduler, mode)
    result = descheduler.run(snapshot, now=now, backend=rescheduling, observer=observer)
    return LoopReport(result, rescheduling.predictions, [(info.key, node) for info, node in rescheduler.admitted])
