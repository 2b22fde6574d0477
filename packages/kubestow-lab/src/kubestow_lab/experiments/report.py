"""What an experiment found: each metric's mean and confidence interval per policy, and its difference to the first one.

Differences are of pairs of runs with the same cluster, trace and seed. Where an interval is on one side of 0, the
difference is better or worse at the level of the experiment; several metrics are several chances to be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubestow.errors import InputError
from kubestow.reports.model import Block, Heading, Paragraph, Report, Section, Span, Table, counted
from kubestow.reports.page import as_page
from kubestow.reports.text import Displayed
from kubestow_lab.experiments.experiment_file import Experiment, Run
from kubestow_lab.experiments.runs import read_manifest, read_metrics, read_record
from kubestow_lab.metrics.energy_and_cost import USAGE_METRICS
from kubestow_lab.metrics.intervals import Estimate, estimate, paired_difference
from kubestow_lab.metrics.run_metrics import Metric, Unit, metric_of

#: What is shown if the file says nothing; those of resources only where some policy requests the resource.
_SHOWN = ("pending", "meanWait", "meanSlowdown", "preempted", "nodesUsed", "energy", "totalCost")
_SHOWN_OF_RESOURCES = ("utilisation", "fragmentation")


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """A metric of a policy over all seeds; ``difference`` is that to the first policy, None for that one."""

    name: str
    policy: str
    value: Estimate
    difference: Estimate | None = None

    @property
    def metric(self) -> Metric:
        """What it means."""
        return USAGE_METRICS[self.name] if self.name in USAGE_METRICS else metric_of(self.name)

    @property
    def verdict(self) -> str:
        """``better`` or ``worse`` than the first policy if that is certain at the level, else empty."""
        if self.difference is None or not self.difference.excludes_zero or not self.metric.better:
            return ""
        return "better" if self.difference.mean * self.metric.better > 0 else "worse"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All policies on one trace, and one cluster if the experiment has any; ``samples`` are the values by seed."""

    cluster: str
    trace: str
    estimates: tuple[MetricEstimate, ...]
    samples: Mapping[str, Mapping[str, Sequence[float]]]

    @property
    def title(self) -> str:
        """Names of trace and cluster."""
        return f"{self.trace} on {self.cluster}" if self.cluster else self.trace


@dataclass(frozen=True, slots=True, repr=False)
class ExperimentReport(Displayed):
    """The comparisons of an experiment; ``missing`` are the runs without a result, each with the reason."""

    experiment: Experiment
    comparisons: tuple[Comparison, ...]
    missing: Mapping[Run, str]
    manifest: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> ExperimentReport:
        """Read the folder of an experiment. Raises InputError if it has no results, and for files that are damaged."""
        manifest = read_manifest(folder)
        experiment = Experiment.of(manifest["experiment"], folder=folder, subject=str(folder))
        missing, values = {}, {}
        for run in experiment.runs():
            record = read_record(folder, run)
            if record is None or record.error:
                missing[run] = "has not ended" if record is None else record.error
            else:
                values[run] = read_metrics(folder, run)
        if not values:
            reasons = "; ".join(dict.fromkeys(missing.values()))
            raise InputError(str(folder), f"no run has a result: {reasons}")
        groups = dict.fromkeys((run.cluster, run.trace) for run in experiment.runs())
        found = (_comparison(experiment, cluster, trace, values) for cluster, trace in groups)
        return cls(experiment, tuple(each for each in found if each.estimates), missing, manifest)

    def as_json(self) -> dict[str, Any]:
        """The estimates as data for JSON."""
        document = self.experiment.document
        return {
            "kind": "ExperimentReport",
            "level": document.level,
            "interval": document.interval.value,
            "seeds": list(self.experiment.seeds),
            "policies": self.experiment.policies,
            "versions": self.manifest["versions"],
            "missing": {run.name: reason for run, reason in self.missing.items()},
            "comparisons": [
                {
                    "cluster": each.cluster,
                    "trace": each.trace,
                    "metrics": [
                        {
                            "metric": found.name,
                            "unit": found.metric.unit.value,
                            "policy": found.policy,
                            **found.value.as_json(),
                            "difference": None if found.difference is None else found.difference.as_json(),
                            "verdict": found.verdict,
                        }
                        for found in each.estimates
                    ],
                }
                for each in self.comparisons
            ],
        }

    def blocks(self) -> Iterator[Block]:
        """A table per trace and cluster."""
        yield Paragraph(self._headline())
        for each in self.comparisons:
            yield Heading(each.title)
            yield self._table(each)
        yield from self._remarks()

    def page(self) -> str:
        """The report as an HTML page that loads nothing."""
        sections = [Section(each.title, [self._table(each)]) for each in self.comparisons]
        if remarks := list(self._remarks()):
            sections.append(Section("Runs without a result", remarks))
        inputs = Table("file", "SHA-256", right=())
        for name, digest in self.manifest["inputs"].items():
            inputs.add(Span(name, "code"), Span(digest, "code"))
        versions = Table("what", "version", right=())
        for name, version in self.manifest["versions"].items():
            versions.add(name, version)
        sections.append(Section("Reproduction", [versions, inputs]))
        return as_page(Report("Experiment", self._headline(), sections))

    def _headline(self) -> str:
        document = self.experiment.document
        policies = counted(len(self.experiment.policies), "policy", "policies")
        return (
            f"{policies}, {counted(len(self.experiment.seeds), 'seed')}: means with {document.level:.0%} intervals"
            f" ({document.interval.value}); differences to {self.experiment.policies[0]}, seed by seed"
        )

    def _remarks(self) -> Iterator[Block]:
        if self.missing:
            yield Paragraph(f"{counted(len(self.missing), 'run has', 'runs have')} no result:")
            table = Table("run", "why", right=())
            for run, reason in self.missing.items():
                table.add(Span(run.name, "code"), reason)
            yield table

    def _table(self, comparison: Comparison) -> Table:
        first = self.experiment.policies[0]
        numbers = ("mean", "interval", f"difference to {first}", "its interval")
        table = Table("metric", "policy", *numbers, "", right=numbers, caption=comparison.title)
        last = ""
        for found in comparison.estimates:
            name = Span("" if found.name == last else found.name, "code" if found.name != last else "")
            last, unit, delta = found.name, found.metric.unit, found.difference
            change = (
                ("", "") if delta is None else (_text(delta.mean, unit, sign=True), _bounds(delta, unit, sign=True))
            )
            verdict = Span(found.verdict, found.verdict)
            table.add(name, found.policy, _text(found.value.mean, unit), _bounds(found.value, unit), *change, verdict)
        return table


def _comparison(
    experiment: Experiment, cluster: str, trace: str, values: Mapping[Run, Mapping[str, float]]
) -> Comparison:
    document, policies = experiment.document, experiment.policies
    by_policy = {
        policy: {seed: values[run] for seed in experiment.seeds if (run := Run(cluster, trace, policy, seed)) in values}
        for policy in policies
    }
    estimates, samples = [], {}
    for name in _shown(experiment, [found for by_seed in by_policy.values() for found in by_seed.values()]):
        samples[name] = {
            policy: [found[name] for found in by_seed.values() if name in found]
            for policy, by_seed in by_policy.items()
        }
        for policy in policies:
            if not samples[name][policy]:
                continue
            value = estimate(samples[name][policy], level=document.level, method=document.interval)
            mine, first = by_policy[policy], by_policy[policies[0]]
            seeds = [seed for seed in mine if seed in first and name in mine[seed] and name in first[seed]]
            difference = None
            if policy != policies[0] and seeds:
                difference = paired_difference(
                    [mine[seed][name] for seed in seeds],
                    [first[seed][name] for seed in seeds],
                    level=document.level,
                    method=document.interval,
                )
            estimates.append(MetricEstimate(name, policy, value, difference))
    return Comparison(cluster, trace, tuple(estimates), samples)


def _shown(experiment: Experiment, values: Sequence[Mapping[str, float]]) -> list[str]:
    """The metrics to show, in the order of the file, or of the definitions."""
    there = dict.fromkeys(name for found in values for name in found)
    if experiment.document.metrics:
        return [name for name in experiment.document.metrics if name in there]
    shown = [name for name in _SHOWN if any(found.get(name) for found in values) or name == "pending"]
    for family in _SHOWN_OF_RESOURCES:
        for name in there:
            resource = name.partition(".")[2]
            if name == f"{family}.{resource}" and any(found.get(f"meanUtilisation.{resource}") for found in values):
                shown.append(name)
    return [name for name in shown if name in there]


#: The digits of the numbers of a unit after the point.
_DIGITS = {
    Unit.RATIO: 3,
    Unit.SECONDS: 2,
    Unit.KILOWATT_HOURS: 1,
    Unit.KILOGRAMS: 2,
    Unit.KILOGRAMS_PER_HOUR: 2,
    Unit.MONEY: 2,
    Unit.WATTS: 0,
}


def _text(value: float, unit: Unit, *, sign: bool = False) -> str:
    """A value with its unit; a difference of shares is in percentage points."""
    if math.isnan(value):
        return "-"
    plus = "+" if sign else ""
    if unit is Unit.SHARE:
        return f"{100 * value:{plus}.2f}" + (" pp" if sign else " %")
    suffixes = {Unit.SECONDS: " s", Unit.WATTS: " W", Unit.KILOWATT_HOURS: " kWh", Unit.KILOGRAMS: " kg"}
    suffix = (suffixes | {Unit.KILOGRAMS_PER_HOUR: " kg/h"}).get(unit, "")
    return f"{value:{plus},.{_DIGITS.get(unit, 1)}f}{suffix}"


def _bounds(found: Estimate, unit: Unit, *, sign: bool = False) -> str:
    if math.isnan(found.low):
        return "-"
    low, high = (_text(value, unit, sign=sign) for value in (found.low, found.high))
    return f"{low.rpartition(' ')[0] or low} to {high}"
