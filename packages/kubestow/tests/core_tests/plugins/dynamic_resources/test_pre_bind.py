"""Reserve, Unreserve and PreBind: pending allocations and what is written into claims (semantics 8.16)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from core_tests.plugins.dynamic_resources.devices import GPU, DeviceHarness, single_node
from kubestow.api.resource import FINALIZER
from kubestow.errors import APIError
from kubestow.framework.status import Code, Status
from kubestow.testing import pod
from kubestow.testing.devices import allocation, claim, pod_with

# -- Reserve, Unreserve --------------------------------------------------------------------------------------------


def test_devices_of_pending_allocations_are_not_available_to_other_claims() -> None:
    harness = single_node(GPU, claim("a"), claim("b"))
    harness.place(pod_with("a", name="p1"))
    assert "cannot allocate all claims" in harness.reason(pod_with("b"))


def test_unreserve_frees_the_devices_and_is_idempotent() -> None:
    harness = single_node(GPU, claim("a"), claim("b"))
    decision = harness.place(pod_with("a", name="p1"))
    harness.plugin.unreserve(decision.state, decision.pod, "n")
    assert harness.feasible(pod_with("b")) == {"n"}
    harness.plugin.unreserve(decision.state, decision.pod, "n")


def test_unreserve_after_pre_bind_removes_the_reservation_and_keeps_the_allocation() -> None:
    harness = single_node(GPU, claim())
    decision = harness.run(pod_with("c"))
    harness.plugin.unreserve(decision.state, decision.pod, "n")
    assert harness.claim().status.reserved_for == []
    assert harness.claim().status.allocation is not None


def test_reserve_and_pre_bind_do_nothing_for_a_pod_without_claims() -> None:
    harness = single_node()
    decision = harness.place(pod())
    assert harness.plugin.pre_bind_pre_flight(decision.state, decision.pod, "n").code is Code.SKIP
    assert harness.prepare(decision).ok


def test_reserve_fails_for_a_node_without_an_allocation() -> None:
    harness = single_node(GPU, claim())
    decision = harness.schedule(pod_with("c"))
    status = harness.plugin.reserve(decision.state, decision.pod, "elsewhere")
    assert status == Status.error("claim allocation not found for node")


# -- PreBind -------------------------------------------------------------------------------------------------------


def test_pre_bind_writes_allocation_reservation_and_finalizer() -> None:
    harness = single_node(GPU, claim())
    decision = harness.place(pod_with("c"))
    assert harness.plugin.pre_bind_pre_flight(decision.state, decision.pod, "n").ok
    assert harness.prepare(decision).ok
    written = harness.claim()
    assert harness.devices() == ["r=d0"]
    assert written.metadata.finalizers == [FINALIZER]
    assert [(u.resource, u.name, u.uid) for u in written.status.reserved_for] == [("pods", "p", "uid-default-p")]
    assert written.status.allocation is not None
    assert written.status.allocation.allocation_timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    assert not harness.cluster.resource_claims.has_pending_allocation("uid-c")


def test_without_the_gate_for_binding_conditions_there_is_no_allocation_timestamp() -> None:
    harness = single_node(GPU, claim(), gates={"DRADeviceBindingConditions": False})
    harness.run(pod_with("c"))
    found = harness.claim().status.allocation
    assert found is not None and found.allocation_timestamp is None


def prepare_after_change(harness: DeviceHarness, **changes: Any) -> Status:
    """Run PreBind; the claim changes before the first patch, which is a conflict."""
    decision = harness.place(pod_with("c"))
    failures = [APIError(409, "Conflict", "changed")]
    patch_claim = harness.resource_claims.patch

    async def patch(*args: Any, **kwargs: Any) -> Any:
        if failures:
            harness.put(msgspec.structs.replace(harness.claim(), **changes))
            raise failures.pop()
        return await patch_claim(*args, **kwargs)

    harness.resource_claims.patch = patch  # type: ignore[method-assign]
    return harness.prepare(decision)


def test_pre_bind_is_retried_after_an_irrelevant_change() -> None:
    harness = single_node(GPU, claim())
    assert prepare_after_change(harness).ok
    assert harness.devices() == ["r=d0"]


@pytest.mark.parametrize(("conflicts", "is_written"), [(4, True), (5, False)])
def test_a_claim_is_written_five_times_at_most(conflicts: int, is_written: bool) -> None:
    harness = single_node(GPU, claim("c", metadata={"finalizers": [FINALIZER]}))
    decision = harness.place(pod_with("c"))
    failures = [APIError(409, "Conflict", "changed")] * conflicts
    patch_claim, calls = harness.resource_claims.patch, list[str]()

    async def patch(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["subresource"])
        if failures:
            raise failures.pop()
        return await patch_claim(*args, **kwargs)

    harness.resource_claims.patch = patch  # type: ignore[method-assign]
    assert harness.prepare(decision).ok is is_written
    assert calls == ["status"] * 5


def test_pre_bind_fails_if_the_claim_is_being_deleted() -> None:
    harness = single_node(GPU, claim())
    terminating = msgspec.structs.replace(claim().metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    status = prepare_after_change(harness, metadata=terminating)
    assert status == Status.error("claim default/c got deleted in the meantime")
    assert not harness.cluster.resource_claims.has_pending_allocation("uid-c")


def test_pre_bind_fails_if_the_claim_was_allocated_for_another_pod() -> None:
    allocated = claim("c", status={"allocation": allocation("other")}).status
    status = prepare_after_change(single_node(GPU, claim()), status=allocated)
    assert status == Status.error("claim default/c got allocated elsewhere in the meantime")


def test_pre_bind_fails_if_the_claim_was_deallocated() -> None:
    status = prepare_after_change(
        single_node(claim("c", status={"allocation": allocation("d0")})), status=claim().status
    )
    assert status == Status.error("claim default/c got deallocated elsewhere in the meantime")


@pytest.mark.parametrize(
    ("code", "metadata", "problem"),
    [
        (403, {}, "add finalizer to claim default/c: no"),
        (403, {"finalizers": [FINALIZER]}, "add allocation and reservation to claim default/c: no"),
        (409, {}, "add finalizer to claim default/c: no"),
    ],
)
def test_an_api_error_fails_pre_bind(code: int, metadata: Mapping[str, Any], problem: str) -> None:
    harness = single_node(GPU, claim("c", metadata=metadata))
    decision = harness.place(pod_with("c"))

    async def refuse(*_: Any, **__: Any) -> Any:
        raise APIError(code, "", "no")

    harness.resource_claims.patch = refuse  # type: ignore[method-assign]
    assert harness.prepare(decision) == Status.error(problem)
