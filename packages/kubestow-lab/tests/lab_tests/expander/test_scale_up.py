"""Would pods fit with some nodes more, and which option for a scale-up is the best."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.engine.pipeline.static_handle import DEFAULT_TIME, StaticHandle
from kubestow.framework.interface import ScorePlugin
from kubestow.framework.profile import build_profile, implements
from kubestow.plugins import in_tree_registry
from kubestow.testing import node, pod, pods
from kubestow_lab.expander.scale_up import (
    NodeTemplate,
    OutOfTime,
    QuestionTooLarge,
    ScaleUpOption,
    ScaleUpSimulator,
)


class CheapFirst(ScorePlugin):
    """Prefers nodes with a low price."""

    name = "CheapFirst"

    def score(self, state: Any, pod: Any, nodes: Nodes) -> Any:
        return nodes.by_label("price", lambda price: 100 - int(price or 0))


def simulator(
    *nodes: Node, placed: tuple[Pod, ...] = (), clock: Callable[[], float] = time.monotonic, cheap: bool = False
) -> tuple[Cluster, ScaleUpSimulator]:
    """A cluster, and a simulator that packs tightly, or prefers cheap nodes."""
    gates, registry = config.FeatureGates(), in_tree_registry() | {CheapFirst.name: CheapFirst}
    scores: dict[str, Any] = {
        "disabled": [{"name": "*"}],
        "enabled": [{"name": "CheapFirst" if cheap else "NodeResourcesFit"}],
    }
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"score": scores},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}],
    }
    document = {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [profile]}
    configuration = config.load(document, subject="test", gates=gates, implements=implements(registry))
    cluster = Cluster(gates=gates)
    built = build_profile(configuration.profiles[0], registry, StaticHandle(cluster, gates, DEFAULT_TIME))
    for each in nodes:
        cluster.add_node(each)
    for old in placed:
        cluster.put_pod(cluster.shapes.info(old))
    return cluster, ScaleUpSimulator(cluster, {"default-scheduler": built}, monotonic=clock)


def option(group: str, cpu: str, count: int, waiting: list[Pod], price: int = 0, **more: Any) -> ScaleUpOption:
    template = node(f"template-{group}", cpu=cpu, labels={"price": str(price)}, **more)
    return ScaleUpOption(group, NodeTemplate(template, count), waiting)


def test_pods_are_placed_with_the_added_nodes_and_the_cluster_is_as_before() -> None:
    cluster, found = simulator(node("n", cpu="4"), placed=(pod("old", cpu="3", node="n"),))
    waiting = [pod("small", cpu="1"), pod("web-1", cpu="3"), pod("web-2", cpu="3"), pod("large", cpu="9")]
    placements = found.simulate(waiting, [NodeTemplate(node("new", cpu="4"), 1)], 5)
    assert [each.node_name for each in placements] == ["n", "new-simulated-1", "", ""]
    assert "2 Insufficient cpu" in placements[2].reason
    assert list(cluster.nodes.names) == ["n"]
    assert [each.node_name for each in found.simulate(waiting, [], 5)] == ["n", "", "", ""]
    assert [each.node_name for each in found.simulate([pod("old", cpu="3")], [], 5)] == ["n"]


def test_constraints_between_pods_hold_on_added_nodes() -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    ]}}  # fmt: skip
    _, found = simulator(node("n", cpu="4"))
    waiting = pods(4, labels={"app": "db"}, affinity=apart)
    placements = found.simulate(waiting, [NodeTemplate(node("new"), 2)], 5)
    assert sorted(each.node_name for each in placements) == ["", "n", "new-simulated-1", "new-simulated-2"]


def test_the_best_option_places_most_pods_then_is_what_plugins_prefer_then_leaves_least_unused() -> None:
    waiting = pods(4, cpu="2")
    few, tight, loose = (
        option("few", "4", 1, waiting),
        option("tight", "8", 1, waiting),
        option("loose", "16", 1, waiting),
    )
    _, found = simulator(node("n", cpu="1", labels={"price": "0"}))
    [best] = found.best_options([few, loose, tight], 5)
    assert best.option is tight
    assert str(best) == "kubestow: 4 of 4 pods fit with 1 node more, score 25 of 100, 50% unused"
    dear, cheap = option("dear", "8", 1, waiting, price=90), option("cheap", "64", 1, waiting, price=10)
    _, found = simulator(node("n", cpu="1", labels={"price": "0"}), cheap=True)
    [best] = found.best_options([dear, cheap], 5)
    assert best.option is cheap


def test_plugins_score_the_options_if_every_node_is_feasible() -> None:
    waiting = pods(2, cpu="2")
    options = [option("dear", "8", 1, waiting, price=90), option("cheap", "8", 1, waiting, price=10)]
    _, found = simulator(node("full", cpu="8", labels={"price": "0"}), cheap=True)
    [best] = found.best_options(options, 5)
    assert (best.option.node_group, best.score) == ("cheap", 90.0)


def test_equal_options_are_all_best_and_none_is_if_no_pod_is_helped() -> None:
    waiting = pods(2, cpu="2")
    _, found = simulator(node("n", cpu="1"))
    equal = [option(group, "4", 1, waiting) for group in ("a", "b")]
    assert [each.option.node_group for each in found.best_options(equal, 5)] == ["a", "b"]
    tainted = option("tainted", "64", 1, waiting, taints=["dedicated=x:NoSchedule"])
    assert [each.option.node_group for each in found.best_options([tainted, equal[0]], 5)] == ["a"]
    assert found.best_options([tainted], 5) == []
    assert found.best_options([], 5) == []


def test_questions_are_bounded() -> None:
    ticks = iter(range(10**6))
    cluster, found = simulator(node("n"), clock=lambda: float(next(ticks)))
    with pytest.raises(OutOfTime, match="out of time after 2 of 9 pods"):
        found.simulate(pods(9, cpu="100m"), [NodeTemplate(node("new"), 3)], 2)
    assert list(cluster.nodes.names) == ["n"]
    assert not cluster.nodes.requested["cpu"].values.any()
    with pytest.raises(QuestionTooLarge, match="1,001 added nodes, expected at most 1,000"):
        found.simulate([], [NodeTemplate(node("new"), 1_001)], 5)
    with pytest.raises(QuestionTooLarge, match="501 options"):
        found.best_options([option("a", "1", 1, [])] * 501, 5)
