"""Topology spread and inter-pod (anti-)affinity in the feasibility check."""

from __future__ import annotations

from typing import Any

from kubestow_lab.oracle.feasibility import check_feasibility
from lab_tests.oracle.manifests import Manifest, in_zone, node, pod

NODES = [in_zone("east", node("e1")), in_zone("east", node("e2")), in_zone("west", node("w1")), node("unlabelled")]
WEB = {"app": "web"}


def _term(key: str = "zone", **labels: str) -> Manifest:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or WEB}}


def _affinity(kind: str, *terms: Manifest) -> Manifest:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def _feasible_nodes(pending: Manifest, *bound: Manifest, nodes: list[Manifest] = NODES) -> set[str]:
    return set(check_feasibility([pending], nodes, bound)[0].nodes)


def _spreading(max_skew: int = 1, **more: Any) -> Manifest:
    constraint = {
        "topologyKey": "zone",
        "maxSkew": max_skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
    }
    return pod(labels=WEB, topologySpreadConstraints=[constraint | more])


def test_pod_affinity_requires_the_domain_of_a_matching_pod() -> None:
    pending = pod(affinity=_affinity("podAffinity", _term()))
    assert _feasible_nodes(pending, pod("a", on="e1", labels=WEB)) == {"e1", "e2"}


def test_pod_affinity_without_a_matching_pod_is_infeasible() -> None:
    assert _feasible_nodes(pod(affinity=_affinity("podAffinity", _term())), pod("a", on="e1")) == set()


def test_the_first_pod_of_a_group_can_use_every_domain() -> None:
    assert _feasible_nodes(pod(labels=WEB, affinity=_affinity("podAffinity", _term()))) == {"e1", "e2", "w1"}


def test_all_pod_affinity_terms_must_match() -> None:
    pending = pod(affinity=_affinity("podAffinity", _term(), _term("kubernetes.io/hostname")))
    assert _feasible_nodes(pending, pod("a", on="e1", labels=WEB)) == {"e1"}


def test_anti_affinity_excludes_the_domain_but_not_nodes_without_the_label() -> None:
    anti_affine = pod(affinity=_affinity("podAntiAffinity", _term()))
    assert _feasible_nodes(anti_affine, pod("a", on="e1", labels=WEB)) == {"w1", "unlabelled"}


def test_anti_affinity_of_existing_pods_is_checked() -> None:
    anti_affine = pod("a", on="e1", affinity=_affinity("podAntiAffinity", _term()))
    assert _feasible_nodes(pod(labels=WEB), anti_affine) == {"w1", "unlabelled"}
    assert _feasible_nodes(pod(), anti_affine) == {"e1", "e2", "w1", "unlabelled"}


def test_terms_default_to_the_namespace_of_their_pod() -> None:
    other = pod("a", on="e1", labels=WEB)
    other["metadata"]["namespace"] = "elsewhere"
    assert "e1" in _feasible_nodes(pod(affinity=_affinity("podAntiAffinity", _term())), other)
    named = _term() | {"namespaces": ["elsewhere"]}
    assert "e1" not in _feasible_nodes(pod(affinity=_affinity("podAntiAffinity", named)), other)
    everywhere = _term() | {"namespaceSelector": {}}
    assert "e1" not in _feasible_nodes(pod(affinity=_affinity("podAntiAffinity", everywhere)), other)


def test_spread_enforces_max_skew() -> None:
    assert _feasible_nodes(_spreading(), pod("a", on="e1", labels=WEB)) == {"w1"}
    assert _feasible_nodes(_spreading(max_skew=2), pod("a", on="e1", labels=WEB)) == {"e1", "e2", "w1"}


def test_spread_ignores_terminating_pods_and_other_namespaces() -> None:
    terminating, other = pod("a", on="e1", labels=WEB), pod("b", on="e1", labels=WEB)
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    other["metadata"]["namespace"] = "elsewhere"
    assert _feasible_nodes(_spreading(), terminating, other) == {"e1", "e2", "w1"}


def test_with_fewer_than_min_domains_the_global_minimum_is_zero() -> None:
    bound = [pod("a", on="e1", labels=WEB), pod("b", on="w1", labels=WEB)]
    assert _feasible_nodes(_spreading(), *bound) == {"e1", "e2", "w1"}
    assert _feasible_nodes(_spreading(minDomains=3), *bound) == set()


def test_spread_honors_the_node_affinity_policy() -> None:
    pending = _spreading()
    pending["spec"]["nodeSelector"] = {"zone": "east"}
    assert _feasible_nodes(pending, pod("a", on="e1", labels=WEB)) == {"e1", "e2"}
    pending = _spreading(nodeAffinityPolicy="Ignore")
    pending["spec"]["nodeSelector"] = {"zone": "east"}
    assert _feasible_nodes(pending, pod("a", on="e1", labels=WEB)) == set()


def test_spread_honors_the_node_taints_policy() -> None:
    tainted = in_zone("west", node("w1"))
    tainted["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    bound = pod("a", on="e1", labels=WEB)
    assert _feasible_nodes(_spreading(), bound, nodes=[*NODES[:2], tainted]) == set()
    assert _feasible_nodes(_spreading(nodeTaintsPolicy="Honor"), bound, nodes=[*NODES[:2], tainted]) == {"e1", "e2"}


def test_spread_honors_match_label_keys() -> None:
    pending = _spreading(matchLabelKeys=["revision"])
    pending["metadata"]["labels"] = WEB | {"revision": "2"}
    assert _feasible_nodes(pending, pod("a", on="e1", labels=WEB | {"revision": "1"})) == {"e1", "e2", "w1"}


def test_soft_constraints_are_ignored() -> None:
    bound = pod("a", on="e1", labels=WEB)
    assert _feasible_nodes(_spreading(whenUnsatisfiable="ScheduleAnyway"), bound) == {"e1", "e2", "w1", "unlabelled"}
