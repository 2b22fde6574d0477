"""The result of a simulation: what became of each pod, the cluster over time, and what people see of it.

It is plain data with several forms: tables of columns for data frames, CSV and Parquet, one JSON document, and the
resulting cluster as Kubernetes objects. A notebook shows the same tables as the command line.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubestow.api.core import Pod
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.explanation.plain_words import larger_than_any_node, plain_words
from kubestow.errors import InputError
from kubestow.reports.model import Block, Paragraph, PluginReport, Table, amount_text, counted
from kubestow.reports.text import Displayed
from kubestow.rules.requests import requests_by_spec
from kubestow_lab.simulation.arrivals import RefusedPods
from kubestow_lab.simulation.outcomes import (
    JobOutcome,
    Origin,
    OutcomeState,
    PodOutcome,
    StartedPreemption,
    UnplacedGroup,
)
from kubestow_lab.simulation.plugin_failures import PluginFailure
from kubestow_lab.simulation.timeline import ClusterSample

if TYPE_CHECKING:
    from kubestow_lab.simulation.gap import Gap

Columns = dict[str, list[Any]]

#: The tables of a result.
TABLES = ("pods", "nodes", "timeline")


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node at the end: its number of pods, and amounts by resource in millicores, bytes or counts."""

    name: str
    pods: int
    requested: Mapping[str, int]
    allocatable: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Busiest:
    """The nodes when they had most pods, at a time in seconds since the start."""

    time: float
    nodes: tuple[NodeState, ...]


@dataclass(frozen=True, slots=True, repr=False)
class SimulationResult(Displayed):
    """What happened. ``outcomes`` are in order of arrival, preempted pods of the initial cluster included.

    ``timeline`` has amounts for each of ``resources``; ``mean_requested`` are the exact means over time of what was
    requested of them, which samples only approximate. ``run`` has the seed, the virtual seconds, and numbers of
    attempts and preemptions, ``preemptions`` are in order. ``api`` holds the objects of the cluster at the end.
    ``busiest`` is about the sample with most pods, None if the cluster has as many at the end. ``gap`` is that to the
    optimum, if it was searched for. With ``plugin_failures``, it is not the result that the plugins were meant to give.
    ``refused`` are pods that never arrived, because the API server would not create them. ``plugin_reports`` are by the
    name of the plugin. ``jobs`` are those that waited in queues.
    """

    outcomes: tuple[PodOutcome, ...]
    nodes: tuple[NodeState, ...]
    timeline: tuple[ClusterSample, ...]
    resources: tuple[str, ...]
    mean_requested: tuple[float, ...]
    api: MemoryAPI
    run: Mapping[str, Any]
    remarks: tuple[str, ...] = field(default=())
    preemptions: tuple[StartedPreemption, ...] = ()
    busiest: Busiest | None = None
    gap: Gap | None = None
    plugin_failures: tuple[PluginFailure, ...] = ()
    refused: tuple[RefusedPods, ...] = ()
    plugin_reports: Mapping[str, PluginReport] = field(default_factory=dict)
    jobs: tuple[JobOutcome, ...] = ()

    # -- figures -----------------------------------------------------------------------------------------------------

    def count(self, state: OutcomeState) -> int:
        """How many pods are in a state at the end."""
        return sum(1 for outcome in self.outcomes if outcome.state is state)

    @property
    def utilisation(self) -> dict[str, float]:
        """The requested share of each resource at the end."""
        return {name: self.timeline[-1].share(index) for index, name in enumerate(self.resources)}

    @property
    def fragmentation(self) -> dict[str, float]:
        """The unusable share of the free amount of each resource at the end (see :mod:`.timeline`)."""
        return dict(zip(self.resources, self.timeline[-1].fragmentation, strict=True))

    def pending_groups(self) -> list[UnplacedGroup]:
        """The pending pods by owner and message, largest group first."""
        groups: dict[tuple[str, str], list[str]] = {}
        for outcome in self.outcomes:
            if outcome.state is OutcomeState.PENDING:
                groups.setdefault((outcome.owner, outcome.message), []).append(outcome.key)
        found = [UnplacedGroup(owner, message, tuple(pods)) for (owner, message), pods in groups.items()]
        return sorted(found, key=lambda group: (-len(group.pods), group.owner, group.message))

    def pods_per_node(self) -> Counter[str]:
        """How many pods of the simulation run on each node."""
        return Counter(outcome.node for outcome in self.outcomes if outcome.state is OutcomeState.RUNNING)

    # -- forms -------------------------------------------------------------------------------------------------------

    def columns(self, table: str) -> Columns:
        """A table as columns of equal length: ``pods``, ``nodes`` or ``timeline``."""
        match table:
            case "pods":
                return _columns((_pod_row(outcome) for outcome in self.outcomes), names=_POD_COLUMNS)
            case "nodes":
                return _columns(_node_row(state) for state in self.nodes)
            case "timeline":
                return _columns(_sample_row(sample, self.resources) for sample in self.timeline)
        raise ValueError(f"no table {table!r}, expected one of {', '.join(TABLES)}")

    def to_pandas(self, table: str = "pods") -> Any:
        """A table as a pandas data frame. Raises ModuleNotFoundError without pandas (``kubestow-lab[pandas]``)."""
        import pandas as pd

        return pd.DataFrame(self.columns(table))

    def to_polars(self, table: str = "pods") -> Any:
        """A table as a polars data frame. Raises ModuleNotFoundError without polars (``kubestow-lab[polars]``)."""
        import polars as pl

        return pl.DataFrame(self.columns(table), infer_schema_length=None)

    def as_json(self) -> dict[str, Any]:
        """The whole result as data for JSON; the same input and seed give the same document."""
        last = self.timeline[-1]
        states, origins = (Counter(map(attrgetter(name), self.outcomes)) for name in ("state", "origin"))
        document = {
            "kind": "SimulationResult",
            "run": dict(self.run),
            "summary": {
                "pods": {state.value.lower(): states[state] for state in OutcomeState},
                "origins": {origin.value.lower(): origins[origin] for origin in Origin},
                "refused": self.refused_count,
                "nodes": len(self.nodes),
                "nodesUsed": last.nodes_used,
                "resources": {
                    name: {
                        "requested": last.requested[i],
                        "meanRequested": round(self.mean_requested[i], 6),
                        "allocatable": last.allocatable[i],
                        "fragmentation": round(last.fragmentation[i], 6),
                    }
                    for i, name in enumerate(self.resources)
                },
            },
            "remarks": list(self.remarks),
            "refused": [asdict(each) for each in self.refused],
            "pluginFailures": [asdict(failure) for failure in self.plugin_failures],
            "pending": [
                {"owner": group.owner, "message": group.message, "pods": list(group.pods)}
                for group in self.pending_groups()
            ],
            "preemptions": [{**asdict(found), "time": _rounded(found.time)} for found in self.preemptions],
            "pods": [_pod_row(outcome) for outcome in self.outcomes],
            "nodes": [_node_row(state) for state in self.nodes],
            "timeline": [_sample_row(sample, self.resources) for sample in self.timeline],
        }
        if self.plugin_reports:
            document["plugins"] = {name: dict(report.data) for name, report in self.plugin_reports.items()}
        if self.jobs:
            document["jobs"] = [_job_row(job) for job in self.jobs]
        return document if self.gap is None else document | {"optimal": self.gap.as_json()}

    def blocks(self) -> Iterator[Block]:
        """The summary, the resources, who landed where, who is pending, what plugins report, the gap to the optimum."""
        yield Paragraph(self._headline())
        yield self._resource_table()
        if self.jobs:
            yield from self.job_blocks()
        if len(self.outcomes) > _FEW_PODS:
            yield _owners(self.outcomes)
        elif self.outcomes:
            table = Table("namespace", "pod", "state", "node", right=())
            for outcome in self.outcomes:
                table.add(outcome.namespace, outcome.name, outcome.state.value, outcome.node or "-")
            yield table
        if groups := self.pending_groups():
            yield self._pending(groups)
        for report in self.plugin_reports.values():
            yield from report.sections[0].blocks
        if self.gap is not None:
            yield from self.gap.blocks()

    def _headline(self) -> str:
        last = self.timeline[-1]
        states = {origin: self.states(origin) for origin in Origin}
        total = states[Origin.WORKLOAD].total() + self.refused_count
        nodes = counted(len(self.nodes), "node")
        lines = [
            f"{_fates(states[Origin.WORKLOAD], total, self.refused_count)};"
            f" {last.nodes_used:,} of {nodes} in use after {last.time:,.1f} s of virtual time"
        ]
        if preempted := self.count(OutcomeState.PREEMPTED):
            ran = states[Origin.CLUSTER][OutcomeState.PREEMPTED]
            lines.append(counted(preempted, "pod") + " preempted" + (f", {ran:,} of which ran before" if ran else ""))
            if replacements := states[Origin.REPLACEMENT].total():
                lines[-1] += f"; of their replacements, {_fates(states[Origin.REPLACEMENT], replacements)}"
        return "\n".join(lines)

    @property
    def waiting_pods(self) -> int:
        """How many pods the jobs would have that wait in queues at the end."""
        return sum(job.pods for job in self.jobs if job.state == "Waiting")

    def job_blocks(self) -> Iterator[Block]:
        """The jobs that waited in queues, those that wait still first."""
        states = Counter(job.state for job in self.jobs)
        yield Paragraph(
            f"{counted(len(self.jobs), 'job')}: "
            + ", ".join(f"{states[state]:,} {state.lower()}" for state in ("Completed", "Admitted", "Waiting"))
        )
        table = Table("job", "queue", "state", "pods", "waited", "flavors, or why it waits", right=("pods", "waited"))
        shown = sorted(self.jobs, key=lambda job: job.state != "Waiting")
        for job in shown[:_MOST_JOBS]:
            waited = "-" if job.admitted is None else f"{job.admitted - job.arrived:,.1f} s"
            what = job.message or ", ".join(job.flavors)
            if job.preemptions:
                what = "; ".join(filter(None, (what, f"preempted {counted(job.preemptions, 'time')}")))
            name = f"{job.namespace}/{job.name}"
            table.add(name, job.queue or "-", job.state, f"{job.pods:,}", waited, what or "-")
        if len(shown) > _MOST_JOBS:
            table.add(f"… {len(shown) - _MOST_JOBS:,} more", *([""] * 5))
        yield table

    def states(self, origin: Origin) -> Counter[OutcomeState]:
        """How many pods of an origin are in each state."""
        return Counter(outcome.state for outcome in self.outcomes if outcome.origin is origin)

    @property
    def refused_count(self) -> int:
        """How many pods of the workload are not in the simulation, because the API server would refuse them."""
        return sum(each.count for each in self.refused)

    def _resource_table(self) -> Table:
        # Where pods end, the shares at the end may be those of an empty cluster.
        means = ("mean share",) if self.count(OutcomeState.COMPLETED) else ()
        last, table = self.timeline[-1], Table("resource", "requested", "allocatable", "share", *means, "fragmentation")
        for i, name in enumerate(self.resources):
            requested, total = last.requested[i], last.allocatable[i]
            shares = [f"{amount / total:.1%}" if total else "-" for amount in (requested, self.mean_requested[i])]
            amounts = (amount_text(name, requested), amount_text(name, total))
            table.add(name, *amounts, *shares[: 1 + len(means)], f"{last.fragmentation[i]:.1%}")
        return table

    def _pending(self, groups: Sequence[UnplacedGroup]) -> Table:
        table = Table("pending", "owner", "why", right=("pending",))
        for group in groups[:_MOST_GROUPS]:
            why = "\n".join((*self.in_plain_words(group), group.message))
            table.add(f"{len(group.pods):,}", group.owner or group.pods[0], why)
        rest = groups[_MOST_GROUPS:]
        if rest:
            table.add(f"{sum(len(group.pods) for group in rest):,}", "… " + counted(len(rest), "more group"), "")
        return table

    def in_plain_words(self, group: UnplacedGroup) -> list[str]:
        """Why pending pods are on no node: what no node has for the first of them, then the scheduler's reasons."""
        namespace, _, name = group.pods[0].partition("/")
        pod = self.api.objects(Pod).get((namespace, name))
        requests = {} if pod is None or not self.nodes else requests_by_spec(pod)
        lacking = larger_than_any_node(
            requests, lambda name: max((state.allocatable.get(name, 0) for state in self.nodes), default=0)
        )
        reasons = "; ".join(plain_words(group.message))
        return [*lacking, *([reasons] if reasons else [])]

    def __repr__(self) -> str:
        """The numbers of pods by state."""
        states = ", ".join(f"{self.count(state):,} {state.value.lower()}" for state in OutcomeState)
        return (
            f"<SimulationResult: {counted(len(self.outcomes), 'pod')} on {counted(len(self.nodes), 'node')}: {states}>"
        )


#: A simulation may have no pods.
_POD_COLUMNS = (
    *("namespace", "name", "owner", "priority", "origin", "state", "node"),
    *("arrived", "bound", "ended", "attempts", "message"),
)


def _columns(rows: Iterable[Mapping[str, Any]], names: Iterable[str] = ()) -> Columns:
    """The rows as columns; those of ``names`` exist even if there is no row."""
    columns: Columns = {name: [] for name in names}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return columns


def _pod_row(outcome: PodOutcome) -> dict[str, Any]:
    return {
        "namespace": outcome.namespace,
        "name": outcome.name,
        "owner": outcome.owner,
        "priority": outcome.priority,
        "origin": outcome.origin.value,
        "state": outcome.state.value,
        "node": outcome.node,
        "arrived": _rounded(outcome.arrived),
        "bound": _rounded(outcome.bound),
        "ended": _rounded(outcome.ended),
        "attempts": outcome.attempts,
        "message": outcome.message,
    }


def _job_row(job: JobOutcome) -> dict[str, Any]:
    times = {name: _rounded(getattr(job, name)) for name in ("arrived", "admitted", "ended")}
    return {**asdict(job), "flavors": list(job.flavors), "state": job.state, **times}


def _node_row(state: NodeState) -> dict[str, Any]:
    amounts = {f"requested.{name}": amount for name, amount in state.requested.items()}
    amounts |= {f"allocatable.{name}": amount for name, amount in state.allocatable.items()}
    return {"name": state.name, "pods": state.pods, **amounts}


def _sample_row(sample: ClusterSample, resources: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "time": _rounded(sample.time),
        "pods": sample.pods,
        "pending": sample.pending,
        "nodesUsed": sample.nodes_used,
    }
    for i, name in enumerate(resources):
        row[f"requested.{name}"] = sample.requested[i]
        row[f"allocatable.{name}"] = sample.allocatable[i]
        row[f"fragmentation.{name}"] = round(sample.fragmentation[i], 6)
    return row


def _rounded(seconds: float | None) -> float | None:
    """Microseconds are enough, and hide the rounding errors of sums."""
    return None if seconds is None else round(seconds, 6)


def _fates(states: Counter[OutcomeState], total: int, refused: int = 0) -> str:
    """``5 of 9 pods placed, 3 pending, 1 preempted``: the numbers add up."""
    placed = states[OutcomeState.RUNNING] + states[OutcomeState.COMPLETED]
    others = (
        (states[OutcomeState.PENDING], "pending"),
        (states[OutcomeState.PREEMPTED], "preempted"),
        (refused, "refused"),
    )
    return ", ".join((f"{placed:,} of {counted(total, 'pod')} placed", *(f"{n:,} {what}" for n, what in others if n)))


#: More pods than this are shown by owner, not one by one.
_FEW_PODS = 30
_MOST_GROUPS = 12
_MOST_JOBS = 30


def _owners(outcomes: Sequence[PodOutcome]) -> Table:
    """The numbers of pods by owner and state, for the owners with most pods."""
    states: dict[str, Counter[OutcomeState]] = {}
    nodes: dict[str, set[str]] = {}
    for outcome in outcomes:
        owner = f"{outcome.namespace} {outcome.owner or 'pods without owner'}"
        states.setdefault(owner, Counter())[outcome.state] += 1
        if outcome.node:
            nodes.setdefault(owner, set()).add(outcome.node)
    table = Table("owner", "pods", *(state.value.lower() for state in OutcomeState), "nodes")
    largest = sorted(states, key=lambda owner: (-states[owner].total(), owner))
    for owner in largest[:_MOST_GROUPS]:
        counts = states[owner]
        cells = (f"{counts[state]:,}" for state in OutcomeState)
        table.add(owner, f"{counts.total():,}", *cells, f"{len(nodes.get(owner, ())):,}")
    if len(largest) > _MOST_GROUPS:
        table.add(f"… {len(largest) - _MOST_GROUPS:,} more", *([""] * (len(OutcomeState) + 2)))
    return table


def write_csv(result: SimulationResult, folder: Path) -> list[Path]:
    """Write the tables as CSV files into a folder, which is created. Raises InputError if that fails."""
    paths = _paths(folder, ".csv")
    for table, path in zip(TABLES, paths, strict=True):
        columns = result.columns(table)
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
        except OSError as error:
            raise InputError(str(path), f"cannot be written: {error.strerror}") from None
    return paths


def write_parquet(result: SimulationResult, folder: Path) -> list[Path]:
    """Write the tables as Parquet files into a folder; needs polars. Raises InputError without it."""
    try:
        import polars as pl
    except ModuleNotFoundError:
        raise InputError("parquet", "needs polars, install kubestow-lab[polars]") from None
    paths = _paths(folder, ".parquet")
    for table, path in zip(TABLES, paths, strict=True):
        pl.DataFrame(result.columns(table), infer_schema_length=None).write_parquet(path)
    return paths


def _paths(folder: Path, suffix: str) -> list[Path]:
    """The files of the tables in a folder, which is created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be created: {error.strerror}") from None
    return [folder / f"{table}{suffix}" for table in TABLES]
