"""The cluster drawn after openb: its frequencies, what is laid over it, and that it is always the same."""

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

from kubestow.workloads import report, synthetic
from kubestow.workloads.gpu import GPU, GPU_MILLI, GPU_MODEL
from kubestow.workloads.workload import Object, Workload

TABLE = {"common": 90, "rare": 9, "rarest": 1}


@cache
def _full_size() -> Workload:
    return synthetic.draw()


def _everything(workload: Workload) -> str:
    return json.dumps([workload.nodes, workload.pods, workload.priority_classes, [str(g) for g in workload.gate_lifts]])


def _carrying(field: str, pods: tuple[Object, ...]) -> list[Object]:
    return [pod for pod in pods if field in pod["spec"]]


def test_a_sample_of_the_tables_own_size_is_the_table() -> None:
    assert Counter(synthetic.sample(TABLE, 100, Random(1))) == TABLE


@given(size=st.integers(0, 300), seed=st.integers(0, 1000))
def test_a_sample_gives_each_key_its_share_to_within_one(size: int, seed: int) -> None:
    drawn = Counter(synthetic.sample(TABLE, size, Random(seed)))
    assert drawn.total() == size
    assert all(abs(drawn[key] - size * count / 100) < 1 for key, count in TABLE.items())


def test_at_full_size_the_cluster_offers_what_openb_offers() -> None:
    offered = {u.resource: u.allocatable for u in report.utilisation(_full_size().nodes, ())}
    assert (offered["cpu"], offered["memory"], offered[GPU]) == (107_018_000, 503_828_480 * 2**20, 6_212)
    models = Counter(node["metadata"]["labels"][GPU_MODEL] for node in _full_size().nodes)
    assert models["G2"] == 549


def test_at_full_size_the_pods_ask_for_what_openbs_pods_ask_but_for_the_hopeless_ones() -> None:
    containers = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in _full_size().pods]
    shares = sum(GPU_MILLI in requests and GPU not in requests for requests in containers)
    sixteen = [requests for requests in containers if requests.get(GPU) == "16"]
    asked = sum(int(requests.get(GPU_MILLI, 0)) for requests in containers if requests not in sixteen)
    assert abs(shares - 3_078) <= len(sixteen) == 4
    assert asked == pytest.approx(6_086_800, abs=4 * 8000)


def test_the_same_arguments_draw_the_same_objects_in_any_process() -> None:
    code = (
        "import json, sys; from kubestow.workloads import synthetic;"
        "w = synthetic.draw(nodes=30, pods=200, spread=True, pod_affinity=True);"
        "sys.stdout.write(json.dumps([w.nodes, w.pods, w.priority_classes, [str(g) for g in w.gate_lifts]]))"
    )
    drawn = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert drawn.stdout == _everything(synthetic.draw(nodes=30, pods=200, spread=True, pod_affinity=True))


def test_another_seed_draws_another_workload() -> None:
    assert synthetic.draw(nodes=30, pods=200, seed=1).pods != synthetic.draw(nodes=30, pods=200, seed=2).pods


@pytest.mark.parametrize(("nodes", "pods"), [(0, 0), (1, 1), (5, 0), (0, 7), (40, 333)])
def test_it_scales_to_any_size(nodes: int, pods: int) -> None:
    workload = synthetic.draw(nodes=nodes, pods=pods)
    assert (len(workload.nodes), len(workload.pods)) == (nodes, pods)


def test_names_are_never_used_twice() -> None:
    names = [thing["metadata"]["name"] for thing in (*_full_size().nodes, *_full_size().pods)]
    assert len(names) == len(set(names))


def test_every_zone_has_its_part_of_the_nodes_and_of_the_dedicated_ones() -> None:
    zones, dedicated = Counter[str](), Counter[str]()
    for node in _full_size().nodes:
        zone = node["metadata"]["labels"][synthetic.ZONE]
        zones[zone] += 1
        dedicated[zone] += "taints" in node["spec"]
    assert len(zones) == 5 and max(zones.values()) - min(zones.values()) <= 1
    assert dedicated.total() == 75 and max(dedicated.values()) - min(dedicated.values()) <= 1


def test_pods_name_priority_classes_that_the_workload_brings_along() -> None:
    values = {c["metadata"]["name"]: c["value"] for c in _full_size().priority_classes}
    used = Counter(pod["spec"]["priorityClassName"] for pod in _full_size().pods)
    assert used.keys() == values.keys() and 0 < used["critical"] < 200
    assert all(pod["spec"]["priority"] == values[pod["spec"]["priorityClassName"]] for pod in _full_size().pods)


def test_some_pods_tolerate_the_teams_taint_and_some_of_them_stay_on_its_nodes() -> None:
    tolerating = _carrying("tolerations", _full_size().pods)
    assert 300 < len(tolerating) < 500
    assert 100 < len(_carrying("nodeSelector", tuple(tolerating))) < 300


def test_some_pods_need_gpu_models_and_some_prefer_them() -> None:
    affinities = [pod["spec"]["affinity"]["nodeAffinity"] for pod in _carrying("affinity", _full_size().pods)]
    kinds = Counter(kind for affinity in affinities for kind in affinity)
    assert kinds.keys() == {
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    }
    assert all(400 < count < 700 for count in kinds.values())


def test_every_quota_gate_is_lifted_once_after_its_pod_was_submitted() -> None:
    position = {pod["metadata"]["name"]: i for i, pod in enumerate(_full_size().pods)}
    gated = [
        pod["metadata"]["name"]
        for pod in _carrying("schedulingGates", _full_size().pods)
        if pod["spec"]["schedulingGates"] == [{"name": synthetic.QUOTA_GATE}]
    ]
    lifts = _full_size().gate_lifts
    assert sorted(lift.pod for lift in lifts) == gated and len(gated) > 50
    assert all(position[lift.pod] < lift.after_submitted <= len(position) for lift in lifts)
    assert [lift.after_submitted for lift in lifts] == sorted(lift.after_submitted for lift in lifts)


def test_a_few_pods_can_go_nowhere_even_in_an_empty_cluster() -> None:
    summary = report.summarise(_full_size().nodes, _full_size().pods)
    stuck = [pod for group in summary.pending for pod in group.pods if pod not in group.missed]
    waiting = {f"{lift.namespace}/{lift.pod}" for lift in _full_size().gate_lifts}
    assert len(set(stuck) - waiting) == 20


def test_spread_and_pod_affinity_are_left_out_unless_asked_for() -> None:
    plain = _full_size().pods
    assert not _carrying("topologySpreadConstraints", plain)
    assert not any("podAntiAffinity" in pod["spec"].get("affinity", {}) for pod in plain)


def test_asking_for_spread_and_pod_affinity_adds_them_and_changes_nothing_else() -> None:
    plain, rich = _full_size(), synthetic.draw(spread=True, pod_affinity=True)
    assert len(_carrying("topologySpreadConstraints", rich.pods)) > 300
    assert sum("podAntiAffinity" in pod["spec"].get("affinity", {}) for pod in rich.pods) > 100
    assert sum("podAffinity" in pod["spec"].get("affinity", {}) for pod in rich.pods) > 100
    assert [p["spec"]["containers"] for p in rich.pods] == [p["spec"]["containers"] for p in plain.pods]
    assert (rich.nodes, rich.gate_lifts) == (plain.nodes, plain.gate_lifts)
