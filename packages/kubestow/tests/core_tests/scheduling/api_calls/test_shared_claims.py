"""Pods that share one claim: their reservations are written one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from kubestow.api.resource import ResourceClaim
from kubestow.engine.cluster_api.memory_api import ClusterClaimStore
from kubestow.engine.cluster_api.resource_claims import InMemoryResourceClaims
from kubestow.errors import APIError
from kubestow.testing import MemoryCluster, node
from kubestow.testing.devices import allocation, claim, device_class, pod_with, slice_of
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

PODS = 30
ALLOCATED = claim("c", status={"allocation": allocation("d0", when="2026-01-01T00:00:00Z")})
OBJECTS = (node("n", cpu="64", memory="64Gi"), device_class(), slice_of("d0", node="n"), ALLOCATED)


class SlowClaims(InMemoryResourceClaims):
    """Patches take 50 ms to reach the server; ``conflicts`` are the times of those that failed a precondition.

    The next ``interfered`` patches come after a write of another client. Patches that reserve a claim for the pod
    ``refused`` fail.
    """

    def __init__(self, store: ClusterClaimStore) -> None:
        super().__init__(store)
        self._store = store
        self.interfered = 0
        self.refused = ""
        self.patches = 0
        self.conflicts: list[float] = []

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        await asyncio.sleep(0.05)
        self.patches += 1
        if any(user.get("name") == self.refused for user in patch.get("status", {}).get("reservedFor", ())):
            raise APIError(422, "Invalid", "refused")
        if self.interfered:
            self.interfered -= 1
            self._store.put(await self.read(claim.metadata.namespace, claim.metadata.name))
        try:
            return await super().patch(claim, patch, subresource=subresource)
        except APIError:
            self.conflicts.append(asyncio.get_running_loop().time())
            raise


class SlowCluster(MemoryCluster):
    @cached_property
    def resource_claims(self) -> SlowClaims:
        return SlowClaims(ClusterClaimStore(self))


def bound(harness: SchedulerHarness) -> int:
    return sum(bool(harness.node_of(f"p{number}")) for number in range(PODS))


def test_pods_that_share_a_claim_do_not_conflict_with_each_other() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(PODS):
            harness.cluster.put(pod_with("c", name=f"p{number}", cpu="1m", memory="1Mi"))
        await harness.advance(1)
        assert cluster.resource_claims.conflicts == []
        assert cluster.resource_claims.patches < 5
        assert bound(harness) == PODS
        assert len(harness.cluster.claim("c").status.reserved_for) == PODS

    cluster = SlowCluster()
    in_virtual_time(scenario, *OBJECTS, cluster=cluster)


def test_a_pod_that_is_deleted_meanwhile_holds_up_no_other() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(PODS):
            harness.cluster.put(pod_with("c", name=f"p{number}", cpu="1m", memory="1Mi"))
        await harness.advance(0.06)
        for number in range(0, PODS, 2):
            harness.cluster.remove(harness.cluster.pod(f"p{number}"))
        await harness.advance(60)
        names = {f"p{number}" for number in range(1, PODS, 2)}
        assert {name for name in names if harness.node_of(name)} == names

    in_virtual_time(scenario, *OBJECTS, cluster=SlowCluster())


def test_a_reservation_that_is_refused_fails_no_other() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        cluster.resource_claims.refused = "p7"
        for number in range(PODS):
            harness.cluster.put(pod_with("c", name=f"p{number}", cpu="1m", memory="1Mi"))
        await harness.advance(10)
        assert bound(harness) == PODS - 1
        assert not harness.node_of("p7")
        condition = harness.cluster.condition("p7")
        assert condition is not None and "add reservation to claim default/c: refused" in condition.message

    cluster = SlowCluster()
    in_virtual_time(scenario, *OBJECTS, cluster=cluster)


def test_a_pod_that_is_deleted_while_another_reserves_its_claim_is_released() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(PODS):
            harness.cluster.put(pod_with("c", name=f"p{number}", cpu="1m", memory="1Mi"))
        await harness.advance(0.07)  # the second patch, for all other pods, is in progress
        harness.cluster.remove(harness.cluster.pod(f"p{PODS - 1}"))
        await harness.advance(30)
        users = {user.name for user in harness.cluster.claim("c").status.reserved_for}
        assert users == {f"p{number}" for number in range(PODS - 1)}

    in_virtual_time(scenario, *OBJECTS, cluster=SlowCluster())


def test_tries_that_conflict_with_other_clients_are_about_ten_milliseconds_apart() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        cluster.resource_claims.interfered = 3
        harness.cluster.put(pod_with("c", name="p0"))
        await harness.advance(1)
        first, second, third = cluster.resource_claims.conflicts
        assert all(0.06 <= later - earlier <= 0.0611 for earlier, later in ((first, second), (second, third)))
        assert harness.node_of("p0") == "n"

    cluster = SlowCluster()
    in_virtual_time(scenario, *OBJECTS, cluster=cluster)
