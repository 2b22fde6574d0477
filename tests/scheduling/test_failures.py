"""What the living scheduler survives: mishaps that the simulation of a hostile world has met."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from kubestow.cluster.pods.index import PlacedPod
from kubestow.cluster.pods.shapes import PodInfo, Shapes
from kubestow.errors import APIError, Unreachable
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.interface import (
    FilterRunner,
    Permission,
    PermitPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
)
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.ports import ObjectReference, Resource, Subscriber
from kubestow.scheduling.preemption.evictions import Evictions
from kubestow.scheduling.state import SchedulerState
from kubestow.scheduling.writes.dispatcher import Dispatcher
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.virtual_time import VirtualClock, run
from tests.scheduling.running import Living, in_virtual_time, living


class SilentCluster(MemoryCluster):
    """Never answers a list."""

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        await asyncio.get_running_loop().create_future()


def test_a_scheduler_stopped_before_it_has_seen_the_cluster_leaves_nothing_running() -> None:
    async def told() -> None:
        async with living(cluster=SilentCluster()):
            pass
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(told())


class SlowCluster(MemoryCluster):
    """Takes as many seconds to delete a pod as its name says."""

    async def delete_pod(self, pod: ObjectReference) -> None:
        await asyncio.sleep(float(pod.name))  # not a number: the deletion fails
        await super().delete_pod(pod)


def evictions_on(
    cluster: MemoryCluster,
    *known: PodInfo,
    placements: Mapping[str, PlacedPod] | None = None,
    on_their_way: Collection[str] = (),
    activate: Callable[[str], None] = lambda uid: None,
) -> Evictions:
    """Evictions of pods that are all placed, unless ``placements`` says else; those ``on_their_way`` are taken back."""
    pods = PodStore()
    for info in known:
        pods.put(info)
    placed = placements_of(*known) if placements is None else placements
    environment = Environment(cluster, VirtualClock(asyncio.get_running_loop()), Random(1))
    cache: Any = SimpleNamespace(placed_pod=placed.get, drop_nomination=lambda uid: None)
    queue: Any = SimpleNamespace(activate=lambda uids: activate(*uids))
    waiting_pods: Any = SimpleNamespace(preempt=lambda uid: uid in on_their_way)
    dispatcher = Dispatcher(environment, known_pod=pods.get)
    return Evictions(SchedulerState(cache, pods, queue), dispatcher, waiting_pods, environment)


def placements_of(*infos: PodInfo) -> dict[str, PlacedPod]:
    return {info.uid: PlacedPod(info, "n", assumed=False) for info in infos}


def infos(*names: str) -> list[PodInfo]:
    shapes = Shapes()
    return [shapes.info(pod(name, node="n")) for name in names]


def test_a_pod_that_preempts_again_is_gated_until_the_newest_evictions_are_done() -> None:
    async def told() -> None:
        cluster, (high, first, second) = SlowCluster(), infos("high", "1", "3")
        cluster.put(first.pod)
        cluster.put(second.pod)
        evictions = evictions_on(cluster, first, second)
        evictions.start(high, "n", victims=[first], lower_priority_nominated=())
        evictions.start(high, "n", victims=[second], lower_priority_nominated=())
        await asyncio.sleep(2)
        assert evictions.is_preempting(high.uid)
        await asyncio.wait(list(evictions.tasks))
        assert not evictions.is_preempting(high.uid)

    run(told())


def test_an_eviction_that_fails_does_not_leave_the_others_to_themselves() -> None:
    async def told() -> None:
        cluster, (high, failing, slow, last) = SlowCluster(), infos("high", "unheard-of", "3", "0")
        for victim in (failing, slow, last):
            cluster.put(victim.pod)
        evictions = evictions_on(cluster, failing, slow, last)
        evictions.start(high, "n", victims=[failing, slow, last], lower_priority_nominated=())
        await asyncio.wait(list(evictions.tasks))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert {there.metadata.name for there in cluster.pods()} == {"unheard-of", "0"}

    run(told())


@pytest.mark.parametrize("has_found_another_place", [True, False])
def test_a_preemptor_does_not_wait_for_a_victim_to_leave_that_has_found_another_place(
    has_found_another_place: bool,
) -> None:
    async def told() -> None:
        cluster, (high, back, gone) = SlowCluster(), infos("high", "back", "1")
        cluster.put(gone.pod)
        placements, activated = placements_of(back, gone), list[str]()
        evictions = evictions_on(
            cluster, back, gone, placements=placements, on_their_way=[back.uid], activate=activated.append
        )
        evictions.start(high, "n", victims=[back, gone], lower_priority_nominated=())
        await asyncio.sleep(0.5)
        del placements[gone.uid]
        if has_found_another_place:
            placements |= placements_of(back)
        await asyncio.wait(list(evictions.tasks))
        assert activated == ([high.uid] if has_found_another_place else [])

    run(told())


def test_a_pod_is_not_left_gated_when_its_last_victim_went_before_the_others() -> None:
    cluster = SlowCluster()

    async def story(world: Living) -> None:
        cluster.put(pod("high", cpu="4", priority=100))
        await world.settles()
        cluster.remove(cluster.pod("0"))
        await world.passes(3)
        assert world.node_of("high") == "n"

    victims = (pod("2", cpu="2", node="n", priority=5), pod("0", cpu="2", node="n", priority=1))
    in_virtual_time(story, node("n", cpu="4"), *victims, cluster=cluster)


class WaitsInVain(PermitPlugin, PreBindPlugin):
    """Asks every pod to wait, and fails before the wait begins."""

    name = "WaitsInVain"
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission(Status(Code.WAIT), 600.0)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return Status.error("not today")

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        raise AssertionError("there was an error before")


def test_a_pod_whose_binding_cycle_fails_before_it_waits_does_not_wait() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("a"))
        await world.settles()
        assert world.scheduler.waiting_pods.all() == []

    in_virtual_time(story, node("n"), plugins=[WaitsInVain], profiles=[enabled("WaitsInVain")])


def test_a_binding_whose_answer_is_lost_is_not_made_twice() -> None:
    async def story(world: Living) -> None:
        world.cluster.lost_responses.append(Unreachable("server", "connection reset"))
        world.cluster.put(pod("a"))
        await world.settles()
        assert world.cluster.bindings == [("default/a", "n")]
        assert [event.reason for event in world.cluster.events] == ["Scheduled"]

    in_virtual_time(story, node("n"))


def test_a_failed_binding_brings_back_the_pods_that_wait_for_its_room() -> None:
    async def story(world: Living) -> None:
        world.cluster.bind_failures.append(APIError(403, "Forbidden", "not you"))
        for name, priority in (("a", 2), ("b", 1)):
            world.cluster.put(pod(name, cpu="3", priority=priority))
        await world.settles()
        assert world.cluster.bindings == [("default/b", "n")]

    in_virtual_time(story, node("n", cpu="4"))


class FickleCluster(MemoryCluster):
    """Lets a pod be deleted and changed while it is asked to bind it, and does not bind it then."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        deleted = replace(self.pod(pod.name).metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        for metadata in (deleted, replace(deleted, labels={"app": "x"})):
            self.put(replace(self.pod(pod.name), metadata=metadata))
        raise APIError(409, "Conflict", f"pod {pod.name} is being deleted")


def test_a_pod_deleted_and_changed_while_its_binding_fails_is_queued_once() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("a"))
        await world.passes(10)
        assert len(world.scheduler.queue) == 0

    in_virtual_time(story, node("n"), cluster=FickleCluster())


class LateCluster(MemoryCluster):
    """Says what a watch brings only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.late = False

    def _notify(self, resource: Resource, event_type: str, obj: Any) -> None:
        if not self.late:
            super()._notify(resource, event_type, obj)


class Repeating(LateCluster):
    """Gets every binding a second time, as from a client that was asked to come back after it had been made."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await super().bind(pod, node_name)
        await super().bind(pod, node_name)


def test_a_binding_that_conflicts_with_itself_has_been_made() -> None:
    cluster = Repeating()

    async def story(world: Living) -> None:
        for name in ("a", "b"):
            cluster.put(pod(name, cpu="3"))
        cluster.late = True
        await world.settles()
        assert [key for key, _ in cluster.bindings] == ["default/a"]

    in_virtual_time(story, node("n", cpu="4"), cluster=cluster)


def test_the_room_of_a_pod_that_may_be_bound_is_not_given_away() -> None:
    cluster = LateCluster()

    async def story(world: Living) -> None:
        for name in ("a", "b"):
            cluster.put(pod(name, cpu="3"))
        cluster.late = True
        cluster.lost_responses.append(Unreachable("server", "connection reset"))
        await world.settles()
        assert [key for key, _ in cluster.bindings] == ["default/a"]

    in_virtual_time(story, node("n", cpu="4"), cluster=cluster)


class MeansWell(PostFilterPlugin):
    """Has something to do for pods that fit nowhere, and fails at it before it has begun."""

    name = "MeansWell"
    events_to_register = ()

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        def action() -> Coroutine[Any, Any, None]:
            raise ValueError("not like this")

        return PostFilterResult(Status.unschedulable("wait"), action=action)


def test_what_a_plugin_wants_done_and_cannot_begin_ends_nothing() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("too-big", cpu="64"))
        await world.settles()
        world.cluster.put(pod("a"))
        await world.settles()
        assert world.node_of("a") == "n"

    in_virtual_time(story, node("n"), plugins=[MeansWell], profiles=[enabled("MeansWell")])


class MakesRoomByName(PostFilterPlugin):
    """Says who has to go, but not as pods."""

    name = "MakesRoomByName"
    events_to_register = ()
    answers: ClassVar[dict[str, Any]]

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        return PostFilterResult(SUCCESS, nominated_node_name="n", **self.answers)


@pytest.mark.parametrize("answers", [{"victims": ("low",)}, {"lower_priority_nominated": ("low",)}, {"victims": None}])
def test_victims_that_are_no_pods_cost_one_pod_its_attempt(answers: dict[str, Any]) -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("too-big", cpu="64"))
        world.cluster.put(pod("a"))
        await world.settles()
        assert world.node_of("a") == "n"
        condition = world.cluster.condition("too-big")
        assert condition is not None and "victims and lower_priority_nominated" in condition.message

    MakesRoomByName.answers = answers
    in_virtual_time(story, node("n"), plugins=[MakesRoomByName], profiles=[enabled("MakesRoomByName")])


def enabled(name: str) -> dict[str, object]:
    return {"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": [{"name": name}]}}}
