"""What placements cost by each model."""

from __future__ import annotations

import pytest

from kubestow.testing import builders
from kubestow_lab.flow.cost_models import BANDWIDTH, COST_MODELS, CostModel, CpuMem, NetworkAware, Octopus, Quincy
from kubestow_lab.flow.equivalence import formulate
from lab_tests.flow.clusters import infos, scheduler_of

MB = 10**6


def test_cpu_mem_costs_the_mean_share_and_rises_with_each_pod() -> None:
    nodes = [builders.node("a", cpu="4", memory="4Gi"), builders.node("b", cpu="4", memory="4Gi")]
    scheduler = scheduler_of(nodes, [builders.pod("running", node="b", cpu="2", memory="1Gi")])
    [pod] = infos(scheduler, builders.pod(cpu="1", memory="1Gi"))
    view, model = scheduler.cache.all_nodes(), CpuMem()
    costs = dict(zip(view.names, model.placement(pod, view).tolist(), strict=True))
    assert costs == {"a": 250, "b": 625}
    node_costs = model.nodes(view)
    assert [node_costs.total(pods * (node_costs.first > 0)) for pods in (0, 1, 2)] == [0, 200, 600]


def test_octopus_costs_a_hundred_for_each_pod_on_the_node() -> None:
    running = [builders.pod("x", node="node-1"), builders.pod("y", node="node-1")]
    view = scheduler_of(builders.nodes(2), running).cache.all_nodes()
    costs = Octopus().nodes(view)
    assert dict(zip(view.names, costs.first.tolist(), strict=True)) == {"node-0": 0, "node-1": 200}
    assert costs.step == 100


def test_quincy_costs_the_images_that_a_node_lacks() -> None:
    other = builders.node("other", images={"app:latest": 300 * MB, "side:latest": 20 * MB})
    some = builders.node("some", images={"side:latest": 20 * MB})
    scheduler = scheduler_of([other, some, builders.node("none")])
    containers = [{"name": "main", "image": "app"}, {"name": "side", "image": "side"}, {"name": "new", "image": "new"}]
    [pod] = infos(scheduler, builders.pod(spec={"containers": containers}))
    view = scheduler.cache.all_nodes()
    costs = dict(zip(view.names, Quincy().placement(pod, view).tolist(), strict=True))
    assert costs == {"other": 0, "some": 640, "none": 640}  # less than a tenth of the data counts as nothing
    model = Quincy()
    assert [model.unscheduled(seconds) for seconds in (0, 1, 4)] == [1, 501, 2001], "4 s are as dear as a GB"
    assert [model.continuation(2_000, seconds) for seconds in (0, 2, 900)] == [2_000, 1_000, 0]


def test_network_aware_costs_the_requested_share_of_the_bandwidth() -> None:
    nodes = [builders.node(name, allocatable={BANDWIDTH: "10000"}) for name in ("idle", "busy")]
    running = [builders.pod("x", node="busy", requests={BANDWIDTH: "4000"})]
    scheduler = scheduler_of([*nodes, builders.node("unknown")], running)
    [pod] = infos(scheduler, builders.pod(requests={BANDWIDTH: "2000"}))
    view = scheduler.cache.all_nodes()
    costs = dict(zip(view.names, NetworkAware().placement(pod, view).tolist(), strict=True))
    assert costs == {"idle": 200, "busy": 600, "unknown": 1_000}


@pytest.mark.parametrize("model", [model() for model in COST_MODELS.values()], ids=COST_MODELS)
def test_waiting_never_gets_cheaper_and_nothing_costs_less_than_zero(model: CostModel) -> None:
    scheduler = scheduler_of(builders.nodes(2, cpu="0"))
    [pod] = infos(scheduler, builders.pod(cpu="1"))
    view = scheduler.cache.all_nodes()
    assert (model.placement(pod, view) >= 0).all() and (model.nodes(view).first >= 0).all()
    costs = [model.unscheduled(seconds) for seconds in (0, 1, 10, 1e3, 1e6, 1e9)]
    assert costs == sorted(costs) and costs[0] > 0


def test_cpu_mem_heeds_soft_preferences_as_the_plugins_of_the_profile_score_them() -> None:
    taint = {"key": "team", "value": "x", "effect": "PreferNoSchedule"}
    nodes = [
        builders.node("plain"),
        builders.node("tainted", taints=[taint]),
        builders.node("liked", labels={"disk": "ssd"}),
        builders.node("near"),
    ]
    near = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    disk = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": disk}]},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": near}]},
    }
    db = builders.pod("db", node="near", labels={"app": "db"}, cpu="0", memory="0")
    scheduler = scheduler_of(nodes, [db])
    [pod] = infos(scheduler, builders.pod("web", cpu="1", memory="1Gi", spec={"affinity": affinity}))
    problem = formulate(scheduler.cache, scheduler.profiles, [pod], CpuMem()).problem
    costs = dict(zip(problem.nodes, problem.costs[0].tolist(), strict=True))
    assert costs["plain"] - costs["liked"] == 1_000
    assert costs["plain"] - costs["near"] == 1_000
    assert costs["tainted"] - costs["plain"] == 1_000
