"""Topology spread and inter-pod (anti-)affinity, as the judge sees them."""

from __future__ import annotations

from typing import Any

from kubestow.workloads.placeability import placeable
from tests.workloads.manifests import Manifest, in_zone, node, pod

NODES = [in_zone("east", node("e1")), in_zone("east", node("e2")), in_zone("west", node("w1")), node("nowhere")]
WEB = {"app": "web"}


def _term(key: str = "zone", **labels: str) -> Manifest:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or WEB}}


def _affinity(kind: str, *terms: Manifest) -> Manifest:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def _takers(pending: Manifest, *bound: Manifest, nodes: list[Manifest] = NODES) -> set[str]:
    return set(placeable([pending], nodes, bound)[0].nodes)


def _spreading(max_skew: int = 1, **more: Any) -> Manifest:
    constraint = {
        "topologyKey": "zone",
        "maxSkew": max_skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
    }
    return pod(labels=WEB, topologySpreadConstraints=[constraint | more])


def test_affinity_draws_a_pod_into_the_domain_of_its_kind() -> None:
    wanting = pod(affinity=_affinity("podAffinity", _term()))
    assert _takers(wanting, pod("a", on="e1", labels=WEB)) == {"e1", "e2"}


def test_affinity_without_a_match_leaves_no_node() -> None:
    assert _takers(pod(affinity=_affinity("podAffinity", _term())), pod("a", on="e1")) == set()


def test_the_first_pod_of_a_group_may_go_wherever_there_is_a_domain() -> None:
    assert _takers(pod(labels=WEB, affinity=_affinity("podAffinity", _term()))) == {"e1", "e2", "w1"}


def test_all_terms_of_affinity_must_be_met() -> None:
    wanting = pod(affinity=_affinity("podAffinity", _term(), _term("kubernetes.io/hostname")))
    assert _takers(wanting, pod("a", on="e1", labels=WEB)) == {"e1"}


def test_anti_affinity_keeps_a_pod_out_of_the_domain_but_not_off_nodes_without_one() -> None:
    shunning = pod(affinity=_affinity("podAntiAffinity", _term()))
    assert _takers(shunning, pod("a", on="e1", labels=WEB)) == {"w1", "nowhere"}


def test_the_anti_affinity_of_bound_pods_counts_too() -> None:
    shunning = pod("a", on="e1", affinity=_affinity("podAntiAffinity", _term()))
    assert _takers(pod(labels=WEB), shunning) == {"w1", "nowhere"}
    assert _takers(pod(), shunning) == {"e1", "e2", "w1", "nowhere"}


def test_terms_speak_of_their_owners_namespace_unless_they_name_others() -> None:
    other = pod("a", on="e1", labels=WEB)
    other["metadata"]["namespace"] = "elsewhere"
    assert "e1" in _takers(pod(affinity=_affinity("podAntiAffinity", _term())), other)
    named = _term() | {"namespaces": ["elsewhere"]}
    assert "e1" not in _takers(pod(affinity=_affinity("podAntiAffinity", named)), other)
    everywhere = _term() | {"namespaceSelector": {}}
    assert "e1" not in _takers(pod(affinity=_affinity("podAntiAffinity", everywhere)), other)


def test_spread_keeps_domains_level() -> None:
    assert _takers(_spreading(), pod("a", on="e1", labels=WEB)) == {"w1"}
    assert _takers(_spreading(max_skew=2), pod("a", on="e1", labels=WEB)) == {"e1", "e2", "w1"}


def test_spread_counts_neither_leaving_pods_nor_other_namespaces() -> None:
    leaving, stranger = pod("a", on="e1", labels=WEB), pod("b", on="e1", labels=WEB)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stranger["metadata"]["namespace"] = "elsewhere"
    assert _takers(_spreading(), leaving, stranger) == {"e1", "e2", "w1"}


def test_spread_with_too_few_domains_counts_from_zero() -> None:
    bound = [pod("a", on="e1", labels=WEB), pod("b", on="w1", labels=WEB)]
    assert _takers(_spreading(), *bound) == {"e1", "e2", "w1"}
    assert _takers(_spreading(minDomains=3), *bound) == set()


def test_spread_leaves_out_nodes_that_node_affinity_rules_out() -> None:
    pending = _spreading()
    pending["spec"]["nodeSelector"] = {"zone": "east"}
    assert _takers(pending, pod("a", on="e1", labels=WEB)) == {"e1", "e2"}
    pending = _spreading(nodeAffinityPolicy="Ignore")
    pending["spec"]["nodeSelector"] = {"zone": "east"}
    assert _takers(pending, pod("a", on="e1", labels=WEB)) == set()


def test_spread_may_leave_out_tainted_nodes() -> None:
    tainted = in_zone("west", node("w1"))
    tainted["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    bound = pod("a", on="e1", labels=WEB)
    assert _takers(_spreading(), bound, nodes=[*NODES[:2], tainted]) == set()
    assert _takers(_spreading(nodeTaintsPolicy="Honor"), bound, nodes=[*NODES[:2], tainted]) == {"e1", "e2"}


def test_spread_tells_revisions_apart_by_label_keys() -> None:
    pending = _spreading(matchLabelKeys=["revision"])
    pending["metadata"]["labels"] = WEB | {"revision": "2"}
    assert _takers(pending, pod("a", on="e1", labels=WEB | {"revision": "1"})) == {"e1", "e2", "w1"}


def test_soft_demands_never_keep_a_pod_away() -> None:
    bound = pod("a", on="e1", labels=WEB)
    assert _takers(_spreading(whenUnsatisfiable="ScheduleAnyway"), bound) == {"e1", "e2", "w1", "nowhere"}
