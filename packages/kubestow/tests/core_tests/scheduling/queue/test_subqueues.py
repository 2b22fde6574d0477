"""Active queues in subqueues: a QueueSort plugin names the next one at every pop."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from itertools import count
from typing import Any

import pytest

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Queued, QueueSortPlugin, SubqueueOrder
from kubestow.scheduling.queue.places import Subqueues
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import SchedulerHarness, in_virtual_time, node, pod

PROFILES = [
    {"plugins": {"queueSort": {"enabled": [{"name": "ByTeam"}], "disabled": [{"name": "*"}]}}},
]


class FewestFirst(SubqueueOrder):
    """The team of which the fewest pods have been popped, and then the first by name."""

    def __init__(self) -> None:
        self.popped: dict[Hashable, int] = {}
        self.open: list[Hashable] = []

    def subqueue_of(self, pod: PodInfo) -> Hashable:
        return pod.labels.get("team", "")

    def opened(self, subqueue: Hashable) -> None:
        self.open.append(subqueue)

    def first(self, subqueues: Collection[Hashable]) -> Hashable:
        found = min(subqueues, key=lambda name: (self.popped.get(name, 0), str(name)))
        self.popped[found] = self.popped.get(found, 0) + 1
        return found


class ByTeam(QueueSortPlugin):
    name = "ByTeam"

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.subqueues = FewestFirst()

    def sort_key(self, queued: Queued) -> int:
        return -queued.info.priority


def run(plugin: type[QueueSortPlugin], *pods: Any) -> list[str]:
    """The order in which pods are bound."""
    order: list[str] = []

    async def scenario(harness: SchedulerHarness) -> None:
        for each in pods:
            harness.cluster.put(each)
        await harness.settle()
        order.extend(name.removeprefix("default/") for name, _ in harness.cluster.bindings)

    in_virtual_time(scenario, node("n", cpu="64"), plugins=[plugin], profiles=PROFILES)
    return order


def team(name: str, owner: str, priority: int = 0) -> Any:
    return pod(name, labels={"team": owner}, priority=priority, cpu="1")


PODS = [team("a-1", "a"), team("a-2", "a"), team("a-3", "a", 5), team("b-1", "b"), team("b-2", "b")]


def test_the_plugin_names_the_next_subqueue_at_every_pop() -> None:
    assert run(ByTeam, *PODS) == ["a-3", "b-1", "a-1", "b-2", "a-2"]


@pytest.mark.parametrize("failure", ["first", "subqueue_of", "opened", "unknown", "unhashable"])
def test_a_plugin_that_fails_loses_no_pod(failure: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("broken")

    class Broken(ByTeam):
        def __init__(self, args: Any, handle: Any) -> None:
            super().__init__(args, handle)
            broken: Any = self.subqueues
            match failure:
                case "unknown":
                    broken.first = lambda subqueues: "unknown"
                case "unhashable":
                    broken.subqueue_of = lambda pod: []
                case _:
                    setattr(broken, failure, fail)

    assert sorted(run(Broken, *PODS)) == [each.metadata.name for each in PODS]
    assert failure == "unknown" or "failed at the order of subqueues" in caplog.text


def test_pods_that_leave_the_queue_close_their_subqueue() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name in ("x", "y"):
            harness.cluster.put(team(name, name))
            harness.cluster.remove(harness.cluster.pod(name))
        await harness.settle()
        assert not harness.scheduler.queue.has_work
        harness.cluster.put(team("x", "x"))
        await harness.settle()
        assert harness.node_of("x") == "n"

    in_virtual_time(scenario, node("n"), plugins=[ByTeam], profiles=PROFILES)


def test_subqueues_without_pods_are_dropped() -> None:
    """A standby scheduler pops nothing, and pods of ever new subqueues come and go."""

    async def scenario(harness: SchedulerHarness) -> None:
        queueing = harness.scheduler.profiles["default-scheduler"].queueing
        subqueues, tickets = Subqueues(queueing), count(1)
        kept = [QueuedPod(harness.scheduler.cluster.shapes.info(team(name, name)), 0.0) for name in ("x", "y")]
        for queued in kept:
            subqueues.push(0, next(tickets), queued)
        for number in range(1000):
            gone = QueuedPod(harness.scheduler.cluster.shapes.info(team("gone", f"team-{number}")), 0.0)
            subqueues.push(0, next(tickets), gone)
            gone.ticket = 0
        assert len(subqueues) < 100
        assert {subqueues.pop(), subqueues.pop()} == set(kept)
        assert subqueues.pop() is None

    in_virtual_time(scenario, plugins=[ByTeam], profiles=PROFILES)
