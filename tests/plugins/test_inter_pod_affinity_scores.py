"""InterPodAffinity as a score (semantics 8.15)."""

from __future__ import annotations

from typing import Any

from kubestow.api.core import Pod
from kubestow.testing import World, nodes, pod
from tests.plugins.affinities import HOST, Object, preferred_affinity, preferred_anti_affinity, required_affinity, term


def app(name: str, *, on: str = "", affinity: Object | None = None) -> Pod:
    return pod(name, labels={"app": name.partition("-")[0]}, node=on, affinity=affinity)


def scores(*placed: Pod, asked: Pod, args: dict[str, Any] | None = None) -> dict[str, int]:
    """The scores on three nodes without the weight of 2 that the default profile gives them."""
    config = [{"name": "InterPodAffinity", "args": args}] if args else []
    world = World(nodes(3, zones=2), placed, profile={"pluginConfig": config})
    return {name: score // 2 for name, score in world.scores(asked, "InterPodAffinity").items()}


def test_the_company_that_a_pod_prefers_attracts_it() -> None:
    wanted = scores(app("db", on="node-0"), asked=app("web", affinity=preferred_affinity(term("db"))))
    assert wanted == {"node-0": 100, "node-1": 0, "node-2": 100}


def test_the_company_that_a_pod_prefers_not_to_have_repels_it() -> None:
    unwanted = scores(app("db", on="node-0"), asked=app("web", affinity=preferred_anti_affinity(term("db", HOST))))
    assert unwanted == {"node-0": 0, "node-1": 100, "node-2": 100}


def test_weights_and_numbers_add_up() -> None:
    prefers = preferred_affinity(term("db", HOST), weight=5)
    placed = [app("db-1", on="node-0"), app("db-2", on="node-0"), app("db-3", on="node-1")]
    assert scores(*placed, asked=app("web", affinity=prefers)) == {"node-0": 100, "node-1": 50, "node-2": 0}


def test_the_preferences_of_placed_pods_count_too() -> None:
    shy = app("shy", on="node-1", affinity=preferred_anti_affinity(term("web", HOST)))
    fond = app("fond", on="node-0", affinity=preferred_affinity(term("web", HOST)))
    assert scores(shy, fond, asked=app("web")) == {"node-0": 100, "node-1": 0, "node-2": 50}


def test_the_requirements_of_placed_pods_count_with_the_hard_weight() -> None:
    needy = app("needy", on="node-0", affinity=required_affinity(term("web", HOST)))
    assert scores(needy, asked=app("web")) == {"node-0": 100, "node-1": 0, "node-2": 0}
    assert scores(needy, asked=app("web"), args={"hardPodAffinityWeight": 0}) == {}


def test_the_preferences_of_placed_pods_may_be_ignored_for_pods_that_have_none() -> None:
    shy = app("shy", on="node-0", affinity=preferred_anti_affinity(term("web", HOST)))
    args = {"ignorePreferredTermsOfExistingPods": True}
    assert scores(shy, asked=app("web"), args=args) == {}
    prefers = app("web", affinity=preferred_affinity(term("nobody")))
    assert scores(shy, asked=prefers, args=args) == {"node-0": 0, "node-1": 100, "node-2": 100}


def test_without_any_company_nothing_is_scored() -> None:
    assert scores(app("db", on="node-0"), asked=app("web", affinity=preferred_affinity(term("other")))) == {}


def test_preferences_that_cancel_out_are_scored_all_the_same() -> None:
    both = preferred_affinity(term("db", HOST)) | preferred_anti_affinity(term("db", HOST))
    assert scores(app("db", on="node-0"), asked=app("web", affinity=both)) == {"node-0": 0, "node-1": 0, "node-2": 0}


def test_scoring_without_pre_score_fails() -> None:
    profile = {"plugins": {"preScore": {"disabled": [{"name": "InterPodAffinity"}]}}}
    decision = World(nodes(2), profile=profile).decide(app("web"))
    assert 'failed to read "PreScoreInterPodAffinity" from cycleState: not found' in decision.message


def test_a_pod_that_cannot_be_read_fails_scoring_where_filtering_did_not_see_it() -> None:
    disabled = {"disabled": [{"name": "InterPodAffinity"}]}
    profile = {"plugins": {"preFilter": disabled, "filter": disabled}}
    bad = term({"matchExpressions": [{"key": "app", "operator": "Near"}]})
    decision = World(nodes(2), profile=profile).decide(app("web", affinity=preferred_affinity(bad)))
    assert "failed to parse pod: preferredAffinityTerms" in decision.message
