"""Evictions in the background (semantics 9.6, 11.4 TestAsyncPreemption): who waits, who gets the room, who is woken.

A test holds evictions back as long as it likes: each victim of each preemptor is evicted when it is let go. All rows of
TestAsyncPreemption are here. Those that differ only in what holds up the victim's binding (deleted at once, or with
grace) are one test with parameters. That group preemption does the same is in tests/scheduling.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from kubestow.api.core import Node, Pod
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import BindPlugin, NodeFilterPlugin, ReservePlugin
from kubestow.framework.status import Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.integration.fixture import Object, Stage, Troupe, as_sent
from tests.integration.scripted_plugins import profile

NODE = node("n", cpu="4")


def asking(name: str, *, cpu: str, priority: int) -> Pod:
    return pod(name, cpu=cpu, priority=priority)


def victims(count: int, *, cpu: str, of: str = "n") -> list[Object]:
    """Pods on a node that are gone as soon as they are deleted."""
    made = [as_sent(pod(f"victim-{of}-{number}", cpu=cpu, priority=1, node=of)) for number in range(count)]
    for each in made:
        each["spec"]["terminationGracePeriodSeconds"] = 0
    return made


class Held:
    """Evictions that wait until a test lets them go."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self._free: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def passes(self, preemptor: str, victim: str) -> None:
        self.asked.append((preemptor, victim))
        waiting = [asyncio.ensure_future(self._free[name].wait()) for name in (preemptor, f"{preemptor}/{victim}")]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    def let_go(self, preemptor: str, victim: str = "") -> None:
        self._free[f"{preemptor}/{victim}" if victim else preemptor].set()

    def of(self, preemptor: str) -> list[str]:
        return sorted(victim for asking, victim in self.asked if asking == preemptor)


@contextmanager
def held_back(troupe: Troupe) -> Iterator[Held]:
    """No victim of these preemptions is evicted before it is let go."""
    held, evictions = Held(), troupe.scheduler._evictions
    evict = evictions._evict

    async def evict_later(victim: PodInfo, preemption: Any) -> None:
        await held.passes(preemption.preemptors[0].name, victim.name)
        await evict(victim, preemption)

    evictions._evict = evict_later  # type: ignore[method-assign]
    yield held


async def waits(stage: Stage, troupe: Troupe, name: str) -> None:
    """A pod has begun to preempt, and waits for the end of that."""
    await stage.until(lambda: stage.nomination(name))
    await troupe.until(lambda: troupe.place(name) in (Place.UNSCHEDULABLE, Place.GATED))
    assert troupe.scheduler._evictions.is_preempting(stage.pod(name).metadata.uid)


@pytest.mark.parametrize("count", [1, 2], ids=["one victim", "two victims"])
async def test_a_preemptor_waits_for_its_evictions_and_then_gets_the_room(stage: Stage, count: int) -> None:
    await stage.create(NODE, *victims(count, cpu="2"))
    async with stage.scheduler() as troupe:
        with held_back(troupe) as held:
            await stage.create(asking("preemptor", cpu="4", priority=100))
            await waits(stage, troupe, "preemptor")
            held.let_go("preemptor")
            assert await stage.bound("preemptor") == ["n"]
            assert len(held.of("preemptor")) == count


async def test_events_do_not_bring_back_a_preemptor_whose_evictions_go_on(stage: Stage) -> None:
    await stage.create(NODE, *victims(2, cpu="2"))
    async with stage.scheduler() as troupe:
        with held_back(troupe) as held:
            await stage.create(asking("preemptor", cpu="4", priority=100))
            await waits(stage, troupe, "preemptor")
            await troupe.has_seen(await stage.create_one(node("m", cpu="8")))
            assert troupe.place("preemptor") is Place.GATED
            held.let_go("preemptor")
            await stage.bound("preemptor")


async def test_a_lower_priority_does_not_take_the_place(stage: Stage) -> None:
    await stage.create(NODE, *victims(2, cpu="2"))
    async with stage.scheduler() as troupe:
        with held_back(troupe) as held:
            await stage.create(asking("high", cpu="4", priority=100))
            await waits(stage, troupe, "high")
            await stage.create(asking("middle", cpu="4", priority=50))
            await stage.refused("middle")
            held.let_go("high")
            assert await stage.bound("high") == ["n"]
            assert not stage.node_of("middle")


async def test_a_higher_priority_takes_the_place(stage: Stage) -> None:
    await stage.create(NODE, *victims(4, cpu="1"))
    async with stage.scheduler() as troupe:
        with held_back(troupe) as held:
            await stage.create(asking("high", cpu="4", priority=100))
            await waits(stage, troupe, "high")
            await stage.create(asking("highest", cpu="4", priority=200))
            await waits(stage, troupe, "highest")
            held.let_go("highest")
            held.let_go("high")
            assert await stage.bound("highest") == ["n"]
            await stage.until(lambda: not stage.nomination("high"))
            assert not stage.node_of("high")


async def test_two_preemptors_share_a_node_that_is_big_enough(stage: Stage) -> None:
    await stage.create(NODE, *victims(4, cpu="1"))
    async with stage.scheduler() as troupe:
        with held_back(troupe) as held:
            await stage.create(asking("high", cpu="2", priority=100))
            await waits(stage, troupe, "high")
            await stage.create(asking("middle", cpu="2", priority=50))
            await waits(stage, troupe, "middle")
            held.let_go("middle")
            held.let_go("high")
            assert await stage.bound("high", "middle") == ["n", "n"]


async def test_who_waits_for_evictions_goes_elsewhere_when_its_place_is_taken(stage: Stage) -> None:
    await stage.create(NODE, *victims(4, cpu="1"))
    async with stage.scheduler() as troupe:
        with held_back(troupe) as held:
            await stage.create(asking("middle", cpu="4", priority=50))
            await waits(stage, troupe, "middle")
            first_three = held.of("middle")
            for victim in first_three:
                held.let_go("middle", victim)
            await stage.gone(*first_three)
            await stage.create(node("m", cpu="4"), *victims(4, cpu="1", of="m"))
            await troupe.until(lambda: troupe.scheduler.cluster.pod_count == 5)
            await stage.create(asking("high", cpu="2", priority=100))
            assert await stage.bound("high") == ["n"]
            held.let_go("middle")
            assert await stage.bound("middle") == ["m"]


# -- victims whose binding is under way ----------------------------------------------------------------------------


class SlowBinder(BindPlugin):
    """Binds the pod named slow when a test lets it."""

    name = "SlowBinder"
    events_to_register = ()
    resumed: ClassVar[asyncio.Event]
    started: ClassVar[asyncio.Event]

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if pod.name != "slow":
            return Status.skip()
        self.started.set()
        await self.resumed.wait()
        await self.handle.bind(pod, node_name)
        return None


class Reserving(NodeFilterPlugin, ReservePlugin):
    """What the slow pod has reserved is gone only when it has been given back, whoever else has forgotten the pod."""

    name = "Reserving"
    events_to_register = (on(EventResource.ASSIGNED_POD, Action.DELETE), on(EventResource.NODE, Action.ADD))
    holder = ""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if pod.name == "slow":
            self.holder = pod.uid
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if pod.uid == self.holder:
            self.holder = ""

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Any) -> Status | None:
        if self.holder and self.handle.cluster.placed_pod(self.holder) is None:
            return Status.unschedulable("still reserved")
        return None


def slow_binder() -> type[SlowBinder]:
    return type("SlowBinder", (SlowBinder,), {"resumed": asyncio.Event(), "started": asyncio.Event()})


@pytest.mark.parametrize("graceful", [False, True], ids=["deleted at once", "with grace"])
async def test_a_victim_that_is_being_bound_makes_room_when_it_is_deleted(stage: Stage, graceful: bool) -> None:
    binder = slow_binder()
    metadata = {"finalizers": ["example.org/keep"]} if graceful else {}
    await stage.create(NODE, pod("slow", cpu="2", priority=1, metadata=metadata))
    async with stage.scheduler(**profile(binder)):
        await binder.started.wait()
        await stage.create(asking("preemptor", cpu="4", priority=100))
        assert await stage.bound("preemptor") == ["n"]
        binder.resumed.set()
    assert not stage.node_of("slow")


@pytest.mark.parametrize("graceful", [False, True], ids=["deleted at once", "with grace"])
async def test_what_a_victim_has_reserved_is_waited_for(stage: Stage, graceful: bool) -> None:
    binder = slow_binder()
    metadata = {"finalizers": ["example.org/keep"]} if graceful else {}
    await stage.create(NODE, pod("slow", cpu="2", priority=1, metadata=metadata))
    async with stage.scheduler(**profile(binder, Reserving)):
        await binder.started.wait()
        await stage.create(asking("preemptor", cpu="4", priority=100))
        await stage.until(lambda: "still reserved" in stage.message("preemptor"))
        assert not stage.node_of("preemptor")
        binder.resumed.set()
        assert await stage.bound("preemptor") == ["n"]
