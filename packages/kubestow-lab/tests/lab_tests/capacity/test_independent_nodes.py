"""Placing copies in rounds gives what deciding about one after another gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.framework.evaluation.row_totals import BestRows
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.node_selection import FirstByName, TieBreak
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.testing import builders
from kubestow_lab.capacity.estimate import Capacity, CapacityOptions, estimate
from kubestow_lab.capacity.independent_nodes import random_order
from kubestow_lab.capacity.pod_template import PodTemplate
from lab_tests.capacity.test_capacity import template_manifest

Object = dict[str, Any]


@dataclass(frozen=True)
class OneByOne:
    """Chooses as FirstByName does; it is unknown to the estimate, which therefore decides about each instance."""

    def choose(self, cluster: ClusterCache, rows: BestRows) -> int:
        return FirstByName().choose(cluster, rows)


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    return [
        builders.node(
            f"n{index}",
            cpu=str(draw(st.integers(1, 4))),
            memory=f"{draw(st.integers(1, 8))}Gi",
            max_pods=draw(st.integers(1, 12)),
            zone=draw(st.sampled_from("ab")),
            taints=draw(st.sampled_from([(), ("team=a:PreferNoSchedule",), ("team=a:NoSchedule",)])),
        )
        for index in range(draw(st.integers(1, 6)))
    ]


@st.composite
def templates(draw: st.DrawFn) -> Object:
    manifest = template_manifest(cpu=f"{draw(st.integers(1, 8)) * 125}m")
    manifest["metadata"]["labels"] = {"app": "web"}
    zone, selector, spec = "topology.kubernetes.io/zone", {"matchLabels": {"app": "web"}}, manifest["spec"]
    match draw(st.sampled_from(["plain", "spread", "affinity", "anti-affinity", "port"])):
        case "spread":
            when = draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]))
            constraint = {"topologyKey": zone, "labelSelector": selector, "maxSkew": 1, "whenUnsatisfiable": when}
            spec["topologySpreadConstraints"] = [constraint]
        case "affinity":
            term = {"matchExpressions": [{"key": zone, "operator": "In", "values": ["a"]}]}
            preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": term}]}
            spec["affinity"] = {"nodeAffinity": preferred}
        case "anti-affinity":
            terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        case "port":
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return manifest


def placed(within: list[Node], pods: list[Pod], manifest: Object, ties: TieBreak | None) -> Capacity:
    return estimate(
        ClusterObjects.of(within, pods),
        PodTemplate(manifest, "pod.yaml"),
        config.default_configuration(config.FeatureGates()),
        registry=in_tree_registry(),
        options=CapacityOptions(ties=ties, seed=1),
    )


@settings(deadline=None, max_examples=50)
@given(nodes(), templates(), st.lists(st.integers(0, 5), max_size=4))
def test_placements_are_those_of_deciding_one_by_one(within: list[Node], manifest: Object, occupied: list[int]) -> None:
    pods = [
        builders.pod(f"old-{i}", cpu="250m", node=f"n{row}", metadata={"uid": f"old-{i}"})
        for i, row in enumerate(occupied)
        if row < len(within)
    ]
    in_rounds, one_by_one = (placed(within, pods, manifest, ties) for ties in (FirstByName(), OneByOne()))
    assert in_rounds.nodes == one_by_one.nodes
    assert in_rounds.reason == one_by_one.reason


def test_copies_of_a_plain_pod_are_placed_in_rounds(monkeypatch: Any) -> None:
    decisions = Counter[str]()
    decide = DecisionPipeline.decide_by_plugins

    def counted(self: Any, *arguments: Any) -> Any:
        decisions["made"] += 1
        return decide(self, *arguments)

    monkeypatch.setattr(DecisionPipeline, "decide_by_plugins", counted)
    found = placed([builders.node("a"), builders.node("b")], [], template_manifest(cpu="100m"), None)
    assert (found.replicas, decisions["made"]) == (80, 1)


@settings(deadline=None)
@given(
    st.dictionaries(st.text("abc", min_size=1), st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1),
    st.integers(),
)
def test_each_random_choice_is_one_of_the_best(totals: dict[str, list[int]], seed: int) -> None:
    remaining = {name: list(values) for name, values in totals.items()}
    for name in random_order(totals, Random(seed)):
        assert remaining[name][0] == max(values[0] for values in remaining.values() if values)
        remaining[name].pop(0)
    assert not any(remaining.values())


def test_random_choices_among_equals_are_uniform() -> None:
    totals = {"a": [1, 1], "b": [1], "c": [0]}
    orders = Counter(tuple(random_order(totals, Random(seed))) for seed in range(4000))
    assert {order[-1] for order in orders} == {"c"}
    # First a or b, each in half of the runs; after a, again a or b.
    for order, share in ((("b", "a", "a", "c"), 0.5), (("a", "b", "a", "c"), 0.25), (("a", "a", "b", "c"), 0.25)):
        assert abs(orders[order] / 4000 - share) < 0.04
