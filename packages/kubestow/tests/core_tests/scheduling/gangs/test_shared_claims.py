"""The pods of a group share an allocation from Reserve on, so that one cycle can schedule them (semantics 8.16)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from core_tests.engine.gangs.clusters import pod_group
from kubestow.api.core import Pod, PodResourceClaim, PodResourceClaimStatus
from kubestow.api.resource import ResourceClaim
from kubestow.api.scheduling import PodGroup
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


def run(scenario: Any, *objects: Any, **gates: bool) -> None:
    """Run a scenario with groups and devices."""
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}
    in_virtual_time(scenario, *NODES, *DEVICES, *objects, gates=GATES | gates, profiles=[profile])


def group_with_claim(name: str, *generated: str) -> PodGroup:
    """A group of three with a claim for all its pods, and the names of those that were generated from its template."""
    group = pod_group(name, 3)
    entry = [PodResourceClaim(name="devices", resource_claim_template_name="template")]
    statuses = [PodResourceClaimStatus(name="devices", resource_claim_name=each) for each in generated]
    spec = replace(group.spec, resource_claims=entry)
    return replace(group, spec=spec, status=replace(group.status, resource_claim_statuses=statuses))


def claim_of_group(name: str, group: str) -> ResourceClaim:
    """A claim that was generated for a group."""
    owner = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": group, "uid": group}
    return claim(name, metadata={"ownerReferences": [owner | {"controller": True}]})


def workers_of(group: str) -> list[Pod]:
    """Three pods that share the claim of their group."""
    claims = [{"name": "devices", "resourceClaimTemplateName": "template"}]
    spec = {"schedulingGroup": {"podGroupName": group}, "resourceClaims": claims}
    return [pod(f"{group}-{number}", cpu="1", spec=spec) for number in range(3)]


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


def test_the_pods_of_a_group_share_the_claim_that_was_generated_for_it() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in [*workers_of("a"), *workers_of("b")]:
            harness.cluster.put(each)
        await harness.settle()
        assert not harness.node_of("b-0")  # its claim is not generated yet
        harness.cluster.put(group_with_claim("b", "of-b"))
        await harness.settle()

        nodes = [{harness.node_of(f"{of}-{number}") for number in range(3)} for of in "ab"]
        assert sorted(nodes, key=min) == [{"n0"}, {"n1"}]
        for of in "ab":
            [consumer] = harness.cluster.claim(f"of-{of}").status.reserved_for
            assert (consumer.api_group, consumer.resource, consumer.name) == ("scheduling.k8s.io", "podgroups", of)

    claims = [claim_of_group("of-a", "a"), claim_of_group("of-b", "b")]
    run(scenario, group_with_claim("a", "of-a"), group_with_claim("b"), *claims, DRAWorkloadResourceClaims=True)


def test_a_claim_of_another_group_is_not_usable() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in workers_of("a"):
            harness.cluster.put(each)
        await harness.settle()
        assert not harness.node_of("a-0")
        harness.cluster.put(claim_of_group("of-a", "a"))
        harness.cluster.put(group_with_claim("a", "of-a"))
        await harness.settle()
        assert harness.node_of("a-0")

    run(scenario, group_with_claim("a", "of-b"), claim_of_group("of-b", "b"), DRAWorkloadResourceClaims=True)


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
