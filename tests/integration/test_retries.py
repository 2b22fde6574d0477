"""When a pod that was refused, or that failed, is tried again (semantics 11.1 and 11.5)."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import Permission, PostBindPlugin, PreFilterPlugin
from kubestow.framework.pods_to_activate import PodsToActivate
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.integration.fixture import Stage
from tests.integration.requeueing import Created, Deleted
from tests.integration.scripted_plugins import FAIL, REJECT, profile, puppet

SMALL = node("n", cpu="1")


class DriverFirst(PreFilterPlugin, PostBindPlugin):
    """Executors are refused until the driver is bound; nothing that happens in the cluster helps them."""

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


async def test_the_pods_that_a_plugin_names_follow_the_one_that_is_bound(stage: Stage) -> None:
    executors = [pod(f"executor-{number}") for number in range(3)]
    await stage.create(node("n"), *executors)
    names = [executor.metadata.name for executor in executors]
    async with stage.scheduler(**profile(DriverFirst)) as troupe:
        await stage.refused(*names)
        await troupe.until(lambda: all(troupe.place(name) is Place.UNSCHEDULABLE for name in names))
        await stage.create(pod("driver"))
        assert await stage.bound("driver", *names) == ["n"] * 4


@pytest.mark.parametrize("point", ["reserve", "permit"])
@pytest.mark.parametrize("event", ["registered", "unrelated"])
async def test_a_rejected_pod_waits_for_an_event_that_its_plugin_registered(
    stage: Stage, point: str, event: str
) -> None:
    answers = [REJECT]
    asked = puppet(
        requeues=[on(EventResource.NODE, Action.ADD)],
        at={point: lambda info: answers.pop() if answers else SUCCESS},
    )
    await stage.create(SMALL, pod("new"))
    async with stage.scheduler(**profile(asked)) as troupe:
        await stage.refused("new")
        await troupe.until(lambda: troupe.place("new") is Place.UNSCHEDULABLE)
        if event == "registered":
            await stage.create(node("m"))
            await stage.bound("new")
        else:
            await Created(pod("other", node="n")).happen(stage, troupe)
            assert troupe.place("new") is Place.UNSCHEDULABLE


@pytest.mark.parametrize("point", ["reserve", "permit", "bind"])
async def test_a_pod_that_failed_is_tried_again_by_itself(stage: Stage, point: str) -> None:
    answers = [FAIL]
    last = Status(Code.SKIP) if point == "bind" else SUCCESS
    asked = puppet(at={point: lambda info: answers.pop() if answers else last})
    await stage.create(SMALL, pod("new"))
    async with stage.scheduler(podInitialBackoffSeconds=1, **profile(asked)):
        await stage.bound("new")
    assert [at for at, _ in asked.asked].count(point) == 2


async def test_an_event_that_came_while_the_pod_was_waiting_is_not_lost(stage: Stage) -> None:
    permissions: list[Permission | Status] = [Permission.wait(600)]
    asked = puppet(
        requeues=[on(EventResource.NODE, Action.ADD)],
        permit=lambda info: permissions.pop() if permissions else SUCCESS,
    )
    await stage.create(SMALL, pod("new"))
    async with stage.scheduler(**profile(asked)) as troupe:
        await stage.until(lambda: stage.nomination("new") == "n")
        await Created(node("m")).happen(stage, troupe)
        troupe.scheduler.waiting_pods.all()[0].reject("Puppet", "no")
        await stage.bound("new")


async def test_a_gated_pod_is_not_tried_when_what_stood_in_its_way_goes(stage: Stage) -> None:
    blocker = pod("blocker", cpu="1", node="n")
    gated = pod("gated", cpu="1", gates=["wait"])
    asked = puppet()
    await stage.create(SMALL, blocker, gated)
    async with stage.scheduler(**profile(asked)) as troupe:
        await troupe.until(lambda: troupe.place("gated") is Place.GATED)
        await Deleted(blocker).happen(stage, troupe)
        assert troupe.place("gated") is Place.GATED
        assert ("filter", "gated") not in asked.asked
        await stage.change(gated, {"spec": {"schedulingGates": []}})
        assert await stage.bound("gated") == ["n"]


async def test_a_pod_whose_gates_go_while_something_stands_in_its_way_waits_for_that(stage: Stage) -> None:
    blocker = pod("blocker", cpu="1", node="n")
    gated = pod("gated", cpu="1", gates=["wait"])
    await stage.create(SMALL, blocker, gated)
    async with stage.scheduler() as troupe:
        await troupe.until(lambda: troupe.place("gated") is Place.GATED)
        await stage.change(gated, {"spec": {"schedulingGates": []}})
        await stage.refused("gated")
        await stage.delete(blocker)
        assert await stage.bound("gated") == ["n"]


async def test_a_backoff_is_cut_short_when_nothing_else_is_to_be_done(stage: Stage) -> None:
    await stage.create(SMALL, pod("new", cpu="2"))
    async with stage.scheduler(podInitialBackoffSeconds=100, podMaxBackoffSeconds=100) as troupe:
        await stage.refused("new")
        await troupe.until(lambda: troupe.place("new") is Place.UNSCHEDULABLE)
        await stage.create(node("m"))
        assert await stage.bound("new") == ["m"]
