"""A scheduler Policy becomes a v1 configuration in which just the plugins it named have an effect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow import config
from kubestow.config import ExtensionPoint, legacy
from kubestow.config.legacy.policy_names import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    FILTERS,
    MANDATORY_PREDICATES,
    PREDICATES,
    PRIORITIES,
    SCORES,
)
from kubestow.errors import ConfigurationError
from tests.config.builders import IN_TREE


def policy(*, predicates: Any = None, priorities: Any = None, **fields: Any) -> dict[str, Any]:
    """A Policy; predicates and priorities (with weights) by name, None leaves a list out."""
    lists: dict[str, Any] = {}
    if predicates is not None:
        lists["predicates"] = [p if isinstance(p, dict) else {"name": p} for p in predicates]
    if priorities is not None:
        lists["priorities"] = [{"name": name, "weight": weight} for name, weight in priorities.items()]
    return {"apiVersion": "v1", "kind": "Policy", **lists, **fields}


def scheduler_of(source: config.Source) -> config.KubeSchedulerConfiguration:
    return config.load(legacy.convert(source).data, implements=IN_TREE)


def effect(source: config.Source) -> tuple[set[str], dict[str, int]]:
    """Of the plugins that a Policy decides about: those that filter, and those that score with their weights."""
    (profile,) = scheduler_of(source).profiles
    points = config.expand(profile, IN_TREE)
    filters = {plugin.name for plugin in points[ExtensionPoint.FILTER]} & set(FILTERS)
    return filters, {plugin.name: plugin.weight for plugin in points[ExtensionPoint.SCORE] if plugin.name in SCORES}


def refusals(source: config.Source) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        legacy.convert(source)
    return [f"{path}: {text}" for path, text in refused.value.problems]


def test_a_policy_that_names_nothing_means_the_defaults_of_then() -> None:
    filters, scores = effect(policy())
    assert filters == set(FILTERS)
    assert scores == {**dict.fromkeys(SCORES, 1), "PodTopologySpread": 2}


def test_empty_lists_leave_what_always_holds() -> None:
    assert effect(policy(predicates=[], priorities={})) == ({"TaintToleration", "NodeUnschedulable"}, {})


@given(st.sets(st.sampled_from(sorted(PREDICATES))), st.dictionaries(st.sampled_from(sorted(PRIORITIES)), st.just(3)))
def test_just_what_is_named_has_an_effect(predicates: set[str], priorities: dict[str, int]) -> None:
    filters, scores = effect(policy(predicates=sorted(predicates), priorities=priorities))
    assert filters == {plugin for name in (*predicates, *MANDATORY_PREDICATES) for plugin in PREDICATES[name]}
    assert scores == {PRIORITIES[name]: weight for name, weight in priorities.items()}


def test_naming_the_defaults_means_the_same_as_naming_nothing() -> None:
    named = policy(predicates=[*DEFAULT_PREDICATES], priorities=dict(DEFAULT_PRIORITIES))
    assert legacy.convert(named).data == legacy.convert(policy()).data


def test_binding_and_preemption_stay() -> None:
    (profile,) = scheduler_of(policy(predicates=[], priorities={})).profiles
    points = config.expand(profile, IN_TREE)
    assert [plugin.name for plugin in points[ExtensionPoint.BIND]] == ["DefaultBinder"]
    assert "DefaultPreemption" in {plugin.name for plugin in points[ExtensionPoint.POST_FILTER]}


@pytest.mark.parametrize(
    ("priorities", "strategy", "weight"),
    [
        ({"LeastRequestedPriority": 2}, "LeastAllocated", 2),
        ({"MostRequestedPriority": 3}, "MostAllocated", 3),
        ({"LeastRequestedPriority": 1, "MostRequestedPriority": 4}, "MostAllocated", 3),
    ],
)
def test_requests_are_scored_by_a_strategy(priorities: dict[str, int], strategy: str, weight: int) -> None:
    given = policy(predicates=[], priorities=priorities)
    assert effect(given)[1] == {"NodeResourcesFit": weight}
    assert scheduler_of(given).profiles[0].args["NodeResourcesFit"].scoring_strategy.type == strategy


def test_least_and_most_requested_of_one_weight_cancel_out() -> None:
    given = policy(predicates=[], priorities={"LeastRequestedPriority": 1, "MostRequestedPriority": 1})
    assert effect(given)[1] == {}
    assert "work against each other" in str(legacy.convert(given).remarks[0])


def test_a_ratio_of_requested_to_capacity_keeps_its_shape() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    argument = {"requestedToCapacityRatioArguments": {"shape": shape, "resources": [{"name": "x.io/gpu", "weight": 5}]}}
    given = policy(predicates=[]) | {"priorities": [{"name": "Mine", "weight": 7, "argument": argument}]}
    assert effect(given)[1] == {"NodeResourcesFit": 7}
    strategy = scheduler_of(given).profiles[0].args["NodeResourcesFit"].scoring_strategy
    assert [(point.utilization, point.score) for point in strategy.requested_to_capacity_ratio.shape] == [
        (0, 0),
        (100, 10),
    ]
    assert [(resource.name, resource.weight) for resource in strategy.resources] == [("x.io/gpu", 5)]


@pytest.mark.parametrize(
    ("priorities", "defaulting", "weight"),
    [
        ({"EvenPodsSpreadPriority": 4}, "List", 4),
        ({"SelectorSpreadPriority": 3}, "System", 3),
        ({"ServiceSpreadingPriority": 3, "EvenPodsSpreadPriority": 2}, "System", 2),
    ],
)
def test_spreading_by_service_is_spreading_by_default(priorities: dict[str, int], defaulting: str, weight: int) -> None:
    given = policy(predicates=[], priorities=priorities)
    assert effect(given)[1] == {"PodTopologySpread": weight}
    assert scheduler_of(given).profiles[0].args["PodTopologySpread"].defaulting_type == defaulting


def test_labels_asked_of_every_node_become_an_affinity_of_every_pod() -> None:
    def presence(*labels: str, present: bool) -> dict[str, Any]:
        return {"name": "Mine", "argument": {"labelsPresence": {"labels": labels, "presence": present}}}

    given = policy(predicates=[presence("a", "b", present=True), presence("c", present=False)])
    affinity = scheduler_of(given).profiles[0].args["NodeAffinity"].added_affinity
    (term,) = affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    asked = [(expression.key, expression.operator) for expression in term.match_expressions]
    assert asked == [("a", "Exists"), ("b", "Exists"), ("c", "DoesNotExist")]
    assert "NodeAffinity" in effect(given)[0]


def test_what_is_of_no_consequence_today_is_left_out_and_named() -> None:
    given = policy(
        predicates=["MaxEBSVolumeCount", "CheckNodeDiskPressure"],
        priorities={"EqualPriority": 1, "NodePreferAvoidPodsPriority": 10000},
        alwaysCheckAllPredicates=True,
    )
    assert effect(given) == ({"TaintToleration", "NodeUnschedulable"}, {})
    assert [remark.path for remark in legacy.convert(given).remarks] == [
        "predicates[0]",
        "predicates[1]",
        "priorities[0]",
        "priorities[1]",
        "alwaysCheckAllPredicates",
    ]


def test_everything_that_v1_cannot_say_is_refused_at_once() -> None:
    given = policy(predicates=["Fancy", {"name": "a", "argument": {"serviceAffinity": {"labels": ["zone"]}}}])
    given["priorities"] = [
        {"name": "b", "weight": 1, "argument": {"serviceAntiAffinity": {"label": "zone"}}},
        {"name": "c", "weight": 1, "argument": {"labelPreference": {"label": "x", "presence": True}}},
        {"name": "LeastRequestedPriority", "weight": 0},
        "d",
    ]
    assert [text.partition(": ")[0] for text in refusals({**given, "extras": 1})] == [
        "predicates[0]",
        "predicates[1]",
        "priorities[0]",
        "priorities[1]",
        "priorities[2].weight",
        "priorities[3]",
        "extras",
    ]


def test_two_strategies_for_requests_are_refused() -> None:
    ratio = {"requestedToCapacityRatioArguments": {"shape": [{"utilization": 0, "score": 0}]}}
    given = policy(priorities={"LeastRequestedPriority": 1})
    given["priorities"].append({"name": "r", "weight": 1, "argument": ratio})
    assert refusals(given) == [
        "priorities: NodeResourcesFit scores by one strategy, not by LeastAllocated and RequestedToCapacityRatio"
    ]


def test_an_extender_is_read_without_regard_to_case() -> None:
    extender = {
        "URLPrefix": "https://x",
        "BindVerb": "bind",
        "enableHttps": True,
        "httpTimeout": 1_500_000_000,
        "tlsConfig": {"CAFile": "/ca", "Insecure": False},
    }
    (only,) = scheduler_of(policy(extenders=[extender])).extenders
    assert (only.url_prefix, only.bind_verb, only.enable_https) == ("https://x", "bind", True)
    assert str(only.http_timeout) == "1.5s"
    assert only.tls_config is not None
    assert only.tls_config.ca_file == "/ca"
    assert refusals(policy(extenders=[{"urlPrefx": ""}])) == ["extenders[0].urlPrefx: unknown field of an extender"]


def test_the_weight_of_required_affinity_is_kept() -> None:
    given = policy(hardPodAffinitySymmetricWeight=42)
    assert scheduler_of(given).profiles[0].args["InterPodAffinity"].hard_pod_affinity_weight == 42


def test_a_policy_is_found_in_its_config_map() -> None:
    inside = json.dumps(policy(predicates=["HostName"], priorities={}), indent=1)
    data = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"policy.cfg": inside}}
    assert "NodeName" in effect(data)[0]


def test_lines_are_those_of_the_policy() -> None:
    text = "kind: Policy\npredicates:\n- name: HostName\n- name: Fancy\n"
    assert refusals(text) == ['predicates[1]: predicate type not found for "Fancy" (line 4)']
