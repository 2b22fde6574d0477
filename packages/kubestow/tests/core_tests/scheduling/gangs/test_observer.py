"""What the observer sees of a gang: one attempt per pod, and no simulated placements."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core_tests.scheduling.fixture import TerminatingCluster
from core_tests.scheduling.gangs.groups import GATES, gang_scheduling, group, member, members, together
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.observer import Disruption, Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import node, pods
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

GANG_SCHEDULING = gang_scheduling()


class RecordingObserver(Observer):
    """Records attempts and preemptions."""

    def __init__(self) -> None:
        self.attempted_pods: list[tuple[str, str | None]] = []
        self.ended_pods: list[tuple[str, Result]] = []
        self.preemptions: list[tuple[str, int]] = []
        self.preemptors: list[list[str]] = []

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self.attempted_pods.append((decision.pod.metadata.name, decision.node_name))

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        self.ended_pods.append((queued.info.metadata.name, result))

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        self.preemptions.append((node_name, len(victims)))
        self.preemptors.append(sorted(preemptor.name for preemptor in preemptors))


def test_an_unschedulable_gang_counts_one_attempt_per_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in members(3, "train", cpu="2"):
            harness.cluster.put(each)
        await harness.settle()
        assert sorted(observer.ended_pods) == [(f"train-{number}", Result.UNSCHEDULABLE) for number in range(3)]

    observer = RecordingObserver()
    in_virtual_time(scenario, node("n", cpu="4"), group("train", 3), observer=observer, **GANG_SCHEDULING)


def test_a_scheduled_gang_counts_one_attempt_per_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in members(2, "train", cpu="2"):
            harness.cluster.put(each)
        await harness.settle()
        assert sorted(observer.attempted_pods) == [("train-0", "n"), ("train-1", "n")]
        assert sorted(observer.ended_pods) == [("train-0", Result.SCHEDULED), ("train-1", Result.SCHEDULED)]

    observer = RecordingObserver()
    in_virtual_time(scenario, node("n", cpu="4"), group("train", 2), observer=observer, **GANG_SCHEDULING)


def test_simulated_removals_are_not_observed_as_attempts() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in members(2, "train", cpu="2", priority=100):
            harness.cluster.put(each)
        await harness.advance(5)
        assert [node_name for _, node_name in observer.attempted_pods] == [None, "n", "n"]

    observer = RecordingObserver()
    low = pods(3, prefix="low", cpu="1", priority=1, node="n")
    in_virtual_time(scenario, node("n", cpu="4"), *low, group("train", 2), observer=observer, **GANG_SCHEDULING)


def test_a_gang_preemption_is_observed_once_with_all_its_victims() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in members(4, "train", cpu="1", priority=100):
            harness.cluster.put(each)
        await harness.advance(5)
        assert observer.preemptions == [("cluster", 4)]

    observer = RecordingObserver()
    low = pods(4, prefix="low", cpu="1", priority=1, node="n")
    in_virtual_time(scenario, node("n", cpu="4"), *low, group("train", 4), observer=observer, **GANG_SCHEDULING)


@pytest.mark.parametrize(
    ("gates", "preemptors"),
    [({}, ["train-0", "train-1"]), ({"WorkloadAwarePreemption": True}, ["train-0", "train-1", "train-large"])],
    ids=["one by one", "as a whole"],
)
def test_a_gang_preempts_for_the_pods_that_fit_then_or_as_a_whole_for_all(
    gates: dict[str, bool], preemptors: list[str]
) -> None:
    gang = [*members(2, "train", cpu="2", priority=100), member("train-large", "train", cpu="64", priority=100)]

    async def scenario(harness: SchedulerHarness) -> None:
        for each in gang:
            harness.cluster.put(each)
        await harness.settle()
        assert observer.preemptors == [preemptors]

    observer = RecordingObserver()
    objects = (node("n", cpu="4"), *pods(4, prefix="low", cpu="1", priority=1, node="n"))
    options = GANG_SCHEDULING | {"gates": GATES | gates, "observer": observer, "cluster": TerminatingCluster()}
    in_virtual_time(scenario, *objects, group("train", 2, priority=100), **options)


def test_the_pods_of_a_gang_with_one_placement_are_decided_about_once() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name, cpu in (("small", "1"), ("large", "2")):
            harness.cluster.put(member(name, "train", cpu=cpu))
        await harness.settle()
        assert sorted(observer.attempted_pods) == [("large", "n"), ("small", "n")]

    observer = RecordingObserver()
    gates = GATES | {"TopologyAwareWorkloadScheduling": True}
    rack = node("n", cpu="4", labels={"rack": "x"})
    in_virtual_time(scenario, rack, together("train", 2, "rack"), observer=observer, gates=gates)
