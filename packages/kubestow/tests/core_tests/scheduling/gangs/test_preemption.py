"""Gang preemption: pods are evicted for a whole gang, never for part of one."""

from __future__ import annotations

from core_tests.scheduling.fixture import TerminatingCluster
from core_tests.scheduling.gangs.groups import gang_scheduling, group, member, members
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, remaining
from kubestow.testing import node, pod, pods
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

GANG_SCHEDULING = gang_scheduling()


def test_a_gang_preempts_pods_of_lower_priority() -> None:
    low = pods(4, prefix="low", cpu="1", priority=1, node="n")
    gang = members(4, "train", cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert (bound_count(harness, gang), remaining(harness, low)) == (4, [])

    in_virtual_time(scenario, node("n", cpu="4"), *low, group("train", 4), **GANG_SCHEDULING)


def test_a_gang_on_several_nodes_evicts_on_each_of_them() -> None:
    low = [pod("low-a", cpu="3", priority=1, node="a"), pod("low-b", cpu="3", priority=1, node="b")]
    gang = members(2, "train", cpu="3", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert (bound_count(harness, gang), remaining(harness, low)) == (2, [])
        preempted = [event for event in harness.cluster.events if event.reason == "Preempted"]
        assert {event.note for event in preempted} == {"Preempted by podgroup uid-train on node cluster"}

    in_virtual_time(scenario, node("a", cpu="4"), node("b", cpu="4"), *low, group("train", 2), **GANG_SCHEDULING)


def test_a_gang_that_cannot_fit_as_a_whole_evicts_no_pod() -> None:
    low = pods(2, prefix="low", cpu="1", priority=1, node="n")
    equal = pods(2, prefix="equal", cpu="1", priority=100, node="n")
    gang = members(3, "train", cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(30)
        assert (bound_count(harness, gang), len(remaining(harness, low))) == (0, 2)

    in_virtual_time(scenario, node("n", cpu="4"), *low, *equal, group("train", 3), **GANG_SCHEDULING)


def test_a_gang_evicts_no_more_pods_than_it_needs() -> None:
    low = pods(4, prefix="low", cpu="1", priority=1, node="n")
    gang = members(3, "train", cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert (bound_count(harness, gang), len(remaining(harness, low))) == (3, 2)

    in_virtual_time(scenario, node("n", cpu="5"), *low, group("train", 3), **GANG_SCHEDULING)


def test_a_preempting_gang_gets_a_message_and_nominations() -> None:
    low = pod("low", cpu="3", priority=1, node="n", metadata={"finalizers": ["example.org/keep"]})
    gang = members(2, "train", cpu="2", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.settle()
        condition = harness.cluster.condition("train-0")
        assert condition is not None
        assert condition.message == "pod group is waiting for preemption to complete: default/train"
        assert [harness.cluster.pod(each.metadata.name).status.nominated_node_name for each in gang] == ["n", "n"]

    cluster = TerminatingCluster()
    in_virtual_time(scenario, node("n", cpu="4"), low, group("train", 2), cluster=cluster, **GANG_SCHEDULING)


def test_a_gang_waits_for_terminating_victims() -> None:
    low = pods(2, prefix="low", cpu="2", priority=1, node="n")
    gang = members(2, "train", cpu="2", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(20)
        assert bound_count(harness, gang) == 0
        for each in low:
            harness.cluster.remove(each)
        await harness.advance(5)
        assert bound_count(harness, gang) == 2
        assert cluster.deletions == 2

    cluster = TerminatingCluster()
    in_virtual_time(scenario, node("n", cpu="4"), *low, group("train", 2), cluster=cluster, **GANG_SCHEDULING)


def test_a_member_beyond_min_count_can_preempt_by_itself() -> None:
    low = pod("low", cpu="2", priority=1, node="n")
    gang = members(4, "train", cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert (bound_count(harness, gang), remaining(harness, [low])) == (4, [])

    in_virtual_time(scenario, node("n", cpu="4"), low, group("train", 2), **GANG_SCHEDULING)


def test_a_gang_preempts_although_one_of_its_pods_cannot() -> None:
    low = pod("low", cpu="3", priority=1, node="n")
    gang = [
        member("train-0", "train", cpu="3", priority=100),
        member("train-1", "train", cpu="3", priority=100, node_selector={"there": "is none"}),
    ]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert (bound_count(harness, gang), remaining(harness, [low])) == (1, [])

    in_virtual_time(scenario, node("n", cpu="4"), low, group("train", 1), **GANG_SCHEDULING)


def test_a_gang_never_evicts_its_own_pods() -> None:
    bound = member("train-low", "train", cpu="3", priority=1, node="n")
    gang = [member("train-high", "train", cpu="3", priority=100)]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert remaining(harness, [bound]) == ["train-low"]

    in_virtual_time(scenario, node("n", cpu="4"), bound, group("train", 2), **GANG_SCHEDULING)
