"""Plugins in a running scheduler: slow ones, failing sort keys, delays at Permit, PreScore alone."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import (
    Permission,
    PermitPlugin,
    PreScorePlugin,
    Queued,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubestow.framework.status import Status
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time
from kubestow.testing.virtual_time import VirtualTimeLoop


def profile(name: str, point: str = "multiPoint", *, alone: bool = False) -> dict[str, Any]:
    plugin_set: dict[str, Any] = {"enabled": [{"name": name}]}
    if alone:
        plugin_set["disabled"] = [{"name": "*"}]
    return {"schedulerName": "default-scheduler", "plugins": {point: plugin_set}}


class Slow(ScorePlugin):
    """Scores slowly."""

    name = "Slow"
    seconds = 0.0

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.advance(self.seconds)
        return np.zeros(len(nodes), np.int64)


@pytest.mark.parametrize(("seconds", "warned"), [(1.5, True), (0.9, False)])
def test_a_slow_plugin_is_logged(
    seconds: float, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("a"))
        await world.settle()
        assert world.node_of("a")

    monkeypatch.setattr(Slow, "seconds", seconds)
    in_virtual_time(scenario, node("a"), node("b"), plugins=[Slow], profiles=[profile("Slow")])
    assert ("plugin Slow took 1.5 s at Score" in caplog.text) is warned


class FailsToSort(QueueSortPlugin):
    """Has no sort key for one pod."""

    name = "FailsToSort"

    def sort_key(self, queued: Queued) -> Any:
        return -queued.info.priority if queued.info.name != "unlucky" else 1 / 0


def test_pods_without_a_sort_key_are_scheduled_last(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: SchedulerHarness) -> None:
        for name, priority in (("unlucky", 9), ("low", 1), ("high", 5)):
            world.cluster.put(pod(name, priority=priority))
        await world.settle()
        assert [name for name, _ in world.cluster.bindings] == ["default/high", "default/low", "default/unlucky"]

    in_virtual_time(
        scenario, node("a"), plugins=[FailsToSort], profiles=[profile("FailsToSort", "queueSort", alone=True)]
    )
    assert "plugin FailsToSort failed at QueueSort for pod default/unlucky" in caplog.text


class AllowsInPairs(PermitPlugin):
    """Allows pods in pairs, and rejects those with a label."""

    name = "AllowsInPairs"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status | None:
        if "rejected" in pod.labels:
            return Status.unschedulable("not allowed")
        waiting = [other for other in self.handle.waiting_pods() if self.name in other.pending_plugins]
        for other in waiting:
            other.allow(self.name)
        return None if waiting else Permission.wait(60)


def test_a_permit_plugin_delays_and_allows_pods() -> None:
    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("first"))
        await world.advance(10)
        assert world.node_of("first") == ""
        world.cluster.put(pod("second"))
        await world.settle()
        assert (world.node_of("first"), world.node_of("second")) == ("a", "a")

    in_virtual_time(scenario, node("a"), plugins=[AllowsInPairs], profiles=[profile("AllowsInPairs")])


def test_a_permit_plugin_can_reject_with_a_status() -> None:
    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("a", labels={"rejected": "yes"}))
        await world.settle()
        condition = world.cluster.condition("a")
        assert condition is not None
        assert condition.message == "0/1 nodes are available: 1 not allowed."

    in_virtual_time(scenario, node("a"), plugins=[AllowsInPairs], profiles=[profile("AllowsInPairs")])


class FeasibleNames(list[str]):
    """Cycle state of the plugin."""


class Prepares(PreScorePlugin, ReservePlugin):
    """Stores the feasible nodes at PreScore, and reads them at Reserve."""

    name = "Prepares"
    seen: list[list[str]] = []

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        state.put(FeasibleNames(nodes.names))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.seen.append(list(state[FeasibleNames]))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


def test_pre_score_runs_for_a_plugin_that_does_not_score() -> None:
    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("a", cpu="1"))
        await world.settle()
        assert Prepares.seen == [["large", "larger"]]

    Prepares.seen.clear()
    objects = [node("small", cpu="500m"), node("large"), node("larger")]
    in_virtual_time(scenario, *objects, plugins=[Prepares], profiles=[profile("Prepares")])
