"""What becomes of devices between the choice of a node and the binding: promised, written, or given up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kubestow.api.resource import FINALIZER
from kubestow.errors import APIError
from kubestow.framework.status import Code, Status
from kubestow.testing import pod
from tests.plugins.dynamic_resources.devices import (
    GPU,
    DeviceWorld,
    allocation,
    claim,
    pod_with,
    world,
)

# -- reserve, unreserve ----------------------------------------------------------------------------------------------


def test_promised_devices_are_nobody_elses() -> None:
    cluster = world(GPU, claim("a"), claim("b"))
    cluster.place(pod_with("a", name="p1"))
    assert "cannot allocate all claims" in cluster.reason(pod_with("b"))


def test_a_promise_that_is_taken_back_frees_the_devices() -> None:
    cluster = world(GPU, claim("a"), claim("b"))
    decision = cluster.place(pod_with("a", name="p1"))
    cluster.plugin.unreserve(decision.state, decision.pod, "n")
    assert cluster.feasible(pod_with("b")) == {"n"}
    cluster.plugin.unreserve(decision.state, decision.pod, "n")  # again is no harm


def test_a_pod_that_is_given_up_after_writing_leaves_its_claim() -> None:
    cluster = world(GPU, claim())
    decision = cluster.run(pod_with("c"))
    cluster.plugin.unreserve(decision.state, decision.pod, "n")
    assert cluster.claim().status.reserved_for == []
    assert cluster.claim().status.allocation is not None


def test_a_pod_without_claims_reserves_nothing() -> None:
    cluster = world()
    decision = cluster.place(pod())
    assert cluster.plugin.pre_bind_pre_flight(decision.state, decision.pod, "n").code is Code.SKIP
    assert cluster.prepare(decision).ok


def test_a_node_that_was_never_searched_cannot_be_reserved() -> None:
    cluster = world(GPU, claim())
    decision = cluster.schedule(pod_with("c"))
    status = cluster.plugin.reserve(decision.state, decision.pod, "elsewhere")
    assert status == Status.error("claim allocation not found for node")


# -- writing ---------------------------------------------------------------------------------------------------------


def test_devices_reservation_and_finalizer_are_written_before_the_pod_is_bound() -> None:
    cluster = world(GPU, claim())
    decision = cluster.place(pod_with("c"))
    assert cluster.plugin.pre_bind_pre_flight(decision.state, decision.pod, "n").ok
    assert cluster.prepare(decision).ok
    written = cluster.claim()
    assert cluster.devices() == ["r=d0"]
    assert written.metadata.finalizers == [FINALIZER]
    assert [(u.resource, u.name, u.uid) for u in written.status.reserved_for] == [("pods", "p", "uid-default-p")]
    assert written.status.allocation is not None
    assert written.status.allocation.allocation_timestamp == "2026-01-01T00:00:00Z"
    assert not cluster.cluster.claims.is_promised("uid-c")


def test_without_the_gate_for_binding_conditions_no_time_is_written() -> None:
    cluster = world(GPU, claim(), gates={"DRADeviceBindingConditions": False})
    cluster.run(pod_with("c"))
    found = cluster.claim().status.allocation
    assert found is not None and found.allocation_timestamp is None


def meanwhile(cluster: DeviceWorld, **changes: Any) -> Status:
    """Somebody changes the claim between placing a pod and writing."""
    decision = cluster.place(pod_with("c"))
    failures = [APIError(409, "Conflict", "changed")]
    plain = cluster.resource_claims.patch

    async def patch(*args: Any, **kwargs: Any) -> Any:
        if failures:
            cluster.put(msgspec.structs.replace(cluster.claim(), **changes))
            raise failures.pop()
        return await plain(*args, **kwargs)

    cluster.resource_claims.patch = patch  # type: ignore[method-assign]
    return cluster.prepare(decision)


def test_a_change_that_does_not_matter_is_worked_around() -> None:
    cluster = world(GPU, claim())
    assert meanwhile(cluster).ok
    assert cluster.devices() == ["r=d0"]


def test_a_claim_that_got_deleted_meanwhile_fails_the_pod() -> None:
    cluster = world(GPU, claim())
    going = msgspec.structs.replace(claim().metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    status = meanwhile(cluster, metadata=going)
    assert status == Status.error("claim default/c got deleted in the meantime")
    assert not cluster.cluster.claims.is_promised("uid-c")


def test_a_claim_that_got_allocated_meanwhile_fails_the_pod() -> None:
    taken = claim("c", status={"allocation": allocation("other")}).status
    status = meanwhile(world(GPU, claim()), status=taken)
    assert status == Status.error("claim default/c got allocated elsewhere in the meantime")


def test_a_claim_that_lost_its_devices_meanwhile_fails_the_pod() -> None:
    status = meanwhile(world(claim("c", status={"allocation": allocation("d0")})), status=claim().status)
    assert status == Status.error("claim default/c got deallocated elsewhere in the meantime")


@pytest.mark.parametrize(
    ("code", "held", "problem"),
    [
        (403, {}, "add finalizer to claim default/c: no"),
        (403, {"finalizers": [FINALIZER]}, "add allocation and reservation to claim default/c: no"),
        (409, {}, "add finalizer to claim default/c: no"),
    ],
)
def test_a_refusal_of_the_server_fails_the_pod(code: int, held: Mapping[str, Any], problem: str) -> None:
    cluster = world(GPU, claim("c", metadata=held))
    decision = cluster.place(pod_with("c"))

    async def refuse(*_: Any, **__: Any) -> Any:
        raise APIError(code, "", "no")

    cluster.resource_claims.patch = refuse  # type: ignore[method-assign]
    assert cluster.prepare(decision) == Status.error(problem)
