"""GPU sharing by fragmentation gradient descent (Weng et al., USENIX ATC 2023), on the lists of Alibaba's openb.

The pods of a list arrive in random order, then further ones drawn from it, until their GPU requests are 130 % of the
cluster's; nothing departs, all nodes are scored, and of the best the first by name is chosen, where names start with
random numbers. The policies are plugins of kubestow-contrib.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kubestow import config
from kubestow.errors import InputError
from kubestow_lab.experiments.experiment_file import Experiment
from kubestow_lab.experiments.report import ExperimentReport
from kubestow_lab.experiments.runs import run_experiment
from kubestow_lab.metrics.gpu_fragmentation import TypicalGpuPods
from kubestow_lab.metrics.intervals import Estimate
from kubestow_lab.traces import openb
from kubestow_lab.workloads.gpu import GPU_MILLI

DATA = "cluster-trace-gpu-v2023/csv"
POLICIES = ("BestFit", "FragmentationGradientDescent")
_LOAD = 1.3
_METRIC = f"utilisation.{GPU_MILLI}"
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
    _, pod_list = openb.list_files(data, pod_list=workload, node_list="gpu_node")
    typical = TypicalGpuPods.of(pod.shape for pod in openb.read_pods(pod_list))
    counts = [
        {
            "cpu": shape.cpu_milli,
            "gpus": shape.gpus,
            "gpuMilli": shape.gpu_milli or 1000,
            "models": list(shape.models),
            "count": count,
        }
        for shape, count in typical.counts
    ]
    arguments: dict[str, dict[str, Any]] = {"FragmentationGradientDescent": {"typicalPods": counts}}
    content = {
        "traces": [
            {
                "name": workload,
                "trace": f"openb={data.resolve()}",
                "podList": workload,
                "order": "shuffled",
                "nodeOrder": "shuffled",
                "load": {"resource": GPU_MILLI, "share": _LOAD},
            }
        ],
        "policies": [
            {"name": policy, "config": _configuration(policy, arguments.get(policy, {}))} for policy in POLICIES
        ],
        "seeds": list(seeds),
        "simulation": {"ties": "name", "departures": False},
        "metrics": [_METRIC],
    }
    return Experiment.of(content, folder=Path(), subject=f"paper fgd, {workload}")


def _configuration(policy: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The filters that matter for the trace, and one score plugin."""
    everything = [{"name": "*"}]
    names = ("PrioritySort", "NodeAffinity", "NodeResourcesFit", policy, "DefaultBinder")
    plugins: dict[str, Any] = {
        "multiPoint": {"disabled": everything, "enabled": [{"name": name} for name in names]},
        "preScore": {"disabled": everything},
        "score": {"disabled": everything, "enabled": [{"name": policy}]},
    }
    profile: dict[str, Any] = {"schedulerName": "default-scheduler", "plugins": plugins}
    if arguments:
        profile["pluginConfig"] = [{"name": policy, "args": arguments}]
    return {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [profile]}
