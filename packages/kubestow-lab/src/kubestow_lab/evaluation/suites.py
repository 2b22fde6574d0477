"""Suites: the problems that policies are evaluated on, and what a placement of their pods is worth.

A suite is a sample of a trace (:mod:`kubestow_lab.traces.samples`) with seeds for the search and others that are held
out, for the figure that is published. Both belong to the suite, so that two papers can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kubestow import config
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.errors import InputError
from kubestow.framework.interface import Plugin, ScorePlugin
from kubestow.rules.requests import requests_by_spec
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.simulation.timeline import Timeline, TypicalPods
from kubestow_lab.traces.samples import SAMPLES, Sample
from kubestow_lab.workloads.gpu import GPU_MILLI


class InvalidPlacement(Exception):
    """A placement that no scheduler may make: an unknown node, or one with more pods than it holds."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The node of each pod in order of arrival, None for a pending one; or what the policy's plugin failed with."""

    nodes: list[str | None]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """A sample with seeds for searching and seeds for reporting. The ``objective`` is a metric, more is better."""

    name: str
    sample: Sample
    seeds: tuple[int, ...]
    held_out_seeds: tuple[int, ...]
    objective: str

    def place(self, seed: int, configuration: Any = None, plugins: Sequence[type[Plugin]] = ()) -> Placed:
        """Schedule the pods of a seed; of equally good nodes, the first by name is chosen. Raises KubestowError."""
        cluster, arrivals = self.sample.objects(seed)
        options = SimulationOptions(seed=seed, ties="name", departures=False, samples=1)
        result = Simulation(cluster, arrivals, configuration, plugins, options=options).run()
        nodes = {outcome.key: outcome.node or None for outcome in result.outcomes}
        keys = (f"{each.pod.metadata.namespace}/{each.pod.metadata.name}" for each in arrivals.pods)
        failures = result.plugin_failures
        return Placed([nodes[key] for key in keys], str(failures[0]) if failures else "")

    def measure(self, seed: int, nodes: Sequence[str | None]) -> tuple[dict[str, float], str]:
        """The metrics of a placement, and in words what is left over. Raises InvalidPlacement."""
        cluster, arrivals = self.sample.objects(seed)
        if len(nodes) != len(arrivals.pods):
            raise InvalidPlacement(f"expected the nodes of {len(arrivals.pods)} pods, got {len(nodes)}")
        cache = ClusterCache()
        for node in cluster.nodes:
            cache.add_node(node)
        requests, pending = [], []
        for arrival, name in zip(arrivals.pods, nodes, strict=True):
            requests.append(requests_by_spec(arrival.pod))
            if name is None:
                pending.append(requests[-1])
            elif name not in cache.nodes.rows:
                raise InvalidPlacement(f"pod {arrival.pod.metadata.name} is on node {name}, which does not exist")
            else:
                cache.assume(cache.shapes.info(arrival.pod), name)
        found = cache.all_nodes()
        for resource in cache.nodes.allocatable:
            over = np.flatnonzero(found.requested(resource) > found.allocatable(resource))
            if len(over):
                raise InvalidPlacement(f"node {found.names[over[0]]} has more {resource} requested than it has")
        if (found.pod_count > found.allowed_pods).any():
            raise InvalidPlacement("a node has more pods than it may have")
        timeline = Timeline(cache, TypicalPods(requests), stride=1, pending=lambda: len(pending))
        timeline.sample(0.0)
        [sample] = timeline.samples
        values = {"pending": float(len(pending)), "placed": float(sample.pods), "nodesUsed": float(sample.nodes_used)}
        for index, resource in enumerate(timeline.resources):
            values[f"utilisation.{resource}"] = sample.share(index)
            values[f"fragmentation.{resource}"] = sample.fragmentation[index]
        return values, _left_over(cache, pending)


SUITES = {
    each.name: each
    for each in (
        Suite(
            "openb-small", SAMPLES["openb-small"], (0, 1, 2), (1000, 1001, 1002, 1003, 1004), f"utilisation.{GPU_MILLI}"
        ),
        Suite("openb-full", SAMPLES["openb-full"], (0,), (1000, 1001, 1002), f"utilisation.{GPU_MILLI}"),
    )
}
"""The suites by name."""


def find_suite(name: str) -> Suite:
    """The suite with a name. Raises InputError."""
    if name not in SUITES:
        raise InputError("suite", f"no suite {name!r}, expected one of {', '.join(SUITES)}")
    return SUITES[name]


def configuration_of(plugin: type[Plugin]) -> dict[str, Any]:
    """A KubeSchedulerConfiguration with the default filters and one plugin, whose score is the only one."""
    scores = {"disabled": [{"name": "*"}]}
    if issubclass(plugin, ScorePlugin):
        scores["enabled"] = [{"name": plugin.name}]
    plugins: Mapping[str, Any] = {
        "multiPoint": {"enabled": [{"name": plugin.name}]},
        "preScore": {"disabled": [{"name": "*"}]},
        "score": scores,
    }
    return {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [{"plugins": plugins}]}


def _left_over(cache: ClusterCache, pending: Sequence[Mapping[str, int]]) -> str:
    """What is free, and what the pending pods would have needed, in one or two sentences."""
    nodes = cache.all_nodes()
    idle = {name: nodes.allocatable(name) - nodes.requested(name) for name in ("cpu", GPU_MILLI)}
    has_gpu = idle[GPU_MILLI] > 0
    stranded = int((has_gpu & (idle["cpu"] < 1000)).sum())
    text = (
        f"{idle[GPU_MILLI].sum() / 1000:,.1f} GPUs and {idle['cpu'].sum() / 1000:,.0f} cores are free on"
        f" {int(has_gpu.sum())} nodes; {stranded} of these have less than one core, so that their GPUs are stranded."
    )
    if not pending:
        return text + " All pods are placed."
    by_gpus: dict[str, int] = {}
    for each in pending:
        milli = each.get(GPU_MILLI, 0)
        kind = "no GPU" if not milli else "a share of a GPU" if milli < 1000 else f"{milli // 1000} GPUs"
        by_gpus[kind] = by_gpus.get(kind, 0) + 1
    kinds = ", ".join(f"{count} with {kind}" for kind, count in sorted(by_gpus.items(), key=lambda item: -item[1]))
    cores = sorted(each.get("cpu", 0) / 1000 for each in pending)[len(pending) // 2]
    return f"{text} {len(pending)} pods are pending: {kinds}; their median request is {cores:g} cores."
