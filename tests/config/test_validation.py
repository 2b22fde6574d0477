"""The rules of top-level fields, profiles and extenders."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow import config
from tests.config.builders import disabled, enabled, problems, profile, v1

_REMOVED = 'was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'


@pytest.mark.parametrize(
    ("fields", "problem"),
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
def test_a_top_level_field_keeps_its_rule(fields: dict[str, Any], problem: str) -> None:
    assert problems(v1(**fields)) == [problem]


@pytest.mark.parametrize(
    "fields",
    [
        {"percentageOfNodesToScore": 100},
        {"clientConnection": {"qps": -1}},
        {"podInitialBackoffSeconds": 10, "podMaxBackoffSeconds": 10},
        {"leaderElection": {"leaderElect": False, "leaseDuration": "-1s", "resourceLock": "endpoints"}},
    ],
)
def test_what_the_rules_allow_is_accepted(fields: dict[str, Any]) -> None:
    assert problems(v1(**fields)) == []


def test_all_broken_rules_are_told_in_the_order_of_the_reference() -> None:
    source = v1(
        percentageOfNodesToScore=-1,
        podInitialBackoffSeconds=-1,
        parallelism=0,
        profiles=[{"schedulerName": ""}],
        clientConnection={"burst": -1},
    )
    paths = [problem.path for problem in config.check(source)]
    assert paths == [
        "clientConnection.burst",
        "parallelism",
        "profiles[0].schedulerName",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
    ]


@pytest.mark.parametrize(
    ("fields", "told"),
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
def test_leader_election_keeps_its_rules(fields: dict[str, Any], told: list[str]) -> None:
    assert f"leaderElection.{told[0]}" in problems(v1(leaderElection=fields))


def test_a_configuration_made_in_code_is_checked_alike() -> None:
    empty = config.KubeSchedulerConfiguration(
        leader_election=config.LeaderElectionConfiguration(resource_name="", resource_lock="")
    )
    assert [str(p) for p in config.validate(empty, config.FeatureGates())] == [
        "leaderElection.resourceLock: Required value",
        "leaderElection.resourceName: Required value",
        'leaderElection.resourceLock: Invalid value: "": resourceLock value must be "leases"',
        "profiles: Required value",
    ]


def test_several_profiles_need_names_of_their_own() -> None:
    assert problems(v1(profiles=[profile("a"), {}, {}, profile("a")])) == [
        "profiles[1].schedulerName: Required value",
        "profiles[2].schedulerName: Required value",
        'profiles[2].schedulerName: Duplicate value: ""',
        'profiles[3].schedulerName: Duplicate value: "a"',
    ]


def test_a_plugin_is_configured_once() -> None:
    twice = {"pluginConfig": [{"name": "Mine", "args": {}}, {"name": "Mine", "args": {}}]}
    assert problems(v1(profiles=[twice])) == ['profiles[0].pluginConfig[1]: Duplicate value: "Mine"']


@pytest.mark.parametrize("name", ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"])
def test_plugins_of_earlier_releases_are_refused(name: str) -> None:
    source = v1(profiles=[profile(args={name: None}, filter=enabled("NodeName", name), multiPoint=enabled(name))])
    assert problems(source) == [
        f'profiles[0].plugins.filter.enabled[1]: Invalid value: "{name}": {_REMOVED}',
        f'profiles[0].pluginConfig[0]: Invalid value: "{name}": {_REMOVED}',
    ]


def test_one_plugin_sorts_the_queue() -> None:
    source = v1(profiles=[profile(queueSort=enabled("A", "B"))])
    assert problems(source) == [
        "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled"
    ]


def test_all_profiles_sort_the_queue_alike() -> None:
    source = v1(
        profiles=[profile("a", queueSort=enabled("S", S2=0)), profile("b"), profile("c", queueSort=disabled("S"))]
    )
    paths = [problem.path for problem in config.check(source)][1:]
    assert paths == ["profiles[1].plugins.queueSort", "profiles[2].plugins.queueSort"]


def test_no_weight_and_weight_zero_are_alike_for_the_queue_sort() -> None:
    source = v1(profiles=[profile("a", queueSort=enabled("S")), profile("b", queueSort=enabled(S=0))])
    assert problems(source) == []


def test_all_profiles_configure_the_queue_sort_alike() -> None:
    queue_sort = enabled("S")
    source = v1(
        profiles=[
            profile("a", args={"S": {"x": 1}}, queueSort=queue_sort),
            profile("b", args={"S": {"x": 1}}, queueSort=queue_sort),
            profile("c", args={"S": {"x": 2}}, queueSort=queue_sort),
            profile("d", queueSort=queue_sort),
        ]
    )
    assert problems(source) == [
        'profiles[2].pluginConfig.args: Invalid value: {"x":2}: queueSort must be the same for all profiles'
    ]


@pytest.mark.parametrize(
    ("extenders", "told"),
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
def test_extenders_keep_their_rules(extenders: list[dict[str, Any]], told: list[str]) -> None:
    assert problems(v1(extenders=extenders)) == told


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("cpu", "is an invalid extended resource name"),
        ("kubernetes.io/gpu", "is an invalid extended resource name"),
        ("requests.example.com/x", "is an invalid extended resource name"),
        ("/x", "prefix part must be non-empty"),
        ("a" * 246 + ".com/x", "is an invalid extended resource name"),
        ("x/" + "a" * 64, "name part must be no more than 63 bytes"),
    ],
)
def test_a_managed_resource_is_an_extended_one(name: str, fault: str) -> None:
    (told,) = problems(v1(extenders=[{"managedResources": [{"name": name}]}]))
    assert told == f'extenders[0].managedResources[0].name: Invalid value: "{name}": {fault}'


def test_a_resource_is_managed_once() -> None:
    gpu = {"managedResources": [{"name": "example.com/gpu"}]}
    (told,) = problems(v1(extenders=[gpu, gpu]))
    assert told.startswith("extenders[1].managedResources[0].name: Invalid value")
    assert told.endswith("duplicate extender managed resource name")
