"""Charts of queues and jobs: shares over time, and which jobs have been, are and will be on which nodes.

The nodes of a small cluster have a row each, with a period for each job; those of a large one are in groups, with what
the jobs of each queue use of the scarcest resource. Times are in seconds from an origin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kubestow.reports.model import AreaRow, AreaRows, Block, Gantt, Paragraph, Period, counted
from kubestow_contrib.queues.configuration import Queue
from kubestow_contrib.queues.history import History, JobRun, NodeUse, averages

#: Of shares, so many queues and resources are drawn, those that are used most.
_MOST_QUEUES, _MOST_RESOURCES = 40, 2
#: Nodes have a row each if there are no more of them, and of periods; else there are so many groups and columns.
_MOST_ROWS, _MOST_PERIODS = 64, 3_000
_MOST_GROUPS, _COLUMNS = 32, 160
#: The colour of queues that are the parents of others.
_PARENT = 6
_NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class ReportedNodes:
    """The nodes of a cluster in the order of their rows: names, zones, and allocatable amounts by resource."""

    names: Sequence[str]
    zones: Sequence[str]
    allocatable: Mapping[str, Sequence[int]]

    @property
    def total(self) -> dict[str, int]:
        """What is allocatable on all of them."""
        return {name: sum(amounts) for name, amounts in self.allocatable.items()}


@dataclass(frozen=True, slots=True)
class Span:
    """The times that charts show, and the present, in seconds; texts count from ``origin``."""

    first: float
    last: float
    now: float
    origin: float

    @property
    def axis(self) -> tuple[float, float]:
        """The first and the last time since the origin."""
        return self.first - self.origin, self.last - self.origin

    @property
    def mark(self) -> float | None:
        """The present since the origin; None if nothing that comes after it is shown."""
        return None if self.last <= self.now else self.now - self.origin


def shares_over_time(
    queues: Mapping[str, Queue], history: History, total: Mapping[str, float], span: Span
) -> Iterator[Block]:
    """What queues use of the scarcest resources, with their fair shares as lines."""
    samples = [sample for sample in history.samples if sample.time >= span.first]
    samples = [sample for sample in history.samples if sample.time < span.first][-1:] + samples
    if not samples:
        yield Paragraph("No job has been planned.", note=True)
        return
    edges = [max(sample.time, span.first) - span.origin for sample in samples] + [span.now - span.origin]
    for resource in scarcest(history, total)[:_MOST_RESOURCES]:
        column, whole = history.resources.index(resource), total[resource]
        peaks = {
            name: max((float(s.used[row, column]) for s in samples if column < s.used.shape[1]), default=0.0)
            for row, name in enumerate(queues)
        }
        shown = set(sorted(peaks, key=lambda name: -peaks[name])[:_MOST_QUEUES])
        rows = []
        for row, (name, queue) in enumerate(queues.items()):
            if name in shown:
                used, fair = (
                    [float(each[row, column]) / whole if column < each.shape[1] else 0.0 for each in tables]
                    for tables in ([s.used for s in samples], [s.fair for s in samples])
                )
                colour = _PARENT if queue.children else row
                rows.append(AreaRow(f"{'  ' * (len(queue.lineage) - 1)}{name}", [(colour, used)], fair))
        label = f"What each queue uses of all {resource} (area), and its fair share of it (line)"
        yield AreaRows(label, edges, rows, now=span.mark)
    if len(queues) > _MOST_QUEUES:
        yield Paragraph(f"The {_MOST_QUEUES} of {counted(len(queues), 'queue')} that use most.", note=True)


def scarcest(history: History, total: Mapping[str, float]) -> list[str]:
    """The resources of which queues have used the largest part at a time, these first; none that was not used."""
    peaks = {}
    for column, name in enumerate(history.resources):
        largest = max((float(s.used[:, column].max()) for s in history.samples if column < s.used.shape[1]), default=0)
        if total.get(name) and largest:
            peaks[name] = largest / total[name]
    return sorted(peaks, key=lambda name: (-peaks[name], name))


def nodes_over_time(
    queues: Mapping[str, Queue],
    nodes: ReportedNodes,
    *,
    past: Sequence[JobRun],
    planned: Sequence[JobRun],
    resource: str,
    span: Span,
) -> Iterator[Block]:
    """Which jobs were, are and will be on which nodes; ``planned`` are those from now on, until their expected ends."""
    runs = [(run, False) for run in past if run.ended > span.first]
    runs += [(run, True) for run in planned if run.started < span.last]
    if not runs:
        yield Paragraph("No job has run.", note=True)
    elif len(nodes.names) <= _MOST_ROWS and sum(len(run.nodes) for run, _ in runs) <= _MOST_PERIODS:
        yield _by_node(queues, nodes, runs, span)
    elif resource:
        yield _by_group(queues, nodes, runs, resource, span)


def _by_node(
    queues: Mapping[str, Queue], nodes: ReportedNodes, runs: Sequence[tuple[JobRun, bool]], span: Span
) -> Gantt:
    names = sorted(nodes.names, key=_natural)
    rows = {name: row for row, name in enumerate(names)}
    colours = {name: index for index, name in enumerate(queues)}
    periods = []
    for run, is_planned in runs:
        start, end = (min(max(time, span.first), span.last) - span.origin for time in (run.started, run.ended))
        pods = sum(count for each in run.pods for count in each.counts.values())
        verb = "from now or its reserved start on" if is_planned else "evicted" if run.is_evicted else "ran"
        text = f"{run.name} in queue {run.queue}: {counted(pods, 'pod')} on {counted(len(run.nodes), 'node')}, {verb}"
        name = run.name.rpartition("/")[2]
        periods += [
            Period(rows[node], start, end, colours[run.queue], name, text, is_planned)
            for node in sorted(run.nodes)
            if node in rows
        ]
    label = "The jobs on each node; outlined: until their expected ends, and from their reserved starts"
    return Gantt(label, names, periods, span.axis, _series(queues, runs), span.mark)


def _by_group(
    queues: Mapping[str, Queue], nodes: ReportedNodes, runs: Sequence[tuple[JobRun, bool]], resource: str, span: Span
) -> AreaRows:
    groups = _groups(nodes)
    group_of = {nodes.names[row]: index for index, rows in enumerate(groups.values()) for row in rows}
    allocatable = nodes.allocatable[resource]
    capacity = [max(1, sum(allocatable[row] for row in rows)) for rows in groups.values()]
    numbers = {name: index for index, name in enumerate(queues)}

    def uses() -> Iterator[NodeUse]:
        for run, _ in runs:
            for pods in run.pods:
                amounts: dict[int, int] = {}
                for node, count in pods.counts.items():
                    if (group := group_of.get(node)) is not None:
                        amounts[group] = amounts.get(group, 0) + count * pods.requests.get(resource, 0)
                for group, amount in amounts.items():
                    yield NodeUse(group, numbers[run.queue], run.started, run.ended, amount)

    edges = np.linspace(span.first, span.last, _COLUMNS + 1)
    used = averages(uses(), len(groups), len(queues), edges)
    rows = [
        AreaRow(
            label,
            [
                (index, (used[group, index] / capacity[group]).tolist())
                for index in range(len(queues))
                if used[group, index].any()
            ],
        )
        for group, label in enumerate(groups)
    ]
    label = f"What the jobs of each queue use of {resource} on groups of nodes, on average; after now as it is planned"
    return AreaRows(label, (edges - span.origin).tolist(), rows, _series(queues, runs), span.mark)


def _series(queues: Mapping[str, Queue], runs: Sequence[tuple[JobRun, bool]]) -> list[str]:
    """The names of the queues whose jobs are shown, in their places; "" for others."""
    shown = {run.queue for run, _ in runs}
    return [name if name in shown else "" for name in queues]


def _groups(nodes: ReportedNodes) -> dict[str, list[int]]:
    """Nodes of one zone and with neighbouring names together, in groups of about equal size: their rows, by label."""
    by_zone: dict[str, list[int]] = {}
    for row in sorted(range(len(nodes.names)), key=lambda row: _natural(nodes.names[row])):
        by_zone.setdefault(nodes.zones[row], []).append(row)
    size = -(-len(nodes.names) // max(1, _MOST_GROUPS - len(by_zone) + 1))
    found = {}
    for zone, rows in sorted(by_zone.items()):
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            first, last = nodes.names[part[0]], nodes.names[part[-1]]
            where = f"{zone}: " if zone and len(by_zone) > 1 else ""
            found[f"{where}{first} – {last} ({len(part)})" if len(part) > 1 else f"{where}{first}"] = part
    return found


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts names with numbers by these."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBERS.split(name))
