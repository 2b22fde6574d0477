"""Leader election: a standby, a new leader, a lost lease, and shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from core_tests.scheduling.fixture import enabled
from core_tests.scheduling.gangs.groups import TEAMS, gang_scheduling, group, member
from kubestow import config
from kubestow.api.core import Pod
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError, Unreachable
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission, PermitPlugin, Plugin, PreFilterPlugin
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.virtual_time import VirtualClock, run


class LeadershipLost(KubestowError):
    """Another candidate holds the lease."""


class ScriptedElection:
    """A leader election that the test decides."""

    overdue = 0.0

    def __init__(self) -> None:
        self.won, self.lost = asyncio.Event(), asyncio.Event()
        self.is_leader = self.released = self.expired = False
        self.stalls: dict[str, float] = {}

    @property
    def holds_lease(self) -> bool:
        return self.is_leader and not self.expired

    async def acquire(self) -> dict[str, float]:
        await self.won.wait()
        self.is_leader = True
        return self.stalls

    async def hold(self) -> None:
        await self.lost.wait()
        raise LeadershipLost

    async def release(self) -> None:
        self.released = True


class UnresponsiveCluster(MemoryCluster):
    """Answers no write and no read."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await asyncio.sleep(30)
        raise Unreachable("server", "no answer in time")

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        raise Unreachable("server", "connection refused")

    async def patch_pod_status(self, pod: ObjectReference, patch: Any) -> None:
        await asyncio.sleep(100_000)


@asynccontextmanager
async def candidate(
    cluster: MemoryCluster, lead: ScriptedElection, *, plugins: Iterable[type[Plugin]] = (), **configured: Any
) -> AsyncIterator[tuple[Scheduler, asyncio.Task[None]]]:
    """A scheduler that waits for leadership."""
    registry = in_tree_registry() | {plugin.name: plugin for plugin in plugins}
    document = {"apiVersion": config.API_VERSION, "kind": config.KIND, **configured}
    scheduler = Scheduler(
        config.load(document, subject="test", implements=implements(registry)),
        registry=registry,
        environment=Environment(cluster, VirtualClock(asyncio.get_running_loop()), Random(1)),
        pod_group_apis=[TEAMS],
        leadership=lead,
    )
    running = asyncio.create_task(scheduler.run())
    await asyncio.sleep(1)
    yield scheduler, running
    running.cancel()
    await asyncio.wait([running])


def run_scenario(
    scenario: Callable[[MemoryCluster, ScriptedElection], Awaitable[None]], cluster: MemoryCluster | None = None
) -> None:
    async def main() -> None:
        started = cluster or MemoryCluster()
        started.put(node("n"))
        await scenario(started, ScriptedElection())

    run(main())


def test_a_standby_syncs_its_caches_and_writes_nothing() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        cluster.put(pod("a"))
        cluster.put(pod("too-big", cpu="64"))
        async with candidate(cluster, lead) as (scheduler, _):
            await asyncio.sleep(1000)
            assert len(scheduler.cluster.nodes) == 1
            assert (cluster.bindings, cluster.events, cluster.condition("too-big")) == ([], [], None)

    run_scenario(scenario)


def test_a_standby_drops_the_shapes_of_deleted_pods() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        async with candidate(cluster, lead) as (scheduler, _):
            cluster.put(pod("stays", priority=10))
            for number in range(1000):
                cluster.put(short_lived := pod("short-lived", labels={"number": str(number)}))
                cluster.remove(short_lived)
            assert len(scheduler.cluster.shapes) < 100

    run_scenario(scenario)


def test_a_new_leader_reports_pods_of_incomplete_gangs() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        api = TEAMS
        cluster.put(group("train", 2, api=api))
        cluster.put(member("train-0", "train", api=api, nominated="n"))
        async with candidate(cluster, lead, profiles=gang_scheduling()["profiles"]):
            await asyncio.sleep(100)
            assert cluster.condition("train-0") is None
            lead.won.set()
            await asyncio.sleep(10)
            assert cluster.condition("train-0") is not None
            assert cluster.pod("train-0").status.nominated_node_name == ""

    run_scenario(scenario)


def test_scheduling_starts_when_leadership_is_acquired() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        cluster.put(pod("a"))
        async with candidate(cluster, lead):
            lead.won.set()
            await asyncio.sleep(0.01)
            assert cluster.bindings == [("default/a", "n")]

    run_scenario(scenario)


def test_a_candidate_can_delay_its_caches_until_it_leads() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        async with candidate(cluster, lead, delayCacheUntilActive=True) as (scheduler, _):
            assert not scheduler.synced.is_set()
            lead.won.set()
            await asyncio.sleep(0.01)
            assert scheduler.synced.is_set()

    run_scenario(scenario)


def test_losing_the_lease_stops_the_scheduler_immediately() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        cluster.put(pod("a"))
        cluster.put(pod("too-big", cpu="64"))
        async with candidate(cluster, lead) as (_, running):
            lead.won.set()
            await asyncio.sleep(5)
            lead.lost.set()
            began = asyncio.get_running_loop().time()
            with pytest.raises(LeadershipLost):
                await running
            assert asyncio.get_running_loop().time() - began < 0.1
            assert lead.released

    run_scenario(scenario, UnresponsiveCluster())


def test_nothing_is_decided_while_the_lease_has_expired() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        async with candidate(cluster, lead):
            lead.won.set()
            await asyncio.sleep(1)
            lead.expired = True
            cluster.put(node("another"))  # the loop begins another pass
            cluster.put(pod("a"))
            cluster.put(pod("too-big", cpu="64"))
            await asyncio.sleep(10)
            assert (cluster.bindings, cluster.events, cluster.condition("too-big")) == ([], [], None)
            lead.expired = False
            await asyncio.sleep(1)
            assert len(cluster.bindings) == 1
            assert cluster.condition("too-big") is not None

    run_scenario(scenario)


def test_pods_of_a_namespace_that_cost_a_former_leader_its_lease_are_held_back() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        lead.stalls = {"tenant/stalls": 100.0}
        cluster.put(pod("stalls", namespace="tenant", priority=10))
        async with candidate(cluster, lead) as (scheduler, _):
            lead.won.set()
            await asyncio.sleep(1)
            cluster.put(rejected := pod("another", namespace="tenant", cpu="64"))
            cluster.put(pod("ordinary"))
            for _ in range(96):
                scheduler.queue.activate([rejected.metadata.uid])
                cluster.put(node("changing", labels={"time": str(asyncio.get_running_loop().time())}))
                await asyncio.sleep(1)
            assert [key for key, _ in cluster.bindings] == ["default/ordinary"]
            assert [event.note for event in cluster.events if event.regarding.name == "stalls"] == [
                "an attempt did not end and cost the leader its Lease: the next one is in 100 s"
            ]
            await asyncio.sleep(5)
            assert [key for key, _ in cluster.bindings] == ["default/ordinary", "tenant/stalls"]
            assert scheduler.queue.pods[rejected.metadata.uid].attempts == 1

    run_scenario(scenario)


def test_a_scheduler_says_in_another_thread_which_pod_is_attempted() -> None:
    attempted: list[str] = []

    class Watched(PreFilterPlugin):
        name = "Watched"
        events_to_register = ()

        def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
            attempted.append(schedulers[0].attempted)

    schedulers: list[Scheduler] = []

    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        async with candidate(cluster, lead, **enabled(Watched)) as (scheduler, _):
            schedulers.append(scheduler)
            lead.won.set()
            cluster.put(pod("a"))
            await asyncio.sleep(1)
            assert attempted == ["default/a"]
            assert scheduler.attempted == ""

    run_scenario(scenario)


def test_a_pod_that_is_on_its_way_is_not_bound_once_the_lease_has_expired() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        cluster.put(pod("a"))
        async with candidate(cluster, lead, **enabled(Hold)) as (scheduler, _):
            lead.won.set()
            await asyncio.sleep(1)
            lead.expired = True
            [waiting] = scheduler.waiting_pods.all()
            waiting.allow(Hold.name)
            await asyncio.sleep(10)
            assert cluster.bindings == []

    run_scenario(scenario)


class Hold(PermitPlugin):
    """Has every pod wait."""

    name = "Hold"
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission.wait(600)


def test_a_scheduler_that_has_lost_the_lease_reports_nothing_about_pods_that_wait() -> None:
    """Its successor may have bound them already."""

    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        cluster.put(pod("a"))
        async with candidate(cluster, lead, **enabled(Hold)) as (scheduler, running):
            lead.won.set()
            await asyncio.sleep(1)
            assert [waiting.info.name for waiting in scheduler.waiting_pods.all()] == ["a"]
            lead.lost.set()
            with pytest.raises(LeadershipLost):
                await running
            assert (cluster.events, cluster.condition("a")) == ([], None)

    run_scenario(scenario)


def test_shutdown_finishes_bindings_in_flight_before_it_releases_the_lease() -> None:
    class SlowBindingCluster(MemoryCluster):
        async def bind(self, pod: ObjectReference, node_name: str) -> None:
            await asyncio.sleep(5)
            assert not elections[0].released
            await super().bind(pod, node_name)

    elections: list[ScriptedElection] = []

    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        elections.append(lead)
        cluster.put(pod("a"))
        async with candidate(cluster, lead) as (_, running):
            lead.won.set()
            await asyncio.sleep(1)
            running.cancel()
            await asyncio.wait([running])
            assert cluster.bindings == [("default/a", "n")]
            assert lead.released

    run_scenario(scenario, SlowBindingCluster())


def test_shutdown_does_not_wait_for_an_unresponsive_server(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        cluster.put(pod("a"))
        cluster.put(pod("too-big", cpu="64"))
        async with candidate(cluster, lead) as (_, running):
            lead.won.set()
            await asyncio.sleep(40)  # the binding is in doubt now
            began = asyncio.get_running_loop().time()
            running.cancel()
            await asyncio.wait([running])
            assert asyncio.get_running_loop().time() - began < 12

    with caplog.at_level(logging.WARNING):
        run_scenario(scenario, UnresponsiveCluster())
    assert "shutting down with 2 tasks in progress" in caplog.text


def test_no_incomplete_gang_is_reported_during_shutdown() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        api = TEAMS
        cluster.put(group("train", 2, api=api))
        async with candidate(cluster, lead, profiles=gang_scheduling()["profiles"]) as (_, running):
            lead.won.set()
            cluster.put(pod("a"))
            await asyncio.sleep(1)
            running.cancel()
            await asyncio.sleep(0.1)
            cluster.put(member("train-0", "train", api=api))
            await asyncio.wait([running])
            assert [event for event in cluster.events if event.regarding.name == "train-0"] == []

    run_scenario(scenario, UnresponsiveCluster())
