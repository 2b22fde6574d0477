"""Gangs: all their pods are scheduled, or none (semantics 11.6)."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from core_tests.scheduling.gangs.groups import APIS, TEAMS, gang_scheduling, group, member, members
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, pending_message
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.plugins.gang_scheduling.gang_scheduling import GangScheduling
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

BLOCKER = pod("blocker", cpu="2", priority=100, node="n")
GANG_SCHEDULING = gang_scheduling()
INCOMPLETE = "waiting for minCount pods from a gang to appear in scheduling queue"
OF_THREE = "of the 3 pods that pod group default/train needs are there"


def group_condition(harness: SchedulerHarness, name: str) -> tuple[str, str] | None:
    """The status and reason of the PodGroupScheduled condition."""
    conditions = harness.cluster.objects(PodGroup)["default", name].status.conditions
    return next(((c.status, c.reason) for c in conditions if c.type == "PodGroupScheduled"), None)


@pytest.mark.parametrize("api", APIS)
def test_a_gang_that_fits_is_scheduled(api: PodGroupAPI) -> None:
    gang = members(3, "train", api=api, cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.settle()
        assert bound_count(harness, gang) == 3

    in_virtual_time(scenario, node("n", cpu="4"), group("train", 3, api=api), **GANG_SCHEDULING)


@pytest.mark.parametrize("api", APIS)
def test_a_gang_that_does_not_fit_reserves_no_capacity(api: PodGroupAPI) -> None:
    gang = members(3, "train", api=api, cpu="2")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.settle()
        assert bound_count(harness, gang) == 0
        harness.cluster.put(pod("other", cpu="4"))
        await harness.settle()
        assert harness.node_of("other") == "n"

    in_virtual_time(scenario, node("n", cpu="4"), group("train", 3, api=api), **GANG_SCHEDULING)


def test_the_scheduling_group_field_is_ignored_without_its_feature_gate() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(member("a", "train"))
        await harness.settle()
        assert harness.node_of("a") == "n"

    in_virtual_time(scenario, node("n"), profiles=gang_scheduling()["profiles"])


def test_pod_group_labels_are_ignored_without_the_plugin() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(member("a", "train", api=TEAMS))
        await harness.settle()
        assert harness.node_of("a") == "n"

    in_virtual_time(scenario, node("n"), group("train", 3, api=TEAMS))


def test_a_scheduled_group_has_the_pod_group_scheduled_condition() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(3, "train", cpu="1"))
        await harness.settle()
        assert group_condition(harness, "train") == ("True", "Scheduled")

    in_virtual_time(scenario, node("n"), group("train", 3), **GANG_SCHEDULING)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("api", APIS)
def test_finished_pods_do_not_count(api: PodGroupAPI, phase: str) -> None:
    """As in kube-scheduler, whose pod informer leaves them out."""
    gang = members(2, "train", api=api, cpu="1")
    successor = member("successor", "train", api=api, cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.settle()
        assert bound_count(harness, gang) == 2
        finished, deleted = (harness.cluster.pod(each.metadata.name) for each in gang)
        harness.cluster.put(replace(finished, status=replace(finished.status, phase=phase)))
        harness.cluster.remove(deleted)
        harness.cluster.put(successor)
        await harness.advance(60)
        assert bound_count(harness, [successor]) == 0
        assert "1 of the 2 pods that pod group default/train needs are there" in pending_message(harness, "successor")

    in_virtual_time(scenario, node("n", cpu="4"), group("train", 2, api=api), **GANG_SCHEDULING)


def test_a_gang_waits_until_min_count_pods_exist() -> None:
    gang = members(3, "train", cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang[:2])
        await harness.advance(60)
        assert bound_count(harness, gang[:2]) == 0
        assert "2 of the 3 pods that pod group default/train needs are there" in pending_message(harness, "train-0")
        harness.cluster.put(gang[2])
        await harness.settle()
        assert bound_count(harness, gang) == 3

    in_virtual_time(scenario, node("n"), group("train", 3), **GANG_SCHEDULING)


def test_a_pod_of_an_incomplete_gang_loses_its_nomination() -> None:
    waiting = member("train-0", "train", cpu="4", priority=100, nominated="n")

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("other", cpu="4"))
        await harness.advance(10)
        assert harness.node_of("other") == "n"
        assert harness.cluster.pod("train-0").status.nominated_node_name == ""

    in_virtual_time(scenario, node("n", cpu="4"), group("train", 2), waiting, **GANG_SCHEDULING)


def test_a_new_member_is_reported_incomplete_only_after_its_own_delay() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(1, "train"))
        await harness.advance(2)
        harness.cluster.put(member("late", "train"))
        await harness.advance(1.5)
        assert (pending_message(harness, "train-0"), pending_message(harness, "late")) == (
            f"{INCOMPLETE}: 2 {OF_THREE}",
            "",
        )
        await harness.advance(3)
        assert pending_message(harness, "late") == f"{INCOMPLETE}: 2 {OF_THREE}"

    in_virtual_time(scenario, node("n"), group("train", 3), **GANG_SCHEDULING)


def test_the_queueing_hint_runs_at_most_once_per_member_of_an_arriving_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    hinted: list[str] = []
    hint, gang = GangScheduling._is_schedulable_after_pod_added, members(20, "train", cpu="100m")

    def completes(self: GangScheduling, pod: PodInfo, old: None, new: PodInfo) -> bool:
        hinted.append(pod.name)
        return hint(self, pod, old, new)

    monkeypatch.setattr(GangScheduling, "_is_schedulable_after_pod_added", completes)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.settle()
        assert bound_count(harness, gang) == 20
        assert len(hinted) <= 20

    in_virtual_time(scenario, node("n", cpu="4"), group("train", 20), **GANG_SCHEDULING)


def test_a_gated_pod_is_no_incomplete_gang_in_a_profile_without_gangs(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("gated", gates=["quota"]))
        await harness.advance(5)
        assert harness.cluster.condition("gated") is None
        harness.cluster.put(pod("gated"))
        await harness.settle()
        assert harness.node_of("gated") == "n"

    profile = {"plugins": {"multiPoint": {"disabled": [{"name": "TopologyPlacementGenerator"}]}}}
    in_virtual_time(scenario, node("n"), profiles=[profile])
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_the_incomplete_message_is_updated_when_a_member_arrives() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(1, "train"))
        await harness.advance(5)
        assert pending_message(harness, "train-0") == f"{INCOMPLETE}: 1 {OF_THREE}"
        harness.cluster.put(member("late", "train"))
        await harness.advance(5)
        assert pending_message(harness, "train-0") == f"{INCOMPLETE}: 2 {OF_THREE}"

    in_virtual_time(scenario, node("n"), group("train", 3), **GANG_SCHEDULING)


def test_the_reporting_delay_restarts_when_a_gang_becomes_incomplete_again() -> None:
    gang = members(2, "train", cpu="8")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang[:1])
        await harness.advance(0.5)
        harness.cluster.put(gang[1])
        await harness.advance(1.5)
        harness.cluster.remove(gang[1])
        harness.cluster.put(node("bigger", cpu="16"))
        await harness.advance(1.5)
        assert INCOMPLETE not in pending_message(harness, "train-0")
        await harness.advance(3)
        assert INCOMPLETE in pending_message(harness, "train-0")

    in_virtual_time(scenario, node("n", cpu="2"), group("train", 2), **GANG_SCHEDULING)


def test_gated_pods_do_not_count_towards_min_count() -> None:
    gang = [*members(2, "train", cpu="1"), member("gated", "train", cpu="1", gates=("quota",))]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.settle()
        assert bound_count(harness, gang) == 0
        harness.cluster.put(member("gated", "train", cpu="1"))
        await harness.settle()
        assert bound_count(harness, gang) == 3

    in_virtual_time(scenario, node("n"), group("train", 3), **GANG_SCHEDULING)


@pytest.mark.parametrize("api", APIS)
def test_a_gang_waits_for_its_group_and_then_for_capacity(api: PodGroupAPI) -> None:
    gang = members(3, "train", api=api, cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(10)
        assert (
            pending_message(harness, "train-0") == 'waiting for pods\'s pod group "train" to appear in scheduling queue'
        )
        harness.cluster.put(group("train", 3, api=api))
        await harness.settle()
        assert bound_count(harness, gang) == 0
        assert "pod group is unschedulable: default/train needs 3 pods, 2 of 3 fit" in pending_message(
            harness, "train-1"
        )
        harness.cluster.remove(BLOCKER)
        await harness.advance(5)
        assert bound_count(harness, gang) == 3

    in_virtual_time(scenario, node("n", cpu="4"), BLOCKER, **GANG_SCHEDULING)


def test_the_condition_of_a_group_follows_its_scheduling() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(3, "train", cpu="1", priority=100))
        await harness.settle()
        assert group_condition(harness, "train") == ("False", "Unschedulable")
        harness.cluster.remove(BLOCKER)
        await harness.advance(5)
        assert group_condition(harness, "train") == ("True", "Scheduled")

    in_virtual_time(scenario, node("n", cpu="4"), BLOCKER, group("train", 3), **GANG_SCHEDULING)


def test_a_member_beyond_min_count_waits_like_any_other_pod() -> None:
    gang = members(4, "train", cpu="1", priority=100)
    small = pod("small", cpu="1", priority=100, node="n")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.settle()
        assert bound_count(harness, gang) == 3
        harness.cluster.remove(small)
        await harness.advance(5)
        assert bound_count(harness, gang) == 4

    in_virtual_time(scenario, node("n", cpu="4"), small, group("train", 3), **GANG_SCHEDULING)


@pytest.mark.parametrize("first, second", [("a", "b"), ("b", "a")])
def test_of_two_gangs_that_compete_for_capacity_the_first_complete_one_runs(first: str, second: str) -> None:
    ahead, behind = members(3, first, cpu="1"), members(3, second, cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        for pair in zip(ahead, behind, strict=True):
            create_pods(harness, pair)
        await harness.settle()
        assert (bound_count(harness, ahead), bound_count(harness, behind)) == (3, 0)
        for each in ahead:
            harness.cluster.remove(each)
        await harness.advance(15)
        assert bound_count(harness, behind) == 3

    in_virtual_time(scenario, node("n", cpu="4"), group("a", 3), group("b", 3), **GANG_SCHEDULING)


def test_an_unschedulable_gang_does_not_block_the_head_of_the_queue() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(3, "train", cpu="8", priority=1000))
        for number in range(20):
            harness.cluster.put(pod(f"other-{number}", cpu="100m"))
        await harness.advance(1)
        assert all(harness.node_of(f"other-{number}") for number in range(20))

    in_virtual_time(scenario, node("n", cpu="4"), group("train", 3), **GANG_SCHEDULING)


def test_an_unschedulable_gang_is_not_retried_without_an_event() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(3, "train", cpu="8"))
        await harness.settle()
        before = len(harness.cluster.events)
        await harness.advance(60)
        assert len(harness.cluster.events) == before == 3

    in_virtual_time(scenario, node("n", cpu="4"), group("train", 3), **GANG_SCHEDULING)


def test_the_pods_of_a_basic_group_are_scheduled_independently() -> None:
    pods = members(3, "serve", cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, pods[:1])
        await harness.settle()
        assert bound_count(harness, pods[:1]) == 1
        create_pods(harness, pods[1:])
        await harness.settle()
        assert bound_count(harness, pods) == 2
        harness.cluster.remove(BLOCKER)
        await harness.advance(5)
        assert bound_count(harness, pods) == 3

    in_virtual_time(scenario, node("n", cpu="4"), BLOCKER, group("serve", 0), **GANG_SCHEDULING)


def test_members_with_fewer_feasible_nodes_are_placed_first_when_queue_order_fails() -> None:
    gang = [
        member("any", "train", cpu="2", priority=10),
        member("selective", "train", cpu="2", node_selector={"kubernetes.io/hostname": "a"}),
    ]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.settle()
        assert [harness.node_of("any"), harness.node_of("selective")] == ["b", "a"]

    full = pod("full", cpu="2", node="b")
    in_virtual_time(scenario, node("a", cpu="2"), node("b", cpu="4"), full, group("train", 2), **GANG_SCHEDULING)


def test_all_members_of_a_gang_must_use_one_scheduler() -> None:
    gang = [*members(2, "train"), member("stray", "train", scheduler="other")]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.settle()
        assert bound_count(harness, gang) == 0
        assert 'got: "default-scheduler" and "other"' in pending_message(harness, "train-0")

    in_virtual_time(scenario, node("n"), group("train", 3), **GANG_SCHEDULING)
