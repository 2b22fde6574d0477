"""PodTopologySpread as a score, and the default constraints (semantics 8.14)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.apps import ReplicaSet
from kubestow.api.core import Pod, Service
from kubestow.testing import World, node, nodes, pod
from tests.plugins.controllers import owned_by, replica_set, replication_controller, service, stateful_set

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def soft(key: str, *, skew: int = 1, **more: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
    return constraint | more


def web(name: str = "new", *constraints: Any, node: str = "", **more: Any) -> Pod:
    return pod(name, labels={"app": "web"}, spread=constraints, node=node, **more)


def spread_scores(world: World, asked: Pod) -> dict[str, int]:
    """The scores without the weight of 2 that the default profile gives them."""
    return {name: score // 2 for name, score in world.scores(asked, "PodTopologySpread").items()}


def filled(*counts: int, zones: int = 0) -> World:
    """Nodes with so many matching pods each."""
    placed = [web(f"p{n}-{i}", node=f"node-{n}") for n, count in enumerate(counts) for i in range(count)]
    return World(nodes(len(counts), zones=zones), placed)


def test_the_reference_example_of_hosts_with_none_one_and_two_pods() -> None:
    assert spread_scores(filled(0, 1, 2), web("new", soft(HOST))) == {"node-0": 100, "node-1": 33, "node-2": 0}


def test_no_matching_pod_anywhere_is_best_everywhere() -> None:
    assert spread_scores(filled(0, 0), web("new", soft(HOST))) == {"node-0": 100, "node-1": 100}


def test_pods_count_for_all_nodes_of_their_zone() -> None:
    world = filled(3, 0, 0, 1, zones=2)
    assert spread_scores(world, web("new", soft(ZONE))) == {"node-0": 25, "node-1": 100, "node-2": 25, "node-3": 100}


def test_nodes_that_lack_a_label_take_no_part() -> None:
    world = World([node("in", zone="z"), node("out")], [web("old", node="in")])
    assert spread_scores(world, web("new", soft(ZONE))) == {"in": 100, "out": 0}


def test_constraints_add_up() -> None:
    world = filled(1, 0, 0, 0, zones=2)
    scores = spread_scores(world, web("new", soft(ZONE), soft(HOST)))
    assert scores["node-0"] < scores["node-2"] < scores["node-1"] == scores["node-3"] == 100


def test_pods_on_nodes_that_the_policies_leave_out_do_not_count() -> None:
    world = World(
        [node("a", zone="a"), node("b", zone="b"), node("a2", zone="a", taints=["team=x:NoSchedule"])],
        [web("old", node="a2")],
    )
    assert spread_scores(world, web("new", soft(ZONE))) == {"a": 0, "b": 100}
    assert spread_scores(world, web("new", soft(ZONE, nodeTaintsPolicy="Honor"))) == {"a": 100, "b": 100}


def test_pods_without_constraints_or_company_are_not_scored() -> None:
    assert World(nodes(2)).scores(pod("alone"), "PodTopologySpread") == {}


def test_pods_of_a_service_are_spread_by_default() -> None:
    world = filled(3, 0)
    assert world.scores(web(), "PodTopologySpread") == {}
    world.cluster.catalog(Service).put(service({"app": "web"}))
    scores = spread_scores(world, web())
    assert scores["node-0"] < scores["node-1"]


@pytest.mark.parametrize(
    ("owner", "metadata"),
    [
        (replication_controller({"app": "web"}), owned_by("ReplicationController", "v1")),
        (replica_set({"matchLabels": {"app": "web"}}), owned_by("ReplicaSet", "apps/v1")),
        (stateful_set({"matchLabels": {"app": "web"}}), owned_by("StatefulSet", "apps/v1")),
    ],
)
def test_pods_of_a_controller_are_spread_by_default(owner: Any, metadata: dict[str, Any]) -> None:
    world = filled(3, 0)
    owned = web(metadata=metadata)
    assert world.scores(owned, "PodTopologySpread") == {}
    world.cluster.catalog(type(owner)).put(owner)
    assert spread_scores(world, owned) == {"node-0": 33, "node-1": 100}


@pytest.mark.parametrize(
    "metadata", [owned_by("ReplicaSet", "apps/v1beta1"), owned_by("Job", "batch/v1"), owned_by("ReplicaSet", "v1")]
)
def test_other_owners_do_not_spread_pods(metadata: dict[str, Any]) -> None:
    world = filled(3, 0)
    world.cluster.catalog(ReplicaSet).put(replica_set({"matchLabels": {"app": "web"}}))
    assert world.scores(web(metadata=metadata), "PodTopologySpread") == {}


def test_a_controller_whose_selector_cannot_be_read_adds_nothing_to_a_service() -> None:
    world = filled(3, 0)
    bad = replica_set({"matchExpressions": [{"key": "app", "operator": "Near"}]})
    world.cluster.catalog(ReplicaSet).put(bad)
    owned = web(metadata=owned_by("ReplicaSet", "apps/v1"))
    assert world.scores(owned, "PodTopologySpread") == {}
    world.cluster.catalog(Service).put(service({"app": "web"}))
    assert spread_scores(world, owned) == {"node-0": 33, "node-1": 100}


def test_nodes_without_a_zone_are_one_more_zone_to_the_system_defaults() -> None:
    placed = [web(f"p{i}", node="n0") for i in range(9)]
    world = World([node("n0", zone="a"), node("n1", zone="b"), node("n2")], placed)
    world.cluster.catalog(Service).put(service({"app": "web"}))
    # Raw scores: n0 has 9 ln(3 + 2) + 2 as a host and 9 ln(3 + 2) + 4 as one of three zones, n1 has 2 + 4, n2 has 2.
    assert spread_scores(world, web()) == {"n0": 100 * 2 // 35, "n1": 100 * (37 - 6) // 35, "n2": 100}


def test_an_empty_zone_is_the_zone_of_the_nodes_that_have_none() -> None:
    world = World(
        [node("empty", zone=""), node("none"), node("other", zone="a")], [web(f"p{i}", node="none") for i in range(9)]
    )
    world.cluster.catalog(Service).put(service({"app": "web"}))
    scores = spread_scores(world, web())
    assert scores["empty"] < scores["other"]


def test_a_selector_that_cannot_be_read_fails_scoring() -> None:
    bad = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    decision = filled(1, 0).decide(web("new", soft(HOST, labelSelector=bad)))
    assert "obtaining pod's soft topology spread constraints" in decision.message


def test_scoring_without_pre_score_fails() -> None:
    profile = {"plugins": {"preScore": {"disabled": [{"name": "PodTopologySpread"}]}}}
    decision = World(nodes(2), profile=profile).decide(web("new", soft(HOST)))
    assert 'error reading "PreScorePodTopologySpread" from cycleState: not found' in decision.message
