"""Pod groups as entities of the queue (Behaviour.POD_GROUPS_ARE_QUEUED)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from core_tests.observability.harness import Observed, observe
from core_tests.scheduling.fixture import enabled
from core_tests.scheduling.gangs.groups import group, member, members
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, pending_message, remaining
from kubestow.api.core import Pod, PodResourceClaim
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.gang import GangOutcome
from kubestow.framework.interface import Handle, PreBindPlugin, PreEnqueuePlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.rules.minors import Behaviour, Minor
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.queue.entities import EntityQueue
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.testing import node, pod, pods
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

V37 = Minor(37)
BEFORE = V37.without(Behaviour.POD_GROUPS_ARE_QUEUED)
OPTIONS: dict[str, Any] = {"minor": V37, "gates": {"GenericWorkload": True}}

Scenario = Callable[[SchedulerHarness], Awaitable[None]]


class Decisions(Observer):
    """Records when each pod was decided about, in the order of the decisions."""

    def __init__(self) -> None:
        self.pods: list[str] = []
        self.times: list[float] = []

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self.pods.append(decision.pod.name)
        self.times.append(asyncio.get_running_loop().time())


def run(scenario: Scenario, *objects: Any, **options: Any) -> None:
    in_virtual_time(scenario, *objects, **OPTIONS | options)


def queue_of(harness: SchedulerHarness) -> EntityQueue:
    queue = harness.scheduler.queue
    assert isinstance(queue, EntityQueue)
    return queue


def places(harness: SchedulerHarness) -> dict[str, Place]:
    return {queued.info.name: queued.place for queued in harness.scheduler.queue.pods.values()}


def queued(harness: SchedulerHarness, name: str) -> QueuedPod:
    return next(each for each in harness.scheduler.queue.pods.values() if each.info.name == name)


@pytest.mark.parametrize(("minor", "attempts"), [(V37, 4), (BEFORE, 1)], ids=["since", "before"])
def test_a_rejected_group_is_tried_again_after_its_backoff_whatever_the_events(minor: Minor, attempts: int) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train", cpu="1"))
        await harness.advance(12)
        assert [each.attempts for each in harness.scheduler.queue.pods.values()] == [attempts] * 2
        assert set(places(harness).values()) == {Place.BACKOFF if minor is V37 else Place.UNSCHEDULABLE}

    run(scenario, node("n", cpu="1"), group("train", 2), minor=minor)


def test_events_do_not_end_the_backoff_of_a_group() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train", cpu="1"))
        await harness.advance(5)
        (waiting,) = queue_of(harness).places.groups.values()
        harness.cluster.put(node("m", cpu="4"))
        await harness.settle()
        assert bound_count(harness, members(2, "train")) == 0
        await harness.advance(waiting.backoff_expiration - asyncio.get_running_loop().time() + 2)
        assert bound_count(harness, members(2, "train")) == 2

    run(scenario, node("n", cpu="1"), group("train", 2))


@pytest.mark.parametrize(("size", "seconds"), [(1, 11), (4, 21), (9, 31)])
def test_the_longest_backoff_grows_with_the_square_root_of_the_size(size: int, seconds: int) -> None:
    decisions = Decisions()

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(size, "train", cpu="2"))
        await harness.advance(200)
        times = sorted(set(decisions.times))
        assert round(times[-1] - times[-2]) == seconds

    run(scenario, node("n", cpu="1"), group("train", size), observer=decisions)


def test_a_group_has_one_position_of_its_own() -> None:
    decisions = Decisions()

    async def scenario(harness: SchedulerHarness) -> None:
        harness.scheduler.leadership.holds_lease = False  # type: ignore[misc]  # no pod is popped meanwhile
        await harness.advance(0.2)
        for name in ("a", "b"):
            harness.cluster.put(member(f"{name}-0", name))
            await harness.advance(1)
        harness.cluster.put(pod("single"))
        await harness.advance(1)
        for name in ("b", "a"):
            harness.cluster.put(member(f"{name}-1", name))
            await harness.advance(1)
        harness.scheduler.leadership.holds_lease = True  # type: ignore[misc]
        await harness.advance(1)
        assert decisions.pods == ["a-0", "a-1", "b-0", "b-1", "single"]

    run(scenario, node("n"), group("a", 0), group("b", 0), observer=decisions)


def test_the_pods_of_a_group_are_placed_in_the_order_of_attempts_and_age() -> None:
    decisions = Decisions()

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train", cpu="2"))
        await harness.advance(4)
        harness.cluster.put(member("another", "train", cpu="1"))
        decisions.pods.clear()
        await harness.advance(6)
        assert decisions.pods[:2] == ["train-0", "another"]

    run(scenario, node("n", cpu="1"), group("train", 1), observer=decisions)


def test_pods_that_do_not_fit_beside_the_others_preempt_in_the_next_attempt() -> None:
    gang = members(3, "train", cpu="1", priority=100)
    low = pods(1, prefix="low", cpu="1", priority=10, node="n")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert (bound_count(harness, gang), remaining(harness, low)) == (3, [])

    run(scenario, node("n", cpu="3"), group("train", 2, priority=100), *low)


async def without_attempts(harness: SchedulerHarness, *created: Pod) -> EntityQueue:
    """The queue with these pods, from which nothing but the test pops."""
    harness.scheduler.leadership.holds_lease = False  # type: ignore[misc]
    await harness.advance(0.2)
    create_pods(harness, created)
    await harness.settle()
    return queue_of(harness)


def test_the_pods_of_a_popped_group_are_in_flight_as_far_as_they_are_tried() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue = await without_attempts(harness, *members(3, "train"))
        first = queue.pop()
        assert first is not None
        uids = [f"uid-default-train-{number}" for number in range(3)]
        assert sorted(queue.in_flight.uids()) == uids
        others = [uid for uid in uids if uid != first.info.uid]
        tried = queue.pop_members(first, others[:1])
        assert [each.info.uid for each in tried] == queue.in_flight.uids() == [first.info.uid, others[0]]

    run(scenario, node("n"), group("train", 2))


def test_the_pods_of_a_group_whose_first_one_needs_no_attempt_return_as_they_were() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue = await without_attempts(harness, *members(3, "train"))
        first = queue.pop()
        assert first is not None
        queue.drop_popped(first)
        left = {f"train-{number}" for number in range(3)} - {first.info.name}
        assert {each.info.name: each.attempts for each in queue.pods.values()} == dict.fromkeys(left, 0)
        (waiting,) = queue.places.groups.values()
        assert (waiting.attempts, {each.info.name for each in waiting.members.values()}) == (0, left)
        assert not queue.in_flight.uids()

    run(scenario, node("n"), group("train", 2))


def test_pods_that_are_being_bound_are_not_queued_when_the_attempt_of_their_group_ends() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue = await without_attempts(harness, *members(2, "train"))
        first = queue.pop()
        assert first is not None
        tried = queue.pop_members(first, ["uid-default-train-0", "uid-default-train-1"])
        queue.end_group_attempt(GangOutcome.SCHEDULED)
        assert not queue.pods and not queue.places.groups
        assert queue.in_flight.uids() == [each.info.uid for each in tried]

    run(scenario, node("n"), group("train", 2))


def test_a_group_that_loses_a_pod_is_gated() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(3, "train", cpu="1"))
        await harness.advance(5)
        assert places(harness) == dict.fromkeys(("train-0", "train-1", "train-2"), Place.BACKOFF)
        harness.cluster.remove(harness.cluster.pod("train-1"))
        await harness.settle()
        assert places(harness) == dict.fromkeys(("train-0", "train-2"), Place.GATED)
        harness.cluster.put(node("m", cpu="2"))
        harness.cluster.put(member("train-3", "train", cpu="1"))
        await harness.advance(30)
        assert places(harness) == {}

    run(scenario, node("n", cpu="1"), group("train", 3))


def test_a_group_is_ready_when_the_pod_that_gated_it_is_deleted() -> None:
    """No event would open the gate of a pod that is gone."""

    async def scenario(harness: SchedulerHarness) -> None:
        gang = members(2, "train", cpu="1")
        create_pods(harness, [*gang, member("extra", "train", gates=["wait"])])
        await harness.settle()
        assert places(harness) == dict.fromkeys(("train-0", "train-1", "extra"), Place.GATED)
        harness.cluster.put(node("m", cpu="2"))
        harness.cluster.remove(harness.cluster.pod("extra"))
        await harness.advance(5)
        assert bound_count(harness, gang) == 2

    run(scenario, group("train", 2))


def test_a_pod_that_joins_a_gated_group_waits_for_its_own_gate_or_for_that_of_the_others() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [member("first", "train", gates=["wait"])])
        await harness.settle()
        create_pods(harness, [member("second", "train", gates=["own"]), member("third", "train")])
        await harness.settle()
        assert {each.info.name: each.gate_message for each in harness.scheduler.queue.pods.values()} == {
            "first": "waiting for scheduling gates: [wait]",
            "second": "waiting for scheduling gates: [own]",
            "third": "waiting for all pods of pod group default/train to lose their scheduling gates",
        }
        create_pods(harness, [member("first", "train")])
        await harness.settle()
        assert set(places(harness).values()) == {Place.GATED}
        create_pods(harness, [member("second", "train")])
        await harness.settle()
        assert places(harness) == {}

    run(scenario, node("n"), group("train", 2))


def test_a_pod_that_joins_a_waiting_group_has_no_gate() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train", cpu="1"))
        await harness.advance(1.5)
        create_pods(harness, [member("late", "train", cpu="1")])
        await harness.settle()
        assert set(places(harness).values()) == {Place.BACKOFF}
        assert {(each.gated_by, each.gate_message) for each in harness.scheduler.queue.pods.values()} == {("", "")}
        assert queued(harness, "train-0").initial_attempt is not None
        assert queued(harness, "late").initial_attempt is None

    run(scenario, node("n", cpu="1"), group("train", 2))


def test_a_group_that_appears_is_joined_by_pods_with_gates_of_their_own() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        claimed = member("claimed", "train")
        spec = msgspec.structs.replace(claimed.spec, resource_claims=[PodResourceClaim("r", "missing")])
        create_pods(harness, [*members(2, "train"), msgspec.structs.replace(claimed, spec=spec)])
        await harness.advance(5)
        harness.cluster.put(group("train", 2))
        await harness.advance(5)
        assert places(harness) == dict.fromkeys(("train-0", "train-1", "claimed"), Place.GATED)
        harness.cluster.remove(harness.cluster.pod("claimed"))
        await harness.advance(5)
        assert places(harness) == {}

    run(scenario, node("n"))


def test_a_group_whose_object_goes_is_dissolved_until_it_comes_again() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        gang = members(2, "train", cpu="1")
        create_pods(harness, gang)
        await harness.advance(5)
        harness.cluster.remove(harness.cluster.objects(PodGroup)["default", "train"])
        await harness.advance(30)
        assert not queue_of(harness).places.groups
        text = 'waiting for pods\'s pod group "train" to appear in scheduling queue'
        assert {pending_message(harness, each.metadata.name) for each in gang} == {text}
        harness.cluster.put(node("m", cpu="2"))
        harness.cluster.put(group("train", 2))
        await harness.advance(30)
        assert bound_count(harness, gang) == 2

    run(scenario, node("n", cpu="1"), group("train", 2))


class NodeGate(PreEnqueuePlugin):
    """Has the same status for all pods, and is asked again when a node is added."""

    name = "NodeGate"
    events_to_register = (on(EventResource.NODE, Action.ADD),)
    status = Status.unschedulable("closed")

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return NodeGate.status


def test_a_gated_group_of_which_a_helped_pod_fails_at_pre_enqueue_is_tried_again_without_another_event() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        NodeGate.status = Status.unschedulable("closed")
        gang = members(2, "train", cpu="1")
        create_pods(harness, gang)
        await harness.settle()
        assert set(places(harness).values()) == {Place.GATED}
        NodeGate.status = Status.error("broken")
        harness.cluster.put(member("late", "train", cpu="1"))
        await harness.settle()
        assert pending_message(harness, "late") == 'running PreEnqueue plugin "NodeGate": broken'
        assert set(places(harness).values()) == {Place.GATED}
        harness.cluster.put(node("m"))
        await harness.settle()
        assert set(places(harness).values()) == {Place.ERROR_BACKOFF}
        messages = {pending_message(harness, name) for name in places(harness)}
        assert messages == {'running PreEnqueue plugin "NodeGate": broken'}
        NodeGate.status = SUCCESS
        await harness.advance(15)
        assert bound_count(harness, gang) == 2

    run(scenario, group("train", 2), **enabled(NodeGate))


class FailingOnce(PreBindPlugin):
    """Fails at every PreBind of one pod."""

    name = "FailingOnce"
    events_to_register = ()

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.calls = 0

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return Status.error("no") if pod.name == "train-0" else SUCCESS


def test_a_pod_whose_binding_failed_delays_its_group() -> None:
    """Otherwise the group, of which other pods are always scheduled, would be tried over and over again."""
    decisions = Decisions()

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [*members(1, "train"), member("train-1", "train", cpu="9")])
        await harness.advance(60)
        assert decisions.pods.count("train-0") < 12

    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "FailingOnce"}]}}}
    options: dict[str, Any] = {"plugins": [FailingOnce], "profiles": [profile]}
    run(scenario, node("n", cpu="1"), group("train", 0), observer=decisions, **options)


def test_a_simulation_of_a_group_that_does_not_fit_is_not_busy() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        began = asyncio.get_running_loop().time()
        create_pods(harness, members(2, "train", cpu="1"))
        await harness.advance(0.5)
        assert harness.scheduler.queue.is_busy(began + 1)
        await harness.advance(10)
        assert not harness.scheduler.queue.is_busy(began + 1)
        assert harness.scheduler.queue.is_busy(asyncio.get_running_loop().time())

    run(scenario, node("n", cpu="1"), group("train", 2))


def queue_samples(observed: Observed, name: str) -> dict[tuple[str, str], float]:
    """The samples of a metric by queue and type that are not 0."""
    found: dict[tuple[str, str], float] = {}
    for (sample, labels), value in observed.samples().items():
        if sample == name and value:
            its = dict(labels)
            key = its["queue"], its.get("type", "")
            found[key] = found.get(key, 0) + value
    return found


def test_the_metrics_count_entities() -> None:
    gated = pod("gated", spec={"schedulingGates": [{"name": "wait"}]})
    others: Sequence[Pod] = [gated, pod("big", cpu="9"), member("lost", "none")]

    async def scenario(observed: Observed) -> None:
        create_pods(observed.harness, [*members(2, "train", cpu="1"), *members(1, "two"), *others])
        await observed.harness.advance(5)
        entities = {("backoff", "podgroup"): 1, ("gated", "podgroup"): 1, ("gated", "pod"): 1}
        assert queue_samples(observed, "scheduler_queued_entities") == entities | {("unschedulable", "pod"): 1}
        pods = {("backoff", ""): 2, ("gated", ""): 2, ("incomplete", ""): 1, ("unschedulable", ""): 1}
        assert queue_samples(observed, "scheduler_pending_pods") == pods
        entered = queue_samples(observed, "scheduler_queue_incoming_entities_total")
        assert (
            entered["backoff", "podgroup"] * 2
            == queue_samples(observed, "scheduler_queue_incoming_pods_total")["backoff", ""]
        )

    observe(scenario, node("n", cpu="1"), group("train", 2), group("two", 2), **OPTIONS)


def budget(name: str, labels: Mapping[str, str]) -> PodDisruptionBudget:
    """A disruption budget that allows no eviction."""
    spec = {"selector": {"matchLabels": dict(labels)}}
    return convert(PodDisruptionBudget, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def disruptions(observed: Observed, preemptor: str) -> tuple[float, float, float]:
    """The number of preemptions that disrupted groups, of the units, and of the violations of budgets."""
    name = "scheduler_preemption_workload_disruptions"
    count, total = (observed.value(f"{name}_{each}", preemptor=preemptor) for each in ("count", "sum"))
    return count, total, observed.value("scheduler_preemption_pdb_violations_total", preemptor=preemptor)


def durations(observed: Observed, of: str) -> dict[tuple[str, str], float]:
    """How many durations of preemptions were measured, by what they were for and how they ended."""
    name = f"scheduler_preemption_{of}_duration_seconds_count"
    return {
        (dict(labels)["preemptor"], dict(labels)["result"]): count
        for (sample, labels), count in observed.samples().items()
        if sample == name
    }


@pytest.mark.parametrize("preemptor", ["pod", "podgroup"])
@pytest.mark.parametrize(("mode", "units"), [({"all": {}}, 1), ({"single": {}}, 2)])
def test_the_metrics_of_preemption_count_units_of_groups_and_violations(
    preemptor: str, mode: dict[str, Any], units: int
) -> None:
    async def scenario(observed: Observed) -> None:
        for victim in (
            *members(2, "low", cpu="1", node="n", labels={"group": "low"}),
            pod("single", cpu="1", node="n"),
        ):
            observed.harness.cluster.put(victim)
        await observed.harness.settle()
        if preemptor == "pod":
            observed.harness.cluster.put(pod("high", cpu="3", priority=100))
        else:
            create_pods(observed.harness, members(3, "high", cpu="1", priority=100))
        await observed.harness.advance(5)
        assert disruptions(observed, preemptor) == (1, units, 2)
        assert durations(observed, "evaluation") == {(preemptor, "Success"): 1}
        assert durations(observed, "execution") == {(preemptor, "success"): 1}
        unfit = (
            pod("unfit", cpu="9", priority=200) if preemptor == "pod" else member("u", "unfit", cpu="9", priority=200)
        )
        observed.harness.cluster.put(unfit)
        await observed.harness.settle()
        assert durations(observed, "evaluation")[preemptor, "Unschedulable"] == 1
        assert durations(observed, "execution") == {(preemptor, "success"): 1}

    groups = group("low", 0, priority=1, disruptionMode=mode), group("high", 3, priority=100)
    objects = node("n", cpu="3"), *groups, group("unfit", 1, priority=200), budget("strict", {"group": "low"})
    observe(scenario, *objects, **OPTIONS)


def test_a_preemption_that_disrupts_no_group_and_no_budget_does_not_count_there() -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("high", cpu="1", priority=100))
        await observed.harness.advance(5)
        assert observed.value("scheduler_preemption_victims_count") == 1
        assert disruptions(observed, "pod") == (0, 0, 0)

    observe(scenario, node("n", cpu="1"), pod("low", cpu="1", node="n"), **OPTIONS)


class FirstDeletionFails(MemoryCluster):
    """A cluster that forbids the first deletion of a pod."""

    has_failed = False

    async def delete_pod(self, pod: ObjectReference) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise APIError(403, "Forbidden", "no")
        await super().delete_pod(pod)


def test_a_failed_eviction_is_measured_as_an_error() -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("high", cpu="1", priority=100))
        await observed.harness.settle()
        assert durations(observed, "execution") == {("pod", "error"): 1, ("pod", "success"): 1}

    observe(scenario, node("n", cpu="1"), pod("low", cpu="1", node="n"), cluster=FirstDeletionFails(), **OPTIONS)


def test_a_group_that_may_not_preempt_is_not_measured() -> None:
    async def scenario(observed: Observed) -> None:
        create_pods(observed.harness, members(1, "big", cpu="9"))
        await observed.harness.settle()
        assert observed.value("scheduler_workload_preemption_attempts_total") == 1
        assert not durations(observed, "evaluation")

    observe(scenario, node("n", cpu="2"), group("big", 1), **OPTIONS)


def test_the_metrics_count_preemptions_of_groups_apart() -> None:
    async def scenario(observed: Observed) -> None:
        create_pods(observed.harness, members(2, "train", cpu="1", priority=100))
        await observed.harness.advance(5)
        assert observed.value("scheduler_workload_preemption_attempts_total", result="Success") == 1
        assert observed.value("scheduler_workload_preemption_victims_sum") == 2
        assert observed.value("scheduler_preemption_victims_count") == 0
        create_pods(observed.harness, members(1, "big", cpu="9"))
        await observed.harness.settle()
        rejected = observed.value("scheduler_workload_preemption_attempts_total", result="UnschedulableAndUnresolvable")
        assert rejected == 1

    low = pods(2, prefix="low", cpu="1", priority=10, node="n")
    groups = group("train", 2, priority=100), group("big", 1)
    observe(scenario, node("n", cpu="2"), *groups, *low, **OPTIONS)
