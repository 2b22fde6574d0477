"""Samples have the statistics that they are documented to have."""

from __future__ import annotations

from collections import Counter

from kubestow.rules.requests import allocatable_amounts, requests_by_spec
from kubestow_lab.traces.samples import SAMPLES
from kubestow_lab.workloads import openb_shapes
from kubestow_lab.workloads.gpu import GPU_MILLI, GPU_MODEL


def test_nodes_have_the_shares_of_the_trace_and_pods_reach_the_load() -> None:
    sample = SAMPLES["openb-small"]
    cluster, arrivals = sample.objects(1)
    models = Counter(node.metadata.labels[GPU_MODEL] for node in cluster.nodes)
    for model in {shape.model for shape in openb_shapes.NODES}:
        exact = sum(count for shape, count in openb_shapes.NODES.items() if shape.model == model) * 100 / 1213
        shapes = sum(1 for shape in openb_shapes.NODES if shape.model == model)
        assert abs(models[model] - exact) <= shapes
    capacity = sum(allocatable_amounts(node.status.allocatable)[GPU_MILLI] for node in cluster.nodes)
    requested = [requests_by_spec(arrival.pod).get(GPU_MILLI, 0) for arrival in arrivals.pods]
    assert sample.load * capacity <= sum(requested) < sample.load * capacity + 8000
    assert requested[-1]
    assert abs(requested.count(0) / len(requested) - 1088 / 8152) < 0.05


def test_seeds_change_the_pods_and_not_the_cluster() -> None:
    (first, pods), (second, others) = (SAMPLES["openb-small"].objects(seed) for seed in (1, 2))
    assert [node.metadata for node in first.nodes] == [node.metadata for node in second.nodes]
    assert [arrival.manifest for arrival in pods.pods] != [arrival.manifest for arrival in others.pods]
    again = SAMPLES["openb-small"].objects(1)[1]
    assert [arrival.manifest for arrival in again.pods] == [arrival.manifest for arrival in pods.pods]
