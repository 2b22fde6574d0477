"""Two simulations of the same cluster and workload, and what differs between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import structs

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.cluster_version import versions_text
from kubestow.engine.job_admission import AdmissionQueues
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import ConfigurationError, InputError
from kubestow.reports.model import Block, Paragraph, Table
from kubestow.reports.text import Displayed, short_repr
from kubestow_lab.comparison import tables
from kubestow_lab.comparison.minor_changes import Cause, MinorChange, find_causes, minor_changes, undone
from kubestow_lab.comparison.pod_differences import (
    DifferenceGroup,
    PodChange,
    PodDifference,
    difference_groups,
    pod_differences,
)
from kubestow_lab.comparison.recorded_runs import RecordedRun
from kubestow_lab.comparison.thresholds import CheckedThreshold, Threshold
from kubestow_lab.metrics.run_metrics import METRICS, RESOURCE_METRICS, MetricChange, metric_of, metrics_of, pod_counts
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.outcomes import PodOutcome
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions, SimulationProgress
from kubestow_lab.simulation.simulation_result import SimulationResult

#: So many groups of pods are shown on a terminal.
_MOST_GROUPS = 15


@dataclass(frozen=True, slots=True)
class Side:
    """One simulation, or run of a record, and what it is called, such as by its configuration file."""

    name: str
    result: SimulationResult | RecordedRun
    #: What is to be known about its input, besides the remarks of the result.
    notes: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, then the remarks of the result."""
        return (*self.notes, *self.result.remarks)

    def metrics(self) -> dict[str, float]:
        """The metrics that need no other side; a run of a record has the numbers of pods only."""
        if isinstance(self.result, RecordedRun):
            return pod_counts(self.result.outcomes)
        return metrics_of(self.result)


@dataclass(frozen=True, slots=True, repr=False)
class SimulationComparison(Displayed):
    """A baseline, a candidate, and what differs. In a notebook and with rich it shows as tables."""

    baseline: Side
    candidate: Side
    #: The pods that differ, in order of arrival.
    pods: tuple[PodDifference, ...]
    #: Every metric, by name.
    metrics: Mapping[str, MetricChange]
    #: Which changes between minor versions are the causes; None when both have the same version.
    causes: tuple[Cause, ...] | None = None

    @classmethod
    def of(cls, baseline: Side, candidate: Side, *, messages: bool = False) -> SimulationComparison:
        """Compare two results; with ``messages``, pods differ that are pending in both for other reasons."""
        pods = pod_differences(baseline.result.outcomes, candidate.result.outcomes, messages=messages)
        changes = Counter(difference.change for difference in pods)
        before, after = baseline.metrics(), candidate.metrics()
        for name, change in (("lost", PodChange.LOST), ("won", PodChange.WON), ("moved", PodChange.MOVED)):
            before[name], after[name] = 0, changes[change]
        before["changed"], after["changed"] = 0, len(pods)
        changed = {}
        for name in sorted(before.keys() & after.keys(), key=_position):
            changed[name] = MetricChange(name, metric_of(name), before[name], after[name])
        return cls(baseline, candidate, pods, changed)

    @property
    def versions(self) -> str:
        """The minor versions that were decided as, and that of the API server if it is known."""
        runs = [side.result.run for side in (self.baseline, self.candidate)]
        emulated = dict.fromkeys(run["emulatedVersion"] for run in runs)
        return versions_text(*emulated, server_version=runs[0].get("serverVersion", ""))

    def count(self, change: PodChange) -> int:
        """How many pods have a change."""
        return sum(1 for difference in self.pods if difference.change is change)

    def groups(self) -> list[DifferenceGroup]:
        """The pods that differ by change, owner and reason."""
        return difference_groups(self.pods)

    def check(self, thresholds: Iterable[Threshold | str]) -> list[CheckedThreshold]:
        """Check thresholds. Raises InputError for one that does not parse or has an unknown metric."""
        checked = []
        for each in thresholds:
            threshold = Threshold.parse(each) if isinstance(each, str) else each
            threshold.require_metric({name.partition(".")[2] for name in self.metrics})
            found = self.metrics.get(threshold.metric)
            if found is None:
                known = ", ".join(self.metrics)
                problem = f"no metric {threshold.metric!r} without a simulation, the metrics are: {known}"
                raise InputError(f"threshold {threshold.text!r}", problem)
            checked.append(threshold.check(found.candidate, found.baseline))
        return checked

    def as_json(self, checked: Sequence[CheckedThreshold] = ()) -> dict[str, Any]:
        """Everything as data for JSON; the same input and seed give the same document."""
        return {
            "kind": "SimulationComparison",
            **{
                role: {"name": side.name, "run": dict(side.result.run), "remarks": list(side.remarks)}
                for role, side in (("baseline", self.baseline), ("candidate", self.candidate))
            },
            "thresholds": [
                {
                    "threshold": found.threshold.text,
                    "metric": found.threshold.metric,
                    "candidate": found.value,
                    "baseline": found.baseline,
                    "limit": found.limit,
                    "crossed": found.crossed,
                }
                for found in checked
            ],
            "metrics": {
                name: {
                    "baseline": _rounded(found.baseline),
                    "candidate": _rounded(found.candidate),
                    "change": _rounded(found.change),
                    "unit": found.metric.unit.value,
                    "verdict": found.verdict,
                }
                for name, found in self.metrics.items()
            },
            "changes": {change.value: self.count(change) for change in PodChange},
            **({} if self.causes is None else {"causes": list(map(_cause, self.causes))}),
            "pods": [
                {
                    "namespace": difference.outcome.namespace,
                    "name": difference.outcome.name,
                    "owner": difference.outcome.owner,
                    "change": difference.change.value,
                    "baseline": _outcome(difference.baseline),
                    "candidate": _outcome(difference.candidate),
                }
                for difference in self.pods
            ],
        }

    def blocks(self, checked: Sequence[CheckedThreshold] = ()) -> Iterator[Block]:
        """What differs, the metrics that move, the pods by change and owner, and the thresholds."""
        yield Paragraph(f"{self.baseline.name} (baseline) and {self.candidate.name} (candidate)")
        yield Paragraph(tables.headline(self.pods))
        yield tables.metrics_table(self.metrics, checked)
        if self.pods:
            yield tables.groups_table(self.groups(), most=_MOST_GROUPS)
        if self.causes:
            yield tables.causes_table(self.causes)
        if checked:
            table = Table("threshold", "", right=())
            for found in checked:
                table.add(tables.crossed_text(found), "crossed" if found.crossed else "ok")
            yield table

    def __repr__(self) -> str:
        """The numbers of pods by change."""
        changes = ", ".join(f"{self.count(change):,} {change.value}" for change in PodChange)
        return short_repr("Comparison", f"{changes}; of {self.baseline.name} and {self.candidate.name}")


def _position(name: str) -> tuple[int, int, str]:
    """The metrics without a resource first, then by kind and resource."""
    family, dot, resource = name.partition(".")
    order = list(RESOURCE_METRICS if dot else METRICS)
    return (int(bool(dot)), order.index(family), "" if resource == "cpu" else resource)


def _outcome(outcome: PodOutcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {"state": outcome.state.value, "node": outcome.node, "message": outcome.message}


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "changes": [
            {"name": change.name, "subject": change.subject, "before": change.before, "after": change.after}
            for change in cause.changes
        ],
        "pods": [difference.outcome.key for difference in cause.pods],
    }


def _rounded(value: float) -> float:
    """Micro-units are enough, and hide the rounding errors of sums."""
    return round(value, 6)


def compare(
    cluster: ClusterObjects,
    arrivals: Arrivals | None = None,
    *,
    baseline: SchedulerOptions,
    candidate: SchedulerOptions,
    options: SimulationOptions | None = None,
    admission: Callable[[float], AdmissionQueues] | None = None,
    names: Sequence[str] = ("baseline", "candidate"),
    progress: Callable[[SimulationProgress], None] = lambda progress: None,
) -> SimulationComparison:
    """Simulate two schedulers, with the same options and seed, and compare the results.

    ``admission`` makes the queues in which the jobs of the arrivals wait, for each simulation.

    ``baseline`` and ``candidate`` are configuration, plugin classes and feature gates; both may have plugins of one
    name, such as two versions of a plugin. Where they emulate two minor versions of Kubernetes, the causes of
    differences are found by further simulations (:mod:`kubestow_lab.comparison.minor_changes`); those need
    configurations that are not decoded yet, since defaults depend on gates. ``progress`` is called now and then, with
    the pods of both simulations.

    Raises ConfigurationError for an invalid configuration, and PluginError when a plugin cannot be constructed.
    """

    def simulation(side: SchedulerOptions) -> Simulation:
        return Simulation(
            cluster,
            arrivals or Arrivals(),
            configuration=side.configuration,
            plugins=side.plugins,
            gates=side.gates,
            options=options or SimulationOptions(),
            admission=admission,
        )

    simulations = [simulation(side) for side in (baseline, candidate)]

    def report(finished: int, done: SimulationProgress) -> None:
        """The progress of both simulations, of which some are finished."""
        progress(SimulationProgress(finished * done.total + done.pods, 2 * done.total, done.time))

    results = [simulation.run(partial(report, number)) for number, simulation in enumerate(simulations)]
    sides = [Side(name, result) for name, result in zip(names, results, strict=True)]
    if baseline.gates.minor == candidate.gates.minor:
        return SimulationComparison.of(*sides)
    found = SimulationComparison.of(*sides, messages=True)
    order = sorted((0, 1), key=lambda side: (baseline, candidate)[side].gates.minor.number)
    older, newer = ((baseline, candidate)[side] for side in order)

    def outcomes_without(changes: Sequence[MinorChange]) -> Sequence[PodOutcome] | None:
        # The gates have the version; named beside them, it would be the whole one again.
        side = structs.replace(newer, emulated_version="", gates=undone(changes, newer.gates))
        try:
            return simulation(side).run().outcomes
        except ConfigurationError:
            # A plugin that comes with one of the changes is still enabled by the default of another.
            return None

    changes = minor_changes(older.gates, newer.gates)
    return replace(found, causes=tuple(find_causes(found.pods, changes, results[order[0]].outcomes, outcomes_without)))
