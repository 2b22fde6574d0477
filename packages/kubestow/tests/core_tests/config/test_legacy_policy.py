"""Conversion of a scheduler Policy to a v1 configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.config.builders import IN_TREE
from kubestow import config
from kubestow.config import ExtensionPoint, legacy
from kubestow.config.legacy.policy import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    FILTER_PLUGINS,
    MANDATORY_PREDICATES,
    PREDICATES,
    PRIORITIES,
    SCORE_PLUGINS,
)
from kubestow.errors import ConfigurationError


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
    """The plugins that a Policy can select: the Filter plugins, and the Score plugins with their weights."""
    (profile,) = scheduler_of(source).profiles
    points = config.expand(profile, IN_TREE)
    filters = {plugin.name for plugin in points[ExtensionPoint.FILTER]} & set(FILTER_PLUGINS)
    return filters, {
        plugin.name: plugin.weight for plugin in points[ExtensionPoint.SCORE] if plugin.name in SCORE_PLUGINS
    }


def conversion_errors(source: config.Source) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        legacy.convert(source)
    return [f"{path}: {text}" for path, text in raised.value.problems]


def test_a_policy_without_lists_means_the_defaults_of_kubernetes_1_22() -> None:
    filters, scores = effect(policy())
    assert filters == set(FILTER_PLUGINS)
    assert scores == {**dict.fromkeys(SCORE_PLUGINS, 1), "PodTopologySpread": 2}


def test_empty_lists_leave_the_mandatory_predicates() -> None:
    assert effect(policy(predicates=[], priorities={})) == ({"TaintToleration", "NodeUnschedulable"}, {})


@given(st.sets(st.sampled_from(sorted(PREDICATES))), st.dictionaries(st.sampled_from(sorted(PRIORITIES)), st.just(3)))
def test_only_named_predicates_and_priorities_have_an_effect(predicates: set[str], priorities: dict[str, int]) -> None:
    filters, scores = effect(policy(predicates=sorted(predicates), priorities=priorities))
    assert filters == {plugin for name in (*predicates, *MANDATORY_PREDICATES) for plugin in PREDICATES[name]}
    assert scores == {PRIORITIES[name]: weight for name, weight in priorities.items()}


def test_naming_the_defaults_equals_omitting_the_lists() -> None:
    named = policy(predicates=[*DEFAULT_PREDICATES], priorities=dict(DEFAULT_PRIORITIES))
    assert legacy.convert(named).data == legacy.convert(policy()).data


def test_bind_and_preemption_plugins_stay_enabled() -> None:
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
def test_requested_priorities_become_a_scoring_strategy(priorities: dict[str, int], strategy: str, weight: int) -> None:
    given = policy(predicates=[], priorities=priorities)
    assert effect(given)[1] == {"NodeResourcesFit": weight}
    assert scheduler_of(given).profiles[0].args["NodeResourcesFit"].scoring_strategy.type == strategy


def test_least_and_most_requested_of_equal_weight_cancel_out() -> None:
    given = policy(predicates=[], priorities={"LeastRequestedPriority": 1, "MostRequestedPriority": 1})
    assert effect(given)[1] == {}
    assert "cancel each other out" in str(legacy.convert(given).warnings[0])


def test_requested_to_capacity_ratio_keeps_its_shape() -> None:
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
def test_spreading_by_service_becomes_the_system_default_constraints(
    priorities: dict[str, int], defaulting: str, weight: int
) -> None:
    given = policy(predicates=[], priorities=priorities)
    assert effect(given)[1] == {"PodTopologySpread": weight}
    assert scheduler_of(given).profiles[0].args["PodTopologySpread"].defaulting_type == defaulting


def test_labels_presence_becomes_an_added_node_affinity() -> None:
    def presence(*labels: str, present: bool) -> dict[str, Any]:
        return {"name": "Mine", "argument": {"labelsPresence": {"labels": labels, "presence": present}}}

    given = policy(predicates=[presence("a", "b", present=True), presence("c", present=False)])
    affinity = scheduler_of(given).profiles[0].args["NodeAffinity"].added_affinity
    (term,) = affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    expressions = [(expression.key, expression.operator) for expression in term.match_expressions]
    assert expressions == [("a", "Exists"), ("b", "Exists"), ("c", "DoesNotExist")]
    assert "NodeAffinity" in effect(given)[0]


def test_predicates_and_priorities_without_effect_are_omitted_with_a_warning() -> None:
    given = policy(
        predicates=["MaxEBSVolumeCount", "CheckNodeDiskPressure"],
        priorities={"EqualPriority": 1, "NodePreferAvoidPodsPriority": 10000},
        alwaysCheckAllPredicates=True,
    )
    assert effect(given) == ({"TaintToleration", "NodeUnschedulable"}, {})
    assert [warning.path for warning in legacy.convert(given).warnings] == [
        "predicates[0]",
        "predicates[1]",
        "priorities[0]",
        "priorities[1]",
        "alwaysCheckAllPredicates",
    ]


def test_all_settings_without_a_v1_counterpart_are_rejected_at_once() -> None:
    given = policy(predicates=["Fancy", {"name": "a", "argument": {"serviceAffinity": {"labels": ["zone"]}}}])
    given["priorities"] = [
        {"name": "b", "weight": 1, "argument": {"serviceAntiAffinity": {"label": "zone"}}},
        {"name": "c", "weight": 1, "argument": {"labelPreference": {"label": "x", "presence": True}}},
        {"name": "LeastRequestedPriority", "weight": 0},
        "d",
    ]
    assert [text.partition(": ")[0] for text in conversion_errors({**given, "extras": 1})] == [
        "predicates[0]",
        "predicates[1]",
        "priorities[0]",
        "priorities[1]",
        "priorities[2].weight",
        "priorities[3]",
        "extras",
    ]


def test_two_scoring_strategies_are_rejected() -> None:
    ratio = {"requestedToCapacityRatioArguments": {"shape": [{"utilization": 0, "score": 0}]}}
    given = policy(priorities={"LeastRequestedPriority": 1})
    given["priorities"].append({"name": "r", "weight": 1, "argument": ratio})
    assert conversion_errors(given) == [
        "priorities: NodeResourcesFit supports one scoring strategy, got LeastAllocated and RequestedToCapacityRatio"
    ]


def test_extender_fields_are_case_insensitive() -> None:
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
    assert conversion_errors(policy(extenders=[{"urlPrefx": ""}])) == [
        "extenders[0].urlPrefx: unknown field of an extender"
    ]


def test_hard_pod_affinity_weight_is_kept() -> None:
    given = policy(hardPodAffinitySymmetricWeight=42)
    assert scheduler_of(given).profiles[0].args["InterPodAffinity"].hard_pod_affinity_weight == 42


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"predicates": []}, True),
        ({"priorities": []}, True),
        ({"kind": "Policy"}, True),
        ({"extenders": []}, False),
        ({"kind": "List", "predicates": []}, False),
    ],
)
def test_a_file_without_a_kind_is_a_policy_by_its_lists(data: dict[str, Any], expected: bool) -> None:
    assert legacy.is_legacy(data) is expected


def test_a_policy_in_a_config_map_is_converted() -> None:
    inside = json.dumps(policy(predicates=["HostName"], priorities={}), indent=1)
    data = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"policy.cfg": inside}}
    assert "NodeName" in effect(data)[0]


def test_errors_have_the_line_numbers_of_the_policy() -> None:
    text = "kind: Policy\npredicates:\n- name: HostName\n- name: Fancy\n"
    assert conversion_errors(text) == ['predicates[1]: predicate type not found for "Fancy" (line 4)']


@pytest.mark.parametrize("given", ["", 0, False, {}], ids=repr)
def test_an_empty_value_of_another_type_does_not_count_as_absent(given: Any) -> None:
    presence = {"name": "zone", "argument": {"labelsPresence": {"labels": given}}}
    with pytest.raises(ConfigurationError, match=r"predicates\[0\].argument.labelsPresence.labels: expected a list"):
        legacy.convert(policy(predicates=[presence]))
    ratio = {"name": "r", "weight": 1, "argument": {"requestedToCapacityRatioArguments": {"shape": given}}}
    converted = legacy.convert({**policy(), "priorities": [ratio]}).data
    assert any(error.path.endswith("requestedToCapacityRatio.shape") for error in config.check(converted))


@pytest.mark.parametrize("given", ["", False, {}, []], ids=repr)
def test_a_hard_pod_affinity_weight_must_be_a_number(given: Any) -> None:
    converted = legacy.convert(policy(hardPodAffinitySymmetricWeight=given)).data
    assert [error.path.rpartition(".")[2] for error in config.check(converted)] == ["hardPodAffinityWeight"]


_PREDICATES_OF_1_13_TO_1_18 = [
    "CheckNodeCondition",
    "CheckNodeDiskPressure",
    "CheckNodeLabelPresence",
    "CheckNodeMemoryPressure",
    "CheckNodePIDPressure",
    "CheckNodeUnschedulable",
    "CheckServiceAffinity",
    "CheckVolumeBinding",
    "EvenPodsSpread",
    "GeneralPredicates",
    "HostName",
    "MatchInterPodAffinity",
    "MatchNodeSelector",
    "MaxAzureDiskVolumeCount",
    "MaxCSIVolumeCountPred",
    "MaxCinderVolumeCount",
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "NoDiskConflict",
    "NoVolumeZoneConflict",
    "PodFitsHostPorts",
    "PodFitsPorts",
    "PodFitsResources",
    "PodToleratesNodeNoExecuteTaints",
    "PodToleratesNodeTaints",
]
_PRIORITIES_OF_1_13_TO_1_18 = [
    "BalancedResourceAllocation",
    "EqualPriority",
    "EvenPodsSpreadPriority",
    "ImageLocalityPriority",
    "InterPodAffinityPriority",
    "LeastRequestedPriority",
    "MostRequestedPriority",
    "NodeAffinityPriority",
    "NodeLabelPriority",
    "NodePreferAvoidPodsPriority",
    "RequestedToCapacityRatioPriority",
    "ResourceLimitsPriority",
    "SelectorSpreadPriority",
    "ServiceAntiAffinityPriority",
    "ServiceSpreadingPriority",
    "TaintTolerationPriority",
]
_WITHOUT_COUNTERPART = {
    "CheckNodeLabelPresence": "addedAffinity",
    "CheckServiceAffinity": "pod affinity",
    "NodeLabelPriority": "addedAffinity",
    "ResourceLimitsPriority": "remove it",
    "ServiceAntiAffinityPriority": "PodTopologySpread",
}


@pytest.mark.parametrize("name", _PREDICATES_OF_1_13_TO_1_18 + _PRIORITIES_OF_1_13_TO_1_18)
def test_every_earlier_name_is_converted_or_its_replacement_named(name: str) -> None:
    is_priority = name in _PRIORITIES_OF_1_13_TO_1_18
    entries = [{"name": name, "weight": 1}] if is_priority else [{"name": name}]
    given = {"kind": "Policy", "priorities" if is_priority else "predicates": entries}
    if name in _WITHOUT_COUNTERPART:
        (error,) = conversion_errors(json.dumps(given))
        assert _WITHOUT_COUNTERPART[name] in error
    else:
        assert config.diagnose(legacy.convert(given).data, implements=IN_TREE) == []


def test_the_ratio_priority_without_arguments_prefers_unused_nodes() -> None:
    given = {"kind": "Policy", "priorities": [{"name": "RequestedToCapacityRatioPriority", "weight": 2}]}
    (only,) = config.load(legacy.convert(given).data).profiles
    strategy = only.args["NodeResourcesFit"].scoring_strategy
    assert [(point.utilization, point.score) for point in strategy.requested_to_capacity_ratio.shape] == [
        (0, 10),
        (100, 0),
    ]
