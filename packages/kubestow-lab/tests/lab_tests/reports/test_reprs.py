"""The reprs of public objects, which interpreters and assertions show: short, however large the object is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core_tests.engine.input.manifests import arrivals, cluster, node, pod
from kubestow import config
from kubestow.engine.explanation.explain import explain
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.plugins import in_tree_registry
from kubestow.reports.text import Displayed
from kubestow_lab import reports
from kubestow_lab.call_trace import trace
from kubestow_lab.capacity.estimate import estimate
from kubestow_lab.capacity.mix import estimate_mix
from kubestow_lab.capacity.pod_template import PodTemplate
from kubestow_lab.comparison.comparison import compare
from kubestow_lab.scheduler_perf import benchmark_result
from kubestow_lab.simulation import gap
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.tuning import tuning_result
from kubestow_lab.what_if.node_count import nodes_needed
from kubestow_lab.what_if.node_pools import NodePool
from kubestow_lab.what_if.node_removal import drain

IMPORTED = (reports, benchmark_result, gap, tuning_result)
LONG = "-".join(["name"] * 12)


def public_objects(folder: Path) -> Iterator[object]:
    """Objects of a cluster of 60 nodes and 120 pods with long names, half of them pending."""
    nodes = [node(f"{LONG}-{i}", cpu=str(2 + i % 7)) for i in range(60)]
    pods = [pod(f"{LONG}-{i}", cpu="100", **({} if i % 2 else {"nodeName": f"{LONG}-{i // 2}"})) for i in range(120)]
    within = cluster(folder, *nodes, *pods)
    workload = arrivals(folder, *(pod(f"{LONG}-new-{i}", cpu="100") for i in range(90)), within=within)
    configuration = config.default_configuration()
    options = SchedulerOptions(configuration)
    pending = f"default/{LONG}-1"
    yield from (within, workload, options, SchedulerOptions(Path(LONG * 9)))
    simulation = Simulation(within, workload)
    yield from (simulation, simulation.run())
    found = explain(within, pending, counterfactuals=False)
    yield from (found, found.about(f"{LONG}-0"), found.compare(f"{LONG}-0", f"{LONG}-1"))
    yield trace(within, pending)
    yield nodes_needed(within, workload, [NodePool(name="large", allocatable={"cpu": "200", "memory": "64Gi"})])
    yield drain(within, frozenset(f"{LONG}-{i}" for i in range(50)))
    yield compare(within, workload, baseline=options, candidate=options, names=[LONG * 3, LONG * 4])
    templates = [PodTemplate(pod(f"{LONG}-{i}", cpu="1"), "pod.yaml", within.admission) for i in range(5)]
    yield estimate(within, templates[0], configuration, registry=in_tree_registry())
    yield estimate_mix(within, templates, configuration, registry=in_tree_registry())


def test_reprs_of_large_objects_are_short(tmp_path: Path) -> None:
    for found in public_objects(tmp_path):
        text = repr(found)
        assert len(text) <= 200 and "\n" not in text and text.startswith("<"), text


@pytest.mark.parametrize("shown", Displayed.__subclasses__(), ids=lambda each: each.__name__)
def test_no_result_has_the_repr_of_a_data_class(shown: type[Displayed]) -> None:
    if shown.__module__.startswith("kubestow"):
        assert not hasattr(shown.__repr__, "__wrapped__")
