"""Filtering by inter-pod affinity (semantics 8.15)."""

from __future__ import annotations

from core_tests.plugins.affinities import HOST, Object, required_affinity, required_anti_affinity, term
from kubestow.api.core import Pod
from kubestow.testing import PluginHarness, node, nodes, pod

AFFINITY = ("InterPodAffinity", ("node(s) didn't match pod affinity rules",))
ANTI_AFFINITY = ("InterPodAffinity", ("node(s) didn't match pod anti-affinity rules",))
EXISTING_ANTI_AFFINITY = ("InterPodAffinity", ("node(s) didn't satisfy existing pods anti-affinity rules",))

INVALID = {"matchExpressions": [{"key": "app", "operator": "Near"}]}


def app(name: str, label: str = "", *, on: str = "", affinity: Object | None = None, namespace: str = "default") -> Pod:
    """A pod with the label ``app``, by default its own name."""
    return pod(name, labels={"app": label or name}, node=on, affinity=affinity, namespace=namespace)


def zoned(*placed: Pod) -> PluginHarness:
    """Nodes node-0 and node-2 in one zone, node-1 in the other."""
    return PluginHarness(nodes(3, zones=2), placed)


def test_required_affinity_passes_the_domains_of_matching_pods() -> None:
    harness = zoned(app("db", on="node-0"))
    assert harness.rejections(app("web", affinity=required_affinity(term("db")))) == {"node-1": AFFINITY}


def test_an_existing_pod_counts_only_if_it_matches_all_required_affinity_terms() -> None:
    affinity = required_affinity(term("db"), term({"matchLabels": {"tier": "fast"}}, HOST))
    assert zoned(app("db", on="node-0")).feasible(app("web", affinity=affinity)) == set()
    fast = pod("db", labels={"app": "db", "tier": "fast"}, node="node-0")
    assert zoned(fast).feasible(app("web", affinity=affinity)) == {"node-0"}


def test_the_first_pod_of_a_group_passes_all_nodes_with_the_topology_key() -> None:
    harness = PluginHarness([node("in", zone="z"), node("out")])
    assert harness.rejections(app("web", affinity=required_affinity(term("web")))) == {"out": AFFINITY}


def test_a_pod_is_not_the_first_of_its_group_if_another_counts_for_one_of_the_topology_keys() -> None:
    harness = PluginHarness([node("zoned", zone="z"), node("racked", zone="z", labels={"rack": "r"})])
    affinity = required_affinity(term("web"), term("web", "rack"))
    assert harness.feasible(app("web", affinity=affinity)) == {"racked"}
    harness.cluster.put_pod(harness.info(app("other", "web", on="zoned")))  # which is in no rack
    assert harness.feasible(app("web", affinity=affinity)) == set()


def test_without_matching_pods_a_pod_must_match_its_own_terms() -> None:
    assert zoned().feasible(app("web", affinity=required_affinity(term("db")))) == set()


def test_required_anti_affinity_rejects_the_domains_of_matching_pods() -> None:
    harness = zoned(app("noisy", on="node-0"))
    assert harness.rejections(app("web", affinity=required_anti_affinity(term("noisy")))) == {
        "node-0": ANTI_AFFINITY,
        "node-2": ANTI_AFFINITY,
    }


def test_anti_affinity_passes_nodes_without_the_topology_key() -> None:
    harness = PluginHarness(
        [node("out")],
        [app("noisy", on="out"), app("repelling", on="out", affinity=required_anti_affinity(term("web")))],
    )
    assert harness.rejections(app("web", affinity=required_anti_affinity(term("noisy")))) == {}


def test_the_anti_affinity_of_existing_pods_rejects_their_domains() -> None:
    harness = zoned(app("repelling", on="node-0", affinity=required_anti_affinity(term("web", HOST))))
    assert harness.rejections(app("web")) == {"node-0": EXISTING_ANTI_AFFINITY}
    assert harness.rejections(app("other")) == {}


def test_affinity_is_reported_before_anti_affinity_and_that_before_existing_anti_affinity() -> None:
    repelling = app("repelling", on="node-0", affinity=required_anti_affinity(term("web", HOST)))
    affinity = required_affinity(term("db", HOST)) | required_anti_affinity(term("repelling", HOST))
    assert zoned(repelling).rejections(app("web", affinity=affinity))["node-0"] == AFFINITY
    assert zoned(repelling).rejections(app("web", affinity=required_anti_affinity(term("repelling", HOST)))) == {
        "node-0": ANTI_AFFINITY
    }


def test_terms_match_pods_of_the_owners_namespace_by_default() -> None:
    harness = zoned(app("db", on="node-0", namespace="other"))
    assert harness.feasible(app("web", affinity=required_affinity(term("db")))) == set()
    assert harness.feasible(app("web", affinity=required_affinity(term("db", namespaces=["other"])))) == {
        "node-0",
        "node-2",
    }


def test_a_namespace_selector_matches_namespace_labels() -> None:
    harness = zoned(app("db", on="node-0", namespace="other"))
    incoming = app("web", affinity=required_affinity(term("db", namespaceSelector={"matchLabels": {"team": "a"}})))
    assert harness.feasible(incoming) == set()
    harness.cluster.put_namespace("other", {"team": "a"})
    assert harness.feasible(incoming) == {"node-0", "node-2"}
    harness.cluster.remove_namespace("other")
    assert harness.feasible(incoming) == set()


def test_an_empty_namespace_selector_matches_all_namespaces() -> None:
    harness = zoned(app("db", on="node-0", namespace="unknown"))
    assert harness.feasible(app("web", affinity=required_affinity(term("db", namespaceSelector={})))) == {
        "node-0",
        "node-2",
    }


def test_for_incoming_terms_a_namespace_selector_that_matches_no_labels_matches_all_namespaces() -> None:
    selector = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}
    harness = zoned(app("db", on="node-0", namespace="other"))
    harness.cluster.put_namespace("other", {"team": "a"})
    assert harness.feasible(app("web", affinity=required_affinity(term("db", namespaceSelector=selector)))) == {
        "node-0",
        "node-2",
    }


def test_for_existing_terms_a_namespace_selector_matches_the_labels_of_the_incoming_pods_namespace() -> None:
    selector = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}
    repelling = app("repelling", on="node-0", affinity=required_anti_affinity(term("web", namespaceSelector=selector)))
    harness = zoned(repelling)
    assert set(harness.rejections(app("web", namespace="other"))) == {"node-0", "node-2"}
    harness.cluster.put_namespace("other", {"team": "a"})
    assert harness.rejections(app("web", namespace="other")) == {}


def test_a_missing_label_selector_matches_no_pods_and_an_empty_one_all_pods() -> None:
    harness = zoned(app("db", on="node-0"))
    assert harness.rejections(app("web", affinity=required_anti_affinity(term(None)))) == {}
    assert set(harness.rejections(app("web", affinity=required_anti_affinity(term({}))))) == {"node-0", "node-2"}


def test_terminating_pods_count() -> None:
    harness = zoned(pod("db", labels={"app": "db"}, node="node-0", deleting=True))
    assert harness.feasible(app("web", affinity=required_affinity(term("db")))) == {"node-0", "node-2"}


def test_an_invalid_term_makes_the_pod_unschedulable() -> None:
    message = zoned().decide(app("web", affinity=required_anti_affinity(term("db"), term(INVALID)))).message
    problem = 'requiredAntiAffinityTerms: "Near" is not a valid label selector operator'
    assert message.startswith(f"0/3 nodes are available: parsing pod: {problem}. ")


def test_invalid_terms_of_several_kinds_are_listed() -> None:
    message = (
        zoned()
        .decide(app("web", affinity=required_affinity(term(INVALID)) | required_anti_affinity(term(INVALID))))
        .message
    )
    assert "parsing pod: [requiredAffinityTerms: " in message


def test_invalid_terms_of_existing_pods_are_ignored() -> None:
    harness = zoned(app("odd", on="node-0", affinity=required_anti_affinity(term("web"), term(INVALID))))
    assert harness.rejections(app("web")) == {}


def test_the_terms_of_a_deleted_pod_no_longer_apply() -> None:
    harness = zoned(app("repelling", on="node-0", affinity=required_anti_affinity(term("web"))))
    assert harness.feasible(app("web")) == {"node-1"}
    harness.cluster.remove_pod("uid-default-repelling")
    assert len(harness.feasible(app("web"))) == 3


def test_filtering_without_pre_filter_fails() -> None:
    profile = {"plugins": {"preFilter": {"disabled": [{"name": "InterPodAffinity"}]}}}
    message = PluginHarness(nodes(2), profile=profile).decide(app("web")).message
    assert 'error reading "PreFilterInterPodAffinity" from cycleState: not found' in message
