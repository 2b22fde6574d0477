"""Queues, waits, reservations and nodes over time as parts of a report, and as data.

Times in the data are in seconds since the first job arrived. The bounded slowdown of a job is the time from its arrival
to its end divided by its run time, which counts as ten seconds at least (Feitelson).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kubestow.api.formats.duration import Duration
from kubestow.reports.model import BarChart, Block, Paragraph, PluginReport, Section, Table, amount_text, counted
from kubestow_contrib.queues.configuration import Queue
from kubestow_contrib.queues.history import History, JobRun, PodsOnNodes
from kubestow_contrib.queues.jobs import Job, JobRecord, JobState, RunTimes
from kubestow_contrib.queues.planning import Plan
from kubestow_contrib.queues.queue_charts import ReportedNodes, Span, nodes_over_time, scarcest, shares_over_time

#: So many jobs are listed in a table, those that waited longest first.
_MOST_JOBS = 200
_LEAST_RUN_TIME = 10.0
#: A report about the present shows so much of the past, in seconds.
_PRESENT = 86_400.0


def bounded_slowdown(record: JobRecord) -> float:
    """How many times longer a job took than it ran, at least 1."""
    ran = record.ended - record.started
    return max(1.0, (record.ended - record.arrived) / max(ran, _LEAST_RUN_TIME))


def quantile(values: Collection[float], part: float) -> float:
    """The smallest value that at least this part of the values does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class QueueReport:
    """What is reported: jobs that have ended (``records``) and those that there are, given the last plan.

    ``rows`` are the names of nodes by row as reservations have them. With ``from_now`` times are relative to the
    present, for people who look at the cluster; else since the first job arrived.
    """

    queues: Mapping[str, Queue]
    records: Sequence[JobRecord]
    jobs: Sequence[Job]
    plan: Plan
    now: float
    history: History
    run_times: RunTimes
    nodes: ReportedNodes
    rows: Sequence[str]
    from_now: bool

    def report(self) -> PluginReport:
        """The sections, and the data."""
        nodes = Section("Nodes over time", list(self._nodes()), anchor="nodes-over-time")
        sections = [
            Section("Queues", list(self._queues()), anchor="queues"),
            Section("Shares over time", list(self._shares()), anchor="shares"),
            Section("Reservations", list(self._reservations()), anchor="reservations"),
            nodes,
            Section("Waits of jobs", list(self._waits())),
        ]
        return PluginReport(sections, self._data())

    # -- times ---------------------------------------------------------------------------------------------------------

    @property
    def _began(self) -> float:
        """When the first job arrived."""
        times = [*(record.arrived for record in self.records), *(job.arrived for job in self.jobs)]
        return min(times, default=self.now)

    def _span(self) -> Span:
        """From the first job on, or of the present; and as far ahead, or as starts are reserved."""
        first = max(self._began, self.now - _PRESENT) if self.from_now else self._began
        reserved = [job.reservation.start for job in self.jobs if job.reservation is not None]
        ends = [run.ended for run in self._planned()]
        ahead = max(1.2 * (max(reserved, default=self.now) - self.now), self.now - first, 60.0)
        last = min(self.now + ahead, max(ends)) if ends else self.now
        return Span(first, max(last, first + 1.0), self.now, self.now if self.from_now else first)

    def _time_text(self, time: float) -> str:
        if not self.from_now:
            return f"{time - self._began:,.0f} s"
        length = Duration.of(seconds=abs(round(time - self.now)))
        return f"in {length}" if time > self.now else f"{length} ago"

    # -- sections ------------------------------------------------------------------------------------------------------

    def _queues(self) -> Iterator[Block]:
        headings = ("ended", "running", "waiting", "mean wait, s", "p95 wait, s", "slowdown", "uses", "fair share")
        table = Table("queue", *headings, right=headings[:-2], caption="Queues")
        shares = self.plan.shares
        for name, queue in self.queues.items():
            below = [record for record in self.records if name in self.queues[record.queue].lineage]
            there = [job for job in self.jobs if name in self.queues[job.queue].lineage]
            waits = [record.started - record.arrived for record in below]
            table.add(
                f"{'  ' * (len(queue.lineage) - 1)}{name}",
                f"{len(below):,}",
                f"{sum(1 for job in there if job.state is JobState.ADMITTED):,}",
                f"{sum(1 for job in there if job.state is JobState.WAITING):,}",
                f"{sum(waits) / len(waits):,.0f}" if waits else "-",
                f"{quantile(waits, 0.95):,.0f}" if waits else "-",
                f"{sum(map(bounded_slowdown, below)) / len(below):,.1f}" if below else "-",
                _amounts({} if shares is None else shares.allocated[name]),
                _amounts({} if shares is None else shares.fair[name]),
            )
        yield table

    def _shares(self) -> Iterator[Block]:
        span = self._span()
        shown = Span(span.first, self.now, self.now, span.origin)
        return shares_over_time(self.queues, self.history, self.nodes.total, shown)

    def _waits(self) -> Iterator[Block]:
        if not self.records:
            yield Paragraph("No job has ended.", note=True)
            return
        bars = []
        for name, queue in self.queues.items():
            waits = [record.started - record.arrived for record in self.records if record.queue == name]
            if waits and not queue.children:
                found = quantile(waits, 0.95)
                bars.append((name, found, f"{found:,.0f} s"))
        yield BarChart(bars, "95 of 100 jobs of the queue waited no longer")
        table = Table(
            *("job", "queue", "pods", "arrived", "waited, s", "ran, s", "slowdown"),
            right=("pods", "arrived", "waited, s", "ran, s", "slowdown"),
            caption="Longest waits",
        )
        longest = sorted(self.records, key=lambda record: (record.arrived - record.started, record.name))
        for record in longest[:_MOST_JOBS]:
            table.add(
                record.name,
                record.queue,
                f"{record.pods:,}",
                self._time_text(record.arrived),
                f"{record.started - record.arrived:,.0f}",
                f"{record.ended - record.started:,.0f}",
                f"{bounded_slowdown(record):,.1f}",
            )
        yield table
        if len(self.records) > _MOST_JOBS:
            total = counted(len(self.records), "job")
            yield Paragraph(f"The {_MOST_JOBS:,} of {total} that waited longest.", note=True)

    def _reservations(self) -> Iterator[Block]:
        reserved = [record for record in self.records if record.reserved is not None]
        kept = sum(1 for record in reserved if record.reserved is not None and record.started <= record.reserved + 1.0)
        if reserved:
            started = counted(len(reserved), "job that has ended", "jobs that have ended")
            yield Paragraph(f"{started} had a reserved start; {kept:,} started by the first one that was reserved.")
        position = self.plan.position
        waiting = [job for job in self.jobs if job.state is JobState.WAITING and job.name in position]
        if not waiting:
            yield Paragraph("No job waits.", note=True)
            return
        table = Table(
            *("position", "job", "queue", "pods", "waits since", "run time", "known by", "reserved start", "nodes"),
            right=("position", "pods", "waits since", "run time", "reserved start", "nodes"),
            caption="Waiting jobs",
        )
        for job in sorted(waiting, key=lambda job: position[job.name])[:_MOST_JOBS]:
            found = job.reservation
            nodes = 0 if found is None else len({row for rows in found.placement.rows for row in rows.tolist()})
            run_time = self.run_times.of(job)
            table.add(
                f"{position[job.name]:,}",
                job.name,
                job.queue,
                f"{len(job.pods):,}",
                self._time_text(job.arrived),
                str(Duration.of(seconds=round(run_time.seconds))),
                run_time.source,
                "-" if found is None else self._time_text(found.start),
                f"{nodes:,}" if nodes else "-",
            )
        yield table
        if len(waiting) > _MOST_JOBS:
            yield Paragraph(f"The first {_MOST_JOBS:,} of {counted(len(waiting), 'waiting job')}.", note=True)

    def _nodes(self) -> Iterator[Block]:
        running = [job.run_until(self.now) for job in self.jobs if job.has_used]
        resources = scarcest(self.history, self.nodes.total)
        return nodes_over_time(
            self.queues,
            self.nodes,
            past=[*self.history.runs, *running],
            planned=list(self._planned()),
            resource=resources[0] if resources else "",
            span=self._span(),
        )

    def _planned(self) -> Iterator[JobRun]:
        """The rest of running jobs until their expected ends, and those with reserved starts."""
        for job in self.jobs:
            if job.has_used and job.started is not None:
                run = job.run_until(self.run_times.end(job, self.now))
                yield JobRun(run.name, run.queue, run.pods, self.now, run.ended)
            if (reservation := job.reservation) is not None and job.state is JobState.WAITING:
                placement, kinds = reservation.placement, job.unplanned_kinds.values()
                pods = [
                    PodsOnNodes(
                        kind.example.requests,
                        {self.rows[row]: count for row, count in zip(rows.tolist(), counts.tolist(), strict=True)},
                    )
                    for kind, rows, counts in zip(kinds, placement.rows, placement.counts, strict=False)
                ]
                length = self.run_times.of(job).seconds
                yield JobRun(job.name, job.queue, pods, reservation.start, reservation.start + length)

    # -- data ----------------------------------------------------------------------------------------------------------

    def _data(self) -> dict[str, Any]:
        plan, began = self.plan, self._began
        return {
            "queues": [
                {
                    "name": name,
                    "parent": queue.parent,
                    "allocated": dict(plan.shares.allocated[name]) if plan.shares is not None else {},
                    "fairShare": dict(plan.shares.fair[name]) if plan.shares is not None else {},
                }
                for name, queue in self.queues.items()
            ],
            "ended": [
                {
                    "job": record.name,
                    "queue": record.queue,
                    "pods": record.pods,
                    "arrived": round(record.arrived - began, 3),
                    "started": round(record.started - began, 3),
                    "ended": round(record.ended - began, 3),
                    "reserved": None if record.reserved is None else round(record.reserved - began, 3),
                }
                for record in self.records
            ],
            "jobs": [
                {
                    "job": job.name,
                    "queue": job.queue,
                    "pods": len(job.pods),
                    "state": job.state.value,
                    "arrived": round(job.arrived - began, 3),
                    "started": None if job.started is None else round(job.started - began, 3),
                    "position": plan.position.get(job.name) if job.state is JobState.WAITING else None,
                    "runTime": asdict(self.run_times.of(job)),
                    "reserved": None
                    if job.reservation is None or job.state is JobState.ADMITTED
                    else round(job.reservation.start - began, 3),
                }
                for job in self.jobs
            ],
        }


def _amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount_text(name, round(amount))}" for name, amount in amounts.items() if amount)
