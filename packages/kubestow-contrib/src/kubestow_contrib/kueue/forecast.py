"""When a Workload of Kueue will be admitted, why not yet, and what would make it be admitted now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubestow.api.formats.duration import Duration
from kubestow.engine.job_forecasts import ForecastAnswer, Remedy, remedy_table
from kubestow.reports.model import Block, Paragraph, counted

_ASSUMPTION = "if jobs run as long as their annotations or limits say, and no job comes before those that wait"


@dataclass(frozen=True, slots=True, repr=False)
class KueueForecast(ForecastAnswer):
    """The answer about the job of a Workload.

    ``state`` is ``Admitted``, ``QuotaReserved`` (it waits for admission checks), ``Startable`` (in the next cycle),
    ``Waiting``, or ``Inadmissible`` for one in no queue.
    ``position`` counts the ``waiting`` Workloads of its ClusterQueue from 1; 0 for one that does not wait. ``start`` is
    None for one that is not expected to start.
    """

    name: str
    queue: str
    state: str
    time: datetime
    pods: int
    position: int = 0
    waiting: int = 0
    reasons: Sequence[str] = ()
    start: datetime | None = None
    remedies: Sequence[Remedy] = ()
    remarks: Sequence[str] = ()

    @property
    def waits(self) -> bool:
        """Whether it is not admitted yet."""
        return self.state != "Admitted"

    def would_start_now(self) -> dict[str, Sequence[Remedy]]:
        """The remedies of the job."""
        return {self.name: self.remedies}

    def document(self) -> dict[str, Any]:
        """The answer as data for JSON and YAML."""
        return {
            "kind": "JobForecast",
            "time": _text(self.time),
            "jobs": [
                {
                    "job": self.name,
                    "queue": self.queue,
                    "state": self.state,
                    "pods": self.pods,
                    "position": self.position or None,
                    "waitingJobs": self.waiting,
                    "reason": "; ".join(self.reasons),
                    "expectedStart": _text(self.start),
                    "assumption": _ASSUMPTION if self.start is not None else "",
                    "wouldStartNow": [each.document() for each in self.remedies],
                }
            ],
            "remarks": list(self.remarks),
        }

    def blocks(self) -> Iterator[Block]:
        """The answer in a few lines, then what would help."""
        where = f"{self.name} in ClusterQueue {self.queue or '-'}: {counted(self.pods, 'pod')}"
        if self.state == "Admitted":
            yield Paragraph(f"{where}, admitted")
            return
        if self.state == "Startable":
            yield Paragraph(f"{where}, it is admitted in the next cycle")
            return
        yield Paragraph(where)
        yield from map(Paragraph, self.reasons)
        if self.state in ("Inadmissible", "QuotaReserved"):
            return
        if self.start is None:
            yield Paragraph("when it will start is not known")
        else:
            wait = Duration.of(seconds=round((self.start - self.time).total_seconds()))
            yield Paragraph(f"expected start: {_text(self.start)}, in {wait}, {_ASSUMPTION}")
        if self.remedies:
            yield remedy_table(self.remedies)
        else:
            yield Paragraph("no change of the job alone was found with which it would start now")


def _text(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%dT%H:%M:%SZ}"
