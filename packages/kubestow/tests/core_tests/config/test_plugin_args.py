"""Validation of plugin arguments."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.config.builders import construction_errors, field_errors, profile, with_args

_ARGS = "profiles[0].pluginConfig[0].args"
_ZONE = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
_BOTH_ZERO = "cannot be zero at the same time as"
_REQUIRED = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def _args_errors(plugin: str, given: Any, **choices: bool) -> list[str]:
    return [line.removeprefix(f"{_ARGS}.") for line in field_errors(with_args(plugin, given), **choices)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"minCandidateNodesPercentage": 0}, []),
        ({"minCandidateNodesAbsolute": 0, "minCandidateNodesPercentage": 100}, []),
        (
            {"minCandidateNodesPercentage": 101},
            ["minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]"],
        ),
        (
            {"minCandidateNodesAbsolute": -1},
            ["minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)"],
        ),
        (
            {"minCandidateNodesAbsolute": 0, "minCandidateNodesPercentage": 0},
            [
                f"minCandidateNodesPercentage: Invalid value: 0: {_BOTH_ZERO} minCandidateNodesAbsolute",
                f"minCandidateNodesAbsolute: Invalid value: 0: {_BOTH_ZERO} minCandidateNodesPercentage",
            ],
        ),
    ],
)
def test_default_preemption(given: dict[str, Any], expected: list[str]) -> None:
    assert _args_errors("DefaultPreemption", given) == expected


@pytest.mark.parametrize("weight", [-1, 101])
def test_hard_pod_affinity_weight_is_at_most_100(weight: int) -> None:
    error = f"hardPodAffinityWeight: Invalid value: {weight}: not in valid range [0, 100]"
    assert _args_errors("InterPodAffinity", {"hardPodAffinityWeight": weight}) == [error]
    assert _args_errors("InterPodAffinity", {"hardPodAffinityWeight": 100}) == []


def test_balanced_allocation_takes_each_resource_once_with_weight_one() -> None:
    resources = [{"name": "cpu"}, {"name": "cpu", "weight": 2}, {"name": "x y"}]
    assert _args_errors("NodeResourcesBalancedAllocation", {"resources": resources}) == [
        'resources[1].name: Duplicate value: "cpu"',
        "resources[1].weight: Invalid value: 2: must be 1",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"maxSkew": 0}, ["maxSkew: Invalid value: 0: not in valid range (0, inf)"]),
        ({"topologyKey": ""}, ["topologyKey: Required value: can not be empty"]),
        ({"whenUnsatisfiable": ""}, ["whenUnsatisfiable: Required value: can not be empty"]),
        (
            {"whenUnsatisfiable": "Never"},
            ['whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"'],
        ),
        (
            {"labelSelector": {}},
            ["labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod"],
        ),
    ],
)
def test_default_constraints_are_validated(changes: dict[str, Any], expected: list[str]) -> None:
    given = {"defaultingType": "List", "defaultConstraints": [{**_ZONE, **changes}]}
    assert _args_errors("PodTopologySpread", given) == [f"defaultConstraints[0].{error}" for error in expected]


def test_default_constraints_are_unique_by_topology_key_and_action() -> None:
    given = {
        "defaultingType": "List",
        "defaultConstraints": [_ZONE, {**_ZONE, "whenUnsatisfiable": "ScheduleAnyway"}, _ZONE],
    }
    assert _args_errors("PodTopologySpread", given) == [
        'defaultConstraints[2]: Duplicate value: "{topology.kubernetes.io/zone, DoNotSchedule}"'
    ]


def test_default_constraints_require_defaulting_type_list() -> None:
    assert _args_errors("PodTopologySpread", {"defaultConstraints": [_ZONE]}) == [
        'defaultingType: Invalid value: "System": when .defaultConstraints are not empty'
    ]
    assert _args_errors("PodTopologySpread", {"defaultingType": "list"}) == [
        'defaultingType: Unsupported value: "list": supported values: "System", "List"'
    ]


def test_the_volume_binding_shape_requires_its_gate() -> None:
    shape = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    (expected,) = _args_errors("VolumeBinding", {"shape": shape})
    assert expected.startswith(
        'shape: Invalid value: [{"utilization":0,"score":10},{"utilization":100,"score":0}]: unexpected'
    )
    assert _args_errors("VolumeBinding", {"shape": shape}, StorageCapacityScoring=True) == []


def test_a_shape_is_sorted_by_utilization_and_in_range() -> None:
    shape = [{"utilization": 50, "score": 11}, {"utilization": 50}, {"utilization": 101, "score": -1}]
    assert _args_errors("VolumeBinding", {"shape": shape}, StorageCapacityScoring=True) == [
        "shape[1].utilization: Invalid value: 50: values must be sorted in increasing order",
        "shape[0].score: Invalid value: 11: not in valid range [0, 10]",
        "shape[2].utilization: Invalid value: 101: not in valid range [0, 100]",
        "shape[2].score: Invalid value: -1: not in valid range [0, 10]",
    ]


def test_the_bind_timeout_is_not_negative() -> None:
    error = "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value"
    assert _args_errors("VolumeBinding", {"bindTimeoutSeconds": -1}) == [error]
    assert _args_errors("VolumeBinding", {"bindTimeoutSeconds": 0}) == []


def test_dynamic_resources_timeouts_have_lower_bounds() -> None:
    assert _args_errors("DynamicResources", {"filterTimeout": "-1s", "bindingTimeout": "999ms"}) == [
        'filterTimeout: Invalid value: "-1s": must be zero or positive',
        'bindingTimeout: Invalid value: "999ms": must be at least 1 second',
    ]
    assert _args_errors("DynamicResources", {"filterTimeout": "0s", "bindingTimeout": "1s"}) == []


def test_dynamic_resources_timeouts_require_their_gates() -> None:
    off = {"DRASchedulerFilterTimeout": False, "DRADeviceBindingConditions": False}
    assert _args_errors("DynamicResources", {"filterTimeout": "1s", "bindingTimeout": "1s"}, **off) == [
        "filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled",
        "bindingTimeout: Forbidden: DRADeviceBindingConditions or DRAResourceClaimDeviceStatus"
        " feature gate is disabled",
    ]


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ({"key": "a", "operator": "In", "values": ["x", ""]}, []),
        ({"key": "a", "operator": "Gt", "values": ["5"]}, []),
        (
            {"key": "a", "operator": "NotIn"},
            ["values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"],
        ),
        (
            {"key": "a", "operator": "Exists", "values": ["x"]},
            ['values: Invalid value: ["x"]: values set must be empty for exists and does not exist'],
        ),
        (
            {"key": "a", "operator": "Lt", "values": ["1", "x"]},
            [
                "values: Invalid value: [\"1\",\"x\"]: for 'Gt', 'Lt' operators, exactly one value is required",
                "values[1]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ],
        ),
    ],
)
def test_expressions_of_the_added_affinity_are_validated(requirement: dict[str, Any], expected: list[str]) -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    given = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert _args_errors("NodeAffinity", given) == [f"{_REQUIRED}[0].matchExpressions[0].{error}" for error in expected]


def test_keys_and_values_of_the_added_affinity_are_valid_labels() -> None:
    requirement = {"key": "a b", "operator": "In", "values": ["ok", "not ok"]}
    required = {"nodeSelectorTerms": [{}, {"matchExpressions": [requirement]}]}
    expected = _args_errors(
        "NodeAffinity", {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    )
    assert [line.partition(": ")[0] for line in expected] == [
        f"{_REQUIRED}[1].matchExpressions[0].key",
        f"{_REQUIRED}[1].matchExpressions[0].values[1][a b]",
    ]


def test_match_fields_of_the_added_affinity_take_one_value() -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}, {"key": "x", "operator": "Exists"}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    assert _args_errors(
        "NodeAffinity", {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    ) == [
        f'{_REQUIRED}[0].matchFields[0].values: Invalid value: ["a","b"]: must have one element',
        f'{_REQUIRED}[0].matchFields[1].operator: Unsupported value: "Exists": supported values: "In", "NotIn"',
    ]


def test_preferred_terms_of_weight_zero_are_not_validated() -> None:
    bad = {"matchExpressions": [{"key": "a", "operator": "Nope"}]}
    terms = [{"weight": 0, "preference": bad}, {"weight": 1, "preference": bad}]
    (expected,) = _args_errors(
        "NodeAffinity", {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    )
    assert expected.startswith(
        "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].matchExpressions[0].operator: "
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"ignoredResources": ["a/b", "cpu"], "ignoredResourceGroups": ["example.com"]}, ""),
        ({"scoringStrategy": {}}, 'scoringStrategy.type: Unsupported value: "": supported values: '),
        (
            {"scoringStrategy": {"type": "MostAllocated", "requestedToCapacityRatio": {}}},
            "scoringStrategy.requestedToCapacityRatio: Forbidden: ",
        ),
        (
            {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
            "scoringStrategy.requestedToCapacityRatio: Required value: must be",
        ),
        (
            {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {}}},
            "scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified",
        ),
        (
            {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 101}]}},
            "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range",
        ),
        ({"ignoredResources": ["a b"]}, 'ignoredResources[0]: Invalid value: "a b": name part must consist of'),
        (
            {"ignoredResourceGroups": ["a/b"]},
            "ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
        ),
    ],
)
def test_node_resources_fit_arguments_are_validated_when_the_profile_is_built(
    given: dict[str, Any], expected: str
) -> None:
    assert _args_errors("NodeResourcesFit", given) == []
    found = construction_errors(profile(args={"NodeResourcesFit": given}))
    start = "initializing profiles: creating profile for scheduler name default-scheduler: initializing plugin"
    messages = [f'{start} "NodeResourcesFit": {expected}'] if expected else []
    assert [error[: len(whole)] for error, whole in zip(found, messages, strict=True)] == messages
