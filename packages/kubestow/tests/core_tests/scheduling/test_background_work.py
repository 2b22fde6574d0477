"""Work in the background: what plugins repeat, with changes of their own data that they report, and single tasks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import partial

import numpy as np
import pytest

from kubestow.cluster.changes.events import Action, ClusterEvent
from kubestow.errors import Unreachable
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.process import WallClock
from kubestow.scheduling.background_work import BackgroundTasks, PeriodicWork
from kubestow.testing import in_virtual_time, node, pod

OPENING = "Opening"
PROFILES = [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": [{"name": "Door"}]}}}]


class Door(FilterPlugin):
    """Rejects every node until its periodic work has run a third time."""

    name = "Door"
    events_to_register = (on(OPENING, Action.UPDATE, invalidates=Invalidation.ALL),)
    failure: BaseException | None = None

    def __init__(self, args, handle):  # type: ignore[no-untyped-def]
        super().__init__(args, handle)
        self.runs = 0
        handle.run_periodically(30, self.work)

    def signature(self, pod):  # type: ignore[no-untyped-def]
        return ()

    def filter(self, state, pod, nodes):  # type: ignore[no-untyped-def]
        return Verdict.rejecting(np.full(len(nodes), self.runs < 3), Status.unschedulable("closed"))

    async def work(self) -> None:
        self.runs += 1
        if self.runs == 3:
            self.handle.report_change(ClusterEvent(OPENING, Action.UPDATE))
        elif self.failure is not None:
            raise self.failure


def test_a_reported_change_requeues_pods_and_invalidates_results() -> None:
    async def scenario(harness):  # type: ignore[no-untyped-def]
        harness.cluster.put(pod("p"))
        await harness.advance(55)
        assert harness.node_of("p") == ""
        await harness.advance(10)
        assert harness.node_of("p") == "n"

    in_virtual_time(scenario, node("n"), plugins=[Door], profiles=PROFILES)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (RuntimeError("broken"), "periodic work of a plugin failed"),
        (SystemExit(1), "periodic work of a plugin failed"),
        (Unreachable("http://metrics", "no answer"), "http://metrics: no answer"),
    ],
)
def test_work_that_fails_is_repeated(failure: BaseException, message: str, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Door):
        pass

    Failing.failure = failure

    async def scenario(harness):  # type: ignore[no-untyped-def]
        harness.cluster.put(pod("p"))
        await harness.advance(65)
        assert harness.node_of("p") == "n"

    with caplog.at_level(logging.WARNING):
        in_virtual_time(scenario, node("n"), plugins=[Failing], profiles=PROFILES)
    assert [record.message for record in caplog.records].count(message) == 2


def test_work_ends_with_the_scheduler() -> None:
    harnesses = []

    async def scenario(harness):  # type: ignore[no-untyped-def]
        harnesses.append(harness)
        await harness.settle()

    in_virtual_time(scenario, node("n"), plugins=[Door], profiles=PROFILES)
    (profile,) = harnesses[0].scheduler.profiles.values()
    (door,) = (plugin for plugin in profile.plugins if isinstance(plugin, Door))
    assert door.runs == 1


async def test_work_that_is_cancelled_before_it_begins_is_closed() -> None:
    """Python would warn on standard error that it was never awaited."""
    tasks = BackgroundTasks()
    work = _nothing()
    tasks.spawn(work)

    for task in tasks:
        task.cancel()
    await asyncio.wait(list(tasks))

    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def _nothing() -> None:
    """Work that ends at once."""


def test_the_longest_pause_is_that_of_the_work_that_is_repeated_least_often() -> None:
    periodic = PeriodicWork(WallClock())
    assert periodic.longest_pause == 0.0
    for seconds in (30, 90, 60):
        periodic.add(seconds, partial(asyncio.sleep, 0))
    assert periodic.longest_pause == 90
