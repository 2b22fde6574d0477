"""A simulation in turns has the result of the scheduler on an event loop, or says why it cannot be done in turns."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import ClassVar

import pytest
from benchmarks.random_workloads import KIND, RandomWorkload, assert_same

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin, Permission, PermitPlugin, Plugin, PostBindPlugin, PreBindPlugin
from kubestow.framework.status import Verdict

#: Workloads in which a pod ends within the attempt of another, that end amid attempts, and with calls at equal times.
CLOSE_CALLS = (20015, 30008, 50071)


@pytest.mark.parametrize("seed", (*range(9), *CLOSE_CALLS))
def test_random_workloads_have_the_same_result(seed: int) -> None:
    workload = RandomWorkload(seed)
    found = workload.run("auto")
    assert found.run["driver"] == "engine", found.run
    assert_same(found, workload.run("scheduler"))


def test_attempts_that_take_too_long_for_turns_are_made_on_an_event_loop() -> None:
    workload = RandomWorkload(0)
    workload.options = replace(workload.options, attempt_seconds=2.0)
    assert workload.run("auto").run["driverReason"] == "an attempt takes more than 1 s"


class DelaysPods(PermitPlugin):
    """Has every pod wait for a second that never comes."""

    name = "DelaysPods"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission.wait(1.0)


class FailsForSome(FilterPlugin):
    """Fails for the pods with a label."""

    name = "FailsForSome"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        if pod.labels.get("app") == "app-1":
            raise ValueError("cannot decide")
        return None


class PreparesBinding(PreBindPlugin):
    """Has something to do before each binding."""

    name = "PreparesBinding"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await asyncio.sleep(1.0)


class TakesNotes(PostBindPlugin):
    """Has something to do after each binding."""

    name = "TakesNotes"
    notes: ClassVar[list[tuple[str, str]]] = []

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.notes.append((pod.key, node_name))


class ReportsBinding(PostBindPlugin):
    """May wait for something after each binding."""

    name = "ReportsBinding"

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await asyncio.sleep(1.0)


def with_plugin(workload: RandomWorkload, plugin: type[Plugin]) -> RandomWorkload:
    enabled = [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": [{"name": plugin.name}]}}}]
    workload.configuration = KIND | {"profiles": enabled}
    workload.plugins = [plugin]
    return workload


@pytest.mark.parametrize("seed", range(3))
def test_plugins_are_called_after_a_binding(seed: int) -> None:
    workload, notes = with_plugin(RandomWorkload(seed), TakesNotes), []
    for driver in ("auto", "scheduler"):
        TakesNotes.notes.clear()
        result = workload.run(driver)
        notes.append((list(TakesNotes.notes), result))
    (found, in_turns), (expected, on_loop) = notes
    assert in_turns.run["driver"] == "engine"
    assert found
    assert found == expected
    assert_same(in_turns, on_loop)


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (ReportsBinding, "a PostBind plugin is a coroutine"),
        (DelaysPods, "a Permit plugin delays pods"),
        (PreparesBinding, "a PreBind plugin has work to do"),
        (FailsForSome, "cannot decide"),
    ],
)
def test_a_plugin_that_turns_cannot_run_has_the_same_effect(plugin: type[Plugin], reason: str) -> None:
    workload = with_plugin(RandomWorkload(3), plugin)
    workload.options = replace(workload.options, until=5.0)
    found, expected = workload.run("auto"), workload.run("scheduler")
    assert found.run["driver"] == "scheduler"
    assert reason in found.run["driverReason"]
    assert found.plugin_failures == expected.plugin_failures
    assert_same(found, expected)
