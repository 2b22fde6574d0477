"""Workload-aware preemption: a gang evicts the fewest pods of the lowest priority across the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from core_tests.scheduling.fixture import TerminatingCluster, enabled
from core_tests.scheduling.gangs.groups import GATES, group, member, members
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, pending_message, remaining
from kubestow.api.core import Pod
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import ReservePlugin
from kubestow.rules.minors import Minor
from kubestow.testing import node, pod, pods
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

WORKLOAD_AWARE: dict[str, Any] = {"gates": GATES | {"WorkloadAwarePreemption": True}}


def preempting(name: str, minimum: int, *, priority: int = 100, **spec: Any) -> PodGroup:
    made = group(name, minimum, priority=priority, **spec)
    assert isinstance(made, PodGroup)
    return made


def check_preemption(gang: Sequence[Pod], *objects: Any, leaves: Sequence[str], of: Sequence[Pod]) -> None:
    """The gang is bound, and of the pods ``of`` those named in ``leaves`` remain."""

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, list(gang))
        await harness.advance(30)
        assert (bound_count(harness, list(gang)), remaining(harness, list(of))) == (len(gang), list(leaves))

    in_virtual_time(scenario, *objects, *of, **WORKLOAD_AWARE)


def test_workload_aware_preemption_evicts_no_more_pods_than_needed() -> None:
    low = pods(4, prefix="low", cpu="1", priority=10, node="n")
    check_preemption(
        members(3, "train", cpu="1", priority=100),
        node("n", cpu="5"),
        preempting("train", 3),
        leaves=["low-0", "low-1"],
        of=low,
    )


def test_the_lowest_priorities_are_evicted_on_any_node() -> None:
    existing = [
        *pods(2, prefix="low", cpu="1", priority=10, node="a"),
        *pods(2, prefix="lowest", cpu="1", priority=1, node="b"),
    ]
    gang = members(2, "train", cpu="1", priority=100)
    nodes = node("a", cpu="2"), node("b", cpu="2")
    check_preemption(gang, *nodes, preempting("train", 2), leaves=["low-0", "low-1"], of=existing)


def test_pods_started_later_are_evicted_first() -> None:
    started = {"old": "2026-01-01T00:00:00Z", "new": "2026-01-02T00:00:00Z"}
    existing = [pod(n, cpu="1", priority=1, node="n", status={"startTime": s}) for n, s in started.items()]
    gang = [member("train-0", "train", cpu="1", priority=100)]
    check_preemption(gang, node("n", cpu="2"), preempting("train", 1), leaves=["old"], of=existing)


def test_a_group_with_pod_group_disruption_mode_is_evicted_as_a_whole() -> None:
    victims = [member(f"low-{n}", "low", cpu="1", priority=10, node=on) for n, on in enumerate("ab")]
    gang = [member("train-0", "train", cpu="1", priority=100)]
    low = preempting("low", 2, priority=10, disruptionMode={"all": {}})
    check_preemption(gang, node("a", cpu="1"), node("b", cpu="1"), low, preempting("train", 1), leaves=[], of=victims)


def test_single_pods_are_evicted_before_groups() -> None:
    existing = [
        *(member(f"low-{n}", "low", cpu="1", priority=10, node="n") for n in range(2)),
        pod("alone", cpu="1", priority=10, node="n"),
    ]
    gang = [member("train-0", "train", cpu="1", priority=100)]
    low = preempting("low", 2, priority=10, disruptionMode={"all": {}})
    check_preemption(gang, node("n", cpu="3"), low, preempting("train", 1), leaves=["low-0", "low-1"], of=existing)


def test_smaller_groups_are_evicted_before_larger_ones() -> None:
    existing = [
        *(member(f"three-{n}", "three", cpu="1", priority=10, node="n") for n in range(3)),
        *(member(f"two-{n}", "two", cpu="1", priority=10, node="n") for n in range(2)),
    ]
    groups = [preempting(name, 1, priority=10, disruptionMode={"all": {}}) for name in ("two", "three")]
    gang = [member("train-0", "train", cpu="1", priority=100)]
    left = ["three-0", "three-1", "three-2"]
    check_preemption(gang, node("n", cpu="5"), *groups, preempting("train", 1), leaves=left, of=existing)


def test_pods_of_equal_priority_to_the_group_are_not_evicted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(1, "train", cpu="1", priority=100))
        await harness.advance(30)
        assert harness.node_of("train-0") == ""
        message = pending_message(harness, "train-0")
        assert "pod group preemption: No preemption victims found for incoming preemptor" in message
        assert message.count(" preemption: ") == 2  # that of the pod itself, and that of its group
        assert "not eligible due to workload aware preemption enabled" in pending_message(harness, "train-0")

    in_virtual_time(
        scenario,
        node("n", cpu="1"),
        pod("bound", cpu="1", priority=50, node="n"),
        preempting("train", 1, priority=50),
        **WORKLOAD_AWARE,
    )


@pytest.mark.parametrize(("mode", "left"), [("all", 2), ("single", 0)])
def test_only_the_pods_of_a_group_that_is_evicted_as_a_whole_are_as_important_as_it(mode: str, left: int) -> None:
    placed = [member(f"low-{number}", "low", cpu="1", priority=1, node="n") for number in range(2)]
    gang = members(2, "train", cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(30)
        assert (bound_count(harness, gang), len(remaining(harness, placed))) == (2 - left, left)

    groups = preempting("low", 2, priority=200, disruptionMode={mode: {}}), preempting("train", 2)
    in_virtual_time(scenario, node("n", cpu="2"), *groups, *placed, **WORKLOAD_AWARE)


def test_no_pod_is_evicted_for_a_gang_that_cannot_fit_after_preemption() -> None:
    low = pods(2, prefix="low", cpu="1", priority=1, node="n")
    equal = pods(2, prefix="equal", cpu="1", priority=100, node="n")
    gang = members(3, "train", cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(30)
        assert (bound_count(harness, gang), len(remaining(harness, low))) == (0, 2)
        assert "it would not fit even if all pods of lower priority were evicted" in pending_message(harness, "train-0")

    in_virtual_time(scenario, node("n", cpu="4"), *low, *equal, preempting("train", 3), **WORKLOAD_AWARE)


def test_one_member_with_preemption_policy_never_disables_preemption_for_the_gang() -> None:
    gang = [
        member("train-0", "train", cpu="1", priority=100),
        pod(
            "train-1",
            cpu="1",
            priority=100,
            spec={"schedulingGroup": {"podGroupName": "train"}, "preemptionPolicy": "Never"},
        ),
    ]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(30)
        assert remaining(harness, low) == ["low-0", "low-1"]
        assert "preemption: not eligible due to preemptionPolicy=Never." in pending_message(harness, "train-0")

    low = pods(2, prefix="low", cpu="1", priority=1, node="n")
    in_virtual_time(scenario, node("n", cpu="2"), *low, preempting("train", 2), **WORKLOAD_AWARE)


def test_members_beyond_min_count_preempt_in_the_next_cycle() -> None:
    low = pods(4, prefix="low", cpu="1", priority=10, node="n")
    gang = members(4, "train", cpu="1", priority=100)
    check_preemption(gang, node("n", cpu="4"), preempting("train", 3), leaves=[], of=low)


def test_the_pods_of_a_basic_group_preempt_together() -> None:
    low = [pod("low", cpu="2", priority=10, node="n")]
    gang = members(4, "train", cpu="1", priority=100)
    check_preemption(gang, node("n", cpu="4"), preempting("train", 0), leaves=[], of=low)


@pytest.mark.parametrize("same_shape", [True, False], ids=["counted", "tried"])
def test_a_gang_selects_its_victims_once_and_waits_for_them(same_shape: bool) -> None:
    low = pods(4, prefix="low", cpu="2", priority=1, node="n")
    gang = members(2, "train", cpu="2", priority=100)
    if not same_shape:
        gang[1] = member("train-1", "train", cpu="2", memory="1Gi", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(60)
        assert (bound_count(harness, gang), cluster.deletions) == (0, 2)
        assert [harness.cluster.pod(each.metadata.name).status.nominated_node_name for each in gang] == ["n", "n"]
        for each in low:
            if harness.cluster.pod(each.metadata.name).metadata.deletion_timestamp:
                harness.cluster.remove(each)
        await harness.advance(5)
        assert (bound_count(harness, gang), cluster.deletions) == (2, 2)

    cluster = TerminatingCluster()
    in_virtual_time(scenario, node("n", cpu="8"), *low, preempting("train", 2), cluster=cluster, **WORKLOAD_AWARE)


def test_a_gang_keeps_its_nominations_while_its_victims_terminate() -> None:
    """It is tried again meanwhile, because a node is added."""
    low = pods(2, prefix="low", cpu="1", priority=1, node="n")
    gang = members(2, "train", cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(10)
        harness.cluster.put(node("small", cpu="1"))
        await harness.advance(30)
        assert bound_count(harness, gang) == 0
        assert [harness.cluster.pod(each.metadata.name).status.nominated_node_name for each in gang] == ["n", "n"]

    cluster = TerminatingCluster()
    in_virtual_time(scenario, node("n", cpu="2"), *low, preempting("train", 2), cluster=cluster, **WORKLOAD_AWARE)


def test_a_gang_that_has_no_victims_loses_its_nominations() -> None:
    gang = [member(f"train-{number}", "train", cpu="1", priority=100, nominated="n") for number in range(2)]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert [harness.cluster.pod(each.metadata.name).status.nominated_node_name for each in gang] == ["", ""]

    in_virtual_time(scenario, node("n", cpu="1"), preempting("train", 2), **WORKLOAD_AWARE)


class Ledger(ReservePlugin):
    """Counts the pods that are reserved."""

    name = "Ledger"
    events_to_register = ()
    reserved: ClassVar[list[str]] = []

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.reserved.append(pod.name)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.reserved.remove(pod.name)


@pytest.mark.parametrize("minor", [Minor(36), Minor(37)], ids=str)
def test_what_is_reserved_while_victims_are_searched_for_is_unreserved(minor: Minor) -> None:
    low = pods(4, prefix="low", cpu="1", priority=1, node="n")
    gang = [*members(2, "train", cpu="1", priority=100), member("train-2", "train", cpu="2", priority=100)]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(10)
        assert (cluster.deletions, Ledger.reserved) == (4, [])

    Ledger.reserved.clear()
    cluster = TerminatingCluster()
    options = (WORKLOAD_AWARE if minor.number < 37 else {"gates": {"GenericWorkload": True}}) | enabled(Ledger)
    in_virtual_time(scenario, node("n", cpu="4"), *low, preempting("train", 3), minor=minor, cluster=cluster, **options)


def test_pods_without_a_group_preempt_individually() -> None:
    low = pods(2, prefix="low", cpu="1", priority=1, node="n")
    gang = [pod(f"train-{n}", cpu="1", priority=100) for n in range(2)]
    check_preemption(gang, node("n", cpu="2"), leaves=[], of=low)
