"""Filtering by hard topology spread constraints (semantics 8.14)."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.plugins.controllers import service
from kubestow.api.core import Pod, Service
from kubestow.cluster.cache import Cluster
from kubestow.testing import PluginHarness, node, nodes, pod

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SKEWED = ("PodTopologySpread", ("node(s) didn't match pod topology spread constraints",))
MISSING_LABEL = (
    "PodTopologySpread",
    ("node(s) didn't match pod topology spread constraints (missing required label)",),
)


def hard(key: str = ZONE, *, skew: int = 1, selector: Any = "web", **more: Any) -> dict[str, Any]:
    """A DoNotSchedule constraint on pods with a value of the label ``app``."""
    selects = {"matchLabels": {"app": selector}} if isinstance(selector, str) else selector
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selects}
    return constraint | more


def web(name: str = "new", *constraints: Any, **more: Any) -> Pod:
    return pod(name, labels={"app": "web", "version": "2"}, spread=constraints, **more)


def test_a_domain_that_would_exceed_max_skew_is_rejected() -> None:
    harness = PluginHarness(nodes(4, zones=2), [web("a", node="node-0")])
    assert harness.rejections(web("new", hard())) == {"node-0": SKEWED, "node-2": SKEWED}


def test_max_skew_permits_more_than_one_pod_of_difference() -> None:
    harness = PluginHarness(nodes(2, zones=2), [web("a", node="node-0")])
    assert harness.feasible(web("new", hard(skew=2))) == {"node-0", "node-1"}


def test_a_node_without_the_topology_key_is_unresolvable() -> None:
    harness = PluginHarness([node("in", zone="z"), node("out")])
    assert harness.rejections(web("new", hard())) == {"out": MISSING_LABEL}


def test_the_first_violated_constraint_gives_the_reason() -> None:
    harness = PluginHarness([node("a", zone="z"), node("b")], [web("old", node="a")])
    refused = harness.rejections(web("new", hard(HOST, skew=1, selector="web"), hard(ZONE)))
    # Only node a is eligible, since b lacks a topology key: the minimum is the count of a itself.
    assert refused == {"b": MISSING_LABEL}


def test_pods_of_other_namespaces_and_terminating_pods_do_not_count() -> None:
    others = [web("a", node="node-0", namespace="other"), web("b", node="node-0", deleting=True)]
    assert PluginHarness(nodes(2, zones=2), others).rejections(web("new", hard())) == {}


def test_with_fewer_domains_than_min_domains_the_minimum_is_zero() -> None:
    harness = PluginHarness(nodes(2, zones=2), [web("a", node="node-0"), web("b", node="node-1")])
    assert harness.feasible(web("new", hard(minDomains=2))) == {"node-0", "node-1"}
    assert harness.rejections(web("new", hard(minDomains=3))) == {"node-0": SKEWED, "node-1": SKEWED}


def test_pods_count_on_nodes_that_match_the_pods_node_selector() -> None:
    harness = PluginHarness([node("a", zone="a", labels={"disk": "ssd"}), node("b", zone="b")], [web("old", node="a")])
    selective = {"node_selector": {"disk": "ssd"}}
    assert harness.feasible(web("new", hard(), **selective)) == {"a"}
    assert harness.feasible(web("new", hard(nodeAffinityPolicy="Ignore"), **selective)) == set()


def test_pods_on_tainted_nodes_count_unless_the_constraint_honors_taints() -> None:
    harness = PluginHarness(
        [node("a", zone="a"), node("b", zone="b", taints=["team=x:NoSchedule"])], [web("old", node="a")]
    )
    assert harness.feasible(web("new", hard())) == set()
    assert harness.feasible(web("new", hard(nodeTaintsPolicy="Honor"))) == {"a"}


def test_match_label_keys_add_the_pods_label_values_to_the_selector() -> None:
    other_version = pod("old", labels={"app": "web", "version": "1"}, node="node-0")
    constraint = hard(matchLabelKeys=["version", "absent"])
    assert PluginHarness(nodes(2, zones=2), [other_version]).rejections(web("new", constraint)) == {}
    gates = {
        "MatchLabelKeysInPodTopologySpread": False,
        "MatchLabelKeysInPodTopologySpreadSelectorMerge": False,
    }
    ignoring = PluginHarness(nodes(2, zones=2), [other_version], gates=gates)
    assert ignoring.rejections(web("new", constraint)) == {"node-0": SKEWED}


def test_a_missing_selector_matches_no_pods() -> None:
    harness = PluginHarness(nodes(2, zones=2), [web("a", node="node-0")])
    assert harness.rejections(web("new", hard(selector=None))) == {}


def test_an_empty_selector_counts_the_incoming_pod_only() -> None:
    harness = PluginHarness(nodes(2, zones=2), [web("a", node="node-0")])
    assert harness.feasible(web("new", hard(selector={}))) == {"node-0", "node-1"}
    assert harness.feasible(web("new", hard(selector={}, skew=0))) == set()


def test_an_invalid_selector_is_an_error() -> None:
    invalid = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    decision = PluginHarness(nodes(2, zones=2)).decide(web("new", hard(selector=invalid)))
    assert "get constraints from pod: obtaining pod's hard topology spread constraints" in decision.message


def test_counts_follow_a_node_whose_zone_changes() -> None:
    harness = PluginHarness([node("a", zone="a"), node("b", zone="b"), node("c", zone="c")], [web("old", node="a")])
    assert set(harness.rejections(web("new", hard()))) == {"a"}
    harness.cluster.update_node(node("a", zone="b"))
    assert set(harness.rejections(web("new", hard()))) == {"a", "b"}


def test_default_constraints_can_be_hard() -> None:
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    args = {"defaultConstraints": [spread], "defaultingType": "List"}
    config = [{"name": "PodTopologySpread", "args": args}]
    harness = PluginHarness(nodes(2, zones=2), [web("a", node="node-0")], profile={"pluginConfig": config})
    assert harness.rejections(web()) == {}  # no service or controller selects the pod
    harness.cluster.catalog(Service).put(service({"app": "web"}))
    assert harness.rejections(web()) == {"node-0": SKEWED}


def test_filtering_without_pre_filter_fails() -> None:
    profile = {"plugins": {"preFilter": {"disabled": [{"name": "PodTopologySpread"}]}}}
    message = PluginHarness(nodes(2, zones=2), profile=profile).decide(web("new", hard())).message
    assert message.endswith('reading "PreFilterPodTopologySpread" from cycleState: not found')


def test_constraints_on_keys_that_no_node_has_count_no_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = PluginHarness(nodes(2, zones=2), [web("a", node="node-0")])
    kinds = ("DoNotSchedule", "ScheduleAnyway")
    many = [hard(f"k{n}", whenUnsatisfiable=kind, selector=f"a{n}") for n in range(50) for kind in kinds]
    monkeypatch.setattr(Cluster, "counter", None)
    assert harness.rejections(web("new", hard(), *many)) == {"node-0": MISSING_LABEL, "node-1": MISSING_LABEL}
    assert set(harness.scores(web("soft", *many[1::2]), "PodTopologySpread").values()) == {0}


def test_a_key_counts_as_soon_as_a_node_has_it_and_no_longer() -> None:
    harness = PluginHarness([node("a", zone="z1"), node("b", zone="z2")], [web("old", node="a")])
    incoming = web("new", hard(), hard("rack"))
    assert harness.rejections(incoming) == {"a": MISSING_LABEL, "b": MISSING_LABEL}
    harness.cluster.update_node(node("a", zone="z1", labels={"rack": "r1"}))
    harness.cluster.update_node(node("b", zone="z2", labels={"rack": "r2"}))
    assert harness.rejections(incoming) == {"a": SKEWED}
    harness.cluster.update_node(node("b", zone="z2"))
    harness.cluster.update_node(node("a", zone="z1"))
    assert harness.rejections(incoming) == {"a": MISSING_LABEL, "b": MISSING_LABEL}
