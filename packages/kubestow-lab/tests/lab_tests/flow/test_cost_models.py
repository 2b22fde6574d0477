"""What placements cost by each model."""

from __future__ import annotations

import pytest

from kubestow.testing import builders
from kubestow_lab.flow.cost_models import COST_MODELS, CostModel, CpuMem, Octopus, Quincy
from lab_tests.flow.clusters import infos, scheduler_of

MIB = 2**20


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
    other = builders.node("other", images={"app:latest": 300 * MIB, "side:latest": 20 * MIB})
    some = builders.node("some", images={"side:latest": 20 * MIB})
    scheduler = scheduler_of([other, some, builders.node("none")])
    containers = [{"name": "main", "image": "app"}, {"name": "side", "image": "side"}, {"name": "new", "image": "new"}]
    [pod] = infos(scheduler, builders.pod(spec={"containers": containers}))
    view = scheduler.cache.all_nodes()
    costs = dict(zip(view.names, Quincy().placement(pod, view).tolist(), strict=True))
    assert costs == {"other": 0, "some": 640, "none": 640}  # less than a tenth of the data counts as nothing
    assert (Quincy().unscheduled(0), Quincy().unscheduled(60)) == (1, 31)
    assert (Quincy().continuation(100, 0), Quincy().continuation(100, 100), Quincy().continuation(100, 900)) == (
        100,
        50,
        0,
    )


@pytest.mark.parametrize("model", [model() for model in COST_MODELS.values()], ids=COST_MODELS)
def test_waiting_never_gets_cheaper_and_nothing_costs_less_than_zero(model: CostModel) -> None:
    scheduler = scheduler_of(builders.nodes(2, cpu="0"))
    [pod] = infos(scheduler, builders.pod(cpu="1"))
    view = scheduler.cache.all_nodes()
    assert (model.placement(pod, view) >= 0).all() and (model.nodes(view).first >= 0).all()
    costs = [model.unscheduled(seconds) for seconds in (0, 1, 10, 1e3, 1e6, 1e9)]
    assert costs == sorted(costs) and costs[0] > 0
