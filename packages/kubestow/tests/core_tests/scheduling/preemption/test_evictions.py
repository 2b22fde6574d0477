"""Preemption in a running scheduler: which victims are evicted, and when the preemptor is requeued."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from core_tests.scheduling.fixture import enabled
from core_tests.scheduling.gangs.groups import gang_scheduling, group, member
from core_tests.scheduling.test_waiting_pods import HoldForTwoSeconds
from kubestow.cluster.placed_pods import PlacedPod
from kubestow.cluster.pods.shapes import PodInfo, Shapes
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.interface import (
    FilterRunner,
    Permission,
    PermitPlugin,
    PostFilterPlugin,
    PostFilterResult,
)
from kubestow.framework.status import SUCCESS
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.interfaces import ObjectReference, Resource
from kubestow.scheduling.observer import Observer, Preemptor
from kubestow.scheduling.preemption.evictions import Evictions, PreemptionsInProgress
from kubestow.scheduling.scheduler_state import SchedulerState
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time
from kubestow.testing.virtual_time import VirtualClock, run


class SlowCluster(MemoryCluster):
    """Takes as many seconds to delete a pod as the pod is named after."""

    async def delete_pod(self, pod: ObjectReference) -> None:
        await asyncio.sleep(float(pod.name))  # not a number: the deletion fails
        await super().delete_pod(pod)


class LateWatch(MemoryCluster):
    """Its watch shows deletions five seconds late; ``deleted`` lists the requests to delete a pod."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    async def delete_pod(self, pod: ObjectReference) -> None:
        self.deleted.append(pod.name)
        await super().delete_pod(pod)

    def _notify(self, resource: Resource, event_type: str, obj: Any) -> None:
        if event_type == "DELETED" and obj.metadata.name in self.deleted:
            asyncio.get_running_loop().call_later(5, super()._notify, resource, event_type, obj)
        else:
            super()._notify(resource, event_type, obj)


def evictions_on(
    cluster: MemoryCluster,
    *known: PodInfo,
    placements: Mapping[str, PlacedPod] | None = None,
    at_permit: Collection[str] = (),
    activate: Callable[[str], None] = lambda uid: None,
    observer: Observer | None = None,
) -> Evictions:
    """Evictions of ``known`` pods, placed by default; pods ``at_permit`` are rejected instead of deleted."""
    pods = PodStore()
    for info in known:
        pods.put(info)
    placed = placements_of(*known) if placements is None else placements
    environment = Environment(cluster, VirtualClock(asyncio.get_running_loop()), Random(1), observer or Observer())
    cache: Any = SimpleNamespace(placed_pod=placed.get, drop_nomination=lambda uid: None)
    gating = SimpleNamespace(preemption_started=lambda uids: None, preemption_ended=lambda uids: None)
    queue: Any = SimpleNamespace(activate=lambda uids: activate(*uids), gating=gating)
    waiting_pods: Any = SimpleNamespace(preempt=lambda uid: uid in at_permit)
    dispatcher = Dispatcher(environment, known_pod=pods.get)
    state = SchedulerState(cache, pods, queue)
    return Evictions(state, PreemptionsInProgress(pods), dispatcher, waiting_pods, environment)


def placements_of(*infos: PodInfo) -> dict[str, PlacedPod]:
    return {info.uid: PlacedPod(info, "n", assumed=False) for info in infos}


def infos(*names: str) -> list[PodInfo]:
    shapes = Shapes()
    return [shapes.info(pod(name, node="n")) for name in names]


def test_a_preemptor_is_gated_until_the_watch_shows_its_latest_victim_gone() -> None:
    async def scenario() -> None:
        cluster, (high, first, second) = SlowCluster(), infos("high", "1", "3")
        cluster.put(first.pod)
        cluster.put(second.pod)
        placements = placements_of(first, second)
        evictions = evictions_on(cluster, first, second, placements=placements)
        evictions.start(high, "n", victims=[first], lower_priority_nominated=())
        evictions.start(high, "n", victims=[second], lower_priority_nominated=())
        await asyncio.sleep(2)
        assert evictions.in_progress.is_preempting(high.uid)
        await asyncio.wait(list(evictions.tasks))
        for victim in (first, second):
            assert evictions.in_progress.is_preempting(high.uid)
            del placements[victim.uid]
            evictions.victim_changed(victim.uid)
        assert not evictions.in_progress.is_preempting(high.uid)

    run(scenario())


def test_a_preemptor_stays_gated_until_its_last_victim_is_terminating_or_gone() -> None:
    """A victim that waited on Permit may be bound meanwhile, which changes nothing."""

    async def scenario() -> None:
        cluster, (high, victim) = SlowCluster(), infos("high", "3")
        cluster.put(victim.pod)
        placements = placements_of(victim)
        evictions = evictions_on(cluster, victim, placements=placements)
        evictions.start(high, "n", victims=[victim], lower_priority_nominated=())
        await asyncio.sleep(1)
        evictions.victim_changed(victim.uid)
        assert evictions.in_progress.is_preempting(high.uid)
        await asyncio.wait(list(evictions.tasks))
        evictions.victim_changed(victim.uid)  # the watch has not shown yet that it is deleted
        assert evictions.in_progress.is_preempting(high.uid)
        del placements[victim.uid]
        evictions.victim_changed(victim.uid)
        assert not evictions.in_progress.is_preempting(high.uid)

    run(scenario())


class EvictionTimes(Observer):
    """The preemptors whose evictions ended, whether they succeeded, and the seconds that they took."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, bool, float]] = []

    def evictions_ended(self, preemptor: PodInfo, *, kind: Preemptor, succeeded: bool, seconds: float) -> None:
        self.ended.append((preemptor.name, succeeded, round(seconds, 3)))


def test_the_time_of_evictions_is_reported() -> None:
    async def scenario() -> None:
        cluster, (high, first, second, failing) = SlowCluster(), infos("high", "1", "3", "not-a-number")
        for victim in (first, second, failing):
            cluster.put(victim.pod)
        times = EvictionTimes()
        evictions = evictions_on(cluster, first, second, failing, observer=times)
        await asyncio.sleep(7)
        evictions.start(high, "n", victims=[first, second], lower_priority_nominated=())
        await asyncio.wait(list(evictions.tasks))
        evictions.start(high, "n", victims=[failing], lower_priority_nominated=())
        await asyncio.wait(list(evictions.tasks))
        assert times.ended == [("high", True, 4), ("high", False, 0)]  # one after the other

    run(scenario())


def test_a_failed_eviction_does_not_orphan_the_other_evictions() -> None:
    async def scenario() -> None:
        cluster, (high, failing, slow, last) = SlowCluster(), infos("high", "not-a-number", "3", "0")
        for victim in (failing, slow, last):
            cluster.put(victim.pod)
        evictions = evictions_on(cluster, failing, slow, last)
        evictions.start(high, "n", victims=[failing, slow, last], lower_priority_nominated=())
        await asyncio.wait(list(evictions.tasks))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert {remaining.metadata.name for remaining in cluster.pods()} == {"not-a-number", "0"}

    run(scenario())


@pytest.mark.parametrize("was_placed_again", [True, False])
def test_a_preemptor_does_not_wait_for_a_victim_that_was_placed_again(
    was_placed_again: bool,
) -> None:
    async def scenario() -> None:
        cluster, (high, requeued, deleted) = SlowCluster(), infos("high", "requeued", "1")
        cluster.put(deleted.pod)
        placements, activated = placements_of(requeued, deleted), list[str]()
        evictions = evictions_on(
            cluster, requeued, deleted, placements=placements, at_permit=[requeued.uid], activate=activated.append
        )
        evictions.start(high, "n", victims=[requeued, deleted], lower_priority_nominated=())
        await asyncio.sleep(0.5)
        del placements[deleted.uid]
        if was_placed_again:
            placements |= placements_of(requeued)
        await asyncio.wait(list(evictions.tasks))
        assert activated == ([high.uid] if was_placed_again else [])

    run(scenario())


def test_a_preemptor_does_not_preempt_again_while_the_watch_is_late() -> None:
    cluster = LateWatch()

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("high", cpu="4", priority=100))
        await harness.advance(3)
        cluster.remove(cluster.pod("elsewhere"))  # frees what the preemptor needs, though too little
        await harness.advance(1)
        assert sorted(cluster.deleted) == ["a", "b"]
        assert harness.node_of("high") == ""
        await harness.advance(2)
        assert harness.node_of("high") == "n"
        assert sorted(cluster.deleted) == ["a", "b"]

    victims = (pod(name, cpu="2", node="n", priority=1) for name in ("a", "b"))
    elsewhere = pod("elsewhere", cpu="1", node="small", priority=200)
    in_virtual_time(scenario, node("n", cpu="4"), node("small", cpu="1"), *victims, elsewhere, cluster=cluster)


def test_a_preemptor_is_requeued_when_its_last_victim_is_deleted_first() -> None:
    cluster = SlowCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("high", cpu="4", priority=100))
        await harness.settle()
        cluster.remove(cluster.pod("0"))
        await harness.advance(3)
        assert harness.node_of("high") == "n"

    victims = (pod("2", cpu="2", node="n", priority=5), pod("0", cpu="2", node="n", priority=1))
    in_virtual_time(scenario, node("n", cpu="4"), *victims, cluster=cluster)


class HoldSlowPods(PermitPlugin):
    """Returns Wait for pods named ``slow``, with a timeout of two seconds."""

    name = "Hold"
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission.wait(2) if pod.name == "slow" else Permission(SUCCESS)


def test_a_preemptor_is_requeued_when_its_victim_has_lost_its_node_before_the_watch_shows_it_deleted() -> None:
    """The victim is a member of a gang that waits for the other one, and is released when that is rejected."""
    cluster = LateWatch()

    async def scenario(harness: SchedulerHarness) -> None:
        for each in (group("train", 2), member("fast", "train", cpu="3"), member("slow", "train", cpu="1")):
            cluster.put(each)
        await harness.advance(1)
        cluster.put(pod("high", cpu="3", priority=100))
        await harness.advance(0.5)
        assert cluster.deleted == ["fast"]
        await harness.advance(2)
        assert not harness.scheduler.cluster.is_assumed("uid-default-fast")
        assert harness.node_of("high") == ""
        await harness.advance(10)
        assert harness.node_of("high") == "n"

    in_virtual_time(scenario, node("n", cpu="4"), cluster=cluster, plugins=[HoldSlowPods], **gang_scheduling("Hold"))


class UntypedVictims(PostFilterPlugin):
    """Returns victims that are not pods."""

    name = "UntypedVictims"
    events_to_register = ()
    fields: ClassVar[dict[str, Any]]

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        return PostFilterResult(SUCCESS, nominated_node_name="n", **self.fields)


@pytest.mark.parametrize("fields", [{"victims": ("low",)}, {"lower_priority_nominated": ("low",)}, {"victims": None}])
def test_victims_of_the_wrong_type_fail_only_the_attempt_of_their_preemptor(fields: dict[str, Any]) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("too-big", cpu="64"))
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert harness.node_of("a") == "n"
        condition = harness.cluster.condition("too-big")
        assert condition is not None and "victims and lower_priority_nominated" in condition.message

    UntypedVictims.fields = fields
    in_virtual_time(scenario, node("n"), **enabled(UntypedVictims))


def test_a_pod_preempts_a_pod_of_lower_priority() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.settle()
        assert [key for key, _ in harness.cluster.bindings] == ["default/high"]
        assert [p.metadata.name for p in harness.cluster.pods()] == ["high"]
        preempted = next(event for event in harness.cluster.events if event.reason == "Preempted")
        assert (preempted.regarding.name, preempted.note) == ("low", "Preempted by pod uid-default-high on node n")

    in_virtual_time(scenario, node("n", cpu="4"), pod("low", cpu="3", node="n", priority=1))


def test_preemption_evicts_no_more_pods_than_necessary() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("high", cpu="2", priority=100))
        await harness.settle()
        assert {p.metadata.name for p in harness.cluster.pods()} == {"high", "important", "small"}

    in_virtual_time(
        scenario,
        node("n", cpu="5"),
        pod("important", cpu="2", node="n", priority=50),
        pod("small", cpu="1", node="n", priority=40),
        pod("batch", cpu="2", node="n", priority=1),
    )


def test_a_waiting_victim_is_requeued_instead_of_deleted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("low", cpu="3", priority=1))
        await harness.settle()
        assert harness.scheduler.waiting_pods.get("uid-default-low") is not None
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.advance(0.5)
        assert {p.metadata.name for p in harness.cluster.pods()} == {"low", "high"}
        assert harness.scheduler.waiting_pods.get("uid-default-low") is None

    in_virtual_time(scenario, node("n", cpu="4"), **enabled(HoldForTwoSeconds))
