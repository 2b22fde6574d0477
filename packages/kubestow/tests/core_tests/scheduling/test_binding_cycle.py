"""The binding cycle: PreBind plugins in sequence and in parallel, preempted, failing or hanging; bindings in doubt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core_tests.scheduling.fixture import enabled
from kubestow import config
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import Unreachable
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import (
    BindPlugin,
    Permission,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
)
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.interfaces import ObjectReference, Resource
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


class SlowPreBind(PreBindPlugin):
    """Takes ten seconds per pod."""

    name = "SlowPreBind"
    events_to_register = ()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await asyncio.sleep(10)


class SecondSlowPreBind(SlowPreBind):
    name = "SecondSlowPreBind"


class ParallelPreBind(SlowPreBind):
    name = "ParallelPreBind"
    parallel = True


class SecondParallelPreBind(SlowPreBind):
    name = "SecondParallelPreBind"
    parallel = True


class HangingPreBind(PreBindPlugin):
    """Hangs for pods with the label ``stuck``."""

    name = "HangingPreBind"
    events_to_register = ()
    time_limit = 100.0

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await asyncio.sleep(1e9 if pod.metadata.labels.get("stuck") else 0.0)


@pytest.mark.parametrize(
    ("plugins", "seconds"),
    [
        ((SlowPreBind, SecondSlowPreBind), 20),
        ((ParallelPreBind, SecondParallelPreBind), 10),
        ((ParallelPreBind, SlowPreBind, SecondParallelPreBind), 30),
    ],
)
def test_only_adjacent_parallel_pre_bind_plugins_run_concurrently(
    plugins: tuple[type[Plugin], ...], seconds: int
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.advance(seconds - 1)
        assert harness.node_of("a") == ""
        await harness.advance(2)
        assert harness.node_of("a") == "n"

    in_virtual_time(scenario, node("n"), **enabled(*plugins))


def test_a_hanging_pre_bind_plugin_blocks_no_other_pod_and_times_out() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("stuck", labels={"stuck": "yes"}))
        for number in range(50):
            harness.cluster.put(pod(f"other-{number}"))
        await harness.advance(1)
        assert len(harness.cluster.bindings) == 50
        await harness.advance(105)
        condition = harness.cluster.condition("stuck")
        assert condition is not None
        assert "PreBind" in condition.message and "cancelled after its time limit of 100 s" in condition.message

    in_virtual_time(scenario, node("n"), **enabled(HangingPreBind))


def test_a_victim_at_pre_bind_is_requeued_instead_of_deleted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("low", cpu="4", labels={"stuck": "yes"}))
        await harness.advance(1)
        harness.cluster.put(pod("high", cpu="4", priority=100))
        await harness.advance(20)
        assert harness.node_of("high") == "n"
        assert {existing.metadata.name for existing in harness.cluster.pods()} == {"low", "high"}
        notes = [event.note for event in harness.cluster.events if event.regarding.name == "low"]
        assert any(note.endswith("(in kube-scheduler memory).") for note in notes)
        assert 'running PreBind plugin "HangingPreBind": preempted by DefaultPreemption' in notes

    in_virtual_time(scenario, node("n", cpu="4"), **enabled(HangingPreBind))


@pytest.mark.parametrize("on", [True, False])
def test_a_pod_with_pre_bind_work_is_nominated(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config.FeatureGates, "enabled", lambda self, gate: on or "Expectation" not in gate)

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.advance(5)
        assert harness.cluster.pod("a").status.nominated_node_name == ("n" if on else "")

    in_virtual_time(scenario, node("n"), **enabled(SlowPreBind))


class Attempts(Observer):
    """How attempts ended, and the times from then on; in seconds."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, Result, str, float]] = []
        self.bound: list[tuple[str, str, float]] = []

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        self.ended.append((queued.info.name, result, message, round(seconds)))

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        self.bound.append((queued.info.name, node_name, round(seconds)))


def test_a_bound_pod_is_reported_with_the_time_of_its_last_attempt_and_that_since_the_first() -> None:
    attempts = Attempts()

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="4"))
        await harness.advance(20)
        message = attempts.ended[0][2]
        assert message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
        harness.cluster.put(node("large", cpu="8"))
        await harness.advance(30)
        assert attempts.ended == [("a", Result.UNSCHEDULABLE, message, 0), ("a", Result.SCHEDULED, "", 10)]
        assert attempts.bound == [("a", "large", 30)]

    in_virtual_time(scenario, node("small", cpu="2"), observer=attempts, **enabled(SlowPreBind))


class SlowStatusCluster(MemoryCluster):
    """Takes thirty seconds to patch a status."""

    async def patch_pod_status(self, pod: ObjectReference, patch: Any) -> None:
        await asyncio.sleep(30)
        await super().patch_pod_status(pod, patch)


def test_slow_status_patches_do_not_delay_a_binding() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(20):
            harness.cluster.put(pod(f"too-big-{number}", cpu="64", priority=1))
        harness.cluster.put(pod("late", cpu="8"))
        await harness.advance(1)
        harness.cluster.put(node("larger", cpu="8"))
        await harness.advance(5)
        assert harness.node_of("late") == "larger"

    in_virtual_time(scenario, node("n"), cluster=SlowStatusCluster())


class AwaitsCancelledTask(PreBindPlugin, BindPlugin, PostBindPlugin):
    """Awaits a task that is cancelled, at the extension point that the pod is named after."""

    name = "AwaitsCancelledTask"
    events_to_register = ()

    async def _await_cancelled(self, pod: PodInfo, step: str) -> None:
        if pod.name == step:
            task = asyncio.create_task(asyncio.sleep(10))
            asyncio.get_running_loop().call_later(1, task.cancel)
            await task

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await self._await_cancelled(pod, "pre-bind")

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        await self._await_cancelled(pod, "bind")
        return Status.skip()

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await self._await_cancelled(pod, "post-bind")


@pytest.mark.parametrize(("step", "is_bound"), [("pre-bind", False), ("bind", False), ("post-bind", True)])
def test_a_plugin_whose_own_task_is_cancelled_fails(step: str, is_bound: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod(step))
        await harness.advance(1.5)
        assert list(harness.scheduler.cluster.assumed()) == []
        condition = harness.cluster.condition(step)
        assert (condition is None) == is_bound
        assert condition is None or condition.message.endswith("a task that it awaited was cancelled")

    in_virtual_time(scenario, node("n"), **first_at_bind(AwaitsCancelledTask))


def first_at_bind(plugin: type[Plugin]) -> dict[str, Any]:
    ours, others = {"name": plugin.name}, [{"name": "DefaultBinder"}]
    at_bind = {"enabled": [ours, *others], "disabled": others}
    return {
        "plugins": [plugin],
        "profiles": [{"plugins": {"preBind": {"enabled": [ours]}, "bind": at_bind, "postBind": {"enabled": [ours]}}}],
    }


class RejectsOnce(PreBindPlugin):
    """Rejects the first pod once with the status ``code``."""

    name = "RejectsOnce"
    events_to_register = ()
    code = Code.UNSCHEDULABLE
    calls = 0

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.calls += 1
        return Status(self.code, ("not now",)) if self.calls == 1 else SUCCESS


@pytest.mark.parametrize("code", [Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING])
def test_a_pod_rejected_at_pre_bind_is_retried_after_a_backoff(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RejectsOnce, "code", code)

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.advance(5)
        assert harness.node_of("a") == "n"

    in_virtual_time(scenario, node("n"), **enabled(RejectsOnce))


class FailsBeforeWaiting(PermitPlugin, PreBindPlugin):
    """Returns Wait at Permit, and fails at PreBindPreFlight, before the wait begins."""

    name = "FailsBeforeWaiting"
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission(Status(Code.WAIT), 600.0)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return Status.error("not today")

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        raise AssertionError("PreBindPreFlight failed before")


def test_a_binding_cycle_that_fails_before_permit_leaves_no_waiting_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert harness.scheduler.waiting_pods.all() == []

    in_virtual_time(scenario, node("n"), **enabled(FailsBeforeWaiting))


def notes(harness: SchedulerHarness) -> list[str]:
    return [event.note for event in harness.cluster.events if event.reason == "FailedScheduling"]


@pytest.mark.parametrize(
    ("status", "note"),
    [
        (Status.error("not today"), 'running PreBindPreFlight "FailsBeforeWaiting": not today'),
        (
            Status.unschedulable("not here"),
            'PreBindPreFlight FailsBeforeWaiting returned "Unschedulable", which is unsupported. '
            "It is supposed to return Success, Skip, or Error status",
        ),
    ],
)
def test_any_failure_at_pre_bind_pre_flight_is_an_error(
    status: Status, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailsBeforeWaiting, "pre_bind_pre_flight", lambda *args: status)

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert notes(harness) == [note]
        condition = harness.cluster.condition("a")
        assert condition is not None and condition.reason == "SchedulerError"

    in_virtual_time(scenario, node("n"), **enabled(FailsBeforeWaiting))


class Waits(PermitPlugin):
    """Returns Wait."""

    name = "Waits"
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission(Status(Code.WAIT), 600.0)


def test_an_error_that_ends_a_wait_names_the_wait() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert harness.scheduler.waiting_pods.preempt("uid-default-a")
        await harness.settle()
        assert notes(harness) == ["waiting on permit for pod: preempted"]

    in_virtual_time(scenario, node("n"), **enabled(Waits))


class DisconnectedWatchCluster(MemoryCluster):
    """Delivers no watch events while ``disconnected``."""

    def __init__(self) -> None:
        super().__init__()
        self.disconnected = False

    def _notify(self, resource: Resource, event_type: str, obj: Any) -> None:
        if not self.disconnected:
            super()._notify(resource, event_type, obj)


class RepeatingCluster(DisconnectedWatchCluster):
    """Receives every binding twice, as from a client that retries a binding that took effect."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await super().bind(pod, node_name)
        await super().bind(pod, node_name)


def test_a_binding_that_conflicts_with_itself_has_succeeded() -> None:
    cluster = RepeatingCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        for name in ("a", "b"):
            cluster.put(pod(name, cpu="3"))
        cluster.disconnected = True
        await harness.settle()
        assert [key for key, _ in cluster.bindings] == ["default/a"]

    in_virtual_time(scenario, node("n", cpu="4"), cluster=cluster)


def test_the_capacity_of_a_pod_stays_reserved_while_its_binding_is_in_doubt() -> None:
    cluster = DisconnectedWatchCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        for name in ("a", "b"):
            cluster.put(pod(name, cpu="3"))
        cluster.disconnected = True
        cluster.lost_responses.append(Unreachable("server", "connection reset"))
        await harness.settle()
        assert [key for key, _ in cluster.bindings] == ["default/a"]

    in_virtual_time(scenario, node("n", cpu="4"), cluster=cluster)


def test_a_binding_whose_response_is_lost_is_not_repeated() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.lost_responses.append(Unreachable("server", "connection reset"))
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert harness.cluster.bindings == [("default/a", "n")]
        assert [event.reason for event in harness.cluster.events] == ["Scheduled"]

    in_virtual_time(scenario, node("n"))
