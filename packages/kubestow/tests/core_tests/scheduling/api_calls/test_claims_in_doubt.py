"""Resource claims in an uncertain state: slow writes, lost responses, and a lagging watch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import TEAMS, gang_scheduling, group, members
from kubestow.api.resource import ResourceClaim
from kubestow.engine.cluster_api.memory_api import ClusterClaimStore
from kubestow.engine.cluster_api.resource_claims import InMemoryResourceClaims
from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.interfaces import Resource
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.devices import claim, device_class, pod_with, slice_of
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

CLUSTER = (node("n"), device_class(), slice_of("d0", node="n"))


class SlowUnreserveClaims(InMemoryResourceClaims):
    """Patches that remove a reservation take three seconds, and the responses to ``lost`` patches are lost."""

    lost = 0

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        reserved = patch.get("status", {}).get("reservedFor") or []
        if any("$patch" in change for change in reserved):
            await asyncio.sleep(3)
        patched = await super().patch(claim, patch, subresource=subresource)
        if self.lost and subresource:
            self.lost -= 1
            raise Unreachable("server", "no answer in time")
        return patched


class LaggingWatchCluster(MemoryCluster):
    """Delivers watch events of claims five seconds late, in order."""

    delivered = 0

    @cached_property
    def resource_claims(self) -> SlowUnreserveClaims:
        return SlowUnreserveClaims(ClusterClaimStore(self))

    def _notify(self, resource: Resource, event_type: str, obj: Any) -> None:
        self.delivered += 1  # the loop does not order timers of the same time
        late = 5.0 + self.delivered / 1e6 if resource.type is ResourceClaim and self._subscribers else 0.0
        asyncio.get_running_loop().call_later(late, super()._notify, resource, event_type, obj)


def test_a_claim_being_unreserved_is_reserved_again_before_its_pod_is_bound() -> None:
    cluster = LaggingWatchCluster(bind_failures=[APIError(409, "Conflict", "try again")])

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod_with("c"))
        await harness.advance(30)
        assert harness.node_of("p") == "n"
        assert harness.cluster.claim("c").is_reserved_for("uid-default-p")

    in_virtual_time(scenario, *CLUSTER, claim(), cluster=cluster)


def test_a_device_whose_allocation_is_in_doubt_is_not_allocated_to_another_claim() -> None:
    cluster = LaggingWatchCluster()
    cluster.resource_claims.lost = 1

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod_with("c"))
        await harness.advance(0.05)
        harness.cluster.put(pod_with("other", name="q"))
        await harness.advance(30)
        assert harness.node_of("p") == "n"
        assert harness.cluster.claim("other").status.allocation is None

    in_virtual_time(scenario, *CLUSTER, claim(), claim("other"), cluster=cluster)


class SlowAllocationClaims(InMemoryResourceClaims):
    """Allocations take five seconds, and fail with ``error`` if it is set."""

    error: APIError | None = None

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        if patch.get("status", {}).get("allocation"):
            await asyncio.sleep(5)
            if self.error is not None:
                raise self.error
        return await super().patch(claim, patch, subresource=subresource)


class SlowAllocationCluster(MemoryCluster):
    @cached_property
    def resource_claims(self) -> SlowAllocationClaims:
        return SlowAllocationClaims(ClusterClaimStore(self))


@pytest.mark.parametrize("error", [None, APIError(403, "Forbidden", "no")])
def test_devices_stay_reserved_while_the_allocation_of_a_preempted_pod_is_in_flight(
    error: APIError | None,
) -> None:
    cluster = SlowAllocationCluster()
    cluster.resource_claims.error = error

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod_with("c", cpu="3"))
        await harness.advance(1)
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.advance(2)
        harness.cluster.put(pod_with("other", name="q"))
        await harness.advance(20)
        assert harness.node_of("high") == "n"
        cluster.resource_claims.error = None
        await harness.advance(20)
        allocated = [name for name in ("c", "other") if harness.cluster.claim(name).status.allocation is not None]
        assert allocated == (["c"] if error is None else ["other"])
        assert not harness.cluster.claim("c").is_reserved_for("uid-default-p")

    nodes = (node("n", cpu="4"), device_class(), slice_of("d0", node="n"))
    in_virtual_time(scenario, *nodes, claim(), claim("other"), cluster=cluster)


class SlowResponseClaims(InMemoryResourceClaims):
    """Allocations take effect at once, and their responses arrive three seconds later."""

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        patched = await super().patch(claim, patch, subresource=subresource)
        await asyncio.sleep(3 if patch.get("status", {}).get("allocation") else 0)
        return patched


class SlowResponseCluster(MemoryCluster):
    @cached_property
    def resource_claims(self) -> SlowResponseClaims:
        return SlowResponseClaims(ClusterClaimStore(self))


def test_a_pod_does_not_rely_on_a_reservation_whose_removal_is_pending() -> None:
    """Its gang becomes incomplete and complete again while its claim is being written."""
    with_claim = pod_with("c", name="train-0", labels={"team": "train"})
    _, first, second = members(3, "train", api=TEAMS)

    async def scenario(harness: SchedulerHarness) -> None:
        for each in (with_claim, first):
            harness.cluster.put(each)
        await harness.advance(1)
        harness.cluster.remove(first)
        harness.cluster.put(second)
        await harness.advance(30)
        assert harness.node_of("train-0") == "n"
        assert harness.cluster.claim("c").is_reserved_for("uid-default-train-0")

    objects = (*CLUSTER, claim(), group("train", 2, api=TEAMS))
    in_virtual_time(scenario, *objects, cluster=SlowResponseCluster(), **gang_scheduling())
