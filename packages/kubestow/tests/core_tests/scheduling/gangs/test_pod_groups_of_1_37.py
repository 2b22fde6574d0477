"""Kubernetes' pod groups since 1.37: one cycle and one attempt to preempt for all pods of a group, and its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from core_tests.scheduling.fixture import TerminatingCluster, enabled
from core_tests.scheduling.gangs.groups import group, member, members
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, pending_message, remaining
from kubestow.api.core import Pod
from kubestow.api.scheduling import Condition, PodGroup
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.interface import (
    FilterRunner,
    Handle,
    PostFilterPlugin,
    PostFilterResult,
    ReservePlugin,
)
from kubestow.framework.status import Status
from kubestow.rules.minors import Behaviour, Minor
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing import MemoryCluster, node, pod, pods
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

OF_1_37: dict[str, Any] = {"minor": Minor(37), "gates": {"GenericWorkload": True}}
WITH_TOPOLOGY: dict[str, Any] = {
    "minor": Minor(37),
    "gates": {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True},
}
ALL: dict[str, Any] = {"all": {}}


V37 = Minor(37)


def without(behaviour: Behaviour) -> Minor:
    """1.37 as if a behaviour had not come."""
    return V37.without(behaviour)


def condition(harness: SchedulerHarness, name: str) -> Condition:
    (only,) = harness.cluster.objects(PodGroup)["default", name].status.conditions
    return only


def after(seconds: float, gang: Sequence[Pod], check: Any, *objects: Any, **options: Any) -> None:
    """Create the pods of a gang, and check the harness after so many seconds."""

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, list(gang))
        await harness.advance(seconds)
        check(harness)

    in_virtual_time(scenario, *objects, **(options or OF_1_37))


@pytest.mark.parametrize(
    ("minor", "kind"),
    [
        (V37, "PodGroupInitiallyScheduled"),
        (without(Behaviour.POD_GROUPS_ARE_INITIALLY_SCHEDULED), "PodGroupScheduled"),
    ],
    ids=["since", "before"],
)
def test_a_gang_that_fits_is_initially_scheduled(minor: Minor, kind: str) -> None:
    gang = members(2, "train", cpu="1")

    def check(harness: SchedulerHarness) -> None:
        assert bound_count(harness, gang) == 2
        found = condition(harness, "train")
        assert (found.type, found.status, found.reason) == (kind, "True", "Scheduled")

    after(5, gang, check, node("n", cpu="2"), group("train", 2), **OF_1_37 | {"minor": minor})


def test_a_gang_that_does_not_fit_says_how_far_it_came() -> None:
    gang = members(3, "train", cpu="1")

    def check(harness: SchedulerHarness) -> None:
        assert bound_count(harness, gang) == 0
        found = condition(harness, "train")
        text = "pod group is unschedulable, minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
        text += ", pod group preemption: No preemption victims found for incoming preemptor"
        assert (found.status, found.reason, found.message) == ("False", "Unschedulable", text)
        own = "0/1 nodes are available: 1 Insufficient cpu."
        assert sorted(pending_message(harness, each.metadata.name) for each in gang) == [own, text, text]

    after(5, gang, check, node("n", cpu="1"), group("train", 3))


@pytest.mark.parametrize(
    ("minor", "is_left"),
    [
        (without(Behaviour.POD_GROUPS_ARE_QUEUED), True),
        (without(Behaviour.POD_GROUPS_ARE_QUEUED).without(Behaviour.POD_GROUPS_ARE_UNITS), False),
    ],
    ids=["units", "before"],
)
def test_pods_beyond_the_min_count_wait_without_preempting(minor: Minor, is_left: bool) -> None:
    gang = members(3, "train", cpu="1", priority=100)
    low = pods(1, prefix="low", cpu="1", priority=10, node="n")

    def check(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, gang), remaining(harness, low)) == ((2, ["low-0"]) if is_left else (3, []))
        if is_left:
            pending = next(each.metadata.name for each in gang if not harness.node_of(each.metadata.name))
            assert pending_message(harness, pending) == "0/1 nodes are available: 1 Insufficient cpu."

    options = OF_1_37 | {"minor": minor}
    after(30, gang, check, node("n", cpu="3"), group("train", 2, priority=100), *low, **options)


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ({"priority": 5}, "the same priority as the pod group's priority, got 5 and 0"),
        ({"spec": {"preemptionPolicy": "Never"}}, "the same preemption policy, got Never and PreemptLowerPriority"),
    ],
)
def test_the_pods_of_a_group_are_alike(second: dict[str, Any], problem: str) -> None:
    spec = {"schedulingGroup": {"podGroupName": "train"}} | second.pop("spec", {})
    gang = [member("train-0", "train"), pod("train-1", spec=spec, **second)]

    def check(harness: SchedulerHarness) -> None:
        assert bound_count(harness, gang) == 0
        text = f"all pods in a single pod group should have {problem}"
        found = condition(harness, "train")
        assert (found.status, found.reason, found.message) == ("False", "SchedulerError", text)
        assert pending_message(harness, "train-0") == text

    after(1, gang, check, node("n"), group("train", 2))


def test_a_gated_pod_gates_its_group() -> None:
    gated = pod("train-2", spec={"schedulingGroup": {"podGroupName": "train"}, "schedulingGates": [{"name": "wait"}]})
    gang = [*members(2, "train"), gated]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert bound_count(harness, gang) == 0
        harness.cluster.put(pod("train-2", spec={"schedulingGroup": {"podGroupName": "train"}}))
        await harness.advance(5)
        assert bound_count(harness, gang) == 3

    in_virtual_time(scenario, node("n"), group("train", 2), **OF_1_37)


@pytest.mark.parametrize("minor", [V37, without(Behaviour.POD_GROUPS_ARE_QUEUED)], ids=["since", "before"])
def test_a_group_no_longer_waits_for_a_gated_pod_that_is_deleted(minor: Minor) -> None:
    gated = pod("train-2", spec={"schedulingGroup": {"podGroupName": "train"}, "schedulingGates": [{"name": "wait"}]})
    gang = members(2, "train")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [gated, *gang])
        await harness.advance(5)
        assert bound_count(harness, gang) == 0
        harness.cluster.remove(gated)
        await harness.advance(5)
        assert bound_count(harness, gang) == 2

    in_virtual_time(scenario, node("n"), group("train", 2), **OF_1_37 | {"minor": minor})


def test_a_smaller_min_count_requeues_a_waiting_gang() -> None:
    gang = members(3, "train", cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(5)
        assert bound_count(harness, gang) == 0
        harness.cluster.put(group("train", 2))
        await harness.advance(15)
        assert bound_count(harness, gang) == 2

    in_virtual_time(scenario, node("n", cpu="2"), group("train", 3), **OF_1_37)


def test_a_group_preempts_as_few_units_as_fit_beside_its_nodes() -> None:
    gang = members(2, "train", cpu="1", priority=100)
    low = pods(4, prefix="low", cpu="1", priority=10, node="n")

    def check(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, gang), remaining(harness, low)) == (2, ["low-0", "low-1"])

    after(30, gang, check, node("n", cpu="4"), group("train", 2, priority=100), *low)


def test_a_group_that_preempts_says_how_many_pods_it_evicts() -> None:
    gang = members(2, "train", cpu="1", priority=100)
    low = [pod("low", cpu="2", priority=10, node="n")]

    def check(harness: SchedulerHarness) -> None:
        text = "pod group preemption: found a placement for podgroup, preempting 1 victims"
        assert condition(harness, "train").message.endswith(text)
        nominated = {each.metadata.name: each.status.nominated_node_name for each in harness.cluster.pods()}
        assert (nominated["train-0"], nominated["train-1"]) == ("n", "n")

    options = OF_1_37 | {"cluster": TerminatingCluster()}
    after(0.2, gang, check, node("n", cpu="2"), group("train", 2, priority=100), *low, **options)


def test_without_composite_groups_a_group_is_scheduled_by_itself_whatever_its_parent() -> None:
    gang = members(2, "train")

    def check(harness: SchedulerHarness) -> None:
        assert bound_count(harness, gang) == 2

    after(5, gang, check, node("n"), group("train", 2, parentCompositePodGroupName="missing"), **OF_1_37)


class CountsPostFilters(PostFilterPlugin):
    """Counts the pods that it is asked about."""

    name = "CountsPostFilters"
    events_to_register = ()
    pods: ClassVar[list[str]] = []

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        self.pods.append(pod.name)
        return PostFilterResult(Status.unschedulable("no"))


def test_no_post_filter_plugin_is_asked_about_single_pods_of_a_group() -> None:
    """Not even while it is found out what the group would evict."""
    gang = [*members(2, "train", cpu="1", priority=100), member("train-large", "train", cpu="64", priority=100)]
    low = [pod("low", cpu="2", priority=10, node="n")]

    def check(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, gang), remaining(harness, low)) == (2, [])
        assert CountsPostFilters.pods == []

    CountsPostFilters.pods.clear()
    options = OF_1_37 | enabled(CountsPostFilters)
    after(30, gang, check, node("n", cpu="2"), group("train", 2, priority=100), *low, **options)


def test_a_pod_beyond_those_that_a_group_preempts_for_is_nominated_to_no_node() -> None:
    gang = [*members(2, "train", cpu="1", priority=100), member("train-large", "train", cpu="64", priority=100)]
    low = [pod("low", cpu="2", priority=10, node="n")]

    def check(harness: SchedulerHarness) -> None:
        nominations = {name: harness.scheduler.cluster.nomination(f"uid-default-{name}") for name in names}
        assert nominations == {"train-0": "n", "train-1": "n", "train-large": None}
        assert harness.cluster.pod("train-large").status.nominated_node_name == ""

    names = [each.metadata.name for each in gang]
    options = OF_1_37 | {"cluster": TerminatingCluster()}
    after(0.2, gang, check, node("n", cpu="2"), group("train", 2, priority=100), *low, **options)


@pytest.mark.parametrize(
    ("minor", "bound", "left"),
    [
        (V37, 2, ["low-c"]),
        (without(Behaviour.POD_GROUPS_PREEMPT_IN_ONE_ATTEMPT), 0, ["low-a", "low-b", "low-c"]),
    ],
    ids=["since", "before"],
)
def test_a_group_preempts_under_a_topology_constraint(minor: Minor, bound: int, left: list[str]) -> None:
    gang = members(2, "train", cpu="1", priority=100)
    nodes = [node(name, cpu="1", labels={"rack": rack}) for name, rack in (("a", "1"), ("b", "1"), ("c", "2"))]
    low = [pod(f"low-{name}", cpu="1", priority=10, node=name) for name in ("a", "b", "c")]

    def check(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, gang), remaining(harness, low)) == (bound, left)

    high = group("train", 2, priority=100, schedulingConstraints={"topology": [{"key": "rack"}]})
    after(30, gang, check, *nodes, high, *low, **WITH_TOPOLOGY | {"minor": minor})


def test_the_pods_of_a_group_count_with_its_priority_as_victims() -> None:
    gang = members(1, "train", cpu="1", priority=100)
    protected = [member("web-0", "web", cpu="1", priority=10, node="n")]

    def check(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, gang), remaining(harness, protected)) == (0, ["web-0"])

    after(
        30, gang, check, node("n", cpu="1"), group("train", 1, priority=100), group("web", 1, priority=100), *protected
    )


def test_a_group_with_disruption_mode_all_is_evicted_as_a_whole() -> None:
    gang = members(1, "train", cpu="1", priority=100)
    low = [member(f"low-{name}", "low", cpu="1", priority=10, node=name) for name in ("a", "b")]

    def check(harness: SchedulerHarness) -> None:
        assert (bound_count(harness, gang), remaining(harness, low)) == (1, [])

    groups = group("train", 1, priority=100), group("low", 2, priority=10, disruptionMode=ALL)
    after(30, gang, check, node("a", cpu="1"), node("b", cpu="1"), *groups, *low)


class FailsOnceAtReserve(ReservePlugin):
    """Fails for the second pod that comes to Reserve."""

    name = "FailsOnceAtReserve"
    events_to_register = ()

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._calls = 0

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self._calls += 1
        return Status.error("once") if self._calls == 2 else None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


def test_pods_that_an_error_left_untried_are_tried_again() -> None:
    gang = members(4, "train", cpu="1")

    def check(harness: SchedulerHarness) -> None:
        assert bound_count(harness, gang) == 4

    after(60, gang, check, node("n", cpu="8"), group("train", 1), **OF_1_37, **enabled(FailsOnceAtReserve))


@pytest.mark.parametrize(
    ("points", "is_left"), [(("postFilter",), True), (("postFilter", "podGroupPostFilter"), False)]
)
def test_default_preemption_at_post_filter_alone_does_not_preempt_for_groups(
    points: Sequence[str], is_left: bool
) -> None:
    gang = members(2, "train", cpu="1", priority=100)
    low = pods(1, prefix="low", cpu="1", priority=10, node="n")

    def check(harness: SchedulerHarness) -> None:
        assert bound_count(harness, gang) == (0 if is_left else 2)
        if is_left:
            assert "preemption" not in condition(harness, "train").message

    plugins: dict[str, Any] = {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}
    plugins |= {point: {"enabled": [{"name": "DefaultPreemption"}]} for point in points}
    options = OF_1_37 | {"profiles": [{"plugins": plugins}]}
    after(5, gang, check, node("n", cpu="2"), group("train", 2, priority=100), *low, **options)


class BindingsFail(MemoryCluster):
    """The first binding of train-1 is throttled, and train-0 is deleted before it is retried."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        self.sent.append(pod.name)
        if pod.name == "train-0":
            await asyncio.sleep(1)
        else:
            self.remove(self.pod("train-0"))
        raise APIError(429, "TooManyRequests", "throttled")


def test_a_binding_is_not_retried_once_the_gang_has_too_few_pods() -> None:
    cluster = BindingsFail()

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train"))
        await harness.advance(20)
        assert cluster.sent.count("train-1") == 1

    in_virtual_time(scenario, node("n"), group("train", 2), cluster=cluster, **OF_1_37)
