"""Gangs with a topology constraint in a running scheduler: conditions, nominations and requeueing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import GATES, gang_scheduling, group, member, members, together
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, pending_message
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import on
from kubestow.framework.gang import Gang, Placement, PlacementGeneratePlugin
from kubestow.framework.status import Status
from kubestow.rules.minors import Minor
from kubestow.testing import node
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

TOPOLOGY_AWARE: dict[str, Any] = {"gates": GATES | {"TopologyAwareWorkloadScheduling": True}}


def rack(name: str, *cpus: str) -> list[Any]:
    return [node(f"{name}{number}", cpu=cpu, labels={"rack": name}) for number, cpu in enumerate(cpus)]


def test_an_unschedulable_gang_loses_its_nominations() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [member("train-0", "train", cpu="2", nominated="a0"), member("train-1", "train", cpu="2")])
        await harness.advance(5)
        assert harness.cluster.pod("train-0").status.nominated_node_name == ""
        assert not harness.scheduler.cluster.has_nominations

    in_virtual_time(scenario, *rack("a", "2"), *rack("b", "2"), together("train", 2, "rack"), **TOPOLOGY_AWARE)


def test_the_message_of_a_gang_with_placements_names_the_first_one() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(3, "train", cpu="1", priority=100))
        await harness.advance(5)
        (found,) = harness.cluster.objects(PodGroup)["default", "train"].status.conditions
        text = "default/train needs 3 pods, 2 of 3 fit"
        text = f"0/2 placements are available, first placement status: {text}"
        assert found.message.startswith(f"pod group is unschedulable: {text}; default/train-")
        assert (found.status, found.reason) == ("False", "Unschedulable")
        assert "pod group preemption" not in found.message

    in_virtual_time(scenario, *rack("a", "2"), *rack("b", "1"), together("train", 3, "rack"), **TOPOLOGY_AWARE)


def test_a_gang_without_a_placement_is_requeued_by_a_node_with_the_label() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train", cpu="1"))
        await harness.advance(5)
        assert pending_message(harness, "train-0") == "pod group is unschedulable: no feasible placements found"
        harness.cluster.put(node("plain", cpu="4", labels={"rack": "a"}))
        await harness.advance(5)
        assert bound_count(harness, members(2, "train")) == 2

    in_virtual_time(scenario, node("plain", cpu="4"), together("train", 2, "rack"), **TOPOLOGY_AWARE)


def test_a_late_member_can_leave_the_domain_once_its_siblings_are_deleted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        gang = members(2, "train", cpu="1")
        create_pods(harness, gang)
        await harness.advance(5)
        create_pods(harness, [member("late", "train", cpu="3")])
        await harness.advance(20)
        assert harness.node_of("late") == ""
        for each in gang:
            harness.cluster.remove(each)
        create_pods(harness, [member("replacement", "train", cpu="1")])
        await harness.advance(20)
        assert {harness.node_of("late"), harness.node_of("replacement")} == {"b0"}

    in_virtual_time(scenario, *rack("a", "2"), *rack("b", "4"), together("train", 2, "rack"), **TOPOLOGY_AWARE)


def test_members_are_reordered_by_shape_when_queue_order_does_not_fit() -> None:
    gang = [member("small", "train", cpu="1"), member("large", "train", cpu="2")]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert {harness.node_of("small"), harness.node_of("large")} == {"a0", "a1"}

    in_virtual_time(scenario, *rack("a", "2", "1"), *rack("b", "2"), together("train", 2, "rack"), **TOPOLOGY_AWARE)


class RejectingGenerator(PlacementGeneratePlugin):
    """Rejects every gang, or raises."""

    name = "RejectingGenerator"
    events_to_register = ()
    rejects = True

    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        if self.rejects:
            return Status.unschedulable("not on a Saturday")
        raise ValueError("out of order")


def test_a_placement_plugin_can_reject_a_gang() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train", cpu="1"))
        await harness.advance(5)
        message = "pod group is unschedulable: not on a Saturday"
        assert pending_message(harness, "train-0") == message
        (found,) = harness.cluster.objects(PodGroup)["default", "train"].status.conditions
        assert (found.status, found.reason, found.message) == ("False", "Unschedulable", message)

    in_virtual_time(
        scenario, node("n"), group("train", 2), plugins=[RejectingGenerator], **gang_scheduling("RejectingGenerator")
    )


class OpensWithANode(PlacementGeneratePlugin):
    """Rejects every gang until there is a second node."""

    name = "OpensWithANode"
    events_to_register = (on(EventResource.NODE, Action.ADD),)

    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        return Status.unschedulable("closed") if len(nodes) < 2 else None


@pytest.mark.parametrize(
    ("minor", "message"),
    [(Minor(36), "pod group is unschedulable: closed"), (Minor(37), "pod group is unschedulable, closed")],
    ids=str,
)
def test_a_gang_that_a_placement_plugin_has_rejected_is_requeued_by_its_events(minor: Minor, message: str) -> None:
    gang = members(2, "train", cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(30)
        assert [pending_message(harness, each.metadata.name) for each in gang] == [message] * 2
        if minor.number < 37:  # else it is tried again after a backoff whatever the events
            assert [queued.attempts for queued in harness.scheduler.queue.pods.values()] == [1] * 2
        harness.cluster.put(node("second"))
        await harness.advance(12)
        assert bound_count(harness, gang) == 2

    options = gang_scheduling("OpensWithANode") | {"minor": minor, "plugins": [OpensWithANode]}
    if minor.number >= 37:
        options["gates"] = {"GenericWorkload": True}
    in_virtual_time(scenario, node("n"), group("train", 2), **options)


def test_a_placement_plugin_that_raises_fails_the_attempt_of_the_gang() -> None:
    class RaisingGenerator(RejectingGenerator):
        rejects = False

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train", cpu="1"))
        await harness.advance(1)
        assert "'RejectingGenerator' failed at PlacementGenerate: ValueError: out of order" in pending_message(
            harness, "train-0"
        )
        harness.cluster.put(member("alone", "missing", cpu="1"))
        assert not harness.scheduler.queue.in_flight.counts()

    in_virtual_time(
        scenario, node("n"), group("train", 2), plugins=[RaisingGenerator], **gang_scheduling("RejectingGenerator")
    )


def test_a_placement_with_nodes_of_the_wrong_type_fails_the_attempt() -> None:
    class UntypedGenerator(RejectingGenerator):
        def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement]:
            return [Placement("here", ["n"])]  # type: ignore[arg-type]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train", cpu="1"))
        await harness.advance(1)
        assert "returned a Placement of list, expected Nodes" in pending_message(harness, "train-0")

    in_virtual_time(
        scenario, node("n"), group("train", 2), plugins=[UntypedGenerator], **gang_scheduling("RejectingGenerator")
    )
