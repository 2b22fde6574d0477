"""Rules of the queue that are not the same in all minor versions."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from core_tests.scheduling.fixture import enabled
from kubestow.api.core import Node
from kubestow.api.storage import StorageClass
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo, Shapes
from kubestow.errors import APIError
from kubestow.framework.event_registration import on
from kubestow.framework.interface import PreEnqueuePlugin, ReservePlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor
from kubestow.scheduling.queue.places import BackoffPolicy, ExactBackoffPolicy, count_attempts, count_failures
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.testing import in_virtual_time, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness


def around(behaviour: Behaviour) -> pytest.MarkDecorator:
    """The minor versions around a behaviour: the one before it, and the one that brought it."""
    since = behaviour.value.since
    return pytest.mark.parametrize(("minor", "has_behaviour"), [(Minor(since - 1), False), (Minor(since), True)])


def place_of(harness: SchedulerHarness, name: str) -> Place | None:
    return next((q.place for q in harness.scheduler.queue.pods.values() if q.info.name == name), None)


def queued_pod(**fields: Any) -> QueuedPod:
    return QueuedPod(Shapes().info(pod("a")), 10.25, **fields)


# -- backoff -------------------------------------------------------------------------------------------------------


def test_backoff_ends_on_a_whole_second_only_with_windows() -> None:
    windows, exact = BackoffPolicy(), ExactBackoffPolicy()
    queued = queued_pod(unschedulable_count=1)
    queued.backoff_expiration = windows.expiration(queued)
    assert queued.backoff_expiration == 11.0
    assert windows.is_backing_off(queued, 11.9)
    assert windows.flush_time(queued) == 12.0
    queued.backoff_expiration = exact.expiration(queued)
    assert queued.backoff_expiration == 11.25
    assert not exact.is_backing_off(queued, 11.25)
    assert exact.flush_time(queued) == 12.0


def test_the_backoff_counts_failures_or_attempts() -> None:
    queued = queued_pod(attempts=4, unschedulable_count=3, consecutive_errors=1)
    assert (count_failures(queued), count_attempts(queued)) == (1, 4)


def test_rejections_are_counted_and_errors_apart() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue, clock = harness.scheduler.queue, harness.scheduler.environment.clock
        harness.cluster.put(pod("a", cpu="9"))
        await harness.settle()
        harness.scheduler.leadership.holds_lease = False  # type: ignore[misc]
        counts = list[tuple[int, int]]()
        for rejectors in ({"NodeResourcesFit"}, {"NodeResourcesFit"}, set()):
            queued = queue.pop_pod("uid-default-a")
            assert queued is not None
            queue.return_after_failure(
                queued, rejectors=frozenset(rejectors), pending_plugins=frozenset(), now=clock.monotonic()
            )
            counts.append((queued.unschedulable_count, queued.consecutive_errors))
        assert counts == [(2, 0), (3, 0), (3, 1)]

    in_virtual_time(scenario, node("n"))


@around(Behaviour.ERRORS_BACK_OFF_APART)
def test_an_error_after_rejections_begins_a_backoff_of_its_own(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue = harness.scheduler.queue
        harness.cluster.put(pod("a", cpu="9"))
        await harness.settle()
        queued = next(iter(queue.pods.values()))
        queued.attempts, queued.unschedulable_count = 3, 3
        assert queue.pop_pod(queued.info.uid) is queued
        now = harness.scheduler.environment.clock.monotonic()
        queue.return_after_failure(queued, rejectors=frozenset(), pending_plugins=frozenset(), now=now)
        assert queued.backoff_expiration - now == pytest.approx(1 if has_behaviour else 8, abs=1)

    in_virtual_time(scenario, node("n"), minor=minor)


@pytest.mark.parametrize(("gate", "is_early"), [(True, True), (False, False)])
def test_only_an_idle_scheduler_with_the_gate_tries_pods_before_their_backoff_ends(gate: bool, is_early: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="4"))
        await harness.settle()
        assert place_of(harness, "a") is Place.UNSCHEDULABLE
        harness.cluster.put(node("big", cpu="4"))
        await harness.settle()
        assert bool(harness.node_of("a")) is is_early
        await harness.advance(3)
        assert harness.node_of("a") == "big"

    in_virtual_time(scenario, node("n", cpu="2"), gates={"SchedulerPopFromBackoffQ": gate})


# -- PreEnqueue ----------------------------------------------------------------------------------------------------


class Calls(PreEnqueuePlugin):
    """Counts its calls; gates pods while a test says so."""

    name = "Calls"
    events_to_register = (on(EventResource.NODE, Action.UPDATE_NODE_ANNOTATION),)
    calls: ClassVar[Counter[str]]
    gates: ClassVar[set[str]]

    def pre_enqueue(self, pod: PodInfo) -> Status:
        self.calls[self.name] += 1
        return Status.unresolvable("not yet") if self.name in self.gates else SUCCESS


def calls(name: str = "Calls", counter: Counter[str] | None = None, gates: set[str] | None = None) -> type[Calls]:
    fields = {
        "name": name,
        "calls": Counter() if counter is None else counter,
        "gates": set() if gates is None else gates,
    }
    return type("Calls", (Calls,), fields)


class RejectedAtReserve(ReservePlugin):
    """Rejects every pod; every event may help it."""

    name = "RejectedAtReserve"

    def reserve(self, state: Any, pod: PodInfo, node_name: str) -> Status:
        return Status.unschedulable("no")

    def unreserve(self, state: Any, pod: PodInfo, node_name: str) -> None:
        pass


@pytest.mark.parametrize(("gate", "before", "after"), [(True, 2, 2), (False, 1, 2)])
def test_pre_enqueue_runs_on_entry_to_backoff_or_when_it_ends(gate: bool, before: int, after: int) -> None:
    plugin = calls()

    async def scenario(harness: SchedulerHarness) -> None:
        queue, clock = harness.scheduler.queue, harness.scheduler.environment.clock
        harness.cluster.put(pod("a", scheduler="default-scheduler", cpu="9"))
        await harness.settle()
        queued = next(iter(queue.pods.values()))
        assert plugin.calls["Calls"] == 1
        queue.places.unschedulable.remove(queued.info.uid)
        queued.backoff_expiration = clock.monotonic() + 5
        queue.gating.back_off(queued, "test", clock.monotonic())
        assert plugin.calls["Calls"] == before
        queue.gating.end_backoff(queued, clock.monotonic())
        assert plugin.calls["Calls"] == after
        assert queued.place is Place.ACTIVE

    in_virtual_time(scenario, node("n"), gates={"SchedulerPopFromBackoffQ": gate}, **enabled(plugin))


@around(Behaviour.ACTIVATION_FROM_BACKOFF_SKIPS_PRE_ENQUEUE)
def test_a_pod_that_is_activated_from_backoff_has_passed_pre_enqueue(minor: Minor, has_behaviour: bool) -> None:
    plugin = calls()

    async def scenario(harness: SchedulerHarness) -> None:
        queue, clock = harness.scheduler.queue, harness.scheduler.environment.clock
        harness.cluster.put(pod("a", cpu="9"))
        await harness.settle()
        queued = next(iter(queue.pods.values()))
        queue.places.unschedulable.remove(queued.info.uid)
        queued.backoff_expiration = clock.monotonic() + 5
        queue.gating.back_off(queued, "test", clock.monotonic())
        called = plugin.calls["Calls"]
        queue.activate([queued.info.uid])
        assert plugin.calls["Calls"] - called == (0 if has_behaviour else 1)
        assert queued.place is Place.ACTIVE

    in_virtual_time(scenario, node("n"), minor=minor, **enabled(plugin))


@around(Behaviour.PRE_ENQUEUE_ASKS_GATING_PLUGIN_FIRST)
def test_the_gating_plugin_is_asked_before_the_others(minor: Minor, has_behaviour: bool) -> None:
    counter: Counter[str] = Counter()
    gates = {"Second"}
    plugins = [calls("First", counter, gates), calls("Second", counter, gates)]

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert counter == {"First": 1, "Second": 1}
        harness.scheduler.queue.activate([next(iter(harness.scheduler.queue.pods))])
        assert counter == ({"First": 1, "Second": 2} if has_behaviour else {"First": 2, "Second": 2})

    in_virtual_time(scenario, node("n"), minor=minor, **enabled(*plugins))


@around(Behaviour.GATED_PODS_WAIT_FOR_GATING_PLUGIN)
def test_a_gated_pod_is_looked_at_after_events_of_its_gating_plugin(minor: Minor, has_behaviour: bool) -> None:
    """The pod was rejected for its CPU, and is gated when the node that helps it is added."""
    gates: set[str] = set()
    plugin = calls(gates=gates)

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="4"))
        await harness.settle()
        gates.add("Calls")
        harness.cluster.put(node("gate", cpu="4"))
        await harness.settle()
        assert place_of(harness, "a") is Place.GATED
        gates.clear()
        called = plugin.calls["Calls"]
        harness.cluster.put(node("big", cpu="4"))
        await harness.settle()
        assert (plugin.calls["Calls"] == called) is has_behaviour
        assert bool(harness.node_of("a")) is not has_behaviour

    in_virtual_time(scenario, node("n", cpu="2"), minor=minor, **enabled(plugin))


# -- nominated and assumed pods ------------------------------------------------------------------------------------


@around(Behaviour.FREED_NOMINATIONS_REQUEUE)
def test_a_lost_nomination_requeues_the_pods_of_lower_priority(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue = harness.scheduler.queue
        harness.cluster.put(pod("low", cpu="9", priority=1))
        await harness.settle()
        nominated = Shapes().info(pod("nominated", priority=10))
        assert queue.requeue_for_freed_nomination(nominated, "n") is has_behaviour
        assert (next(iter(queue.pods.values())).place is not Place.UNSCHEDULABLE) is has_behaviour

    in_virtual_time(scenario, node("n", cpu="4"), minor=minor)


@pytest.mark.parametrize(
    ("own_node", "nominated_to", "priority", "is_requeued"),
    [
        ("", "n", 1, True),
        ("", "n", 0, False),  # the waiting pod has a higher priority, so the nomination did not count for it
        ("", None, 1, False),
        ("other", "n", 1, True),
        ("n", "n", 1, False),  # it has the node now
    ],
)
def test_only_a_nomination_that_releases_a_node_requeues_others(
    own_node: str, nominated_to: str | None, priority: int, is_requeued: bool
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue = harness.scheduler.queue
        harness.cluster.put(pod("waiting", cpu="9", priority=1))
        await harness.settle()
        nominated = Shapes().info(pod("nominated", node=own_node, priority=priority))
        assert queue.requeue_for_freed_nomination(nominated, nominated_to) is (nominated_to not in (None, own_node))
        assert (next(iter(queue.pods.values())).place is not Place.UNSCHEDULABLE) is is_requeued

    in_virtual_time(scenario, node("n", cpu="4"))


# -- without queueing hints ----------------------------------------------------------------------------------------


WITHOUT_HINTS = Minor(31)


def test_v1_31_has_no_hints_by_default() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        assert type(harness.scheduler.queue).__name__ == "SchedulingQueueWithoutHints"

    in_virtual_time(scenario, minor=WITHOUT_HINTS)


@pytest.mark.parametrize(("minor", "is_tried_again"), [(WITHOUT_HINTS, True), (DEFAULT_MINOR, False)])
def test_without_hints_a_registered_event_requeues_even_if_it_helps_nothing(minor: Minor, is_tried_again: bool) -> None:
    """The node admits the pod, whose port is free there, and has a taint that it does not tolerate."""

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="1", host_ports=[80]))
        await harness.settle()
        queued = next(iter(harness.scheduler.queue.pods.values()))
        attempts = queued.attempts
        tainted = harness.cluster.objects(Node)["", "tainted"]
        # The check of nodes looks at taints with the effect NoSchedule only.
        harness.cluster.put(replace(tainted, metadata=replace(tainted.metadata, labels={"some": "label"})))
        await harness.advance(3)
        assert (queued.attempts > attempts) is is_tried_again

    taint = {"key": "k", "effect": "NoExecute"}
    in_virtual_time(
        scenario,
        node("full", cpu="1"),
        pod("there", node="full", host_ports=[80]),
        node("tainted", taints=[taint]),
        minor=minor,
    )


@pytest.mark.parametrize(
    ("fields", "is_admitted"),
    [
        ({"cpu": "2"}, True),
        ({"cpu": "3"}, True),
        ({"cpu": "3001m"}, False),
        ({"cpu": "5"}, False),
        ({"cpu": "2", "memory": "8Gi"}, True),
        ({"cpu": "2", "memory": "32Gi"}, False),
        ({"cpu": "5", "memory": "8Gi"}, False),
        ({"cpu": "2", "node_selector": {"no": "where"}}, False),
        ({"cpu": "2", "host_ports": [80]}, False),
    ],
)
def test_without_hints_a_node_is_checked_before_it_requeues(fields: dict[str, Any], is_admitted: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", **fields))
        await harness.settle()
        queue = harness.scheduler.queue
        info = next(iter(queue.pods.values())).info
        changed = harness.cluster.objects(Node)["", "n"]
        assert queue._admitted_by(changed)(info) is is_admitted  # type: ignore[attr-defined]

    in_virtual_time(
        scenario,
        node("n", cpu="4", taints=[{"key": "k", "effect": "NoExecute"}]),
        pod("there", node="n", cpu="1", host_ports=[80]),
        minor=WITHOUT_HINTS,
    )


@pytest.mark.parametrize(("labels", "is_requeued"), [({"app": "db"}, True), ({"app": "other"}, False)])
def test_without_hints_an_added_pod_helps_only_what_a_topology_joins(labels: dict[str, str], is_requeued: bool) -> None:
    affinity = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
            ]
        }
    }

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", affinity=affinity))
        await harness.settle()
        queued = next(iter(harness.scheduler.queue.pods.values()))
        assert queued.attempts == 1
        harness.cluster.put(pod("there", node="n", labels=labels))
        await harness.advance(5)
        assert (queued.attempts > 1) is is_requeued

    in_virtual_time(scenario, node("n", labels={"kubernetes.io/hostname": "n"}), minor=WITHOUT_HINTS)


@pytest.mark.parametrize(
    ("changes", "is_requeued"), [({"annotations": {"x": "y"}}, True), ({"finalizers": ["f"]}, False)]
)
def test_without_hints_any_update_of_a_pod_requeues_it(changes: dict[str, Any], is_requeued: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="9"))
        await harness.advance(5)
        queued = next(iter(harness.scheduler.queue.pods.values()))
        current = harness.cluster.pod("a")
        harness.cluster.put(replace(current, metadata=replace(current.metadata, **changes)))
        await harness.settle()
        assert (queued.attempts > 1) is is_requeued

    in_virtual_time(scenario, node("n"), minor=WITHOUT_HINTS)


@pytest.mark.parametrize(("mode", "moves"), [("WaitForFirstConsumer", True), ("Immediate", False)])
def test_without_hints_only_storage_classes_that_wait_requeue(mode: str, moves: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue = harness.scheduler.queue
        harness.cluster.put(pod("a", cpu="9"))
        await harness.settle()
        assert queue._has_moved is False  # type: ignore[attr-defined]
        harness.cluster.put(StorageClass(metadata=node("class").metadata, volume_binding_mode=mode))
        await harness.settle()
        assert queue._has_moved is moves  # type: ignore[attr-defined]

    in_virtual_time(scenario, node("n"), minor=WITHOUT_HINTS)


def test_without_hints_a_rejected_pod_backs_off_after_an_event_during_its_attempt() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue, clock = harness.scheduler.queue, harness.scheduler.environment.clock
        harness.cluster.put(pod("a", cpu="9"))
        await harness.settle()
        for is_moved, place in ((False, Place.UNSCHEDULABLE), (True, Place.BACKOFF)):
            queued = queue.pop_pod(next(iter(queue.pods)))
            assert queued is not None
            if is_moved:
                harness.cluster.put(node("tiny", cpu="1"))
                await harness.settle()
            rejectors = frozenset({"NodeResourcesFit"})
            queue.return_after_failure(queued, rejectors=rejectors, pending_plugins=frozenset(), now=clock.monotonic())
            assert queued.place is place

    in_virtual_time(scenario, node("n"), minor=WITHOUT_HINTS)


@around(Behaviour.NODE_EVENTS_NAME_WHAT_CHANGED)
def test_without_hints_plugins_that_check_one_node_register_its_updates(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        (profile,) = harness.scheduler.profiles.values()
        plugin = next(p for p in profile.plugins if p.name == "NodeName")
        actions = [each.event.action for each in plugin.events_to_register]
        specific = Action.UPDATE_NODE_TAINT | Action.UPDATE_NODE_LABEL
        assert actions == [Action.ADD, specific if has_behaviour else Action.UPDATE]

    in_virtual_time(scenario, minor=minor, gates={"SchedulerQueueingHints": False})


def test_a_failed_binding_without_early_pops_is_retried_after_its_backoff() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.bind_failures.append(APIError(500, "InternalError", "no"))
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert harness.node_of("a") == ""
        await harness.advance(3)
        assert harness.node_of("a") == "n"

    in_virtual_time(scenario, node("n"), minor=WITHOUT_HINTS)
