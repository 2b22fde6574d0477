"""GPU allocation by FragmentationGradientDescent and BestFit on the openb trace, beside the published figures.

    .venv/bin/python benchmarks/fgd.py TRACE_FOLDER [--expected SUMMARY.csv] [--pods default] [--runs 10]

The folder has the CSV lists of Alibaba's cluster-trace-gpu-v2023. The experiment is that of Weng et al. (USENIX ATC
2023): the pods of a list arrive in random order, then further ones drawn from it, until their GPU requests are 130 % of
the cluster's; nothing departs, all nodes are scored, and of the best the first by name is chosen. For each policy the
mean over the runs of the allocated GPUs is printed, as a percentage of the cluster's, and the CPU time of all runs.

With ``--expected``, a table of published means (columns workload, policy, alloc_pct_at_130), the exit status is 1 if a
mean differs by more than ``--tolerance`` percentage points.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any

import msgspec

from kubestow import config, gc_tuning
from kubestow.api.core import Pod
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.engine.input.cluster import Cluster
from kubestow.engine.pipeline.static_handle import StaticHandle
from kubestow.framework.profile import build_profile
from kubestow.plugins.registry import find_plugins
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow_contrib.fragmentation import BestFit, FragmentationGradientDescent, TypicalPod, typical_pods
from kubestow_lab.simulation.trace import load_trace
from kubestow_lab.workloads import openb
from kubestow_lab.workloads.gpu import PodShape

LOAD = 1.3
SCHEDULER = "default-scheduler"
POLICIES = {"BestFit": "05-BestFit", "FragmentationGradientDescent": "06-FGD"}
PLUGINS = {plugin.name: plugin for plugin in (BestFit, FragmentationGradientDescent)}


def typical(shape: PodShape) -> TypicalPod:
    return TypicalPod(cpu=shape.cpu_milli, gpus=shape.gpus, gpu_milli=shape.gpu_milli or 1000, models=shape.models)


def configuration(policy: str, args: dict[str, Any]) -> config.KubeSchedulerConfiguration:
    """The filters that matter for the trace, and one score plugin."""
    names = ("PrioritySort", "NodeAffinity", "NodeResourcesFit", policy, "DefaultBinder")
    plugins = {
        "multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]},
        "preScore": {"disabled": [{"name": "*"}]},
        "score": {"disabled": [{"name": "*"}], "enabled": [{"name": policy}]},
    }
    profile = {"schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": [{"name": policy, "args": args}]}
    document = {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [profile]}
    return config.load(document, subject=policy)


class Run:
    """A cluster that pods arrive in; ``allocated`` are the thousandths of GPUs of the pods that were placed."""

    def __init__(self, cluster: Cluster, policy: str, args: dict[str, Any]) -> None:
        self.cache = ClusterCache()
        for node in cluster.nodes:
            self.cache.add_node(node)
        handle = StaticHandle(self.cache, config.FeatureGates())
        registry = find_plugins(classes=PLUGINS)
        self.profile = build_profile(configuration(policy, args).profiles[0], registry, handle)
        self.allocated = 0
        #: Shapes that fit nowhere, and never will, because no pod departs.
        self.rejected: set[Shape] = set()

    def arrive(self, info: PodInfo, gpu_milli: int) -> None:
        if info.shape in self.rejected:
            return
        evaluation = self.profile.evaluations.of(info)
        feasibility = evaluation.find_feasible(info)
        if not feasibility.count:
            self.rejected.add(info.shape)
            return
        best = evaluation.find_best(info, feasibility)
        node_name = self.cache.nodes.names[FirstByName().choose(self.cache, best)]
        self.cache.assume(info, node_name)
        status = self.profile.runtime.run_reserve_plugins(evaluation.state(), info, node_name)
        assert status.ok, status.message
        self.allocated += gpu_milli


def arrivals(requests: list[int], capacity: int, random: Random) -> list[int]:
    """The numbers of the pods in the order of their arrival, given the GPU thousandths that each requests."""
    order = list(range(len(requests)))
    random.shuffle(order)
    arrived = sum(requests)
    while (number := random.randrange(len(requests))) is not None and arrived + requests[number] <= LOAD * capacity:
        order.append(number)
        arrived += requests[number]
    return order


def infos(cache: ClusterCache, templates: list[Pod], order: list[int]) -> list[PodInfo]:
    """The arriving pods, each with a name of its own."""
    shapes: dict[int, PodInfo] = {}
    found = []
    for position, number in enumerate(order):
        template = templates[number]
        info = shapes.get(id(template.spec))
        if info is None:
            info = shapes[id(template.spec)] = cache.shapes.info(template)
        name = f"{template.metadata.name}-{position}"
        metadata = msgspec.structs.replace(info.metadata, name=name, uid=name)
        pod = Pod(metadata=metadata, spec=info.spec, status=info.status)
        found.append(PodInfo(pod, info.shape, info.requests, info.nonzero_requests))
    return found


def simulate(folder: Path, pods: str, nodes: str, policy: str, seeds: range) -> list[float]:
    """The allocated share of all GPUs for each seed."""
    cluster, trace = load_trace(folder, pods=pods, nodes=nodes)
    files = openb.list_files(folder, pod_list=pods, node_list=nodes)
    shapes = {pod.name: pod.shape for pod in openb.read_pods(files.pods)}
    requests = [shape.gpus * shape.gpu_milli for shape in map(shapes.__getitem__, names(trace.pods))]
    capacity = sum(1000 * shape.gpus for _, shape in openb.read_nodes(files.nodes))
    frequent = typical_pods(map(typical, shapes.values()))
    args = {"typicalPods": msgspec.to_builtins(frequent)} if policy == FragmentationGradientDescent.name else {}
    templates = [arrival.pod for arrival in trace.pods]
    shares = []
    for seed in seeds:
        with gc_tuning.paused():
            run = Run(cluster, policy, args)
            order = arrivals(requests, capacity, Random(seed))
            for info, number in zip(infos(run.cache, templates, order), order, strict=True):
                run.arrive(info, requests[number])
        shares.append(run.allocated / capacity)
    return shares


def names(arriving: list[Any]) -> list[str]:
    return [arrival.pod.metadata.name for arrival in arriving]


def published(path: Path | None, pods: str) -> dict[str, float]:
    """The published percentage of each policy."""
    if path is None:
        return {}
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["workload"] == f"openb_pod_list_{pods}"]
    by_policy = {row["policy"]: float(row["alloc_pct_at_130"]) for row in rows}
    return {policy: by_policy[name] for policy, name in POLICIES.items() if name in by_policy}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pods", default="default", help="pod list")
    parser.add_argument("--nodes", default="gpu_node", help="node list")
    parser.add_argument("--policy", choices=POLICIES, action="append")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--expected", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.3)
    options = parser.parse_args()
    expected, failed = published(options.expected, options.pods), False
    for policy in options.policy or POLICIES:
        began = time.process_time()
        shares = simulate(options.folder, options.pods, options.nodes, policy, range(42, 42 + options.runs))
        seconds = time.process_time() - began
        allocated = 100 * mean(shares)
        deviation = 100 * stdev(shares) if len(shares) > 1 else 0.0
        line = f"{options.pods} {policy}: {allocated:.2f} % allocated (sd {deviation:.2f}), CPU {seconds:.1f} s"
        if policy in expected:
            failed |= abs(allocated - expected[policy]) > options.tolerance
            line += f"; published {expected[policy]:.2f} %, difference {allocated - expected[policy]:+.2f}"
        print(line)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
