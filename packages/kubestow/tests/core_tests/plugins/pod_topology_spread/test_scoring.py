"""Scoring by soft topology spread constraints, and default constraints (semantics 8.14)."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.plugins.controllers import owned_by, replica_set, replication_controller, service, stateful_set
from kubestow.api.apps import ReplicaSet
from kubestow.api.core import Pod, Service
from kubestow.plugins.pod_topology_spread.constraints import default_label_keys
from kubestow.testing import PluginHarness, node, nodes, pod

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def soft(key: str, *, skew: int = 1, **more: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
    return constraint | more


def web(name: str = "new", *constraints: Any, node: str = "", **more: Any) -> Pod:
    return pod(name, labels={"app": "web"}, spread=constraints, node=node, **more)


def spread_scores(harness: PluginHarness, incoming: Pod) -> dict[str, int]:
    """The scores without the weight 2 of the default profile."""
    return {name: score // 2 for name, score in harness.scores(incoming, "PodTopologySpread").items()}


def filled(*counts: int, zones: int = 0) -> PluginHarness:
    """Nodes with the given numbers of matching pods."""
    placed = [web(f"p{n}-{i}", node=f"node-{n}") for n, count in enumerate(counts) for i in range(count)]
    return PluginHarness(nodes(len(counts), zones=zones), placed)


def test_hosts_with_no_one_and_two_pods_score_as_in_kube_scheduler() -> None:
    assert spread_scores(filled(0, 1, 2), web("new", soft(HOST))) == {"node-0": 100, "node-1": 33, "node-2": 0}


def test_all_nodes_score_100_without_matching_pods() -> None:
    assert spread_scores(filled(0, 0), web("new", soft(HOST))) == {"node-0": 100, "node-1": 100}


def test_pods_count_on_all_nodes_of_their_zone() -> None:
    harness = filled(3, 0, 0, 1, zones=2)
    assert spread_scores(harness, web("new", soft(ZONE))) == {"node-0": 25, "node-1": 100, "node-2": 25, "node-3": 100}


def test_nodes_without_the_topology_key_are_ignored() -> None:
    harness = PluginHarness([node("in", zone="z"), node("out")], [web("old", node="in")])
    assert spread_scores(harness, web("new", soft(ZONE))) == {"in": 100, "out": 0}


def test_the_scores_of_several_constraints_are_added() -> None:
    harness = filled(1, 0, 0, 0, zones=2)
    scores = spread_scores(harness, web("new", soft(ZONE), soft(HOST)))
    assert scores["node-0"] < scores["node-2"] < scores["node-1"] == scores["node-3"] == 100


def test_pods_on_nodes_that_the_policies_exclude_do_not_count() -> None:
    harness = PluginHarness(
        [node("a", zone="a"), node("b", zone="b"), node("a2", zone="a", taints=["team=x:NoSchedule"])],
        [web("old", node="a2")],
    )
    assert spread_scores(harness, web("new", soft(ZONE))) == {"a": 0, "b": 100}
    assert spread_scores(harness, web("new", soft(ZONE, nodeTaintsPolicy="Honor"))) == {"a": 100, "b": 100}


def test_scoring_is_skipped_without_constraints_service_and_controller() -> None:
    assert PluginHarness(nodes(2)).scores(pod("alone"), "PodTopologySpread") == {}


def test_default_constraints_apply_to_pods_of_a_service() -> None:
    harness = filled(3, 0)
    assert harness.scores(web(), "PodTopologySpread") == {}
    harness.cluster.catalog(Service).put(service({"app": "web"}))
    scores = spread_scores(harness, web())
    assert scores["node-0"] < scores["node-1"]


@pytest.mark.parametrize(
    ("owner", "metadata"),
    [
        (replication_controller({"app": "web"}), owned_by("ReplicationController", "v1")),
        (replica_set({"matchLabels": {"app": "web"}}), owned_by("ReplicaSet", "apps/v1")),
        (stateful_set({"matchLabels": {"app": "web"}}), owned_by("StatefulSet", "apps/v1")),
    ],
)
def test_default_constraints_apply_to_pods_of_a_controller(owner: Any, metadata: dict[str, Any]) -> None:
    harness = filled(3, 0)
    owned = web(metadata=metadata)
    assert harness.scores(owned, "PodTopologySpread") == {}
    harness.cluster.catalog(type(owner)).put(owner)
    assert spread_scores(harness, owned) == {"node-0": 33, "node-1": 100}


@pytest.mark.parametrize(
    "metadata", [owned_by("ReplicaSet", "apps/v1beta1"), owned_by("Job", "batch/v1"), owned_by("ReplicaSet", "v1")]
)
def test_default_constraints_do_not_apply_to_pods_of_other_owners(metadata: dict[str, Any]) -> None:
    harness = filled(3, 0)
    harness.cluster.catalog(ReplicaSet).put(replica_set({"matchLabels": {"app": "web"}}))
    assert harness.scores(web(metadata=metadata), "PodTopologySpread") == {}


def test_the_invalid_selector_of_a_controller_is_ignored() -> None:
    harness = filled(3, 0)
    invalid = replica_set({"matchExpressions": [{"key": "app", "operator": "Near"}]})
    harness.cluster.catalog(ReplicaSet).put(invalid)
    owned = web(metadata=owned_by("ReplicaSet", "apps/v1"))
    assert harness.scores(owned, "PodTopologySpread") == {}
    harness.cluster.catalog(Service).put(service({"app": "web"}))
    assert spread_scores(harness, owned) == {"node-0": 33, "node-1": 100}


def test_nodes_without_a_zone_form_a_domain_of_the_system_default_constraints() -> None:
    placed = [web(f"p{i}", node="n0") for i in range(9)]
    harness = PluginHarness([node("n0", zone="a"), node("n1", zone="b"), node("n2")], placed)
    harness.cluster.catalog(Service).put(service({"app": "web"}))
    # Raw scores: n0 has 9 ln(3 + 2) + 2 as a host and 9 ln(3 + 2) + 4 as one of three zones, n1 has 2 + 4, n2 has 2.
    assert spread_scores(harness, web()) == {"n0": 100 * 2 // 35, "n1": 100 * (37 - 6) // 35, "n2": 100}


def test_an_empty_zone_and_a_missing_zone_are_the_same_domain() -> None:
    harness = PluginHarness(
        [node("empty", zone=""), node("none"), node("other", zone="a")], [web(f"p{i}", node="none") for i in range(9)]
    )
    harness.cluster.catalog(Service).put(service({"app": "web"}))
    scores = spread_scores(harness, web())
    assert scores["empty"] < scores["other"]


def test_an_invalid_selector_is_an_error() -> None:
    invalid = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    decision = filled(1, 0).decide(web("new", soft(HOST, labelSelector=invalid)))
    assert "obtaining pod's soft topology spread constraints" in decision.message


def test_scoring_without_pre_score_fails() -> None:
    profile = {"plugins": {"preScore": {"disabled": [{"name": "PodTopologySpread"}]}}}
    decision = PluginHarness(nodes(2), profile=profile).decide(web("new", soft(HOST)))
    assert 'error reading "PreScorePodTopologySpread" from cycleState: not found' in decision.message


def test_default_constraints_depend_on_the_labels_that_services_of_the_namespace_select() -> None:
    harness = PluginHarness()
    for each in (service({"app": "web"}), service({"tier": "fast"}, name="other", namespace="elsewhere")):
        harness.cluster.catalog(type(each)).put(each)
    shape = harness.info(pod("p", labels={"app": "db", "tier": "fast"})).shape
    assert default_label_keys(harness.cluster, shape) == {"app"}
