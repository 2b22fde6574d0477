"""Validation of top-level fields, profiles and extenders."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.config.builders import disabled, enabled, field_errors, profile, v1
from kubestow import config

_REMOVED = 'was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"parallelism": -1}, "parallelism: Invalid value: -1: should be an integer value greater than zero"),
        ({"clientConnection": {"burst": -1}}, "clientConnection.burst: Invalid value: -1: must be non-negative"),
        ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"),
        (
            {"podInitialBackoffSeconds": 11},
            "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds",
        ),
    ],
)
def test_top_level_fields_are_validated(fields: dict[str, Any], error: str) -> None:
    assert field_errors(v1(**fields)) == [error]


@pytest.mark.parametrize(
    "fields",
    [
        {"percentageOfNodesToScore": 100},
        {"clientConnection": {"qps": -1}},
        {"podInitialBackoffSeconds": 10, "podMaxBackoffSeconds": 10},
        {"leaderElection": {"leaderElect": False, "leaseDuration": "-1s", "resourceLock": "endpoints"}},
        {"profiles": [profile(args={"DefaultPreemption": {"minCandidateNodesPercentage": 0}})]},
        {"profiles": [profile(args={"DefaultPreemption": {"minCandidateNodesPercentage": 100}})]},
        {"profiles": [profile(args={"DefaultPreemption": {"minCandidateNodesAbsolute": 0}})]},
    ],
)
def test_boundary_values_are_accepted(fields: dict[str, Any]) -> None:
    assert field_errors(v1(**fields)) == []


def test_all_errors_are_reported_in_kube_schedulers_order() -> None:
    source = v1(
        percentageOfNodesToScore=-1,
        podInitialBackoffSeconds=-1,
        parallelism=0,
        profiles=[{"schedulerName": ""}],
        clientConnection={"burst": -1},
    )
    paths = [error.path for error in config.check(source)]
    assert paths == [
        "clientConnection.burst",
        "parallelism",
        "profiles[0].schedulerName",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"leaseDuration": "-1s"}, ['leaseDuration: Invalid value: "-1s": must be greater than zero']),
        ({"leaseDuration": "10s"}, ['leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`']),
        ({"retryPeriod": "-1ms"}, ['retryPeriod: Invalid value: "-1ms": must be greater than zero']),
        (
            {"resourceLock": "endpoints"},
            ['resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"'],
        ),
    ],
)
def test_leader_election_is_validated(fields: dict[str, Any], expected: list[str]) -> None:
    assert f"leaderElection.{expected[0]}" in field_errors(v1(leaderElection=fields))


def test_a_configuration_built_in_code_is_validated_alike() -> None:
    empty = config.KubeSchedulerConfiguration(
        leader_election=config.LeaderElectionConfiguration(resource_name="", resource_lock="")
    )
    assert [str(p) for p in config.validate(empty, config.FeatureGates())] == [
        "leaderElection.resourceLock: Required value",
        "leaderElection.resourceName: Required value",
        'leaderElection.resourceLock: Invalid value: "": resourceLock value must be "leases"',
        "profiles: Required value",
    ]


def test_several_profiles_need_unique_names() -> None:
    assert field_errors(v1(profiles=[profile("a"), {}, {}, profile("a")])) == [
        "profiles[1].schedulerName: Required value",
        "profiles[2].schedulerName: Required value",
        'profiles[2].schedulerName: Duplicate value: ""',
        'profiles[3].schedulerName: Duplicate value: "a"',
    ]


def test_a_plugin_is_configured_once() -> None:
    twice = {"pluginConfig": [{"name": "Mine", "args": {}}, {"name": "Mine", "args": {}}]}
    assert field_errors(v1(profiles=[twice])) == ['profiles[0].pluginConfig[1]: Duplicate value: "Mine"']


@pytest.mark.parametrize("name", ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"])
def test_plugins_of_earlier_releases_are_rejected(name: str) -> None:
    source = v1(profiles=[profile(args={name: None}, filter=enabled("NodeName", name), multiPoint=enabled(name))])
    assert field_errors(source) == [
        f'profiles[0].plugins.filter.enabled[1]: Invalid value: "{name}": {_REMOVED}',
        f'profiles[0].pluginConfig[0]: Invalid value: "{name}": {_REMOVED}',
    ]


def test_only_one_queue_sort_plugin_is_allowed() -> None:
    source = v1(profiles=[profile(queueSort=enabled("A", "B"))])
    assert field_errors(source) == [
        "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled"
    ]


def test_all_profiles_share_the_queue_sort_plugin() -> None:
    source = v1(
        profiles=[profile("a", queueSort=enabled("S", S2=0)), profile("b"), profile("c", queueSort=disabled("S"))]
    )
    paths = [error.path for error in config.check(source)][1:]
    assert paths == ["profiles[1].plugins.queueSort", "profiles[2].plugins.queueSort"]


def test_an_unset_weight_equals_zero_for_the_queue_sort_plugin() -> None:
    source = v1(profiles=[profile("a", queueSort=enabled("S")), profile("b", queueSort=enabled(S=0))])
    assert field_errors(source) == []


def test_all_profiles_share_the_queue_sort_arguments() -> None:
    queue_sort = enabled("S")
    source = v1(
        profiles=[
            profile("a", args={"S": {"x": 1}}, queueSort=queue_sort),
            profile("b", args={"S": {"x": 1}}, queueSort=queue_sort),
            profile("c", args={"S": {"x": 2}}, queueSort=queue_sort),
            profile("d", queueSort=queue_sort),
        ]
    )
    assert field_errors(source) == [
        'profiles[2].pluginConfig.args: Invalid value: {"x":2}: queueSort must be the same for all profiles'
    ]


@pytest.mark.parametrize(
    ("extenders", "expected"),
    [
        (
            [{"prioritizeVerb": "p"}],
            ["extenders[0].weight: Invalid value: 0: must have a positive weight applied to it"],
        ),
        (
            [{"bindVerb": "b"}, {}, {"bindVerb": "b"}],
            ['extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind'],
        ),
        ([{"weight": -1, "filterVerb": "f"}, {"bindVerb": "b"}, {"prioritizeVerb": "p", "weight": 1}], []),
    ],
)
def test_extenders_are_validated(extenders: list[dict[str, Any]], expected: list[str]) -> None:
    assert field_errors(v1(extenders=extenders)) == expected


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("cpu", "is an invalid extended resource name"),
        ("kubernetes.io/gpu", "is an invalid extended resource name"),
        ("requests.example.com/x", "is an invalid extended resource name"),
        ("/x", "prefix part must be non-empty"),
        ("a" * 246 + ".com/x", "is an invalid extended resource name"),
        ("x/" + "a" * 64, "name part must be no more than 63 bytes"),
    ],
)
def test_a_managed_resource_is_an_extended_resource(name: str, error: str) -> None:
    (expected,) = field_errors(v1(extenders=[{"managedResources": [{"name": name}]}]))
    assert expected == f'extenders[0].managedResources[0].name: Invalid value: "{name}": {error}'


def test_a_resource_is_managed_once() -> None:
    gpu = {"managedResources": [{"name": "example.com/gpu"}]}
    (expected,) = field_errors(v1(extenders=[gpu, gpu]))
    assert expected.startswith("extenders[1].managedResources[0].name: Invalid value")
    assert expected.endswith("duplicate extender managed resource name")
