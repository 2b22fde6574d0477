"""The status of PodGroups: phases and conditions as Volcano's scheduler writes them."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import msgspec
import pytest

from contrib_tests.volcano.objects import member, pod_group, profile, queue
from kubestow.errors import APIError
from kubestow.testing import SchedulerHarness, in_virtual_time, node
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow_contrib.volcano.pod_groups import VOLCANO, PodGroup, PodGroupStatus
from kubestow_contrib.volcano.volcano import Volcano


def status_of(harness: SchedulerHarness, name: str = "a") -> PodGroupStatus:
    group = harness.scheduler.cluster.catalog(PodGroup).get("default", name)
    assert group is not None
    return group.status


def run(scenario: Any, *objects: Any, cluster: MemoryCluster | None = None) -> None:
    in_virtual_time(
        scenario, *objects, plugins=[Volcano], pod_group_apis=[VOLCANO], profiles=profile(), cluster=cluster
    )


def start(harness: SchedulerHarness, name: str) -> None:
    """Report a pod as running."""
    pod = harness.cluster.pod(name)
    harness.cluster.put(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Running")))


def test_a_group_is_admitted_before_it_has_pods_and_runs_when_enough_are_placed() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(3)
        assert status_of(harness).phase == "Inqueue"
        for number in range(2):
            harness.cluster.put(member(f"a-{number}", "a", cpu="1"))
        await harness.advance(3)
        assert (status_of(harness).phase, status_of(harness).running) == ("Running", 0)
        assert [(each.type, each.status) for each in status_of(harness).conditions] == [("Scheduled", "True")]
        start(harness, "a-0")
        await harness.advance(3)
        assert status_of(harness).running == 1

    run(scenario, node("n", cpu="4"), pod_group("a", minMember=2, minResources={"cpu": "2"}))


def test_a_group_without_room_stays_pending_and_says_why() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(member("a-0", "a", cpu="1"))
        await harness.advance(3)
        status = status_of(harness)
        assert status.phase == "Pending"
        (condition,) = status.conditions
        assert (condition.type, condition.reason) == ("Unschedulable", "NotEnoughResources")
        assert condition.message.startswith(
            "1/1 tasks in gang unschedulable: Queue q has no room for spec.minResources"
        )
        assert condition.last_transition_time
        harness.cluster.put(queue("q", capability={"cpu": "9"}))
        await harness.advance(5)
        assert status_of(harness).phase == "Running"

    objects = [queue("q", capability={"cpu": "1"}), pod_group("a", "q", minResources={"cpu": "2"})]
    run(scenario, node("n", cpu="4"), *objects)


def test_a_group_that_lacks_pods_while_some_run_is_unknown() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(3)
        start(harness, "a-0")
        start(harness, "a-1")
        await harness.advance(3)
        assert status_of(harness).phase == "Running"
        harness.cluster.remove(harness.cluster.pod("a-1"))
        await harness.advance(3)
        assert status_of(harness).phase == "Unknown"

    pods = [member(f"a-{number}", "a", cpu="1") for number in range(2)]
    run(scenario, node("n", cpu="4"), pod_group("a", minMember=2), *pods)


class WithFinishedPods(MemoryCluster):
    """Serves pods that have ended."""

    ended: dict[str, Any]

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """A pod by its name."""
        if (pod := self.ended.get(path.rpartition("/")[2])) is None:
            raise APIError(404, "NotFound", path)
        return pod


def test_a_group_is_completed_when_its_pods_have_succeeded() -> None:
    cluster = WithFinishedPods()
    cluster.ended = {}

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(3)
        for number in range(2):
            pod = harness.cluster.pod(f"a-{number}")
            cluster.ended[pod.metadata.name] = {"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Succeeded"}}
            harness.cluster.remove(pod)
        harness.cluster.remove(harness.cluster.pod("a-2"))
        await harness.advance(3)
        status = status_of(harness)
        assert (status.phase, status.succeeded, status.failed, status.running) == ("Completed", 2, 0, 0)

    pods = [member(f"a-{number}", "a", cpu="1") for number in range(3)]
    run(scenario, node("n", cpu="4"), pod_group("a", minMember=2), *pods, cluster=cluster)


def test_an_admitted_group_stays_admitted_after_a_restart() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(3)
        assert (status_of(harness, "b").phase, status_of(harness).phase) == ("Inqueue", "Pending")

    first = pod_group("a", "q", minResources={"cpu": "2"})
    second = pod_group("b", "q", minResources={"cpu": "2"})
    second = msgspec.structs.replace(second, status=PodGroupStatus(phase="Inqueue"))
    run(scenario, node("n", cpu="4"), queue("q", capability={"cpu": "3"}), first, second)


class ReadOnly(MemoryCluster):
    """Forbids patches."""

    async def patch(self, *arguments: Any, **options: Any) -> str:
        """Raises APIError."""
        raise APIError(403, "Forbidden", "podgroups is forbidden")


def test_one_warning_says_that_statuses_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(10)
        assert harness.node_of("a-0") == "n"

    run(scenario, node("n", cpu="4"), pod_group("a"), member("a-0", "a", cpu="1"), cluster=ReadOnly())
    found = [record.message for record in caplog.records if "PodGroup" in record.message]
    assert found == ["the status of PodGroups cannot be written: podgroups is forbidden"]


def test_a_running_group_keeps_its_phase_while_its_pods_terminate() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(3)
        start(harness, "a-0")
        start(harness, "a-1")
        await harness.advance(3)
        for number in range(2):
            pod = harness.cluster.pod(f"a-{number}")
            metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:10Z")
            harness.cluster.put(msgspec.structs.replace(pod, metadata=metadata))
            await harness.advance(3)
            assert status_of(harness).phase == "Running"
            assert [each.type for each in status_of(harness).conditions] == ["Scheduled"]

    pods = [member(f"a-{number}", "a", cpu="1") for number in range(2)]
    run(scenario, node("n", cpu="4"), pod_group("a", minMember=2), *pods)


@pytest.mark.parametrize("seed", range(12))
def test_the_groups_that_are_compared_are_those_whose_statuses_have_changed(seed: int) -> None:
    """A new queue has all of them compared, and then none is written."""
    random, number = Random(seed), itertools.count()

    def put_group(harness: SchedulerHarness) -> None:
        minimum = random.choice([{}, {"minResources": {"cpu": "2"}}])
        harness.cluster.put(pod_group(random.choice("abc"), random.choice(["", "q"]), minMember=2, **minimum))

    def put_pod(harness: SchedulerHarness) -> None:
        harness.cluster.put(member(f"p-{next(number)}", random.choice("abc"), cpu="1"))

    def change_pod(harness: SchedulerHarness) -> None:
        if pods := harness.cluster.pods():
            pod, action = random.choice(pods), random.randrange(4)
            if action == 0:
                harness.cluster.remove(pod)
            elif action == 1:
                harness.cluster.put(
                    msgspec.structs.replace(
                        pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
                    )
                )
            else:
                phase = "Running" if action == 2 else "Succeeded"
                changed = msgspec.structs.replace(pod.status, phase=phase) if pod.spec.node_name else pod.status
                harness.cluster.put(msgspec.structs.replace(pod, status=changed))

    async def scenario(harness: SchedulerHarness) -> None:
        for _ in range(40):
            random.choice([put_group, put_pod, put_pod, put_pod, change_pod, change_pod])(harness)
            await harness.advance(random.choice([0.1, 1.5]))
        await harness.advance(5)
        groups = harness.scheduler.cluster.catalog(PodGroup)
        before = {group.metadata.name: group.status for group in groups}
        harness.cluster.put(queue("new"))
        await harness.advance(5)
        assert {group.metadata.name: group.status for group in groups} == before

    run(scenario, node("n", cpu="4"), queue("q"))
