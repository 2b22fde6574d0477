"""GPU sharing by fragmentation gradient descent (Weng et al., USENIX ATC 2023), on the lists of Alibaba's openb.

See :mod:`.openb_experiments`; pods arrive until 130 % of the GPUs have been requested. The policies are plugins of
kubestow-contrib.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from kubestow.errors import InputError
from kubestow_lab.experiments.experiment_file import Experiment
from kubestow_lab.experiments.report import ExperimentReport
from kubestow_lab.experiments.runs import run_experiment
from kubestow_lab.metrics.intervals import Estimate
from kubestow_lab.papers import openb_experiments
from kubestow_lab.papers.openb_experiments import FGD

POLICIES = ("BestFit", FGD)
_LOAD = 1.3
_PUBLISHED = Path(__file__).with_name("fgd_published.csv")


def published() -> dict[tuple[str, str], float]:
    """The published percentage of each workload and policy: means of ten seeds, at an arrived load of 130 %."""
    with _PUBLISHED.open(newline="", encoding="utf-8") as file:
        return {(row["workload"], row["policy"]): float(row["allocated"]) for row in csv.DictReader(file)}


WORKLOADS = tuple(Counter(workload for workload, _ in published()))
"""The pod lists with published numbers, by their short names."""


def measure(
    data: Path,
    workloads: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    processes: int | None,
    progress: Callable[[int, int], None],
) -> dict[tuple[str, str], Estimate]:
    """The allocated GPUs in percent, by workload and policy. Raises InputError for missing lists and failed runs."""
    found, total = {}, len(workloads) * len(POLICIES) * len(seeds)
    for number, workload in enumerate(workloads):
        before = number * len(POLICIES) * len(seeds)
        experiment = _experiment(data, workload, seeds)
        records = run_experiment(
            experiment,
            folder / workload,
            resume=True,
            processes=processes,
            ended=lambda record, done, _, before=before: progress(before + done, total),  # type: ignore[misc]
        )
        for record in records:
            if record.error:
                raise InputError(f"run {record.run.name}", record.error)
        [comparison] = ExperimentReport.read(folder / workload).comparisons
        for each in comparison.estimates:
            value = each.value
            found[workload, each.policy] = Estimate(100 * value.mean, 100 * value.low, 100 * value.high, value.count)
    return found


def _experiment(data: Path, workload: str, seeds: Sequence[int]) -> Experiment:
    unrecorded = {"indexAnnotation": ""}  # so the simulations need no event loop
    typical = openb_experiments.fragmentation_arguments(data, workload)
    arguments = {"BestFit": unrecorded, FGD: typical | unrecorded}
    policies = {name: openb_experiments.configuration(name, {name: 1}, arguments) for name in POLICIES}
    subject = f"paper fgd, {workload}"
    return openb_experiments.experiment(data, workload, seeds, policies, load=_LOAD, subject=subject)
