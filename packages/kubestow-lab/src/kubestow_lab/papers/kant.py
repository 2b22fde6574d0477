"""Kant's ratios and strategies for clusters of training jobs (Zeng et al., arXiv 2510.01256).

Two experiments on a cluster of equal GPU nodes in groups below one switch each. Placement: jobs come and go while most
of the cluster is in use, and strategies choose the nodes. Queueing: more jobs come than fit, and wait in a queue,
strictly in order or with backfill. The paper's text and traces are not at hand, only its abstract; so the jobs are
drawn here, and rows are the trends that the abstract claims.

Binpack and spread are NodeResourcesFit's strategies MostAllocated and LeastAllocated for the GPUs. The topology-aware
strategy adds preferred affinity of a job's pods to the group that has some. E-Binpack also packs the groups, so that
whole ones stay free for large jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import ScorePlugin, Scores
from kubestow.version import VERSION
from kubestow_lab.metrics.energy_and_cost import NodeUsage, mean_between, median_between
from kubestow_lab.metrics.intervals import Estimate, estimate
from kubestow_lab.metrics.job_metrics import group_excess, job_runs, waits_by_size
from kubestow_lab.papers.measured_runs import measure_runs
from kubestow_lab.papers.published import Trend, above, below
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.traces.loading import POD_GROUP, pod_group
from kubestow_lab.workloads.gpu import GPU, NAMESPACE

GROUP, JOB, SIZE = "kubestow.dev/leaf-group", "kubestow.dev/job", "kubestow.dev/job-size"
GROUPS, NODES_PER_GROUP, GPUS = 8, 8, 8
JOBS = 600
#: The numbers of GPUs of jobs with their frequencies, for each experiment.
SIZES = {1: 0.36, 2: 0.14, 4: 0.14, 8: 0.18, 16: 0.09, 32: 0.06, 64: 0.03}
#: The GPU time that is requested, as a share of the cluster's.
LOADS = {"placement": 0.8, "queueing": 1.1}
#: Run times are log-normal, in seconds: the median and the standard deviation of the logarithm.
MEDIAN_RUN, DEVIATION = 3600.0, 1.0
#: The largest jobs of the classes in which waits are reported, in GPUs.
SMALL, LARGE = 8, 64
SPREAD, BINPACK, TOPOLOGY, E_BINPACK = "spread", "binpack", "topology-aware", "E-Binpack"
FIFO, BACKFILL = "strict FIFO", "backfill"
WORKLOADS = ("placement", "queueing")
#: The values of each run, in the order of its result.
GFR, GROUP_EXCESS = "GFR, %", "JTTED, groups / fewest"
GAR, SOR = "GAR, median %", "SOR, %"
WAIT_SMALL, WAIT_LARGE = f"JWTD, mean h, to {SMALL} GPUs", f"JWTD, mean h, to {LARGE} GPUs"
_MEASURES = {"placement": (GFR, GROUP_EXCESS), "queueing": (GAR, SOR, WAIT_SMALL, WAIT_LARGE)}
_STRATEGIES = {"placement": (SPREAD, BINPACK, TOPOLOGY, E_BINPACK), "queueing": (FIFO, BACKFILL)}


class LeafGroupBinpack(ScorePlugin):
    """Prefers the groups of nodes that leave most whole nodes together elsewhere.

    For a pod that runs alone that is the group with the largest requested share of GPUs, for one of a larger job the
    group with the fewest free nodes that can hold the job, or else with the most.
    """

    name = "LeafGroupBinpack"

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """The preference for each node's group, 0 to 100."""
        everywhere = self.handle.cluster.all_nodes()
        numbers: dict[str | None, int] = {}
        of_nodes = everywhere.by_label(GROUP, lambda group: numbers.setdefault(group, len(numbers)))
        requested, allocatable = everywhere.requested(GPU), everywhere.allocatable(GPU)
        members = np.maximum(np.bincount(of_nodes), 1)
        if (count := int(pod.labels.get(SIZE, 1))) > 1:
            free = np.bincount(of_nodes, requested == 0)
            preferences = np.where(free >= count, 100 - 50 * (free - count) / members, 50 * free / members)
        else:
            total = np.maximum(np.bincount(of_nodes, allocatable), 1)
            preferences = 100 * np.bincount(of_nodes, requested) / total
        scores: Scores = np.clip(preferences, 0, 100).astype(np.int64)[of_nodes][nodes.rows]
        return scores


# -- the cluster and its jobs ------------------------------------------------------------------------------------------


def cluster() -> ClusterObjects:
    """Equal nodes with eight GPUs, in groups."""
    return ClusterObjects(
        nodes=[_node(f"n{group}-{number}", f"g{group}") for group in range(GROUPS) for number in range(NODES_PER_GROUP)]
    )


def jobs(load: float, seed: int, count: int = JOBS) -> Arrivals:
    """Jobs that request ``load`` of the cluster's GPU time until the last of them arrives."""
    random = Random(f"kant {seed}")
    sizes = random.choices(list(SIZES), list(SIZES.values()), k=count)
    runs = [MEDIAN_RUN * float(np.exp(random.gauss(0, DEVIATION))) for _ in sizes]
    work = sum(size * run for size, run in zip(sizes, runs, strict=True))
    pause = work / (load * GROUPS * NODES_PER_GROUP * GPUS) / count
    arrivals, groups, time = [], [], 0.0
    for number, (size, run) in enumerate(zip(sizes, runs, strict=True)):
        time += random.expovariate(1 / pause)
        pods = max(1, size // GPUS)
        name = f"j{number}"
        arrivals += [
            Arrival(_pod(f"{name}-{index}", name, pods, min(size, GPUS), run), time, run, {}) for index in range(pods)
        ]
        if pods > 1:
            groups.append(pod_group(name, NAMESPACE, pods))
    return Arrivals(arrivals, custom_resources=groups)


def _node(name: str, group: str) -> Node:
    amounts = {"cpu": "192", "memory": "1Ti", "pods": "110", GPU: str(GPUS)}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"kubernetes.io/hostname": name, GROUP: group}
    return convert(Node, {"metadata": {"name": name, "labels": labels}, "status": status})


def _pod(name: str, job: str, pods: int, gpus: int, run: float) -> Pod:
    labels = {JOB: job, SIZE: str(pods)}
    annotations = {**labels, "kubestow.dev/run-time": f"{round(run)}s"}
    requests = {GPU: str(gpus), "cpu": str(8 * gpus)}
    containers = [{"name": "main", "image": "train", "resources": {"requests": requests}}]
    spec: dict[str, Any] = {"schedulerName": "default-scheduler", "containers": containers}
    if pods > 1:
        labels[POD_GROUP] = job
        term = {"labelSelector": {"matchLabels": {JOB: job}}, "topologyKey": GROUP}
        preferred = [{"weight": 100, "podAffinityTerm": term}]
        spec["affinity"] = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "labels": labels, "annotations": annotations}
    return convert(Pod, {"metadata": metadata, "spec": spec})


# -- strategies --------------------------------------------------------------------------------------------------------


def _placing(strategy: str) -> dict[str, Any]:
    """The configuration of a strategy that chooses nodes."""
    scores = {"NodeResourcesFit": 10}  # single nodes come first: groups decide among equal ones
    if strategy in (TOPOLOGY, E_BINPACK):
        scores["InterPodAffinity"] = 4
    if strategy == E_BINPACK:
        scores[LeafGroupBinpack.name] = 1
    fit = {"type": "LeastAllocated" if strategy == SPREAD else "MostAllocated", "resources": [{"name": GPU}]}
    everything = [{"name": "*"}]
    plugins = {
        "multiPoint": {"enabled": [{"name": "GangScheduling"}]},
        "preScore": {"disabled": everything, "enabled": [{"name": name} for name in scores if name in _PRE_SCORES]},
        "score": {
            "disabled": everything,
            "enabled": [{"name": name, "weight": weight} for name, weight in scores.items()],
        },
    }
    arguments = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": fit}}]
    return {**_CONFIGURATION, "profiles": [{"plugins": plugins, "pluginConfig": arguments}]}


def _queueing(strategy: str) -> dict[str, Any]:
    """The configuration of a queue of whole jobs."""
    arguments = {
        "queues": [{"name": "all"}],
        "defaultQueue": "all",
        "interval": "60s",
        "fairShare": {"enabled": False},
        "backfill": {"mode": "none" if strategy == FIFO else "easy"},
    }
    plugins = {"multiPoint": {"enabled": [{"name": "JobQueues"}], "disabled": [{"name": "DefaultPreemption"}]}}
    return {
        **_CONFIGURATION,
        "profiles": [{"plugins": plugins, "pluginConfig": [{"name": "JobQueues", "args": arguments}]}],
    }


_PRE_SCORES = {"NodeResourcesFit", "InterPodAffinity"}
_CONFIGURATION = {"apiVersion": config.API_VERSION, "kind": config.KIND}


# -- the table ---------------------------------------------------------------------------------------------------------


def published() -> dict[tuple[str, str], Trend]:
    """What the abstract claims: E-Binpack and backfill against what they extend."""
    return {
        (GFR, BINPACK): below(SPREAD),
        (GFR, E_BINPACK): below(SPREAD),
        (GROUP_EXCESS, TOPOLOGY): below(BINPACK),
        (GROUP_EXCESS, E_BINPACK): below(BINPACK),
        (GAR, BACKFILL): above(FIFO),
        (SOR, BACKFILL): above(FIFO),
        (WAIT_SMALL, BACKFILL): below(FIFO),
    }


def measure(
    data: Path,
    workloads: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    processes: int | None,
    progress: Callable[[int, int], None],
) -> dict[tuple[str, str], Estimate]:
    """The ratios of each strategy."""
    runs = {
        f"{VERSION}.{workload}.{strategy.replace(' ', '-')}.{seed}": (workload, strategy, seed)
        for workload in workloads
        for strategy in _STRATEGIES[workload]
        for seed in seeds
    }
    found = measure_runs(runs, ratios, folder, processes, progress)
    values: dict[tuple[str, str, int], list[float]] = {runs[name]: result for name, result in found.items()}
    return {
        (measured, strategy): estimate([values[workload, strategy, seed][column] for seed in seeds])
        for workload in workloads
        for column, measured in enumerate(_MEASURES[workload])
        for strategy in _STRATEGIES[workload]
    }


def ratios(workload: str, strategy: str, seed: int, count: int = JOBS) -> list[float]:
    """What a strategy does to the jobs of a seed: the measures of the workload, until the last job arrives.

    The first quarter of the time, in which the cluster fills, is not part of ratios over time. Only jobs that started
    count for waits and placements.
    """
    nodes, arrivals = cluster(), jobs(LOADS[workload], seed, count)
    made = _placing(strategy) if workload == "placement" else _queueing(strategy)
    plugins = (LeafGroupBinpack,) if strategy == E_BINPACK else ()
    options = SimulationOptions(seed=seed, samples=10)
    result = Simulation(nodes, arrivals, made, plugins, options=options).run()
    usage = NodeUsage(nodes, arrivals, result)
    runs = [run for run in job_runs(result, arrivals, GPU, JOB) if run.started is not None]
    last = arrivals.pods[-1].time
    window = last / 4, last
    if workload == "placement":
        group_of = {node.metadata.name: node.metadata.labels[GROUP] for node in nodes.nodes}
        large = [run for run in runs if run.amount > GPUS]
        return [
            100 * mean_between(*usage.partial_nodes_over_time(GPU), *window),
            float(np.mean([group_excess(run, group_of, GPUS * NODES_PER_GROUP) for run in large])),
        ]
    times, shares = usage.requested_over_time(GPU)
    waits = waits_by_size(runs, (SMALL, LARGE))
    hours = [waits[size]["mean"] / 3600 for size in (SMALL, LARGE)]
    return [100 * median_between(times, shares, *window), 100 * mean_between(times, shares, *window), *hours]
