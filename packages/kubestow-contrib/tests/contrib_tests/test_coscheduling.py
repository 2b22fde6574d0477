"""The plugin Coscheduling: configurations of scheduler-plugins, its args, and its order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from msgspec import structs

from contrib_tests.pod_groups import members
from kubestow import config
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.errors import ConfigurationError
from kubestow.framework.gang import GangSource
from kubestow.framework.profile import build_profile, implements
from kubestow.plugins.registry import find_plugins
from kubestow.testing import PluginHarness, SchedulerHarness, in_virtual_time, node, pod
from kubestow_contrib.coscheduling import COSCHEDULING, Coscheduling, PodGroup

#: What the chart of scheduler-plugins installs by default, and what its documentation of the plugin has.
CHART = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false, resourceNamespace: scheduler-plugins, resourceName: scheduler-plugins-scheduler}
profiles:
- schedulerName: scheduler-plugins-scheduler
  plugins:
    multiPoint:
      enabled:
      - {name: Coscheduling}
      - {name: CapacityScheduling}
      - {name: NodeResourceTopologyMatch}
      - {name: NodeResourcesAllocatable}
      disabled: [{name: PrioritySort}]
  pluginConfig:
  - {name: Coscheduling, args: {permitWaitingTimeSeconds: 10}}
"""
BY_POINT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
    preFilter: {enabled: [{name: Coscheduling}]}
    postFilter: {enabled: [{name: Coscheduling}]}
    permit: {enabled: [{name: Coscheduling}]}
    reserve: {enabled: [{name: Coscheduling}]}
  pluginConfig:
  - name: Coscheduling
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: CoschedulingArgs
      permitWaitingTimeSeconds: 10
      podGroupBackoffSeconds: 5
      podGroupRejectPercentage: 10
"""


def built(document: str) -> Coscheduling:
    """The plugin of the first profile of a configuration."""
    registry = find_plugins()
    configuration = config.load(yaml.safe_load(document), implements=implements(registry))
    profile = build_profile(configuration.profiles[0], registry, PluginHarness(pod_group_apis=[COSCHEDULING]))
    found: GangSource | None = profile.runtime.plugins.gang_source
    assert isinstance(found, Coscheduling)
    assert profile.runtime.plugins.queue_sort is found
    return found


@pytest.mark.parametrize("document", [CHART, BY_POINT], ids=["chart", "by point"])
def test_configurations_of_scheduler_plugins_load(document: str) -> None:
    assert built(document).args.permit_waiting_time_seconds == 10


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"permitWaitingTimeSeconds": -1}, "permitWaitingTimeSeconds is -1, expected at least 0"),
        ({"podGroupBackoffSeconds": -1}, "podGroupBackoffSeconds is -1, expected at least 0"),
        ({"podGroupRejectPercentage": 101}, "podGroupRejectPercentage is 101, expected 0 to 100"),
        ({"permitWaitingTimeSecond": 5}, 'unknown field, did you mean "permitWaitingTimeSeconds"'),
    ],
)
def test_a_mistake_in_the_args_is_an_error(args: dict[str, int], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        PluginHarness(profile=profiles(**args)[0], plugins=[Coscheduling])


def group(name: str, minimum: int, created: int = 0, **spec: Any) -> PodGroup:
    """A group that was created in a minute of an hour."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"group-{name}",
        "creationTimestamp": f"2025-12-31T00:{created:02}:00Z",
    }
    return convert(PodGroup, {"metadata": metadata, "spec": {"minMember": minimum, **spec}})


def profiles(**args: int) -> list[dict[str, Any]]:
    plugins = {"multiPoint": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "PrioritySort"}]}}
    return [{"plugins": plugins, "pluginConfig": [{"name": "Coscheduling", "args": args}]}]


def run(scenario: Callable[[SchedulerHarness], Any], *objects: Any, **args: int) -> None:
    in_virtual_time(
        scenario, *objects, plugins=[Coscheduling], pod_group_apis=[COSCHEDULING], profiles=profiles(**args)
    )


def created(minute: int, pods: list[Pod]) -> list[Pod]:
    """The pods, as created in a minute of the hour."""
    at = f"2025-12-31T00:{minute:02}:00Z"
    return [structs.replace(p, metadata=structs.replace(p.metadata, creation_timestamp=at)) for p in pods]


def bound(harness: SchedulerHarness) -> list[str]:
    return [name.removeprefix("default/").partition("-")[0] for name, _ in harness.cluster.bindings]


def test_a_gang_is_bound_as_a_whole_or_not_at_all() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in (*members(3, "fits", api=COSCHEDULING, cpu="1"), *members(3, "large", api=COSCHEDULING, cpu="2")):
            harness.cluster.put(each)
        await harness.advance(10)
        assert bound(harness) == ["fits"] * 3

    run(scenario, node("n", cpu="4"), group("fits", 3), group("large", 3))


def test_the_group_that_was_created_first_comes_first_whenever_its_pods_came() -> None:
    pods = [
        *created(1, members(2, "late", api=COSCHEDULING, cpu="1")),
        *created(4, [pod("single", cpu="1")]),  # its binding is not held by a gang's barrier
        *created(9, members(2, "early", api=COSCHEDULING, cpu="1")),
        *created(9, members(2, "urgent", api=COSCHEDULING, cpu="1", priority=5)),
    ]
    groups = [group("late", 2, 5), group("early", 2, 2), group("urgent", 2, 9)]

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(20)
        assert sorted(bound(harness)) == ["early", "early", "single", "urgent", "urgent"]

    run(scenario, node("n", cpu="5"), *groups, *pods)


def test_a_group_that_failed_comes_behind_a_newer_one() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in created(1, members(3, "old", api=COSCHEDULING, cpu="1")):
            harness.cluster.put(each)
        await harness.advance(20)
        assert not bound(harness)
        harness.cluster.put(node("n", cpu="3"))
        for each in created(9, members(3, "new", api=COSCHEDULING, cpu="1")):
            harness.cluster.put(each)
        await harness.advance(20)
        assert bound(harness) == ["new"] * 3

    run(scenario, node("small", cpu="1"), group("old", 3, 1), group("new", 3, 9))


def test_the_time_to_wait_is_that_of_the_group_or_else_that_of_the_args() -> None:
    harness = PluginHarness(profile=profiles(permitWaitingTimeSeconds=10)[0], plugins=[Coscheduling])
    plugin = Coscheduling(built(CHART).args, PluginHarness(pod_group_apis=[COSCHEDULING]))
    groups = plugin.handle.cluster.catalog(PodGroup)
    timeouts = []
    for spec in ({}, {"scheduleTimeoutSeconds": 30}):
        groups.put(group("train", 2, **spec))
        gang = plugin.gang_of(harness.info(members(1, "train", api=COSCHEDULING)[0]))
        assert gang is not None
        timeouts.append(gang.timeout)
    assert timeouts == [10.0, 30.0]


def test_a_group_that_failed_is_not_tried_again_before_its_backoff_has_ended() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in members(3, "train", api=COSCHEDULING, cpu="1"):
            harness.cluster.put(each)
        await harness.settle()
        harness.cluster.put(node("n", cpu="3"))
        await harness.advance(50)
        assert not bound(harness)
        condition = harness.cluster.condition("train-0")
        assert condition is not None and condition.message == "podGroup default/train failed recently"
        await harness.advance(15)
        assert bound(harness) == ["train"] * 3

    run(scenario, node("small", cpu="1"), group("train", 3), podGroupBackoffSeconds=60)


def test_a_group_with_too_few_pods_waits_even_where_only_the_points_of_the_original_are_enabled() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in members(2, "train", api=COSCHEDULING, cpu="1"):
            harness.cluster.put(each)
        await harness.advance(10)
        assert not bound(harness)
        harness.cluster.put(members(3, "train", api=COSCHEDULING, cpu="1")[2])
        await harness.advance(10)
        assert bound(harness) == ["train"] * 3

    document = yaml.safe_load(BY_POINT)
    in_virtual_time(
        scenario,
        node("n", cpu="4"),
        group("train", 3),
        plugins=[Coscheduling],
        pod_group_apis=[COSCHEDULING],
        profiles=document["profiles"],
    )
