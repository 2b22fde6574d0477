"""Gangs that stay together, in a living scheduler: what they are told, promised and woken by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.gang import Gang
from kubestow.framework.placement import Placement, PlacementGeneratePlugin
from kubestow.framework.status import Status
from kubestow.testing import node
from tests.scheduling.gangs.groups import GATES, gang_scheduling, group, member, members, together
from tests.scheduling.gangs.test_preemption import put, running
from tests.scheduling.running import Living, in_virtual_time

ON: dict[str, Any] = {"gates": GATES | {"TopologyAwareWorkloadScheduling": True}}


def why(world: Living, name: str) -> str:
    condition = world.cluster.condition(name)
    return "" if condition is None else condition.message


def rack(name: str, *cpus: str) -> list[Any]:
    return [node(f"{name}{number}", cpu=cpu, labels={"rack": name}) for number, cpu in enumerate(cpus)]


def test_a_gang_that_fits_nowhere_keeps_no_promise() -> None:
    async def story(world: Living) -> None:
        put(world, [member("train-0", "train", cpu="2", nominated="a0"), member("train-1", "train", cpu="2")])
        await world.passes(5)
        assert world.cluster.pod("train-0").status.nominated_node_name == ""
        assert not world.scheduler.cluster.has_nominations

    in_virtual_time(story, *rack("a", "2"), *rack("b", "2"), together("train", 2, "rack"), **ON)


def test_a_gang_without_a_placement_is_woken_by_a_node_with_the_label() -> None:
    async def story(world: Living) -> None:
        put(world, members(2, "train", cpu="1"))
        await world.passes(5)
        assert why(world, "train-0") == "pod group is unschedulable: no feasible placements found"
        world.cluster.put(node("plain", cpu="4", labels={"rack": "a"}))
        await world.passes(5)
        assert running(world, members(2, "train")) == 2

    in_virtual_time(story, node("plain", cpu="4"), together("train", 2, "rack"), **ON)


def test_who_waits_for_room_beside_its_siblings_may_go_elsewhere_once_they_are_gone() -> None:
    async def story(world: Living) -> None:
        gang = members(2, "train", cpu="1")
        put(world, gang)
        await world.passes(5)
        put(world, [member("late", "train", cpu="3")])
        await world.passes(20)
        assert world.node_of("late") == ""
        for each in gang:
            world.cluster.remove(each)
        put(world, [member("again", "train", cpu="1")])
        await world.passes(20)
        assert {world.node_of("late"), world.node_of("again")} == {"b0"}

    in_virtual_time(story, *rack("a", "2"), *rack("b", "4"), together("train", 2, "rack"), **ON)


def test_pods_of_other_shapes_are_tried_first_where_the_order_does_not_suffice() -> None:
    gang = [member("small", "train", cpu="1"), member("large", "train", cpu="2")]

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(5)
        assert {world.node_of("small"), world.node_of("large")} == {"a0", "a1"}

    in_virtual_time(story, *rack("a", "2", "1"), *rack("b", "2"), together("train", 2, "rack"), **ON)


class Picky(PlacementGeneratePlugin):
    """Refuses, or goes wrong."""

    name = "Picky"
    events_to_register = ()
    refuses = True

    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        if self.refuses:
            return Status.unschedulable("not on a Saturday")
        raise ValueError("out of order")


def test_a_plugin_may_refuse_a_gang() -> None:
    async def story(world: Living) -> None:
        put(world, members(2, "train", cpu="1"))
        await world.passes(5)
        assert why(world, "train-0") == "pod group is unschedulable: not on a Saturday"

    in_virtual_time(story, node("n"), group("train", 2), plugins=[Picky], **gang_scheduling("Picky"))


def test_a_plugin_that_goes_wrong_costs_its_gang_the_attempt() -> None:
    class Broken(Picky):
        refuses = False

    async def story(world: Living) -> None:
        put(world, members(2, "train", cpu="1"))
        await world.passes(1)
        assert "'Picky' failed at PlacementGenerate: ValueError: out of order" in why(world, "train-0")
        world.cluster.put(member("alone", "nobody", cpu="1"))
        assert not world.scheduler.queue.in_flight_events()

    in_virtual_time(story, node("n"), group("train", 2), plugins=[Broken], **gang_scheduling("Picky"))


def test_a_placement_whose_nodes_are_none_costs_its_gang_the_attempt() -> None:
    class ByName(Picky):
        def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement]:
            return [Placement("here", ["n"])]  # type: ignore[arg-type]

    async def story(world: Living) -> None:
        put(world, members(2, "train", cpu="1"))
        await world.passes(1)
        assert "returned a Placement of list, expected Nodes" in why(world, "train-0")

    in_virtual_time(story, node("n"), group("train", 2), plugins=[ByName], **gang_scheduling("Picky"))
