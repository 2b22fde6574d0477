"""InterPodAffinity as a filter (semantics 8.15)."""

from __future__ import annotations

from kubestow.api.core import Pod
from kubestow.testing import World, node, nodes, pod
from tests.plugins.affinities import HOST, Object, required_affinity, required_anti_affinity, term

LONELY = ("InterPodAffinity", ("node(s) didn't match pod affinity rules",))
SHUNS = ("InterPodAffinity", ("node(s) didn't match pod anti-affinity rules",))
SHUNNED = ("InterPodAffinity", ("node(s) didn't satisfy existing pods anti-affinity rules",))

BAD = {"matchExpressions": [{"key": "app", "operator": "Near"}]}


def app(name: str, label: str = "", *, on: str = "", affinity: Object | None = None, namespace: str = "default") -> Pod:
    """A pod with the label ``app``, by default its own name."""
    return pod(name, labels={"app": label or name}, node=on, affinity=affinity, namespace=namespace)


def zoned(*placed: Pod) -> World:
    """Nodes node-0 and node-2 in one zone, node-1 in the other."""
    return World(nodes(3, zones=2), placed)


def test_a_pod_goes_where_the_pods_are_that_it_wants() -> None:
    world = zoned(app("db", on="node-0"))
    assert world.refusals(app("web", affinity=required_affinity(term("db")))) == {"node-1": LONELY}


def test_only_pods_that_match_all_terms_are_company() -> None:
    wants = required_affinity(term("db"), term({"matchLabels": {"tier": "fast"}}, HOST))
    assert zoned(app("db", on="node-0")).feasible(app("web", affinity=wants)) == set()
    fast = pod("db", labels={"app": "db", "tier": "fast"}, node="node-0")
    assert zoned(fast).feasible(app("web", affinity=wants)) == {"node-0"}


def test_the_first_pod_of_a_group_may_go_anywhere_that_has_the_label() -> None:
    world = World([node("in", zone="z"), node("out")])
    assert world.refusals(app("web", affinity=required_affinity(term("web")))) == {"out": LONELY}


def test_a_pod_that_does_not_match_its_own_terms_has_to_wait() -> None:
    assert zoned().feasible(app("web", affinity=required_affinity(term("db")))) == set()


def test_a_pod_keeps_away_from_pods_that_it_shuns() -> None:
    world = zoned(app("noisy", on="node-0"))
    assert world.refusals(app("web", affinity=required_anti_affinity(term("noisy")))) == {
        "node-0": SHUNS,
        "node-2": SHUNS,
    }


def test_a_node_without_the_label_is_in_nobodys_company() -> None:
    world = World(
        [node("out")], [app("noisy", on="out"), app("shy", on="out", affinity=required_anti_affinity(term("web")))]
    )
    assert world.refusals(app("web", affinity=required_anti_affinity(term("noisy")))) == {}


def test_pods_that_shun_the_pod_keep_it_away() -> None:
    world = zoned(app("shy", on="node-0", affinity=required_anti_affinity(term("web", HOST))))
    assert world.refusals(app("web")) == {"node-0": SHUNNED}
    assert world.refusals(app("other")) == {}


def test_affinity_is_named_before_anti_affinity_and_that_before_the_others() -> None:
    shy = app("shy", on="node-0", affinity=required_anti_affinity(term("web", HOST)))
    wants = required_affinity(term("db", HOST)) | required_anti_affinity(term("shy", HOST))
    assert zoned(shy).refusals(app("web", affinity=wants))["node-0"] == LONELY
    assert zoned(shy).refusals(app("web", affinity=required_anti_affinity(term("shy", HOST)))) == {"node-0": SHUNS}


def test_terms_speak_of_the_pods_own_namespace_by_default() -> None:
    world = zoned(app("db", on="node-0", namespace="other"))
    assert world.feasible(app("web", affinity=required_affinity(term("db")))) == set()
    assert world.feasible(app("web", affinity=required_affinity(term("db", namespaces=["other"])))) == {
        "node-0",
        "node-2",
    }


def test_a_namespace_selector_selects_by_labels_of_namespaces() -> None:
    world = zoned(app("db", on="node-0", namespace="other"))
    wants = app("web", affinity=required_affinity(term("db", namespaceSelector={"matchLabels": {"team": "a"}})))
    assert world.feasible(wants) == set()
    world.cluster.put_namespace("other", {"team": "a"})
    assert world.feasible(wants) == {"node-0", "node-2"}
    world.cluster.remove_namespace("other")
    assert world.feasible(wants) == set()


def test_an_empty_namespace_selector_selects_all_namespaces() -> None:
    world = zoned(app("db", on="node-0", namespace="unheard-of"))
    assert world.feasible(app("web", affinity=required_affinity(term("db", namespaceSelector={})))) == {
        "node-0",
        "node-2",
    }


def test_a_selector_that_matches_no_labels_matches_every_namespace_for_the_pods_own_terms() -> None:
    selector = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}
    world = zoned(app("db", on="node-0", namespace="other"))
    world.cluster.put_namespace("other", {"team": "a"})
    assert world.feasible(app("web", affinity=required_affinity(term("db", namespaceSelector=selector)))) == {
        "node-0",
        "node-2",
    }


def test_for_terms_of_other_pods_the_real_labels_of_the_namespace_count() -> None:
    selector = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}
    shy = app("shy", on="node-0", affinity=required_anti_affinity(term("web", namespaceSelector=selector)))
    world = zoned(shy)
    assert set(world.refusals(app("web", namespace="other"))) == {"node-0", "node-2"}
    world.cluster.put_namespace("other", {"team": "a"})
    assert world.refusals(app("web", namespace="other")) == {}


def test_an_absent_selector_matches_nothing_and_an_empty_one_everything() -> None:
    world = zoned(app("db", on="node-0"))
    assert world.refusals(app("web", affinity=required_anti_affinity(term(None)))) == {}
    assert set(world.refusals(app("web", affinity=required_anti_affinity(term({}))))) == {"node-0", "node-2"}


def test_pods_that_are_being_deleted_are_company_still() -> None:
    world = zoned(pod("db", labels={"app": "db"}, node="node-0", deleting=True))
    assert world.feasible(app("web", affinity=required_affinity(term("db")))) == {"node-0", "node-2"}


def test_one_bad_term_makes_the_pod_unschedulable() -> None:
    message = zoned().decide(app("web", affinity=required_anti_affinity(term("db"), term(BAD)))).message
    problem = 'requiredAntiAffinityTerms: "Near" is not a valid label selector operator'
    assert message.startswith(f"0/3 nodes are available: parsing pod: {problem}. ")


def test_bad_terms_of_several_kinds_are_listed() -> None:
    message = (
        zoned().decide(app("web", affinity=required_affinity(term(BAD)) | required_anti_affinity(term(BAD)))).message
    )
    assert "parsing pod: [requiredAffinityTerms: " in message


def test_bad_terms_of_other_pods_are_ignored() -> None:
    world = zoned(app("odd", on="node-0", affinity=required_anti_affinity(term("web"), term(BAD))))
    assert world.refusals(app("web")) == {}


def test_a_term_that_leaves_with_its_pod_binds_nobody() -> None:
    world = zoned(app("shy", on="node-0", affinity=required_anti_affinity(term("web"))))
    assert world.feasible(app("web")) == {"node-1"}
    world.cluster.remove_pod("uid-default-shy")
    assert len(world.feasible(app("web"))) == 3


def test_filtering_without_pre_filter_fails() -> None:
    profile = {"plugins": {"preFilter": {"disabled": [{"name": "InterPodAffinity"}]}}}
    message = World(nodes(2), profile=profile).decide(app("web")).message
    assert 'error reading "PreFilterInterPodAffinity" from cycleState: not found' in message
