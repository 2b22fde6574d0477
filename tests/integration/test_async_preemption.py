"""Asynchronous preemption (semantics 9.6, 11.4 TestAsyncPreemption): gating of preemptors during their evictions.

Tests hold evictions back until they release them, by preemptor and victim. All rows of TestAsyncPreemption are here;
those that differ only in how the victim terminates (at once, or with a grace period) are parameters of one test.
Asynchronous preemption of gangs is in tests/scheduling/gangs.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from kubestow.api.core import Pod
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.node_info import NodeInfo
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import BindPlugin, NodeFilterPlugin, ReservePlugin
from kubestow.framework.status import Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object, SchedulerProbe, as_sent
from tests.integration.scripted_plugins import profile

NODE = node("n", cpu="4")


def preemptor(name: str, *, cpu: str, priority: int) -> Pod:
    return pod(name, cpu=cpu, priority=priority)


def victims(count: int, *, cpu: str, of: str = "n") -> list[Object]:
    """Pods on a node without a termination grace period."""
    manifests = [as_sent(pod(f"victim-{of}-{number}", cpu=cpu, priority=1, node=of)) for number in range(count)]
    for each in manifests:
        each["spec"]["terminationGracePeriodSeconds"] = 0
    return manifests


class HeldEvictions:
    """Evictions that wait until the test releases them."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []
        self._released: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def wait(self, preemptor: str, victim: str) -> None:
        self.started.append((preemptor, victim))
        waiting = [asyncio.ensure_future(self._released[name].wait()) for name in (preemptor, f"{preemptor}/{victim}")]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    def release(self, preemptor: str, victim: str = "") -> None:
        self._released[f"{preemptor}/{victim}" if victim else preemptor].set()

    def of(self, preemptor: str) -> list[str]:
        return sorted(victim for name, victim in self.started if name == preemptor)


@contextmanager
def hold_evictions(probe: SchedulerProbe) -> Iterator[HeldEvictions]:
    """Hold the evictions of all preemptors until they are released."""
    held, evictions = HeldEvictions(), probe.scheduler._evictions
    evict = evictions._evict

    async def evict_later(victim: PodInfo, preemption: Any) -> None:
        await held.wait(preemption.preemptors[0].name, victim.name)
        await evict(victim, preemption)

    evictions._evict = evict_later  # type: ignore[method-assign]
    yield held


async def is_preempting(cluster: ClusterFixture, probe: SchedulerProbe, name: str) -> None:
    """Wait until a pod has started its evictions and left the active queue."""
    await cluster.until(lambda: cluster.nomination(name))
    await probe.until(lambda: probe.place(name) in (Place.UNSCHEDULABLE, Place.GATED))
    assert probe.scheduler._preemptions.is_preempting(cluster.pod(name).metadata.uid)


@pytest.mark.parametrize("count", [1, 2], ids=["one victim", "two victims"])
async def test_a_preemptor_is_bound_after_its_evictions(cluster: ClusterFixture, count: int) -> None:
    await cluster.create(NODE, *victims(count, cpu="2"))
    async with cluster.scheduler() as probe:
        with hold_evictions(probe) as held:
            await cluster.create(preemptor("preemptor", cpu="4", priority=100))
            await is_preempting(cluster, probe, "preemptor")
            held.release("preemptor")
            assert await cluster.bound("preemptor") == ["n"]
            assert len(held.of("preemptor")) == count


async def test_events_do_not_requeue_a_preemptor_during_its_evictions(cluster: ClusterFixture) -> None:
    await cluster.create(NODE, *victims(2, cpu="2"))
    async with cluster.scheduler() as probe:
        with hold_evictions(probe) as held:
            await cluster.create(preemptor("preemptor", cpu="4", priority=100))
            await is_preempting(cluster, probe, "preemptor")
            await probe.observed(await cluster.create_one(node("m", cpu="8")))
            assert probe.place("preemptor") is Place.GATED
            held.release("preemptor")
            await cluster.bound("preemptor")


async def test_a_pod_of_lower_priority_does_not_take_the_nominated_node(cluster: ClusterFixture) -> None:
    await cluster.create(NODE, *victims(2, cpu="2"))
    async with cluster.scheduler() as probe:
        with hold_evictions(probe) as held:
            await cluster.create(preemptor("high", cpu="4", priority=100))
            await is_preempting(cluster, probe, "high")
            await cluster.create(preemptor("middle", cpu="4", priority=50))
            await cluster.pending_messages("middle")
            held.release("high")
            assert await cluster.bound("high") == ["n"]
            assert not cluster.node_of("middle")


async def test_a_pod_of_higher_priority_takes_the_nominated_node(cluster: ClusterFixture) -> None:
    await cluster.create(NODE, *victims(4, cpu="1"))
    async with cluster.scheduler() as probe:
        with hold_evictions(probe) as held:
            await cluster.create(preemptor("high", cpu="4", priority=100))
            await is_preempting(cluster, probe, "high")
            await cluster.create(preemptor("highest", cpu="4", priority=200))
            await is_preempting(cluster, probe, "highest")
            held.release("highest")
            held.release("high")
            assert await cluster.bound("highest") == ["n"]
            await cluster.until(lambda: not cluster.nomination("high"))
            assert not cluster.node_of("high")


async def test_two_preemptors_share_a_large_enough_node(cluster: ClusterFixture) -> None:
    await cluster.create(NODE, *victims(4, cpu="1"))
    async with cluster.scheduler() as probe:
        with hold_evictions(probe) as held:
            await cluster.create(preemptor("high", cpu="2", priority=100))
            await is_preempting(cluster, probe, "high")
            await cluster.create(preemptor("middle", cpu="2", priority=50))
            await is_preempting(cluster, probe, "middle")
            held.release("middle")
            held.release("high")
            assert await cluster.bound("high", "middle") == ["n", "n"]


async def test_a_preemptor_whose_node_is_taken_is_placed_elsewhere(cluster: ClusterFixture) -> None:
    await cluster.create(NODE, *victims(4, cpu="1"))
    async with cluster.scheduler() as probe:
        with hold_evictions(probe) as held:
            await cluster.create(preemptor("middle", cpu="4", priority=50))
            await is_preempting(cluster, probe, "middle")
            first_three = held.of("middle")
            for victim in first_three:
                held.release("middle", victim)
            await cluster.deleted(*first_three)
            await cluster.create(node("m", cpu="4"), *victims(4, cpu="1", of="m"))
            await probe.until(lambda: probe.scheduler.cluster.pod_count == 5)
            await cluster.create(preemptor("high", cpu="2", priority=100))
            assert await cluster.bound("high") == ["n"]
            held.release("middle")
            assert await cluster.bound("middle") == ["m"]


# -- victims with a binding in flight ------------------------------------------------------------------------------


class SlowBinder(BindPlugin):
    """Binds the pod named slow when the test resumes it."""

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


class KeepsReservation(NodeFilterPlugin, ReservePlugin):
    """Rejects nodes until the slow pod is unreserved, even after the cache has dropped the pod."""

    name = "KeepsReservation"
    events_to_register = (on(EventResource.ASSIGNED_POD, Action.DELETE), on(EventResource.NODE, Action.ADD))
    holder = ""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if pod.name == "slow":
            self.holder = pod.uid
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        if pod.uid == self.holder:
            self.holder = ""

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status | None:
        if self.holder and self.handle.cluster.placed_pod(self.holder) is None:
            return Status.unschedulable("still reserved")
        return None


def slow_binder() -> type[SlowBinder]:
    return type("SlowBinder", (SlowBinder,), {"resumed": asyncio.Event(), "started": asyncio.Event()})


@pytest.mark.parametrize("graceful", [False, True], ids=["deleted at once", "with grace"])
async def test_a_deleted_victim_with_a_binding_in_flight_frees_its_capacity(
    cluster: ClusterFixture, graceful: bool
) -> None:
    binder = slow_binder()
    metadata = {"finalizers": ["example.org/keep"]} if graceful else {}
    await cluster.create(NODE, pod("slow", cpu="2", priority=1, metadata=metadata))
    async with cluster.scheduler(**profile(binder)):
        await binder.started.wait()
        await cluster.create(preemptor("preemptor", cpu="4", priority=100))
        assert await cluster.bound("preemptor") == ["n"]
        binder.resumed.set()
    assert not cluster.node_of("slow")


@pytest.mark.parametrize("graceful", [False, True], ids=["deleted at once", "with grace"])
async def test_a_preemptor_waits_until_its_victim_is_unreserved(cluster: ClusterFixture, graceful: bool) -> None:
    binder = slow_binder()
    metadata = {"finalizers": ["example.org/keep"]} if graceful else {}
    await cluster.create(NODE, pod("slow", cpu="2", priority=1, metadata=metadata))
    async with cluster.scheduler(**profile(binder, KeepsReservation)):
        await binder.started.wait()
        await cluster.create(preemptor("preemptor", cpu="4", priority=100))
        await cluster.until(lambda: "still reserved" in cluster.message("preemptor"))
        assert not cluster.node_of("preemptor")
        binder.resumed.set()
        assert await cluster.bound("preemptor") == ["n"]
