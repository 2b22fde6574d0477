"""Power-aware scheduling with FGD (Lettich et al., CCGrid 2025, arXiv 2412.17484), on the lists of Alibaba's openb.

See :mod:`.openb_experiments`. While pods arrive, the power of the cluster is compared with that under FGD alone, with
the same seed. PWR prefers the node whose power rises least (PowerAware of kubestow-contrib); its combinations with FGD
are weighted sums of both scores, in thousandths, and FGD chooses the GPUs. The power is computed here, from where each
pod has gone, without the plugin.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kubestow.api.core import Node, Pod
from kubestow.errors import InputError
from kubestow.rules.requests import allocatable_amounts, requests_by_spec
from kubestow.version import VERSION
from kubestow_lab.experiments.experiment_file import Experiment, Run, as_data
from kubestow_lab.metrics.intervals import Estimate, estimate
from kubestow_lab.papers import openb_experiments
from kubestow_lab.papers.measured_runs import measure_runs
from kubestow_lab.papers.openb_experiments import FGD
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.workloads.gpu import GPU, GPU_MILLI, GPU_MODEL

PWR = "PowerAware"
_BASELINE = "FGD"
#: The weights of PWR and FGD, by the names that the paper's figures have.
POLICIES: Mapping[str, tuple[int, int]] = {
    _BASELINE: (0, 1000),
    "PWR": (1000, 0),
    "PWR_500_FGD_500": (500, 500),
    "PWR_200_FGD_800": (200, 800),
    "PWR_100_FGD_900": (100, 900),
    "PWR_50_FGD_950": (50, 950),
}
#: The arrived shares of the cluster's GPUs at which figures are read.
ARRIVED = (0.2, 0.4, 0.6, 1.0)
#: Watts of a CPU package of 16 cores with two threads each, and of GPUs: idle, and busy in any part. G2 and G3 are
#: taken to be A10 and A100.
CPU_WATTS = {"idle": 15.0, "max": 120.0, "cores": 16}
GPU_WATTS = {
    "": {"idle": 0.0, "max": 0.0},
    "T4": {"idle": 10.0, "max": 70.0},
    "P100": {"idle": 25.0, "max": 250.0},
    "V100M16": {"idle": 30.0, "max": 300.0},
    "V100M32": {"idle": 30.0, "max": 300.0},
    "A10": {"idle": 30.0, "max": 150.0},
    "G2": {"idle": 30.0, "max": 150.0},
    "G3": {"idle": 50.0, "max": 400.0},
}
_INDEX = "kubestow.dev/gpu-index"
_THREADS = 2
_PUBLISHED = Path(__file__).with_name("power_fgd_published.csv")


def published() -> dict[tuple[str, str], float]:
    """The power saved in percent, by workload with the arrived share, and policy; read from figures."""
    return {
        (_row_name(row["workload"], float(row["arrived"])), row["policy"]): float(row["saved"])
        for row in _published_rows()
    }


def _published_rows() -> list[dict[str, str]]:
    with _PUBLISHED.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


WORKLOADS = tuple(dict.fromkeys(row["workload"] for row in _published_rows()))
"""The pod lists with published numbers, by their short names."""


def _policies(workload: str) -> list[str]:
    """The policies with published numbers for a list, and the one that they are compared with."""
    named = {row["policy"] for row in _published_rows() if row["workload"] == workload}
    return [policy for policy in POLICIES if policy in named or policy == _BASELINE]


def measure(
    data: Path,
    workloads: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    processes: int | None,
    progress: Callable[[int, int], None],
) -> dict[tuple[str, str], Estimate]:
    """The power saved in percent. Raises InputError for missing lists and failed runs."""
    found: dict[tuple[str, str], Estimate] = {}
    total, before = sum(len(_policies(workload)) * len(seeds) for workload in workloads), 0
    for workload in workloads:
        experiment = _experiment(data, workload, seeds)
        runs = {run.name: (experiment, run) for run in experiment.runs()}
        results = folder / f"{workload}.{_digest(experiment)}"
        ended = measure_runs(
            runs,
            _watts_of_run,
            results,
            processes,
            lambda done, _, before=before: progress(before + done, total),  # type: ignore[misc]
        )
        before += len(ended)
        watts: dict[tuple[str, int], list[float]] = {
            (run.policy, run.seed): ended[name] for name, (_, run) in runs.items()
        }
        for column, arrived in enumerate(ARRIVED):
            for policy in _policies(workload):
                if policy != _BASELINE:
                    pairs = ((watts[policy, seed][column], watts[_BASELINE, seed][column]) for seed in seeds)
                    saved = [100 * (1 - power / baseline) for power, baseline in pairs]
                    found[_row_name(workload, arrived), policy] = estimate(saved)
    return found


def _row_name(workload: str, arrived: float) -> str:
    return f"{workload}, {arrived:.0%} arrived"


def _experiment(data: Path, workload: str, seeds: Sequence[int]) -> Experiment:
    arguments: dict[str, dict[str, Any]] = {
        FGD: openb_experiments.fragmentation_arguments(data, workload),
        PWR: {"cpus": {"": CPU_WATTS}, "gpus": GPU_WATTS, "threadsPerCore": _THREADS},
    }
    policies = {}
    for name in _policies(workload):
        power, fragmentation = POLICIES[name]
        weights = {plugin: weight for plugin, weight in ((PWR, power), (FGD, fragmentation)) if weight}
        policies[name] = openb_experiments.configuration(FGD if fragmentation else PWR, weights, arguments)
    subject = f"paper power-fgd, {workload}"
    return openb_experiments.experiment(data, workload, seeds, policies, load=max(ARRIVED), subject=subject)


def _digest(experiment: Experiment) -> str:
    """What the runs of an experiment depend on besides their seeds: its policies, the trace's files, the version."""
    data = {name: value for name, value in as_data(experiment).items() if name != "seeds"}
    content = json.dumps([data, experiment.inputs(), VERSION], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


# -- runs --------------------------------------------------------------------------------------------------------------


def _watts_of_run(experiment: Experiment, run: Run) -> list[float]:
    cluster, arrivals = experiment.ordered(run, *experiment.workload(experiment.source_of(run)))
    scheduler = experiment.scheduler(run.policy)
    result = Simulation(
        cluster, arrivals, scheduler.configuration, scheduler.plugins, scheduler.gates, options=experiment.options(run)
    ).run()
    if result.plugin_failures:
        raise InputError(f"run {run.name}", str(result.plugin_failures[0]))
    placed = {pod.metadata.name: pod for pod in result.api.pods() if pod.spec.node_name}
    arrived = [arrival.pod for arrival in arrivals.pods]
    return power_while_arriving(cluster.nodes, arrived, placed)


def power_while_arriving(nodes: Sequence[Node], arrived: Sequence[Pod], placed: Mapping[str, Pod]) -> list[float]:
    """The power of a cluster in watts once pods have requested each of the shares :data:`ARRIVED` of its GPUs.

    ``placed`` are the pods that got a node, by name, with the GPUs that they got in the annotation. None departs, so
    a pod that is placed was when it arrived.
    """
    amounts = [allocatable_amounts(node.status.allocatable) for node in nodes]
    rows = {node.metadata.name: row for row, node in enumerate(nodes)}
    capacity = np.array([each.get("cpu", 0) for each in amounts])
    gpus = np.array([each.get(GPU, 0) for each in amounts])
    watts = [GPU_WATTS.get(node.metadata.labels.get(GPU_MODEL, ""), GPU_WATTS[""]) for node in nodes]
    idle, full = (np.array([each[name] for each in watts]) for name in ("idle", "max"))
    used, busy = np.zeros(len(nodes)), np.zeros((len(nodes), int(gpus.max(initial=0))), np.bool_)
    core = 1000 * _THREADS
    packages = np.ceil(np.ceil(capacity / core) / CPU_WATTS["cores"])
    found: list[float] = []
    wanted, requested = [share * 1000 * float(gpus.sum()) for share in ARRIVED], 0
    for position, pod in enumerate(arrived):
        requests = requests_by_spec(pod)
        requested += requests.get(GPU_MILLI, 0)
        there = placed.get(pod.metadata.name)
        if there is not None:
            row = rows[there.spec.node_name]
            used[row] += requests.get("cpu", 0)
            for device in filter(None, there.metadata.annotations.get(_INDEX, "").split("-")):
                busy[row, int(device)] = True
        while len(found) < len(wanted) and (requested >= wanted[len(found)] or position == len(arrived) - 1):
            active = np.ceil(np.ceil(used / core) / CPU_WATTS["cores"])
            power = packages * CPU_WATTS["idle"] + active * (CPU_WATTS["max"] - CPU_WATTS["idle"])
            power += gpus * idle + busy.sum(axis=1) * (full - idle)
            found.append(float(power.sum()))
    return found
