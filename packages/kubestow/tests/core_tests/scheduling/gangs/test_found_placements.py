"""Gangs that a plugin finds nodes for, where they do not fit one pod after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import GATES, gang_scheduling, group, member, together
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, pending_message
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.gang import Gang, GangPlacementPlugin
from kubestow.framework.status import Code, Status
from kubestow.rules.minors import Minor
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

#: Pod after pod takes the emptier node, and in both orders that are tried one pod is left over.
NODES = [node("n4", cpu="4"), node("n6", cpu="6")]
PODS = [member(name, "train", cpu=cpu) for name, cpu in {"a": "2", "b": "2", "c": "3", "d": "3"}.items()]
FITTING = {"a": "n4", "b": "n4", "c": "n6", "d": "n6"}
MINORS = [Minor(36), Minor(37)]


class Answers(GangPlacementPlugin):
    """Gives one answer after the other, the last one again and again."""

    name = "Answers"
    answers: Sequence[dict[str, str] | Status] = ()

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.calls = 0

    def place_gang(self, gang: Gang, pods: Sequence[PodInfo]) -> Sequence[tuple[PodInfo, str]] | Status:
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if isinstance(answer, Status):
            return answer
        return [(pod, answer[pod.pod.metadata.name]) for pod in pods]


def answering(*answers: dict[str, str] | Status, minor: Minor = MINORS[0]) -> dict[str, Any]:
    """Arguments of the scheduler harness with a plugin that gives these answers."""
    kind = type("Answers", (Answers,), {"answers": answers})
    enabled = gang_scheduling("Answers") | {"plugins": [kind], "minor": minor}
    enabled["gates"] = {"GenericWorkload": True} if minor == MINORS[1] else GATES
    return enabled | {"pod_group_apis": []}


@pytest.mark.parametrize("minor", MINORS, ids=str)
def test_a_gang_gets_the_nodes_that_were_found(minor: Minor) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, PODS)
        await harness.settle()
        assert {each.metadata.name: harness.node_of(each.metadata.name) for each in PODS} == FITTING

    in_virtual_time(scenario, *NODES, group("train", 4), **answering(FITTING, minor=minor))


def test_without_the_plugin_the_gang_waits() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, PODS)
        await harness.settle()
        assert bound_count(harness, PODS) == 0

    in_virtual_time(scenario, *NODES, group("train", 4), **gang_scheduling())


@pytest.mark.parametrize("minor", MINORS, ids=str)
def test_nodes_on_which_the_pods_do_not_fit_are_refused_as_a_whole(minor: Minor) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, PODS)
        await harness.settle()
        assert bound_count(harness, PODS) == 0
        assert "the placements that were found do not fit any more" in pending_message(harness, "a")
        harness.cluster.put(pod("other", cpu="6"))
        await harness.settle()
        assert harness.node_of("other") == "n6"

    crowded = dict.fromkeys(FITTING, "n6")
    in_virtual_time(scenario, *NODES, group("train", 4), **answering(crowded, minor=minor))


def test_a_second_answer_is_asked_for_when_the_first_is_refused() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, PODS)
        await harness.settle()
        assert bound_count(harness, PODS) == 4

    in_virtual_time(scenario, *NODES, group("train", 4), **answering(dict.fromkeys(FITTING, "n6"), FITTING))


def test_nodes_outside_of_the_placements_of_the_gang_are_refused() -> None:
    nodes = [node("n4", cpu="4", labels={"rack": "x"}), node("n6", cpu="6", labels={"rack": "y"})]
    configured = answering(FITTING)
    configured["gates"] = GATES | {"TopologyAwareWorkloadScheduling": True}

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, PODS)
        await harness.settle()
        assert bound_count(harness, PODS) == 0

    in_virtual_time(scenario, *nodes, together("train", 4, "rack"), **configured)


@pytest.mark.parametrize("minor", MINORS, ids=str)
def test_the_message_of_a_rejection_is_that_of_all_pods(minor: Minor) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, PODS)
        await harness.settle()
        assert all("no placement exists" in pending_message(harness, each.metadata.name) for each in PODS)

    rejection = Status.unschedulable("no placement exists: 1 short")
    in_virtual_time(scenario, *NODES, group("train", 4), **answering(rejection, minor=minor))


@pytest.mark.parametrize(("answer", "evicted"), [(Status.unschedulable("none"), True), (Status(Code.PENDING), False)])
def test_a_gang_preempts_once_it_is_known_that_no_nodes_are_found(answer: Status, evicted: bool) -> None:
    blockers = [pod("blocker", cpu="2", priority=-1, node="n4")]
    pods = [member(f"p{number}", "train", cpu="3") for number in range(3)]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, pods)
        await harness.advance(2)
        assert (not any(each.metadata.name == "blocker" for each in harness.cluster.pods())) == evicted

    in_virtual_time(scenario, *NODES, *blockers, group("train", 3), **answering(answer))


@pytest.mark.parametrize("answer", [7, [("pod", "node")], [None]])
def test_an_answer_of_the_wrong_type_is_an_error_that_names_the_plugin(answer: Any) -> None:
    configured = answering(FITTING)
    configured["plugins"][0].place_gang = lambda self, gang, pods: answer

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, PODS)
        await harness.settle()
        assert "'Answers'" in pending_message(harness, "a")

    in_virtual_time(scenario, *NODES, group("train", 4), **configured)
