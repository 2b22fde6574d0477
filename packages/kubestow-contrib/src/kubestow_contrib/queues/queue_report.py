"""Queues, waits and reservations as parts of a report, and as data.

Times are in seconds since the first job arrived. The bounded slowdown of a job is the time from its arrival to its end
divided by its run time, which counts as ten seconds at least (Feitelson).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kubestow.reports.model import BarChart, Block, Paragraph, PluginReport, Section, Table, amount_text, counted
from kubestow_contrib.queues.configuration import Queue
from kubestow_contrib.queues.jobs import Job, JobRecord, JobState
from kubestow_contrib.queues.planning import Plan

#: So many jobs are listed in a table, those that waited longest first.
_MOST_JOBS = 200
_LEAST_RUN_TIME = 10.0
_NUMBERS = ("position", "pods", "reserved start, s", "nodes")


def bounded_slowdown(record: JobRecord) -> float:
    """How many times longer a job took than it ran, at least 1."""
    ran = record.ended - record.started
    return max(1.0, (record.ended - record.arrived) / max(ran, _LEAST_RUN_TIME))


def quantile(values: Collection[float], part: float) -> float:
    """The smallest value that at least this part of the values does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0


def queue_report(
    queues: Mapping[str, Queue], records: Sequence[JobRecord], jobs: Sequence[Job], plan: Plan, now: float
) -> PluginReport:
    """The report about jobs that have ended and those that there are, given the last plan."""
    times = [*(record.arrived for record in records), *(job.arrived for job in jobs)]
    began = min(times, default=now)
    sections = [
        Section("Queues", list(_queues(queues, records, jobs, plan)), anchor="queues"),
        Section("Waits of jobs", list(_waits(queues, records, began))),
        Section("Reservations", list(_reservations(records, jobs, plan, began))),
    ]
    return PluginReport(sections, _data(queues, records, jobs, plan, began))


def _queues(
    queues: Mapping[str, Queue], records: Sequence[JobRecord], jobs: Sequence[Job], plan: Plan
) -> Iterator[Block]:
    headings = ("ended", "running", "waiting", "mean wait, s", "p95 wait, s", "slowdown", "uses", "fair share")
    table = Table("queue", *headings, right=headings[:-2], caption="Queues")
    for name, queue in queues.items():
        below = [record for record in records if name in queues[record.queue].lineage]
        there = [job for job in jobs if name in queues[job.queue].lineage]
        waits = [record.started - record.arrived for record in below]
        used = plan.shares.allocated[name] if plan.shares is not None else {}
        fair = plan.shares.fair[name] if plan.shares is not None else {}
        table.add(
            f"{'  ' * (len(queue.lineage) - 1)}{name}",
            f"{len(below):,}",
            f"{sum(1 for job in there if job.state is JobState.ADMITTED):,}",
            f"{sum(1 for job in there if job.state is JobState.WAITING):,}",
            f"{sum(waits) / len(waits):,.0f}" if waits else "-",
            f"{quantile(waits, 0.95):,.0f}" if waits else "-",
            f"{sum(map(bounded_slowdown, below)) / len(below):,.1f}" if below else "-",
            _amounts(used),
            _amounts(fair),
        )
    yield table


def _waits(queues: Mapping[str, Queue], records: Sequence[JobRecord], began: float) -> Iterator[Block]:
    if not records:
        yield Paragraph("No job has ended.", note=True)
        return
    bars = []
    for name, queue in queues.items():
        waits = [record.started - record.arrived for record in records if record.queue == name]
        if waits and not queue.children:
            found = quantile(waits, 0.95)
            bars.append((name, found, f"{found:,.0f} s"))
    yield BarChart(bars, "95 of 100 jobs of the queue waited no longer")
    table = Table("job", "queue", "pods", "arrived, s", "waited, s", "ran, s", "slowdown", caption="Longest waits")
    longest = sorted(records, key=lambda record: (record.arrived - record.started, record.name))
    for record in longest[:_MOST_JOBS]:
        table.add(
            record.name,
            record.queue,
            f"{record.pods:,}",
            f"{record.arrived - began:,.0f}",
            f"{record.started - record.arrived:,.0f}",
            f"{record.ended - record.started:,.0f}",
            f"{bounded_slowdown(record):,.1f}",
        )
    yield table
    if len(records) > _MOST_JOBS:
        yield Paragraph(f"The {_MOST_JOBS:,} of {counted(len(records), 'job')} that waited longest.", note=True)


def _reservations(records: Sequence[JobRecord], jobs: Sequence[Job], plan: Plan, began: float) -> Iterator[Block]:
    reserved = [record for record in records if record.reserved is not None]
    kept = sum(1 for record in reserved if record.reserved is not None and record.started <= record.reserved + 1.0)
    if reserved:
        started = counted(len(reserved), "job that has ended", "jobs that have ended")
        yield Paragraph(f"{started} had a reserved start; {kept:,} started by the first one that was reserved.")
    waiting = [job for job in jobs if job.state is JobState.WAITING and job.name in plan.position]
    if not waiting:
        yield Paragraph("No job waits.", note=True)
        return
    table = Table(
        "position",
        "job",
        "queue",
        "pods",
        "reserved start, s",
        "nodes",
        right=("position", "pods", "reserved start, s", "nodes"),
    )
    for job in sorted(waiting, key=lambda job: plan.position[job.name])[:_MOST_JOBS]:
        found = job.reservation
        nodes = 0 if found is None else len({row for rows in found.placement.rows for row in rows.tolist()})
        table.add(
            f"{plan.position[job.name]:,}",
            job.name,
            job.queue,
            f"{len(job.pods):,}",
            "-" if found is None else f"{found.start - began:,.0f}",
            f"{nodes:,}" if nodes else "-",
        )
    yield table


def _data(
    queues: Mapping[str, Queue], records: Sequence[JobRecord], jobs: Sequence[Job], plan: Plan, began: float
) -> dict[str, Any]:
    return {
        "queues": [
            {
                "name": name,
                "parent": queue.parent,
                "allocated": dict(plan.shares.allocated[name]) if plan.shares is not None else {},
                "fairShare": dict(plan.shares.fair[name]) if plan.shares is not None else {},
            }
            for name, queue in queues.items()
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
            for record in records
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
                "reserved": None
                if job.reservation is None or job.state is JobState.ADMITTED
                else round(job.reservation.start - began, 3),
            }
            for job in jobs
        ],
    }


def _amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount_text(name, round(amount))}" for name, amount in amounts.items() if amount)
