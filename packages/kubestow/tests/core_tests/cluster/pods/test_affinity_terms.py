"""The affinity terms of a pod: which pods they select, with which weights, and by which keys these are found."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import Affinity
from kubestow.api.meta import convert
from kubestow.api.selectors import EVERYTHING, NOTHING, Requirement, Selector
from kubestow.cluster.pods.affinity_terms import AffinityTerm, PodAffinityTerms, TermWeights, index_keys_of

TEAM_A = Selector((Requirement("team", "In", frozenset({"a"})),))


def selecting(key: str, *values: str) -> Selector:
    return Selector((Requirement(key, "In", frozenset(values)),))


def term(selector: Selector, *namespaces: str, within: Selector = NOTHING, topology_key: str = "zone") -> AffinityTerm:
    return AffinityTerm(topology_key, selector, frozenset(namespaces), within)


WEB, DB = term(selecting("app", "web"), "ns"), term(selecting("app", "db"), "ns")
OF_TEAM = term(selecting("app", "web"), within=TEAM_A)
ANY, NONE = term(EVERYTHING, within=EVERYTHING), term(NOTHING, "ns")


def test_the_weight_of_a_pod_is_that_of_the_terms_that_select_it() -> None:
    weights = TermWeights.of_terms([(WEB, 1), (DB, 10), (OF_TEAM, 100), (NONE, 1000)])
    assert (len(weights), weights.total) == (3, 1111)
    assert weights.of("ns", {"app": "web"}) == 1
    assert weights.of("ns", {"app": "db"}) == 10
    assert weights.of("ns", {"app": "other"}) == weights.of("other", {"app": "web"}) == 0
    assert weights.of("other", {"app": "web"}, {"team": "a"}) == 100
    assert weights.of("ns", {"app": "web"}, {"team": "a"}) == 101
    assert weights.of("ns", {"app": "web"}, {"team": "b"}) == 1, "the labels of the namespace have changed"
    assert weights.without_weights().of("ns", {"app": "db"}) == 1


def test_equal_terms_add_up_whatever_their_topology() -> None:
    other = term(selecting("app", "web"), "ns", topology_key="rack")
    both, twice = TermWeights.of_terms([(WEB, 2), (other, 3)]), TermWeights.of_terms([(WEB, 5)])
    assert both.key == twice.key
    assert both.key != TermWeights.of_terms([(WEB, 2)]).key
    assert both.of("ns", {"app": "web"}) == 5


def test_all_terms_select_a_pod_or_any() -> None:
    fast = term(selecting("tier", "fast"), "ns")
    weights = TermWeights.of_terms([(WEB, 1), (fast, 1)])
    found = {}
    for labels in ({"app": "web"}, {"app": "web", "tier": "fast"}, {"app": "db"}):
        found[len(labels), labels["app"]] = weights.all_match("ns", labels), weights.any_matches("ns", labels)
    assert found == {(1, "web"): (False, True), (2, "web"): (True, True), (1, "db"): (False, False)}
    assert not TermWeights.of_terms([(WEB, 1), (NONE, 1)]).all_match("ns", {"app": "web"})


@pytest.mark.parametrize(
    ("terms", "of_any", "of_all"),
    [
        ((WEB,), {("ns", "app", "web")}, {("ns", "app", "web")}),
        ((WEB, DB), {("ns", "app", "web"), ("ns", "app", "db")}, {("ns", "app", "web")}),
        ((WEB, ANY), None, {("ns", "app", "web")}),
        ((ANY, WEB), None, {("ns", "app", "web")}),
        ((ANY,), None, None),
        ((OF_TEAM,), {("app", "web")}, {("app", "web")}),
        ((NONE,), set(), None),
        ((), set(), None),
    ],
)
def test_pods_with_a_weight_have_one_of_the_keys(
    terms: tuple[AffinityTerm, ...], of_any: set[object] | None, of_all: set[object] | None
) -> None:
    weights = TermWeights.of_terms((each, 1) for each in terms)
    assert (weights.index_keys, weights.index_keys_of_all) == (of_any, of_all)
    assert PodAffinityTerms(required=terms).index_keys == of_any
    if of_any:
        assert index_keys_of("ns", {"app": "web"}, ()) & of_any


def test_the_namespaces_of_terms_are_listed_unless_one_selects_them_by_labels() -> None:
    in_two = term(selecting("app", "web"), "ns", "other")
    assert PodAffinityTerms(required=(WEB,), required_anti=(in_two,)).namespaces == frozenset({"ns", "other"})
    assert PodAffinityTerms(preferred=((3, DB),)).namespaces == frozenset({"ns"})
    assert PodAffinityTerms(required=(WEB,), preferred=((-1, OF_TEAM),)).namespaces is None
    assert PodAffinityTerms(required_anti=(ANY,)).namespaces is None
    assert PodAffinityTerms().namespaces == frozenset()


def test_the_keys_of_terms_are_those_of_their_labels_and_topologies() -> None:
    in_rack = term(selecting("tier", "fast"), "ns", topology_key="rack")
    terms = PodAffinityTerms(required=(WEB,), required_anti=(in_rack,), preferred=((1, OF_TEAM), (-1, DB)))
    assert terms.label_keys == {"app", "tier"}
    assert terms.topology_keys == {"zone", "rack"}
    assert terms.required_topology_keys == {"zone"}
    assert terms.required_anti_topology_keys == {"rack"}
    assert list(terms) == [WEB, in_rack, OF_TEAM, DB]
    assert [bool(each) for each in (terms, PodAffinityTerms(), PodAffinityTerms(preferred=((1, WEB),)))] == [
        *(True, False, True)
    ]


def test_preferred_terms_are_apart_by_the_sign_of_their_weights() -> None:
    in_rack = term(selecting("app", "web"), "ns", topology_key="rack")
    preferred = ((5, WEB), (-3, WEB), (0, DB), (2, in_rack), (7, NONE))
    found = PodAffinityTerms(preferred=preferred).preferred_by_topology
    weights = {
        (sign, key): weights.of("ns", {"app": app})
        for sign, by_key in found.items()
        for key, weights in by_key.items()
        for app in ("web", "db")
        if weights.of("ns", {"app": app})
    }
    assert weights == {(1, "zone"): 5, (-1, "zone"): 3, (0, "zone"): 1, (1, "rack"): 2}


def test_namespaces_that_are_selected_by_labels_are_listed_once_these_are_known() -> None:
    namespaces = {"x": {"team": "a"}, "y": {"team": "b"}, "z": {"team": "a"}}
    terms = PodAffinityTerms(required=(OF_TEAM, WEB), problems=("p",))
    (resolved, kept) = terms.resolved(namespaces, matches_without_labels=True).required
    assert (resolved.namespaces, resolved.namespace_selector) == (frozenset({"x", "z"}), NOTHING)
    assert kept == WEB
    without = term(EVERYTHING, "ns", within=Selector((Requirement("team", "DoesNotExist"),)))
    for matches, rest in ((True, EVERYTHING), (False, NOTHING)):
        (resolved,) = (
            PodAffinityTerms(required=(without,))
            .resolved({**namespaces, "none": {}}, matches_without_labels=matches)
            .required
        )
        assert (resolved.namespaces, resolved.namespace_selector) == (frozenset({"ns", "none"}), rest)
    assert PodAffinityTerms(required=(ANY,)).resolved(namespaces, matches_without_labels=True).required == (ANY,)
    listed = PodAffinityTerms(required=(WEB,))
    assert listed.resolved(namespaces, matches_without_labels=True) is listed


@pytest.mark.parametrize(
    ("fields", "namespaces", "selector"),
    [
        ({}, {"own"}, NOTHING),
        ({"namespaces": ["x", "y"]}, {"x", "y"}, NOTHING),
        ({"namespaceSelector": {}}, set(), EVERYTHING),
        ({"namespaces": ["x"], "namespaceSelector": {}}, {"x"}, EVERYTHING),
    ],
)
def test_a_term_is_about_the_namespace_of_its_pod_unless_it_says_otherwise(
    fields: dict[str, Any], namespaces: set[str], selector: Selector
) -> None:
    listed = [{"topologyKey": "zone", "labelSelector": {}, **fields}]
    affinity = convert(Affinity, {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": listed}})
    (parsed,) = PodAffinityTerms.of("own", affinity).required
    assert (parsed.namespaces, parsed.namespace_selector) == (frozenset(namespaces), selector)
