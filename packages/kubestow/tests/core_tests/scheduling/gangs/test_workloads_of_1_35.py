"""Gangs of Workloads, as in 1.35 (before Behaviour.POD_GROUPS_ARE_OBJECTS)."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, pending_message
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.scheduling import Workload
from kubestow.rules.minors import Behaviour, Minor
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

V35 = Minor(35)
GATES = {"GenericWorkload": True, "GangScheduling": True}


def options(minor: Minor = V35) -> dict[str, Any]:
    return {"minor": minor, "gates": GATES}


def workload(name: str = "job", *, workers: int | None = 2) -> Workload:
    """A Workload with a gang ``workers``, or a group with the basic policy, and one of another name."""
    policy: dict[str, Any] = {"basic": {}} if workers is None else {"gang": {"minCount": workers}}
    groups = [{"name": "drivers", "policy": {"gang": {"minCount": 9}}}, {"name": "workers", "policy": policy}]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return convert(Workload, {"metadata": metadata, "spec": {"podGroups": groups}})


def worker(number: int, *, of: str = "job", group: str = "workers", replica: str = "", **same: Any) -> Pod:
    reference = {"name": of, "podGroup": group, "podGroupReplicaKey": replica}
    return pod(f"{of}{replica}-{number}", spec={"workloadRef": reference}, **same)


def waiting(harness: SchedulerHarness) -> list[str]:
    return sorted(each.info.name for each in harness.scheduler.waiting_pods.all())


def test_a_gang_is_bound_once_all_of_it_has_nodes() -> None:
    gang = [worker(number, cpu="1") for number in range(2)]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(2)
        assert bound_count(harness, gang) == 2

    in_virtual_time(scenario, node("n", cpu="2"), workload(), **options())


def test_pods_with_nodes_wait_at_permit_for_five_minutes_and_hold_them() -> None:
    gang = [worker(number, cpu="1") for number in range(2)]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(200)
        assert (len(waiting(harness)), bound_count(harness, gang)) == (1, 0)
        harness.cluster.put(pod("other", cpu="1"))
        await harness.advance(90)
        assert harness.node_of("other") == ""  # the waiting pod has the node
        harness.cluster.remove(harness.cluster.objects(Workload)["default", "job"])
        await harness.advance(40)
        assert harness.node_of("other") == "n"  # its time was over

    in_virtual_time(scenario, node("n", cpu="1"), workload(), **options())


def test_the_pod_that_completes_a_gang_allows_the_others() -> None:
    gang = [worker(number, cpu="1") for number in range(2)]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(20)
        assert len(waiting(harness)) == 1
        harness.cluster.put(node("m", cpu="1"))
        await harness.advance(20)
        assert bound_count(harness, gang) == 2

    in_virtual_time(scenario, node("n", cpu="1"), workload(), **options())


@pytest.mark.parametrize(
    ("made", "reference", "message"),
    [
        (workload("other"), {}, 'waiting for pods\'s workload "job" to appear in scheduling queue'),
        (workload(), {"group": "none"}, 'pod group "none" doesn\'t exist for a workload "job"'),
        (workload(), {"group": "drivers"}, "waiting for minCount pods from a gang to appear in scheduling queue"),
    ],
)
def test_a_gang_that_is_not_complete_is_gated(made: Workload, reference: dict[str, Any], message: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [worker(number, **reference) for number in range(2)])
        await harness.advance(10)
        assert {each.place for each in harness.scheduler.queue.pods.values()} == {Place.GATED}
        assert pending_message(harness, "job-0") == message

    in_virtual_time(scenario, node("n"), made, **options())


def test_a_gang_waits_for_its_workload_and_its_pods_whether_they_can_be_scheduled_or_not() -> None:
    gated = pod(
        "job-1", spec={"workloadRef": {"name": "job", "podGroup": "workers"}, "schedulingGates": [{"name": "w"}]}
    )

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [worker(0)])
        await harness.advance(5)
        harness.cluster.put(workload())
        await harness.advance(5)
        assert waiting(harness) == []
        harness.cluster.put(gated)
        await harness.advance(5)
        assert waiting(harness) == ["job-0"]
        harness.cluster.put(worker(1))
        await harness.advance(15)
        assert bound_count(harness, [worker(0), worker(1)]) == 2

    in_virtual_time(scenario, node("n"), **options())


def test_each_replica_is_a_gang_and_pods_of_basic_groups_are_none() -> None:
    gang = [worker(0, replica="a"), worker(0, replica="b"), worker(0, of="plain")]

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(10)
        assert [harness.node_of(each.metadata.name) for each in gang] == ["", "", "n"]
        harness.cluster.put(worker(1, replica="b"))
        await harness.advance(10)
        assert [harness.node_of(each.metadata.name) for each in gang] == ["", "n", "n"]

    in_virtual_time(scenario, node("n"), workload(), workload("plain", workers=None), **options())


@pytest.mark.parametrize(
    ("minor", "is_bound"),
    [(V35, False), (Minor(36), True), (Minor(36).without(Behaviour.POD_GROUPS_ARE_OBJECTS), False)],
    ids=["1.35", "1.36", "without"],
)
def test_workloads_are_read_in_1_35_only(minor: Minor, is_bound: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [worker(0)])
        await harness.advance(5)
        assert bool(harness.node_of("job-0")) == is_bound

    in_virtual_time(scenario, node("n"), workload(), **options(minor))
