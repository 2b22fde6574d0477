"""The pods of a group share an allocation from Reserve on, so that one cycle can schedule them (semantics 8.16)."""

from __future__ import annotations

from typing import Any

from core_tests.engine.gangs.clusters import pod_group
from kubestow.api.core import Pod
from kubestow.testing import SchedulerHarness, in_virtual_time, node, pod
from kubestow.testing.devices import claim, device_class, slice_of

GATES = {"GenericWorkload": True, "GangScheduling": True}
NODES = [node("n0", cpu="4"), node("n1", cpu="4")]
DEVICES = [device_class(), slice_of("g0", node="n0"), slice_of("g0", node="n1")]


def workers(count: int, *claims: str, group: str = "train") -> list[Pod]:
    """Pods of a group that name claims."""
    spec: dict[str, Any] = {"resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return [pod(f"{group or 'single'}-{number}", cpu="1", spec=spec) for number in range(count)]


def run(scenario: Any, *objects: Any) -> None:
    """Run a scenario with groups and devices."""
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}
    in_virtual_time(scenario, *NODES, *DEVICES, *objects, gates=GATES, profiles=[profile])


def test_the_pods_of_a_group_are_on_the_node_of_the_claim_that_they_share() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers(3, "shared"):
            harness.cluster.put(each)
        await harness.settle()

        assert len({harness.node_of(f"train-{number}") for number in range(3)} - {""}) == 1
        status = harness.cluster.claim("shared").status
        assert status.allocation is not None
        assert {each.name for each in status.reserved_for} == {"train-0", "train-1", "train-2"}
        assert not list(harness.scheduler.cluster.resource_claims.pending_allocations())

    run(scenario, pod_group("train", 3), claim("shared"))


def test_a_group_that_does_not_fit_gives_the_shared_devices_back() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers(5, "shared"):
            harness.cluster.put(each)
        await harness.settle()

        assert not harness.node_of("train-0")
        assert not list(harness.scheduler.cluster.resource_claims.pending_allocations())
        assert harness.cluster.claim("shared").status.allocation is None

    run(scenario, pod_group("train", 5), claim("shared"))


def test_a_pod_of_another_group_does_not_share_what_is_pending() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        tracker = harness.scheduler.cluster.resource_claims
        allocated = claim("shared", status={"allocation": {"devices": {"results": []}}})
        tracker.signal_pending_allocation(allocated, {"train"})

        assert tracker.shared_allocation("uid-shared", {"train", "x"}) is allocated
        assert tracker.shared_allocation("uid-shared", {"other"}) is None
        tracker.share_pending_allocation("uid-shared")
        assert tracker.remove_pending_allocation("uid-shared")
        assert tracker.has_pending_allocation("uid-shared")
        assert tracker.remove_pending_allocation("uid-shared")
        assert not tracker.has_pending_allocation("uid-shared")

    run(scenario, claim("shared"))
