"""When rejected and failed pods are retried (semantics 11.1 and 11.5)."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState, PodsToActivate
from kubestow.framework.event_registration import on
from kubestow.framework.interface import Permission, PostBindPlugin, PreFilterPlugin
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture
from tests.integration.requeueing import Created, Deleted
from tests.integration.scripted_plugins import FAIL, REJECT, profile, scripted_plugin

SMALL = node("n", cpu="1")


class DriverFirst(PreFilterPlugin, PostBindPlugin):
    """Rejects executors until the driver is bound; no cluster event requeues them."""

    name = "DriverFirst"
    events_to_register = ()
    is_bound = False

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return SUCCESS if self.is_bound or pod.name == "driver" else REJECT

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[None] | None:
        if pod.name == "driver":
            self.is_bound = True
            PodsToActivate.of(state).add(*self.handle.pending_pods())
        return None


async def test_pods_to_activate_are_scheduled_after_the_pod_that_activates_them(cluster: ClusterFixture) -> None:
    executors = [pod(f"executor-{number}") for number in range(3)]
    await cluster.create(node("n"), *executors)
    names = [executor.metadata.name for executor in executors]
    async with cluster.scheduler(**profile(DriverFirst)) as probe:
        await cluster.pending_messages(*names)
        await probe.until(lambda: all(probe.place(name) is Place.UNSCHEDULABLE for name in names))
        await cluster.create(pod("driver"))
        assert await cluster.bound("driver", *names) == ["n"] * 4


@pytest.mark.parametrize("point", ["reserve", "permit"])
@pytest.mark.parametrize("event", ["registered", "unrelated"])
async def test_a_rejected_pod_is_requeued_only_by_registered_events(
    cluster: ClusterFixture, point: str, event: str
) -> None:
    results = [REJECT]
    plugin = scripted_plugin(
        requeues=[on(EventResource.NODE, Action.ADD)],
        at={point: lambda info: results.pop() if results else SUCCESS},
    )
    await cluster.create(SMALL, pod("new"))
    async with cluster.scheduler(**profile(plugin)) as probe:
        await cluster.pending_messages("new")
        await probe.until(lambda: probe.place("new") is Place.UNSCHEDULABLE)
        if event == "registered":
            await cluster.create(node("m"))
            await cluster.bound("new")
        else:
            await Created(pod("other", node="n")).apply(cluster, probe)
            assert probe.place("new") is Place.UNSCHEDULABLE


@pytest.mark.parametrize("point", ["reserve", "permit", "bind"])
async def test_a_pod_is_retried_after_an_error_without_an_event(cluster: ClusterFixture, point: str) -> None:
    results = [FAIL]
    success = Status(Code.SKIP) if point == "bind" else SUCCESS
    plugin = scripted_plugin(at={point: lambda info: results.pop() if results else success})
    await cluster.create(SMALL, pod("new"))
    async with cluster.scheduler(podInitialBackoffSeconds=1, **profile(plugin)):
        await cluster.bound("new")
    assert [at for at, _ in plugin.calls].count(point) == 2


async def test_an_event_during_the_wait_at_permit_is_not_lost(cluster: ClusterFixture) -> None:
    permissions: list[Permission | Status] = [Permission.wait(600)]
    plugin = scripted_plugin(
        requeues=[on(EventResource.NODE, Action.ADD)],
        permit=lambda info: permissions.pop() if permissions else SUCCESS,
    )
    await cluster.create(SMALL, pod("new"))
    async with cluster.scheduler(**profile(plugin)) as probe:
        await cluster.until(lambda: cluster.nomination("new") == "n")
        await Created(node("m")).apply(cluster, probe)
        probe.scheduler.waiting_pods.all()[0].reject("ScriptedPlugin", "no")
        await cluster.bound("new")


async def test_a_gated_pod_is_not_retried_when_capacity_is_freed(cluster: ClusterFixture) -> None:
    blocker = pod("blocker", cpu="1", node="n")
    gated = pod("gated", cpu="1", gates=["wait"])
    plugin = scripted_plugin()
    await cluster.create(SMALL, blocker, gated)
    async with cluster.scheduler(**profile(plugin)) as probe:
        await probe.until(lambda: probe.place("gated") is Place.GATED)
        await Deleted(blocker).apply(cluster, probe)
        assert probe.place("gated") is Place.GATED
        assert ("filter", "gated") not in plugin.calls
        await cluster.patch(gated, {"spec": {"schedulingGates": []}})
        assert await cluster.bound("gated") == ["n"]


async def test_an_ungated_pod_waits_for_the_capacity_that_another_pod_uses(cluster: ClusterFixture) -> None:
    blocker = pod("blocker", cpu="1", node="n")
    gated = pod("gated", cpu="1", gates=["wait"])
    await cluster.create(SMALL, blocker, gated)
    async with cluster.scheduler() as probe:
        await probe.until(lambda: probe.place("gated") is Place.GATED)
        await cluster.patch(gated, {"spec": {"schedulingGates": []}})
        await cluster.pending_messages("gated")
        await cluster.delete(blocker)
        assert await cluster.bound("gated") == ["n"]


async def test_a_backoff_is_skipped_when_the_active_queue_is_empty(cluster: ClusterFixture) -> None:
    await cluster.create(SMALL, pod("new", cpu="2"))
    async with cluster.scheduler(podInitialBackoffSeconds=100, podMaxBackoffSeconds=100) as probe:
        await cluster.pending_messages("new")
        await probe.until(lambda: probe.place("new") is Place.UNSCHEDULABLE)
        await cluster.create(node("m"))
        assert await cluster.bound("new") == ["m"]
