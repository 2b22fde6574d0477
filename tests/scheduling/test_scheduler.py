"""The living scheduler: pods are bound, refusals are told, and everything is tried again when it can help."""

from __future__ import annotations

import pytest

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission as Allowed
from kubestow.framework.interface import PermitPlugin, ReservePlugin
from kubestow.framework.status import Code, Status
from kubestow.testing import node, nodes, pod, pods
from tests.scheduling.running import Living, in_virtual_time


def test_a_pod_is_bound_and_its_event_says_where() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("a", cpu="1"))
        await world.settles()
        assert world.node_of("a") == "n"
        assert [(e.reason, e.note) for e in world.cluster.events] == [
            ("Scheduled", "Successfully assigned default/a to n")
        ]

    in_virtual_time(story, node("n"))


def test_a_pod_that_fits_nowhere_is_told_so() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("big", cpu="100", metadata={"generation": 3}))
        await world.settles()
        condition = world.cluster.condition("big")
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "Unschedulable")
        assert condition.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
        assert condition.observed_generation == 3
        assert world.cluster.events[-1].reason == "FailedScheduling"

    in_virtual_time(story, *nodes(2))


def test_a_node_that_is_added_brings_back_the_pods_it_can_help() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("big", cpu="8"))
        await world.settles()
        world.cluster.put(node("large", cpu="16"))
        await world.settles()
        assert world.node_of("big") == "large"

    in_virtual_time(story, node("small", cpu="4"))


def test_a_pod_that_is_deleted_makes_room() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("waits", cpu="3"))
        await world.settles()
        assert world.node_of("waits") == ""
        world.cluster.remove(world.cluster.pod("there"))
        await world.settles()
        assert world.node_of("waits") == "n"

    in_virtual_time(story, node("n", cpu="4"), pod("there", cpu="3", node="n"))


def test_an_event_that_cannot_help_leaves_a_pod_alone() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("picky", node_selector={"disk": "ssd"}))
        await world.settles()
        told = len(world.cluster.events)
        world.cluster.remove(world.cluster.pod("there"))
        await world.passes(60)
        assert len(world.cluster.events) == told

    in_virtual_time(story, node("n"), pod("there", node="n"))


def test_after_five_minutes_a_pod_is_tried_again_in_any_case() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("picky", node_selector={"disk": "ssd"}))
        await world.settles()
        told = len(world.cluster.events)
        await world.passes(340)
        assert len(world.cluster.events) == told + 1

    in_virtual_time(story, node("n"))


def test_a_gated_pod_waits_until_its_gates_are_lifted() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("gated", gates=["quota"]))
        await world.passes(1)
        assert world.cluster.events == []
        world.cluster.put(pod("gated"))
        await world.settles()
        assert world.node_of("gated") == "n"

    in_virtual_time(story, node("n"))


def test_higher_priority_goes_first() -> None:
    async def story(world: Living) -> None:
        for name, priority in (("low", 1), ("high", 10), ("middle", 5)):
            world.cluster.put(pod(name, cpu="1", priority=priority))
        await world.settles()
        assert [name for name, _ in world.cluster.bindings] == ["default/high", "default/middle", "default/low"]

    in_virtual_time(story, node("n"))


def test_a_failed_binding_is_undone_and_tried_again() -> None:
    async def story(world: Living) -> None:
        world.cluster.bind_failures.append(APIError(500, "InternalError", "etcd is on fire"))
        world.cluster.put(pod("a", cpu="4"))
        await world.settles()
        assert world.node_of("a") == ""
        assert world.scheduler.cluster.all_nodes().requested("cpu").tolist() == [0]
        condition = world.cluster.condition("a")
        assert condition is not None and (condition.reason, condition.message) == (
            "SchedulerError",
            'running Bind plugin "DefaultBinder": etcd is on fire',
        )
        await world.passes(5)
        assert world.node_of("a") == "n"

    in_virtual_time(story, node("n", cpu="4"))


def test_nodes_are_never_filled_beyond_what_they_have() -> None:
    async def story(world: Living) -> None:
        for each in pods(30, cpu="1"):
            world.cluster.put(each)
        await world.passes(20)
        placed = [name for _, name in world.cluster.bindings]
        assert len(placed) == 12
        assert all(placed.count(name) == 4 for name in set(placed))

    in_virtual_time(story, *nodes(3, cpu="4"))


def test_pods_of_other_schedulers_are_left_alone_but_counted() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("theirs", scheduler="other"))
        world.cluster.put(pod("ours", cpu="2"))
        await world.settles()
        assert (world.node_of("theirs"), world.node_of("ours")) == ("", "")

    in_virtual_time(story, node("n", cpu="4"), pod("there", cpu="3", node="n", scheduler="other"))


def test_an_object_that_cannot_be_read_does_not_hold_up_the_others() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(node("broken", cpu="4x"))
        world.cluster.put(pod("broken", cpu="1.5.2"))
        world.cluster.put(pod("fine", cpu="1"))
        await world.settles()
        assert world.node_of("fine") == "n"
        assert world.node_of("broken") == ""

    in_virtual_time(story, node("n"))


@pytest.mark.parametrize("watch_is_down", [False, True])
def test_an_object_that_cannot_be_read_is_told_of_once_for_as_long_as_it_is_there(
    watch_is_down: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("broken", cpu="1.5.2"))
        world.cluster.relist()
        assert caplog.text.count("Pod default/broken cannot be decoded and is ignored") == 1
        if watch_is_down:
            world.cluster._subscribers.clear()
        world.cluster.remove(world.cluster.pod("broken"))
        world.cluster._subscribers[:] = [world.scheduler.handlers]
        world.cluster.relist()
        world.cluster.put(pod("broken", cpu="1.5.2"))
        assert caplog.text.count("Pod default/broken cannot be decoded and is ignored") == 2

    in_virtual_time(story)


def test_a_complete_list_makes_up_for_everything_missed() -> None:
    async def story(world: Living) -> None:
        world.cluster._subscribers.clear()  # the watch is down
        world.cluster.remove(world.cluster.pod("there"))
        world.cluster.put(node("new", cpu="8"))
        world.cluster.put(pod("big", cpu="8"))
        world.cluster._subscribers.append(world.scheduler.handlers)
        world.cluster.relist()
        await world.settles()
        assert world.node_of("big") == "new"
        assert world.scheduler.cluster.placed_pod("uid-default-there") is None

    in_virtual_time(story, node("n", cpu="4"), pod("there", cpu="1", node="n"))


def test_a_pod_deleted_and_created_again_under_its_name_is_another_pod() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("a", cpu="100"))
        await world.settles()
        world.cluster.put(pod("a", cpu="1", metadata={"uid": "another"}))
        await world.settles()
        assert world.node_of("a") == "n"
        assert len(world.scheduler.queue) == 0

    in_virtual_time(story, node("n"))


def test_a_pod_of_higher_priority_takes_the_place_of_a_lower_one() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("high", cpu="3", priority=100))
        await world.settles()
        assert [key for key, _ in world.cluster.bindings] == ["default/high"]
        assert [p.metadata.name for p in world.cluster.pods()] == ["high"]
        preempted = next(event for event in world.cluster.events if event.reason == "Preempted")
        assert (preempted.regarding.name, preempted.note) == ("low", "Preempted by pod uid-default-high on node n")

    in_virtual_time(story, node("n", cpu="4"), pod("low", cpu="3", node="n", priority=1))


def test_preemption_spares_what_need_not_go() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("high", cpu="2", priority=100))
        await world.settles()
        assert {p.metadata.name for p in world.cluster.pods()} == {"high", "important", "small"}

    in_virtual_time(
        story,
        node("n", cpu="5"),
        pod("important", cpu="2", node="n", priority=50),
        pod("small", cpu="1", node="n", priority=40),
        pod("batch", cpu="2", node="n", priority=1),
    )


def test_a_waiting_victim_is_told_to_try_again_and_not_deleted() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("low", cpu="3", priority=1))
        await world.settles()
        assert world.scheduler.waiting_pods.get("uid-default-low") is not None
        world.cluster.put(pod("high", cpu="3", priority=100))
        await world.passes(0.5)
        assert {p.metadata.name for p in world.cluster.pods()} == {"low", "high"}
        assert world.scheduler.waiting_pods.get("uid-default-low") is None

    in_virtual_time(story, node("n", cpu="4"), plugins=[HoldForTwoSeconds], profiles=[enabled("Hold")])


class HoldForTwoSeconds(PermitPlugin):
    """Asks every pod to wait; nobody ever allows it."""

    name = "Hold"
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Allowed:
        return Allowed(Status(Code.WAIT), 2.0)


class RefuseOnce(ReservePlugin):
    """Refuses each pod's first reservation."""

    name = "RefuseOnce"
    undone: list[str] = []

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if pod.name in self.undone:
            return None
        return Status.error("not yet")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.undone.append(pod.name)


def enabled(name: str) -> dict[str, object]:
    return {"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": [{"name": name}]}}}


def test_a_pod_that_is_never_permitted_is_given_back_when_its_time_is_up() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("a"))
        await world.passes(1)
        assert world.cluster.pod("a").status.nominated_node_name == "n"
        assert world.scheduler.cluster.is_assumed("uid-default-a")
        await world.passes(1.5)
        assert "rejected due to timeout after waiting 2s at plugin Hold" in world.cluster.events[-1].note
        assert not world.scheduler.cluster.is_assumed("uid-default-a")

    in_virtual_time(story, node("n"), plugins=[HoldForTwoSeconds], profiles=[enabled("Hold")])


def test_a_failed_reservation_is_unreserved_and_tried_again() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("a"))
        await world.settles()
        assert RefuseOnce.undone == ["a"]
        await world.passes(5)
        assert world.node_of("a") == "n"

    RefuseOnce.undone.clear()
    in_virtual_time(story, node("n"), plugins=[RefuseOnce], profiles=[enabled("RefuseOnce")])
