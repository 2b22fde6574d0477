"""What load-aware plugins cost: two schedulers in one process, one with the plugin, schedule batches of pods in turn.

    .venv/bin/python benchmarks/load_aware.py [--nodes 5000] [--pods 100] [--reports 0] [--pairs 100] [PLUGIN ...]

Queue, cycle, binding and watch run in memory and in virtual time, and every node has metrics; ``--reports`` of them
change during a batch, one by one. Prints the median CPU time per pod of the batches without and with the plugin, and
the median and the quartiles of what the plugin adds, in pairs of batches. The plugin ``none`` shows how far two equal
schedulers differ. ``--profile`` prints where the time of the scheduler with the plugin goes instead.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Sequence
from typing import Any

from core import node, pod
from kubestow.api.formats.timestamps import micro_timestamp
from kubestow.api.meta import convert
from kubestow.engine.virtual_time import EPOCH
from kubestow.gc_tuning import raise_thresholds
from kubestow.plugins.registry import find_plugins
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.scheduler_harness import SchedulerHarness, running_scheduler
from kubestow.testing.virtual_time import run
from kubestow_contrib.koordinator.node_metric import NodeMetric

PLUGINS = ("LoadVariationRiskBalancing", "LowRiskOverCommitment", "TargetLoadPacking", "LoadAwareScheduling")
NONE = "none"
WARM_UP = 5


class MeasuredCluster(MemoryCluster):
    """A cluster that serves metrics.k8s.io."""

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """The metrics of all nodes."""
        return {"items": [item(number, each.metadata.name) for number, each in enumerate(self.nodes())]}


def usage(number: int) -> dict[str, str]:
    """The usage of a node: a quarter to a half of it."""
    return {"cpu": f"{1000 + number % 1000}m", "memory": f"{10 + number % 5}Gi"}


def item(number: int, name: str) -> dict[str, Any]:
    """The NodeMetrics of a node (metrics.k8s.io)."""
    return {"metadata": {"name": name}, "timestamp": micro_timestamp(EPOCH), "usage": usage(number)}


def node_metric(number: int) -> NodeMetric:
    """The NodeMetric of a node (koordinator)."""
    status = {"updateTime": micro_timestamp(EPOCH), "nodeMetric": {"nodeUsage": {"resources": usage(number)}}}
    return convert(NodeMetric, {"metadata": {"name": f"node-{number:05}"}, "status": status})


class BatchScheduler:
    """A running scheduler that schedules batches of pods."""

    def __init__(self, harness: SchedulerHarness, profiler: cProfile.Profile | None) -> None:
        self._harness, self._profiler = harness, profiler
        self._created = 0

    async def batch(self, pods: int, reports: int) -> float:
        """Create pods and wait until they are bound; the CPU seconds per pod. Reports arrive one by one."""
        created = [pod(self._created + number) for number in range(pods)]
        self._created += pods
        bound = len(self._harness.cluster.bindings)
        if self._profiler is not None:
            self._profiler.enable()
        began = time.process_time()
        for number, each in enumerate(created):
            self._harness.cluster.put(each)
            if reports and number % (pods // reports) == 0:
                self._harness.cluster.put(node_metric(number))
                await self._harness.settle()
        while len(self._harness.cluster.bindings) < bound + pods:
            await self._harness.settle()
        seconds = time.process_time() - began
        if self._profiler is not None:
            self._profiler.disable()
        return seconds / pods


def profiles(plugin: str) -> Sequence[dict[str, Any]]:
    """The default profile, with the plugin enabled besides."""
    enabled = [] if plugin == NONE else [{"name": plugin}]
    return [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": enabled}}}]


async def compare(plugin: str, options: argparse.Namespace) -> None:
    """Measure one plugin, and print what it costs."""
    registry = find_plugins(options.plugin)
    added = [] if plugin == NONE else [registry[plugin]]
    nodes = [node(number) for number in range(options.nodes)]
    reports = [node_metric(number) for number in range(options.nodes)]
    sizes = options.pods, options.reports
    profiler = cProfile.Profile() if options.profile else None
    async with (
        running_scheduler(nodes, cluster=MeasuredCluster()) as without,
        running_scheduler(
            [*nodes, *reports], cluster=MeasuredCluster(), plugins=added, profiles=profiles(plugin)
        ) as with_plugin,
    ):
        baseline, candidate = BatchScheduler(without, None), BatchScheduler(with_plugin, profiler)
        for _ in range(WARM_UP):
            await baseline.batch(*sizes)
            await candidate.batch(*sizes)
        pairs = [(await baseline.batch(*sizes), await candidate.batch(*sizes)) for _ in range(options.pairs)]
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
        return
    before, after = (statistics.median(each) for each in zip(*pairs, strict=True))
    low, middle, high = statistics.quantiles([(b / a - 1) * 100 for a, b in pairs], n=4)
    print(
        f"{plugin}: {before * 1e6:.0f} us per pod without, {after * 1e6:.0f} us with; "
        f"{middle:+.1f} % ({low:+.1f} % to {high:+.1f} %)",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=100)
    arguments.add_argument("--pairs", type=int, default=100)
    arguments.add_argument("--reports", type=int, default=0)
    arguments.add_argument("--profile", action="store_true")
    arguments.add_argument("--plugin", action="append", default=[], help="module:Class of another plugin")
    arguments.add_argument("plugins", nargs="*", default=PLUGINS)
    options = arguments.parse_args()
    raise_thresholds()  # as `kubestow run`
    for plugin in options.plugins:
        run(compare(plugin, options))


if __name__ == "__main__":
    main()
