from __future__ import annotations

from typing import Any

import pytest

from core_tests.config.builders import disabled, enabled, loaded, profile, v1
from kubestow import config
from kubestow.config import Duration
from kubestow.config.plugin_args import (
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    UtilizationShapePoint,
    VolumeBindingArgs,
)

_CPU_AND_MEMORY = (ResourceSpec(name="cpu", weight=1), ResourceSpec(name="memory", weight=1))


def _args(plugin: str, given: Any, **choices: bool) -> Any:
    configuration = loaded(profile(args={plugin: given}), gates=config.FeatureGates(choices))
    return configuration.profiles[0].args[plugin]


def test_the_default_configuration_has_one_default_scheduler_profile() -> None:
    configuration = config.default_configuration()
    assert [p.scheduler_name for p in configuration.profiles] == ["default-scheduler"]
    assert (configuration.parallelism, configuration.percentage_of_nodes_to_score) == (16, 0)
    assert (configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds) == (1, 10)
    assert configuration.leader_election == config.LeaderElectionConfiguration()
    assert not configuration.delay_cache_until_active


@pytest.mark.parametrize("profiles", [[], [{}], [None], None])
def test_a_single_profile_needs_no_name(profiles: Any) -> None:
    assert config.load(v1(profiles=profiles)) == config.default_configuration()


def test_zero_and_empty_in_leader_election_mean_the_default() -> None:
    zeros = {"leaderElect": False, "leaseDuration": "0s", "renewDeadline": "0", "resourceLock": "", "resourceName": ""}
    assert config.load(v1(leaderElection=zeros)).leader_election == config.LeaderElectionConfiguration(
        leader_elect=False
    )


def test_requests_are_unlimited_unless_qps_is_set() -> None:
    unset = config.default_configuration().client_connection
    assert (unset.qps, unset.burst) == (-1.0, 100)
    assert config.load(v1(clientConnection={"qps": 0, "burst": 0})).client_connection == unset
    given = config.load(v1(clientConnection={"qps": 50})).client_connection
    assert (given.qps, given.burst) == (50.0, 100)


@pytest.mark.parametrize(
    ("fields", "contention"),
    [
        ({}, True),
        ({"enableProfiling": False}, False),
        ({"enableProfiling": False, "enableContentionProfiling": True}, True),
    ],
)
def test_contention_profiling_defaults_to_profiling(fields: dict[str, Any], contention: bool) -> None:
    assert config.load(v1(**fields)).enable_contention_profiling is contention


def test_every_enabled_plugin_with_arguments_has_default_arguments() -> None:
    (only,) = config.default_configuration().profiles
    assert dict(only.args) == {
        "DefaultPreemption": DefaultPreemptionArgs(min_candidate_nodes_percentage=10, min_candidate_nodes_absolute=100),
        "DynamicResources": DynamicResourcesArgs(
            filter_timeout=Duration.of(seconds=10), binding_timeout=Duration.of(seconds=600)
        ),
        "InterPodAffinity": InterPodAffinityArgs(hard_pod_affinity_weight=1),
        "NodeAffinity": NodeAffinityArgs(),
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs(resources=_CPU_AND_MEMORY),
        "NodeResourcesFit": NodeResourcesFitArgs(),
        "PodTopologySpread": PodTopologySpreadArgs(defaulting_type="System"),
        "VolumeBinding": VolumeBindingArgs(bind_timeout_seconds=600),
    }


def test_default_arguments_are_appended_for_enabled_plugins_only() -> None:
    only_fit = profile(args={"Mine": {}}, multiPoint=enabled("NodeResourcesFit", "InterPodAffinity", disabled=("*",)))
    (built,) = loaded(only_fit).profiles
    assert [c.name for c in built.plugin_config] == ["Mine", "InterPodAffinity", "NodeResourcesFit"]


def test_a_plugin_disabled_at_one_point_keeps_its_arguments() -> None:
    (built,) = loaded(profile(score=disabled("NodeResourcesFit"))).profiles
    assert built.args["NodeResourcesFit"] == NodeResourcesFitArgs()


def test_resources_have_a_default_weight_of_one() -> None:
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu"}, {"name": "pods", "weight": 3}]}
    weighted = (ResourceSpec(name="cpu", weight=1), ResourceSpec(name="pods", weight=3))
    assert _args("NodeResourcesFit", {"scoringStrategy": strategy}).scoring_strategy.resources == weighted
    assert _args("NodeResourcesBalancedAllocation", {"resources": [{"name": "cpu"}]}).resources == weighted[:1]


def test_resources_default_to_cpu_and_memory() -> None:
    assert (
        _args("NodeResourcesFit", {"scoringStrategy": {"resources": []}}).scoring_strategy.resources == _CPU_AND_MEMORY
    )
    assert _args("NodeResourcesBalancedAllocation", {"resources": []}).resources == _CPU_AND_MEMORY


def test_the_volume_binding_shape_has_a_default_only_with_its_gate() -> None:
    falling = (UtilizationShapePoint(utilization=0, score=10), UtilizationShapePoint(utilization=100, score=0))
    assert _args("VolumeBinding", {}).shape is None
    assert _args("VolumeBinding", {"shape": []}, StorageCapacityScoring=True).shape == falling


def test_dynamic_resources_timeouts_have_defaults_only_with_their_gates() -> None:
    args = _args("DynamicResources", {}, DRASchedulerFilterTimeout=False, DRADeviceBindingConditions=False)
    assert args == DynamicResourcesArgs()
    assert _args("DynamicResources", {"filterTimeout": "0s"}).filter_timeout == Duration()
