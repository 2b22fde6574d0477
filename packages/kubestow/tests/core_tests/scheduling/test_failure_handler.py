"""What happens to a pod whose attempt fails: it is unreserved, reported and retried."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from core_tests.scheduling.fixture import enabled
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.interface import (
    FilterRunner,
    PostFilterPlugin,
    PostFilterResult,
    ReservePlugin,
)
from kubestow.framework.status import Code, Status
from kubestow.scheduling.cycle.failure_handler import SchedulingFailure
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


def test_a_failed_binding_requeues_the_pods_that_its_capacity_can_help() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.bind_failures.append(APIError(403, "Forbidden", "not you"))
        for name, priority in (("a", 2), ("b", 1)):
            harness.cluster.put(pod(name, cpu="3", priority=priority))
        await harness.settle()
        assert harness.cluster.bindings == [("default/b", "n")]

    in_virtual_time(scenario, node("n", cpu="4"))


class DeletingCluster(MemoryCluster):
    """Deletes and updates a pod during its binding, and rejects the binding."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        deleted = replace(self.pod(pod.name).metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        for metadata in (deleted, replace(deleted, labels={"app": "x"})):
            self.put(replace(self.pod(pod.name), metadata=metadata))
        raise APIError(409, "Conflict", f"pod {pod.name} is being deleted")


def test_a_pod_that_is_deleted_while_its_binding_fails_leaves_the_queue() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.advance(10)
        assert len(harness.scheduler.queue.pods) == 0

    in_virtual_time(scenario, node("n"), cluster=DeletingCluster())


class RaisingAction(PostFilterPlugin):
    """Returns an action for unschedulable pods that raises before its coroutine exists."""

    name = "RaisingAction"
    events_to_register = ()

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        def action() -> Coroutine[Any, Any, None]:
            raise ValueError("cannot start")

        return PostFilterResult(Status.unschedulable("wait"), action=action)


def test_a_post_filter_action_that_raises_does_not_stop_the_scheduler() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("too-big", cpu="64"))
        await harness.settle()
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert harness.node_of("a") == "n"

    in_virtual_time(scenario, node("n"), **enabled(RaisingAction))


def test_a_failed_binding_is_unreserved_and_retried() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.bind_failures.append(APIError(500, "InternalError", "etcd is on fire"))
        harness.cluster.put(pod("a", cpu="4"))
        await harness.settle()
        assert harness.node_of("a") == ""
        assert harness.scheduler.cluster.all_nodes().requested("cpu").tolist() == [0]
        condition = harness.cluster.condition("a")
        assert condition is not None and (condition.reason, condition.message) == (
            "SchedulerError",
            'running Bind plugin "DefaultBinder": etcd is on fire',
        )
        await harness.advance(5)
        assert harness.node_of("a") == "n"

    in_virtual_time(scenario, node("n", cpu="4"))


class RejectsFirstReserve(ReservePlugin):
    """Fails each pod's first Reserve."""

    name = "RejectsFirstReserve"
    unreserved: list[str] = []

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if pod.name in self.unreserved:
            return None
        return Status.error("not yet")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.unreserved.append(pod.name)


def test_a_failed_reserve_is_unreserved_and_retried() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert RejectsFirstReserve.unreserved == ["a"]
        await harness.advance(5)
        assert harness.node_of("a") == "n"

    RejectsFirstReserve.unreserved.clear()
    in_virtual_time(scenario, node("n"), **enabled(RejectsFirstReserve))


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (
            Status.unschedulable("no").by("Quota"),
            SchedulingFailure("Unschedulable", "0/1 nodes are available: 1 no.", frozenset({"Quota"})),
        ),
        (
            Status(Code.PENDING, ("not yet",)).by("Quota"),
            SchedulingFailure(
                "Unschedulable", "0/1 nodes are available: 1 not yet.", pending_plugins=frozenset({"Quota"})
            ),
        ),
        (Status.error("broken").by("Quota"), SchedulingFailure("SchedulerError", "broken")),
        (Status.unschedulable("no"), SchedulingFailure("Unschedulable", "no")),
    ],
    ids=["rejected", "pending", "failed", "rejected by no plugin"],
)
def test_the_plugins_whose_events_requeue_a_pod_follow_from_the_status_that_ended_its_attempt(
    status: Status, failure: SchedulingFailure
) -> None:
    assert SchedulingFailure.of_status(status) == failure


def test_a_pod_that_another_scheduler_name_has_come_to_during_its_attempt_is_queued_as_a_new_one() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue, handler = harness.scheduler.queue, harness.scheduler._failure_handler
        harness.cluster.put(pod("a", cpu="64"))
        await harness.settle()
        tried = queue.pop_pod("uid-default-a")
        assert tried is not None and tried.attempts == 2
        harness.scheduler.leadership.holds_lease = False  # type: ignore[misc]
        harness.cluster.put(pod("a", cpu="64", scheduler="second"))
        rejectors = frozenset({"NodeResourcesFit"})
        handler.attempt_failed(tried, SchedulingFailure("Unschedulable", "no", rejectors))
        (queued,) = queue.pods.values()
        assert (queued.info.spec.scheduler_name, queued.attempts, queued.rejectors) == ("second", 0, frozenset())
        assert not queue.in_flight.uids()

    in_virtual_time(scenario, node("n"), profiles=[{"schedulerName": "default-scheduler"}, {"schedulerName": "second"}])


async def nomination_ends(harness: SchedulerHarness) -> None:
    """A nominated pod fits nowhere: its nomination is cleared in memory and in its status."""
    harness.cluster.put(pod("a", cpu="8", nominated="gone"))
    await harness.settle()
    assert harness.scheduler.cluster.nomination("uid-default-a") is None
    assert harness.cluster.pod("a").status.nominated_node_name == ""


def test_a_cluster_without_nodes_ends_the_nomination() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await nomination_ends(harness)
        condition = harness.cluster.condition("a")
        assert condition is not None
        assert condition.message == "no nodes available to schedule pods"

    in_virtual_time(scenario)


def test_a_pod_that_fits_nowhere_loses_its_nomination_in_a_profile_without_post_filter_plugins() -> None:
    no_post_filter = {"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
    in_virtual_time(nomination_ends, node("n", cpu="4"), profiles=[no_post_filter])
