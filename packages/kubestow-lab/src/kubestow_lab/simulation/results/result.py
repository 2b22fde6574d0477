"""The result of a simulation: who landed where, who stays pending and why, and the cluster over time.

It is plain data with several forms: tables of columns for data frames, CSV and Parquet, one JSON document, and the
resulting cluster as Kubernetes objects. A notebook shows the same tables as the command line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kubestow_lab.simulation.results.outcomes import (
    PendingGroup,
    PodOutcome,
    PodState,
    StartedPreemption,
    pending_groups,
)
from kubestow_lab.simulation.results.timeline import Sample
from kubestow_lab.simulation.simulated_cluster import SimulatedCluster

if TYPE_CHECKING:
    from kubestow_lab.simulation.results.gap import Gap

__all__ = ["TABLES", "Busiest", "NodeState", "SimulationResult"]

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
class SimulationResult:
    """What happened. ``outcomes`` are in order of arrival, preempted pods of the initial cluster included.

    ``timeline`` has amounts for each of ``resources``; ``run`` has the seed, the virtual seconds, and numbers of
    attempts and preemptions, ``preemptions`` are in order. ``api`` holds the objects of the cluster at the end.
    ``busiest`` is about the sample with most pods, None if the cluster has as many at the end. ``gap`` is that to the
    optimum, if it was searched for.
    """

    outcomes: tuple[PodOutcome, ...]
    nodes: tuple[NodeState, ...]
    timeline: tuple[Sample, ...]
    resources: tuple[str, ...]
    api: SimulatedCluster
    run: Mapping[str, Any]
    remarks: tuple[str, ...] = field(default=())
    preemptions: tuple[StartedPreemption, ...] = ()
    busiest: Busiest | None = None
    gap: Gap | None = None

    # -- figures -----------------------------------------------------------------------------------------------------

    def count(self, state: PodState) -> int:
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

    def pending_groups(self) -> list[PendingGroup]:
        """The pending pods by owner and message, largest group first."""
        return pending_groups(self.outcomes)

    def pods_per_node(self) -> Counter[str]:
        """How many pods of the simulation run on each node."""
        return Counter(outcome.node for outcome in self.outcomes if outcome.state is PodState.RUNNING)

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
                "pods": {state.value.lower(): self.count(state) for state in PodState},
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

    def __rich__(self) -> Any:
        """The tables for a terminal."""
        from kubestow_lab.simulation.results.tables import render  # rich takes a while to import

        tables = render(self.outcomes, self.timeline[-1], self.resources, nodes=len(self.nodes))
        if self.gap is None:
            return tables
        from rich.console import Group

        return Group(tables, self.gap)

    def _repr_html_(self) -> str:
        """The tables for a notebook."""
        from kubestow.reports.tables import as_html

        return as_html(self.__rich__())

    def __repr__(self) -> str:
        """The numbers of pods by state."""
        states = ", ".join(f"{self.count(state):,} {state.value.lower()}" for state in PodState)
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


def _sample_row(sample: Sample, resources: Sequence[str]) -> dict[str, Any]:
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
