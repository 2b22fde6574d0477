"""The generated cluster: frequencies, added features, reproducibility."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.core import Node
from kubestow.api.meta import convert
from kubestow_lab.oracle.feasibility import check_feasibility
from kubestow_lab.workloads import report, synthetic
from kubestow_lab.workloads.gpu import GPU, GPU_MILLI, GPU_MODEL
from kubestow_lab.workloads.workload import Object, Workload

TABLE = {"common": 90, "rare": 9, "rarest": 1}


@cache
def _full_size() -> Workload:
    return synthetic.generate()


def _serialized(workload: Workload) -> str:
    return json.dumps(
        [workload.nodes, workload.pods, workload.priority_classes, [str(g) for g in workload.gate_removals]]
    )


def _with_field(field: str, pods: tuple[Object, ...]) -> list[Object]:
    return [pod for pod in pods if field in pod["spec"]]


def test_a_sample_of_the_size_of_the_table_is_the_table() -> None:
    assert Counter(synthetic.sample(TABLE, 100, Random(1))) == TABLE


@given(size=st.integers(0, 300), seed=st.integers(0, 1000))
def test_a_sample_has_each_key_within_one_of_its_share(size: int, seed: int) -> None:
    generated = Counter(synthetic.sample(TABLE, size, Random(seed)))
    assert generated.total() == size
    assert all(abs(generated[key] - size * count / 100) < 1 for key, count in TABLE.items())


def test_at_full_size_the_capacity_equals_openbs() -> None:
    nodes = [convert(Node, each) for each in _full_size().nodes]
    allocatable = {u.resource: u.allocatable for u in report.utilisation(nodes, ())}
    assert (allocatable["cpu"], allocatable["memory"], allocatable[GPU]) == (107_018_000, 503_828_480 * 2**20, 6_212)
    models = Counter(node["metadata"]["labels"][GPU_MODEL] for node in _full_size().nodes)
    assert models["G2"] == 549


def test_at_full_size_the_requests_equal_openbs_except_for_infeasible_pods() -> None:
    containers = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in _full_size().pods]
    shares = sum(GPU_MILLI in requests and GPU not in requests for requests in containers)
    sixteen = [requests for requests in containers if requests.get(GPU) == "16"]
    requested = sum(int(requests.get(GPU_MILLI, 0)) for requests in containers if requests not in sixteen)
    assert abs(shares - 3_078) <= len(sixteen) == 4
    assert requested == pytest.approx(6_086_800, abs=4 * 8000)


def test_the_same_arguments_generate_the_same_objects_in_any_process() -> None:
    code = (
        "import json, sys; from kubestow_lab.workloads import synthetic;"
        "w = synthetic.generate(nodes=30, pods=200, spread=True, pod_affinity=True);"
        "sys.stdout.write(json.dumps([w.nodes, w.pods, w.priority_classes, [str(g) for g in w.gate_removals]]))"
    )
    generated = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert generated.stdout == _serialized(synthetic.generate(nodes=30, pods=200, spread=True, pod_affinity=True))


def test_different_seeds_generate_different_workloads() -> None:
    assert synthetic.generate(nodes=30, pods=200, seed=1).pods != synthetic.generate(nodes=30, pods=200, seed=2).pods


@pytest.mark.parametrize(("nodes", "pods"), [(0, 0), (1, 1), (5, 0), (0, 7), (40, 333)])
def test_it_scales_to_any_size(nodes: int, pods: int) -> None:
    workload = synthetic.generate(nodes=nodes, pods=pods)
    assert (len(workload.nodes), len(workload.pods)) == (nodes, pods)


def test_names_are_unique() -> None:
    names = [obj["metadata"]["name"] for obj in (*_full_size().nodes, *_full_size().pods)]
    assert len(names) == len(set(names))


def test_nodes_and_dedicated_nodes_are_spread_over_zones() -> None:
    zones, dedicated = Counter[str](), Counter[str]()
    for node in _full_size().nodes:
        zone = node["metadata"]["labels"][synthetic.ZONE]
        zones[zone] += 1
        dedicated[zone] += "taints" in node["spec"]
    assert len(zones) == 5 and max(zones.values()) - min(zones.values()) <= 1
    assert dedicated.total() == 75 and max(dedicated.values()) - min(dedicated.values()) <= 1


def test_pods_use_the_priority_classes_of_the_workload() -> None:
    values = {c["metadata"]["name"]: c["value"] for c in _full_size().priority_classes}
    used = Counter(pod["spec"]["priorityClassName"] for pod in _full_size().pods)
    assert used.keys() == values.keys() and 0 < used["critical"] < 200
    assert all(pod["spec"]["priority"] == values[pod["spec"]["priorityClassName"]] for pod in _full_size().pods)


def test_some_pods_tolerate_the_dedicated_taint_and_some_require_dedicated_nodes() -> None:
    tolerating = _with_field("tolerations", _full_size().pods)
    assert 300 < len(tolerating) < 500
    assert 100 < len(_with_field("nodeSelector", tuple(tolerating))) < 300


def test_some_pods_require_gpu_models_and_some_prefer_them() -> None:
    affinities = [pod["spec"]["affinity"]["nodeAffinity"] for pod in _with_field("affinity", _full_size().pods)]
    kinds = Counter(kind for affinity in affinities for kind in affinity)
    assert kinds.keys() == {
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    }
    assert all(400 < count < 700 for count in kinds.values())


def test_every_quota_gate_is_removed_once_after_its_pod_is_submitted() -> None:
    position = {pod["metadata"]["name"]: i for i, pod in enumerate(_full_size().pods)}
    gated = [
        pod["metadata"]["name"]
        for pod in _with_field("schedulingGates", _full_size().pods)
        if pod["spec"]["schedulingGates"] == [{"name": synthetic.QUOTA_GATE}]
    ]
    removals = _full_size().gate_removals
    assert sorted(removal.pod for removal in removals) == gated and len(gated) > 50
    assert all(position[removal.pod] < removal.after_submitted <= len(position) for removal in removals)
    assert [removal.after_submitted for removal in removals] == sorted(removal.after_submitted for removal in removals)


def _one_node_of_each_kind() -> list[Object]:
    """Empty nodes that differ in their names alone take the same pods."""
    of_kind = {}
    for node in _full_size().nodes:
        labels = {key: value for key, value in node["metadata"]["labels"].items() if key != synthetic.HOSTNAME}
        of_kind[json.dumps([labels, node["spec"], node["status"]])] = node
    return list(of_kind.values())


def test_a_few_pods_are_infeasible_even_in_an_empty_cluster() -> None:
    pods = _full_size().pods
    verdicts = check_feasibility(pods, _one_node_of_each_kind(), ())
    infeasible = {pod["metadata"]["name"] for pod, found in zip(pods, verdicts, strict=True) if not found.is_feasible}
    assert len(infeasible - {removal.pod for removal in _full_size().gate_removals}) == 20


def test_spread_and_pod_affinity_are_optional() -> None:
    plain = _full_size().pods
    assert not _with_field("topologySpreadConstraints", plain)
    assert not any("podAntiAffinity" in pod["spec"].get("affinity", {}) for pod in plain)


def test_spread_and_pod_affinity_change_nothing_else() -> None:
    plain, rich = _full_size(), synthetic.generate(spread=True, pod_affinity=True)
    assert len(_with_field("topologySpreadConstraints", rich.pods)) > 300
    assert sum("podAntiAffinity" in pod["spec"].get("affinity", {}) for pod in rich.pods) > 100
    assert sum("podAffinity" in pod["spec"].get("affinity", {}) for pod in rich.pods) > 100
    assert [p["spec"]["containers"] for p in rich.pods] == [p["spec"]["containers"] for p in plain.pods]
    assert (rich.nodes, rich.gate_removals) == (plain.nodes, plain.gate_removals)
