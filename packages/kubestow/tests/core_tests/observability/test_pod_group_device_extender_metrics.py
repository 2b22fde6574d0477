"""The metrics of pod groups, binding conditions of devices, and extenders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from core_tests.observability.harness import Observed, observe
from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from core_tests.scheduling.gangs.groups import gang_scheduling, group, member, members
from kubestow.api.core import Pod
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.devices import DRIVER, claim, device, device_class, pod_with, slice_of

GANGS = gang_scheduling()

# -- gangs -----------------------------------------------------------------------------------------------------------


class WithoutDeletion(MemoryCluster):
    """Deletions have no effect, so preemption never completes."""

    async def delete_pod(self, pod: ObjectReference) -> None:
        """Does nothing."""


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
    async def scenario(observed: Observed) -> None:
        for each in OUTCOMES[outcome]:
            observed.harness.cluster.put(each)
        await observed.harness.settle()
        labels = {"result": outcome, "profile": "default-scheduler"}
        assert observed.value("scheduler_podgroup_schedule_attempts_total") == 1
        assert observed.value("scheduler_podgroup_schedule_attempts_total", **labels) == 1
        assert observed.value("scheduler_podgroup_scheduling_attempt_duration_seconds_count", **labels) == 1
        expected = 0 if outcome == "error" else 1
        assert observed.value("scheduler_podgroup_scheduling_algorithm_duration_seconds_count") == expected

    low = [pod("low", cpu="1", node="n", priority=1)]
    observe(scenario, node("n", cpu="4"), *low, group("train", 2), cluster=WithoutDeletion(), **GANGS)


@pytest.mark.parametrize(
    ("cpu", "outcome"), [("500m", "scheduled"), ("9", "unschedulable"), ("1", "waiting_on_preemption")]
)
@pytest.mark.parametrize("whole_group", [False, True], ids=["single pods", "whole group"])
def test_a_pod_beyond_the_min_count_is_an_attempt_of_its_own(cpu: str, outcome: str, whole_group: bool) -> None:
    async def scenario(observed: Observed) -> None:
        for each in gang("1"):
            observed.harness.cluster.put(each)
        await observed.harness.settle()
        labels = {"result": outcome, "profile": "default-scheduler"}
        before = observed.value("scheduler_podgroup_schedule_attempts_total", **labels)
        observed.harness.cluster.put(member("late", "train", cpu=cpu, priority=100))
        await observed.harness.settle()
        assert observed.value("scheduler_podgroup_schedule_attempts_total", **labels) == before + 1
        assert observed.value("scheduler_podgroup_schedule_attempts_total") == 2

    low = [pod("low", cpu="1500m", node="n", priority=1)]
    options = gang_scheduling()
    if whole_group:
        options["gates"] = options["gates"] | {"WorkloadAwarePreemption": True}
    observe(scenario, node("n", cpu="4"), *low, group("train", 2, priority=100), cluster=WithoutDeletion(), **options)


def test_the_pods_of_an_unschedulable_gang_count_as_one_attempt_each() -> None:
    async def scenario(observed: Observed) -> None:
        for each in gang("3"):
            observed.harness.cluster.put(each)
        await observed.harness.settle()
        assert observed.value("scheduler_schedule_attempts_total", result="unschedulable") == 2
        assert observed.value("scheduler_schedule_attempts_total") == 2
        assert observed.value("scheduler_scheduling_attempt_duration_seconds_count") == 2
        assert observed.value("scheduler_pod_scheduling_attempts_count") == 0

    observe(scenario, node("n", cpu="4"), group("train", 2), **GANGS)


def test_all_victims_of_a_gang_belong_to_one_preemption() -> None:
    async def scenario(observed: Observed) -> None:
        for each in gang("2"):
            observed.harness.cluster.put(each)
        await observed.harness.advance(5)
        assert observed.value("scheduler_preemption_victims_count") == 1
        assert observed.value("scheduler_preemption_victims_sum") == 4

    low = [pod(f"low-{number}", cpu="1", node="n", priority=1) for number in range(4)]
    observe(scenario, node("n", cpu="4"), *low, group("train", 2), **GANGS)


def test_an_incomplete_gang_is_not_counted_in_the_algorithm_duration() -> None:
    async def scenario(observed: Observed) -> None:
        await observed.harness.settle()
        assert observed.value("scheduler_podgroup_scheduling_algorithm_duration_seconds_count") == 0

    observe(scenario, node("n"), group("train", 2), member("train-0", "train"), **GANGS)


# -- devices ---------------------------------------------------------------------------------------------------------

SLOW = slice_of(device("d0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"]), node="n")


def test_the_wait_for_binding_conditions_is_recorded_by_driver_and_result() -> None:
    labels = {"profile": "default-scheduler", "driver": DRIVER, "status": "success"}

    async def scenario(observed: Observed) -> None:
        cluster = observed.harness.cluster
        cluster.put(pod_with("c"))
        await observed.harness.advance(20)
        status = {"driver": DRIVER, "pool": "n", "device": "d0", "conditions": [{"type": "Attached", "status": "True"}]}
        ready = msgspec.structs.replace(
            cluster.claim("c").status, devices=claim("c", status={"devices": [status]}).status.devices
        )
        cluster.put(msgspec.structs.replace(cluster.claim("c"), status=ready))
        await observed.harness.settle()
        assert observed.harness.node_of("p") == "n"
        assert observed.value("scheduler_dra_bindingconditions_allocations_total", **labels) == 1
        assert 19 < observed.value("scheduler_dra_bindingconditions_wait_duration_seconds_sum", **labels) < 21

    observe(scenario, node("n"), device_class(), SLOW, claim())


def test_binding_conditions_that_never_become_true_are_counted_as_a_timeout() -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod_with("c"))
        await observed.harness.advance(601)
        assert observed.value("scheduler_dra_bindingconditions_allocations_total", status="timeout") == 1

    observe(scenario, node("n"), device_class(), SLOW, claim())


# -- extenders -------------------------------------------------------------------------------------------------------


def test_running_prioritize_calls_of_extenders_are_exposed() -> None:
    called, done = asyncio.Event(), asyncio.Event()

    async def during_call(verb: str) -> None:
        called.set()
        await done.wait()

    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("p"))
        await called.wait()
        assert observed.value("scheduler_goroutines", operation="prioritizing_extender") == 1
        done.set()
        await observed.harness.settle()
        assert observed.harness.node_of("p")
        assert observed.value("scheduler_goroutines", operation="prioritizing_extender") == 0

    observe(scenario, node("a"), node("b"), extenders=[ScriptedExtender("prioritize", during_call=during_call)])
