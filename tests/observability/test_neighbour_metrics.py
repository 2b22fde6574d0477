"""The metrics of what pods do not do alone: gangs, devices that have to be made ready, extenders that are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from kubestow.api.core import Pod
from kubestow.scheduling.ports import ObjectReference
from kubestow.testing import MemoryCluster, node, pod
from tests.observability.watched import Watched, watching
from tests.plugins.dynamic_resources.devices import DRIVER, claim, device, device_class, pod_with, slice_of
from tests.scheduling.extenders.scripted_extender import ScriptedExtender
from tests.scheduling.gangs.groups import gang_scheduling, group, member, members

BOTH = gang_scheduling()

# -- gangs -----------------------------------------------------------------------------------------------------------


class NobodyLeaves(MemoryCluster):
    """Who is deleted stays."""

    async def delete_pod(self, pod: ObjectReference) -> None:
        """Nothing happens."""


def gang(cpu: str, *, priority: int = 100) -> Sequence[Pod]:
    return members(2, "train", cpu=cpu, priority=priority)


OUTCOMES = {
    "scheduled": gang("1"),
    "unschedulable": gang("3"),
    "waiting_on_preemption": gang("2"),
    "error": [member("train-0", "train"), member("train-1", "train", scheduler="other")],
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_attempts_to_schedule_a_pod_group_are_counted_by_outcome(outcome: str) -> None:
    async def story(watched: Watched) -> None:
        for each in OUTCOMES[outcome]:
            watched.world.cluster.put(each)
        await watched.world.settles()
        labels = {"result": outcome, "profile": "default-scheduler"}
        assert watched.value("scheduler_podgroup_schedule_attempts_total") == 1
        assert watched.value("scheduler_podgroup_schedule_attempts_total", **labels) == 1
        assert watched.value("scheduler_podgroup_scheduling_attempt_duration_seconds_count", **labels) == 1
        tried = 0 if outcome == "error" else 1
        assert watched.value("scheduler_podgroup_scheduling_algorithm_duration_seconds_count") == tried

    low = [pod("low", cpu="1", node="n", priority=1)]
    watching(story, node("n", cpu="4"), *low, group("train", 2), cluster=NobodyLeaves(), **BOTH)


@pytest.mark.parametrize(
    ("cpu", "outcome"), [("500m", "scheduled"), ("9", "unschedulable"), ("1", "waiting_on_preemption")]
)
@pytest.mark.parametrize("as_a_whole", [False, True], ids=["one by one", "as a whole"])
def test_who_a_gang_can_do_without_is_an_attempt_of_its_own(cpu: str, outcome: str, as_a_whole: bool) -> None:
    async def story(watched: Watched) -> None:
        for each in gang("1"):
            watched.world.cluster.put(each)
        await watched.world.settles()
        labels = {"result": outcome, "profile": "default-scheduler"}
        before = watched.value("scheduler_podgroup_schedule_attempts_total", **labels)
        watched.world.cluster.put(member("late", "train", cpu=cpu, priority=100))
        await watched.world.settles()
        assert watched.value("scheduler_podgroup_schedule_attempts_total", **labels) == before + 1
        assert watched.value("scheduler_podgroup_schedule_attempts_total") == 2

    low = [pod("low", cpu="1500m", node="n", priority=1)]
    chosen = gang_scheduling()
    if as_a_whole:
        chosen["gates"] = chosen["gates"] | {"WorkloadAwarePreemption": True}
    watching(story, node("n", cpu="4"), *low, group("train", 2, priority=100), cluster=NobodyLeaves(), **chosen)


def test_the_pods_of_a_gang_that_is_taken_back_count_as_one_attempt_each() -> None:
    async def story(watched: Watched) -> None:
        for each in gang("3"):
            watched.world.cluster.put(each)
        await watched.world.settles()
        assert watched.value("scheduler_schedule_attempts_total", result="unschedulable") == 2
        assert watched.value("scheduler_schedule_attempts_total") == 2
        assert watched.value("scheduler_scheduling_attempt_duration_seconds_count") == 2
        assert watched.value("scheduler_pod_scheduling_attempts_count") == 0

    watching(story, node("n", cpu="4"), group("train", 2), **BOTH)


def test_the_victims_of_a_gang_are_those_of_one_preemption() -> None:
    async def story(watched: Watched) -> None:
        for each in gang("2"):
            watched.world.cluster.put(each)
        await watched.world.passes(5)
        assert watched.value("scheduler_preemption_victims_count") == 1
        assert watched.value("scheduler_preemption_victims_sum") == 4

    low = [pod(f"low-{number}", cpu="1", node="n", priority=1) for number in range(4)]
    watching(story, node("n", cpu="4"), *low, group("train", 2), **BOTH)


def test_what_is_clear_without_trying_is_no_deciding_about_a_group() -> None:
    async def story(watched: Watched) -> None:
        await watched.world.settles()
        assert watched.value("scheduler_podgroup_scheduling_algorithm_duration_seconds_count") == 0

    watching(story, node("n"), group("train", 2), member("train-0", "train"), **BOTH)


# -- devices ---------------------------------------------------------------------------------------------------------

SLOW = slice_of(device("d0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"]), node="n")


def test_waiting_for_devices_is_measured_by_driver_and_outcome() -> None:
    labels = {"profile": "default-scheduler", "driver": DRIVER, "status": "success"}

    async def story(watched: Watched) -> None:
        cluster = watched.world.cluster
        cluster.put(pod_with("c"))
        await watched.world.passes(20)
        told = {"driver": DRIVER, "pool": "n", "device": "d0", "conditions": [{"type": "Attached", "status": "True"}]}
        ready = msgspec.structs.replace(
            cluster.claim("c").status, devices=claim("c", status={"devices": [told]}).status.devices
        )
        cluster.put(msgspec.structs.replace(cluster.claim("c"), status=ready))
        await watched.world.settles()
        assert watched.world.node_of("p") == "n"
        assert watched.value("scheduler_dra_bindingconditions_allocations_total", **labels) == 1
        assert 19 < watched.value("scheduler_dra_bindingconditions_wait_duration_seconds_sum", **labels) < 21

    watching(story, node("n"), device_class(), SLOW, claim())


def test_devices_that_are_never_ready_are_counted_as_a_timeout() -> None:
    async def story(watched: Watched) -> None:
        watched.world.cluster.put(pod_with("c"))
        await watched.world.passes(601)
        assert watched.value("scheduler_dra_bindingconditions_allocations_total", status="timeout") == 1

    watching(story, node("n"), device_class(), SLOW, claim())


# -- extenders -------------------------------------------------------------------------------------------------------


def test_extenders_that_are_being_asked_for_scores_are_shown() -> None:
    thinking, done = asyncio.Event(), asyncio.Event()

    async def meanwhile(verb: str) -> None:
        thinking.set()
        await done.wait()

    async def story(watched: Watched) -> None:
        watched.world.cluster.put(pod("p"))
        await thinking.wait()
        assert watched.value("scheduler_goroutines", operation="prioritizing_extender") == 1
        done.set()
        await watched.world.settles()
        assert watched.world.node_of("p")
        assert watched.value("scheduler_goroutines", operation="prioritizing_extender") == 0

    watching(story, node("a"), node("b"), extenders=[ScriptedExtender("prioritize", meanwhile=meanwhile)])
