"""Scoring by inter-pod affinity (semantics 8.15)."""

from __future__ import annotations

from typing import Any

from core_tests.plugins.affinities import (
    HOST,
    Object,
    preferred_affinity,
    preferred_anti_affinity,
    required_affinity,
    required_anti_affinity,
    term,
)
from kubestow.api.core import Pod
from kubestow.testing import PluginHarness, nodes, pod


def app(name: str, *, on: str = "", affinity: Object | None = None) -> Pod:
    return pod(name, labels={"app": name.partition("-")[0]}, node=on, affinity=affinity)


def scores(*placed: Pod, incoming: Pod, args: dict[str, Any] | None = None) -> dict[str, int]:
    """The scores on three nodes without the weight 2 of the default profile."""
    config = [{"name": "InterPodAffinity", "args": args}] if args else []
    harness = PluginHarness(nodes(3, zones=2), placed, profile={"pluginConfig": config})
    return {name: score // 2 for name, score in harness.scores(incoming, "InterPodAffinity").items()}


def test_preferred_affinity_raises_the_score_of_matching_domains() -> None:
    attracted = scores(app("db", on="node-0"), incoming=app("web", affinity=preferred_affinity(term("db"))))
    assert attracted == {"node-0": 100, "node-1": 0, "node-2": 100}


def test_preferred_anti_affinity_lowers_the_score_of_matching_domains() -> None:
    repelled = scores(app("db", on="node-0"), incoming=app("web", affinity=preferred_anti_affinity(term("db", HOST))))
    assert repelled == {"node-0": 0, "node-1": 100, "node-2": 100}


def test_scores_add_weights_over_terms_and_pods() -> None:
    prefers = preferred_affinity(term("db", HOST), weight=5)
    placed = [app("db-1", on="node-0"), app("db-2", on="node-0"), app("db-3", on="node-1")]
    assert scores(*placed, incoming=app("web", affinity=prefers)) == {"node-0": 100, "node-1": 50, "node-2": 0}


def test_preferred_terms_of_existing_pods_count() -> None:
    repelling = app("repelling", on="node-1", affinity=preferred_anti_affinity(term("web", HOST)))
    attracting = app("attracting", on="node-0", affinity=preferred_affinity(term("web", HOST)))
    assert scores(repelling, attracting, incoming=app("web")) == {"node-0": 100, "node-1": 0, "node-2": 50}


def test_required_affinity_of_existing_pods_counts_with_the_hard_pod_affinity_weight() -> None:
    requiring = app("requiring", on="node-0", affinity=required_affinity(term("web", HOST)))
    assert scores(requiring, incoming=app("web")) == {"node-0": 100, "node-1": 0, "node-2": 0}
    assert scores(requiring, incoming=app("web"), args={"hardPodAffinityWeight": 0}) == {}


def test_preferred_terms_of_existing_pods_can_be_ignored_for_pods_without_preferred_terms() -> None:
    repelling = app("repelling", on="node-0", affinity=preferred_anti_affinity(term("web", HOST)))
    args = {"ignorePreferredTermsOfExistingPods": True}
    assert scores(repelling, incoming=app("web"), args=args) == {}
    prefers = app("web", affinity=preferred_affinity(term("nobody")))
    assert scores(repelling, incoming=prefers, args=args) == {"node-0": 0, "node-1": 100, "node-2": 100}


def test_scoring_is_skipped_without_matching_pods() -> None:
    assert scores(app("db", on="node-0"), incoming=app("web", affinity=preferred_affinity(term("other")))) == {}


def test_weights_that_cancel_out_are_scored() -> None:
    both = preferred_affinity(term("db", HOST)) | preferred_anti_affinity(term("db", HOST))
    assert scores(app("db", on="node-0"), incoming=app("web", affinity=both)) == {"node-0": 0, "node-1": 0, "node-2": 0}


def test_scoring_without_pre_score_fails() -> None:
    profile = {"plugins": {"preScore": {"disabled": [{"name": "InterPodAffinity"}]}}}
    decision = PluginHarness(nodes(2), profile=profile).decide(app("web"))
    assert decision.message == (
        'running Score plugins: plugin "InterPodAffinity" failed with: '
        'failed to read "PreScoreInterPodAffinity" from cycleState: not found'
    )


def test_an_invalid_term_is_an_error_in_pre_score() -> None:
    disabled = {"disabled": [{"name": "InterPodAffinity"}]}
    profile = {"plugins": {"preFilter": disabled, "filter": disabled}}
    bad = term({"matchExpressions": [{"key": "app", "operator": "Near"}]})
    decision = PluginHarness(nodes(2), profile=profile).decide(app("web", affinity=preferred_affinity(bad)))
    assert "failed to parse pod: preferredAffinityTerms" in decision.message


def test_each_of_several_terms_counts_with_its_own_weight() -> None:
    light, heavy = preferred_affinity(term("db", HOST), weight=1), preferred_affinity(term("cache", HOST), weight=4)
    rule = "preferredDuringSchedulingIgnoredDuringExecution"
    both = {"podAffinity": {rule: light["podAffinity"][rule] + heavy["podAffinity"][rule]}}
    placed = [app("db", on="node-0"), app("cache", on="node-1")]
    assert scores(*placed, incoming=app("web", affinity=both)) == {"node-0": 25, "node-1": 100, "node-2": 0}


def test_a_topology_key_of_a_required_term_alone_does_not_count() -> None:
    affinity = preferred_affinity(term("db", HOST)) | required_anti_affinity(term("noisy"))
    placed = app("db", on="node-0")
    assert scores(placed, incoming=app("web", affinity=affinity)) == {"node-0": 100, "node-1": 0, "node-2": 0}
