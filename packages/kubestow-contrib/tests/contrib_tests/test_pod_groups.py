"""Pod groups of the co-scheduling plugin and of Volcano, which GangScheduling schedules (semantics 4.10, 8.18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from contrib_tests.pod_groups import APIS, gang_scheduling, group, member, members
from kubestow.api.core import Pod
from kubestow.api.meta import decode
from kubestow.cluster.pods.pod_groups import PodGroupAPI, PodGroupName
from kubestow.plugins.gang_scheduling.gang_scheduling import GangScheduling
from kubestow.plugins.registry import find_pod_group_apis
from kubestow.scheduling.events.resources import watched
from kubestow.testing import PluginHarness, SchedulerHarness, in_virtual_time, node, pod
from kubestow_contrib.coscheduling import COSCHEDULING, PodGroup
from kubestow_contrib.volcano.kube_batch import KUBE_BATCH
from kubestow_contrib.volcano.pod_groups import VOLCANO

CONTRIBUTED = (COSCHEDULING, VOLCANO)
BLOCKER = pod("blocker", cpu="2", priority=100, node="n")


def with_gangs(scenario: Callable[[SchedulerHarness], Any], *objects: Any) -> None:
    in_virtual_time(scenario, *objects, pod_group_apis=CONTRIBUTED, **gang_scheduling())


def plugin_of(harness: PluginHarness, *pods: Pod) -> GangScheduling:
    plugin = GangScheduling(None, harness)
    for each in pods:
        harness.cluster.pod_groups.put(harness.info(each))
    return plugin


def bound_count(harness: SchedulerHarness, pods: list[Pod]) -> int:
    return sum(bool(harness.node_of(each.metadata.name)) for each in pods)


def message(harness: SchedulerHarness, name: str) -> str:
    condition = harness.cluster.condition(name)
    return "" if condition is None else condition.message


def test_all_apis_are_found_that_of_the_coscheduling_plugin_first() -> None:
    assert find_pod_group_apis() == (COSCHEDULING, KUBE_BATCH, VOLCANO)


def test_the_groups_are_watched_without_the_gate_of_kubernetes_own() -> None:
    plugin = plugin_of(PluginHarness(pod_group_apis=CONTRIBUTED))
    assert {each.prefix for each in watched(plugin.watched_kinds()) if each.kind == "PodGroup"} == {
        "/apis/scheduling.x-k8s.io/v1alpha1",
        "/apis/scheduling.volcano.sh/v1beta1",
    }


@pytest.mark.parametrize("api", APIS)
def test_a_pod_names_its_group_as_the_api_defines_it(api: PodGroupAPI) -> None:
    harness = PluginHarness(pod_group_apis=CONTRIBUTED)
    names = list(harness.cluster.pod_groups.memberships(harness.info(member("a", "train", api=api))))
    assert names == [PodGroupName(api.name, "default", "train")]


def test_of_several_groups_that_of_kubernetes_comes_first_and_that_of_volcano_last() -> None:
    harness = PluginHarness(pod_group_apis=CONTRIBUTED)
    metadata = {"annotations": {"scheduling.k8s.io/group-name": "c"}}
    labels = {"scheduling.x-k8s.io/pod-group": "b"}
    all_three = pod("a", labels=labels, metadata=metadata, spec={"schedulingGroup": {"podGroupName": "a"}})
    groups = list(harness.cluster.pod_groups.memberships(harness.info(all_three)))
    assert [name.api for name in groups] == ["scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh"]
    assert [name.name for name in groups] == ["a", "b", "c"]


@pytest.mark.parametrize("api", APIS)
def test_a_gang_has_the_minimum_count_of_its_group(api: PodGroupAPI) -> None:
    gates = gang_scheduling()["gates"]
    harness = PluginHarness(gates=gates, pod_group_apis=CONTRIBUTED)
    plugin = plugin_of(harness, *members(2, "train", api=api))
    harness.cluster.catalog(api.kind).put(group("train", 7, api=api))
    gang = plugin.gang_of(harness.info(member("train-0", "train", api=api)))
    assert gang is not None
    assert (gang.min_count, gang.timeout, len(gang.members.pods)) == (7, 300.0, 2)


def test_a_group_of_the_coscheduling_plugin_can_set_its_schedule_timeout() -> None:
    harness = PluginHarness(pod_group_apis=CONTRIBUTED)
    plugin = plugin_of(harness, member("a", "train", api=COSCHEDULING))
    raw = b'{"metadata":{"name":"train","namespace":"default"},"spec":{"minMember":2,"scheduleTimeoutSeconds":30}}'
    harness.cluster.catalog(PodGroup).put(decode(PodGroup, raw))
    gang = plugin.gang_of(harness.info(member("a", "train", api=COSCHEDULING)))
    assert gang is not None and gang.timeout == 30.0


@pytest.mark.parametrize("api", APIS)
def test_a_gang_that_fits_is_scheduled(api: PodGroupAPI) -> None:
    gang = members(3, "train", api=api, cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        for each in gang:
            harness.cluster.put(each)
        await harness.settle()
        assert bound_count(harness, gang) == 3

    with_gangs(scenario, node("n", cpu="4"), group("train", 3, api=api))


@pytest.mark.parametrize("api", APIS)
def test_a_gang_waits_for_its_group_and_then_for_capacity(api: PodGroupAPI) -> None:
    gang = members(3, "train", api=api, cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        for each in gang:
            harness.cluster.put(each)
        await harness.advance(10)
        assert message(harness, "train-0") == 'waiting for pods\'s pod group "train" to appear in scheduling queue'
        harness.cluster.put(group("train", 3, api=api))
        await harness.settle()
        assert bound_count(harness, gang) == 0
        assert "pod group is unschedulable: default/train needs 3 pods, 2 of 3 fit" in message(harness, "train-1")
        harness.cluster.remove(BLOCKER)
        await harness.advance(5)
        assert bound_count(harness, gang) == 3

    with_gangs(scenario, node("n", cpu="4"), BLOCKER)


@pytest.mark.parametrize("api", CONTRIBUTED)
def test_a_changed_group_requeues_its_pods(api: PodGroupAPI) -> None:
    gang = members(2, "train", api=api)

    async def scenario(harness: SchedulerHarness) -> None:
        for each in gang:
            harness.cluster.put(each)
        await harness.settle()
        assert bound_count(harness, gang) == 0
        harness.cluster.put(group("train", 2, api=api))
        await harness.settle()
        assert bound_count(harness, gang) == 2

    with_gangs(scenario, node("n"), group("train", 3, api=api))


@pytest.mark.parametrize("api", CONTRIBUTED)
def test_without_the_apis_pods_are_scheduled_one_by_one(api: PodGroupAPI) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(member("a", "train", api=api))
        await harness.settle()
        assert harness.node_of("a") == "n"
        assert not harness.scheduler.custom_kinds

    in_virtual_time(scenario, node("n"), group("train", 3, api=api), **gang_scheduling())
