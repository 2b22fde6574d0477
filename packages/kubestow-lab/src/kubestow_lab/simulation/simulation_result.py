"""The result of a simulation: what became of each pod, the cluster over time, and what people see of it.

It is plain data with several forms: tables of columns for data frames, CSV and Parquet, one JSON document, and the
resulting cluster as Kubernetes objects. A notebook shows the same tables as the command line.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubestow.errors import InputError
from kubestow.reports.model import Block, Paragraph, Table, amount_text
from kubestow.reports.text import Displayed
from kubestow_lab.simulation.outcomes import (
    OutcomeState,
    PodOutcome,
    StartedPreemption,
    UnplacedGroup,
    pending_groups,
)
from kubestow_lab.simulation.simulated_cluster import SimulatedCluster
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


@dataclass(frozen=True, slots=True)
class SimulationResult(Displayed):
    """What happened. ``outcomes`` are in order of arrival, preempted pods of the initial cluster included.

    ``timeline`` has amounts for each of ``resources``; ``run`` has the seed, the virtual seconds, and numbers of
    attempts and preemptions, ``preemptions`` are in order. ``api`` holds the objects of the cluster at the end.
    ``busiest`` is about the sample with most pods, None if the cluster has as many at the end. ``gap`` is that to the
    optimum, if it was searched for.
    """

    outcomes: tuple[PodOutcome, ...]
    nodes: tuple[NodeState, ...]
    timeline: tuple[ClusterSample, ...]
    resources: tuple[str, ...]
    api: SimulatedCluster
    run: Mapping[str, Any]
    remarks: tuple[str, ...] = field(default=())
    preemptions: tuple[StartedPreemption, ...] = ()
    busiest: Busiest | None = None
    gap: Gap | None = None

    # -- figures -----------------------------------------------------------------------------------------------------

    def count(self, state: OutcomeState) -> int:
        """How many pods are in a state at the end."""
        return sum(1 for outcome in self.outcomes if outcome.state is state)

    @property
    def utilisation(self) -> dict[str, float]:
        """The requested share of each resource at the end."""
        last = self.timeline[-1]
        amounts = zip(self.resources, last.requested, last.allocatable, strict=True)
        return {name: requested / total if total else 0.0 for name, requested, total in amounts}

    @property
    def fragmentation(self) -> dict[str, float]:
        """The unusable share of the free amount of each resource at the end (see :mod:`.fragmentation`)."""
        return dict(zip(self.resources, self.timeline[-1].fragmentation, strict=True))

    def pending_groups(self) -> list[UnplacedGroup]:
        """The pending pods by owner and message, largest group first."""
        return pending_groups(self.outcomes)

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
        document = {
            "kind": "SimulationResult",
            "run": dict(self.run),
            "summary": {
                "pods": {state.value.lower(): self.count(state) for state in OutcomeState},
                "nodes": len(self.nodes),
                "nodesUsed": last.nodes_used,
                "resources": {
                    name: {
                        "requested": last.requested[i],
                        "allocatable": last.allocatable[i],
                        "fragmentation": round(last.fragmentation[i], 6),
                    }
                    for i, name in enumerate(self.resources)
                },
            },
            "remarks": list(self.remarks),
            "pending": [
                {"owner": group.owner, "message": group.message, "pods": list(group.pods)}
                for group in self.pending_groups()
            ],
            "preemptions": [_preemption_row(found) for found in self.preemptions],
            "pods": [_pod_row(outcome) for outcome in self.outcomes],
            "nodes": [_node_row(state) for state in self.nodes],
            "timeline": [_sample_row(sample, self.resources) for sample in self.timeline],
        }
        return document if self.gap is None else document | {"optimal": self.gap.as_json()}

    def blocks(self) -> Iterator[Block]:
        """The summary, the resources, who landed where, who is pending, and the gap to the optimum."""
        yield Paragraph(self._headline())
        yield self._resource_table()
        if self.outcomes:
            yield _pods(self.outcomes) if len(self.outcomes) <= _FEW_PODS else _owners(self.outcomes)
        if groups := self.pending_groups():
            yield _pending(groups)
        if self.gap is not None:
            yield from self.gap.blocks()

    def _headline(self) -> str:
        states, last = Counter(outcome.state for outcome in self.outcomes), self.timeline[-1]
        placed = states[OutcomeState.RUNNING] + states[OutcomeState.COMPLETED]
        text = (
            f"{placed:,} of {len(self.outcomes):,} pods placed; {last.nodes_used:,} of {len(self.nodes):,} nodes in use"
            f" after {last.time:,.1f} s of virtual time"
        )
        preempted = states[OutcomeState.PREEMPTED]
        return f"{text}\n{preempted:,} pods preempted" if preempted else text

    def _resource_table(self) -> Table:
        table, last = Table("resource", "requested", "allocatable", "share", "fragmentation"), self.timeline[-1]
        for i, name in enumerate(self.resources):
            requested, total = last.requested[i], last.allocatable[i]
            share = f"{requested / total:.1%}" if total else "-"
            amounts = (amount_text(name, requested), amount_text(name, total))
            table.add(name, *amounts, share, f"{last.fragmentation[i]:.1%}")
        return table

    def __repr__(self) -> str:
        """The numbers of pods by state."""
        states = ", ".join(f"{self.count(state):,} {state.value.lower()}" for state in OutcomeState)
        return f"<SimulationResult: {len(self.outcomes):,} pods on {len(self.nodes):,} nodes: {states}>"


#: A simulation may have no pods.
_POD_COLUMNS = (
    "namespace",
    "name",
    "owner",
    "priority",
    "state",
    "node",
    "arrived",
    "bound",
    "ended",
    "attempts",
    "message",
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
        "state": outcome.state.value,
        "node": outcome.node,
        "arrived": _rounded(outcome.arrived),
        "bound": _rounded(outcome.bound),
        "ended": _rounded(outcome.ended),
        "attempts": outcome.attempts,
        "message": outcome.message,
    }


def _preemption_row(found: StartedPreemption) -> dict[str, Any]:
    return {
        "time": _rounded(found.time),
        "pod": found.pod,
        "priority": found.priority,
        "node": found.node,
        "victims": found.victims,
    }


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


#: More pods than this are shown by owner, not one by one.
_FEW_PODS = 30
_MOST_GROUPS = 12


def _pods(outcomes: Sequence[PodOutcome]) -> Table:
    table = Table("namespace", "pod", "state", "node", right=())
    for outcome in outcomes:
        table.add(outcome.namespace, outcome.name, outcome.state.value, outcome.node or "-")
    return table


def _owners(outcomes: Sequence[PodOutcome]) -> Table:
    """The numbers of pods by owner and state, for the owners with most pods."""
    states: dict[str, Counter[OutcomeState]] = {}
    nodes: dict[str, set[str]] = {}
    for outcome in outcomes:
        owner = _owner(outcome)
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


def _owner(outcome: PodOutcome) -> str:
    return f"{outcome.namespace} {outcome.owner or 'pods without owner'}"


def _pending(groups: Sequence[UnplacedGroup]) -> Table:
    table = Table("pending", "owner", "why", right=("pending",))
    for group in groups[:_MOST_GROUPS]:
        table.add(f"{len(group.pods):,}", group.owner or group.pods[0], group.message)
    rest = groups[_MOST_GROUPS:]
    if rest:
        table.add(f"{sum(len(group.pods) for group in rest):,}", f"… {len(rest):,} more groups", "")
    return table


def write_csv(result: SimulationResult, folder: Path) -> list[Path]:
    """Write the tables as CSV files into a folder, which is created. Raises InputError if that fails."""
    written = []
    for table in TABLES:
        columns, path = result.columns(table), _path(folder, table, ".csv")
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
        except OSError as error:
            raise InputError(str(path), f"cannot be written: {error.strerror}") from None
        written.append(path)
    return written


def write_parquet(result: SimulationResult, folder: Path) -> list[Path]:
    """Write the tables as Parquet files into a folder; needs polars. Raises InputError without it."""
    try:
        import polars as pl
    except ModuleNotFoundError:
        raise InputError("parquet", "needs polars, install kubestow-lab[polars]") from None
    written = []
    for table in TABLES:
        path = _path(folder, table, ".parquet")
        pl.DataFrame(result.columns(table), infer_schema_length=None).write_parquet(path)
        written.append(path)
    return written


def _path(folder: Path, table: str, suffix: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be created: {error.strerror}") from None
    return folder / f"{table}{suffix}"
