"""Binding conditions of devices: PreBind waits for them (semantics 8.16)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from core_tests.plugins.dynamic_resources.devices import condition, report_while_waiting, single_node
from kubestow.api.resource import ResourceClaim
from kubestow.framework.status import Status
from kubestow.plugins.dynamic_resources import pre_bind
from kubestow.plugins.dynamic_resources.filtering import drivers_with_binding_conditions, is_ready_for_binding
from kubestow.testing.devices import DRIVER, allocation, claim, device, exactly, pod_with, slice_of

T = TypeVar("T")
WITH_CONDITIONS = slice_of(device("d0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"]), node="n")


def test_pre_bind_waits_for_the_binding_conditions() -> None:
    harness = single_node(WITH_CONDITIONS, claim())
    report_while_waiting(harness, condition("Attached"))
    assert harness.prepare(harness.place(pod_with("c"))).ok
    assert harness.events == [("default/p", "BindingConditionsPending")]
    assert harness.device_waits == [(DRIVER, "success")]


def test_a_true_binding_failure_condition_fails_pre_bind() -> None:
    harness = single_node(WITH_CONDITIONS, claim())
    report_while_waiting(harness, condition("Broken", reason="Fire"))
    status = harness.prepare(harness.place(pod_with("c")))
    assert status == Status.error('device binding failed: claim=c, reason=Fire, message="see log"')
    assert harness.device_waits == [(DRIVER, "failure")]


def test_pre_bind_fails_after_the_binding_timeout() -> None:
    harness = single_node(WITH_CONDITIONS, claim())
    status = harness.prepare(harness.place(pod_with("c")))
    assert status.message.startswith("device binding timeout")
    assert harness.device_waits == [(DRIVER, "timeout")]


def test_a_cancelled_wait_is_reported_as_an_error() -> None:
    harness = single_node(WITH_CONDITIONS, claim())

    async def wait_for(condition: Callable[[], T | None], seconds: float) -> T | None:
        raise asyncio.CancelledError

    harness.wait_for = wait_for  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        harness.prepare(harness.place(pod_with("c")))
    assert harness.device_waits == [(DRIVER, "error")]


CONDITIONS: dict[str, Any] = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}


def test_a_claim_whose_binding_failed_is_deallocated_in_the_next_attempt() -> None:
    status_fields = {"allocation": allocation("d0", at="n", **CONDITIONS), "devices": [condition("Broken")]}
    harness = single_node(WITH_CONDITIONS, claim("c", status=status_fields))
    assert "deallocation of ResourceClaim completed" in harness.reason(pod_with("c"))


@pytest.mark.parametrize(
    ("allocated_at", "available"),
    [("2025-12-31T23:55:00Z", True), ("2025-12-31T00:00:00Z", False), ("9999-12-31T23:59:59Z", True)],
)
def test_a_claim_is_unavailable_after_its_binding_timeout(allocated_at: str, available: bool) -> None:
    status_fields = {"allocation": allocation("d0", at="n", when=allocated_at, **CONDITIONS)}
    harness = single_node(WITH_CONDITIONS, claim("c", status=status_fields))
    assert (harness.decide(pod_with("c")).node_name is not None) is available


def test_the_binding_timeout_starts_at_the_allocation_timestamp() -> None:
    status_fields = {"allocation": allocation("d0", at="n", when="2025-12-31T23:55:00Z", **CONDITIONS)}
    harness = single_node(WITH_CONDITIONS, claim("c", status=status_fields))
    timeouts = []

    async def wait_for(condition: Callable[[], T | None], seconds: float) -> T | None:
        timeouts.append(seconds)
        return None

    harness.wait_for = wait_for  # type: ignore[method-assign]
    status = harness.prepare(harness.place(pod_with("c")))
    assert status == Status.error("device binding timeout")
    assert timeouts == [300]


def test_pre_bind_does_not_wait_if_all_binding_conditions_are_true() -> None:
    status_fields = {"allocation": allocation("d0", at="n", **CONDITIONS), "devices": [condition("Attached")]}
    harness = single_node(WITH_CONDITIONS, claim("c", status=status_fields))
    assert harness.run(pod_with("c")).node_name == "n"


def test_pre_bind_waits_for_all_binding_conditions_of_all_devices() -> None:
    with_conditions = device("d1", bindingConditions=["Attached", "Warm"], bindingFailureConditions=["Broken"])
    harness = single_node(slice_of("d0", with_conditions, node="n"), claim("c", exactly(2)))
    report_while_waiting(harness, {**condition("Attached"), "device": "d1"})
    status = harness.prepare(harness.place(pod_with("c")))
    assert status == Status.error("device binding timeout")


def test_devices_without_binding_conditions_are_ready_without_a_status() -> None:
    with_conditions = device("d1", bindingConditions=["Attached"])
    harness = single_node(slice_of("d0", with_conditions, node="n"), claim("c", exactly(2)))
    report_while_waiting(harness, {**condition("Attached"), "device": "d1"})
    assert harness.prepare(harness.place(pod_with("c"))).ok


def test_a_report_costs_a_look_at_few_of_the_claims_that_a_pod_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{number}" for number in range(20)]
    devices = [device(f"d{number}", bindingConditions=["Attached"]) for number in range(20)]
    harness = single_node(slice_of(*devices, node="n"), *map(claim, names))
    looked_at: list[str] = []

    def is_ready(of: ResourceClaim) -> bool:
        looked_at.append(of.metadata.name)
        return is_ready_for_binding(of)

    async def wait_for(is_met: Callable[[], T | None], seconds: float) -> T | None:
        result = is_met()
        for number in reversed(range(20)):
            assert result is None
            attached = condition("Attached", of=f"d{number}")
            current = harness.claim(f"c{number}")
            status = claim("c", status={"devices": [attached]}).status.devices
            harness.put(
                msgspec.structs.replace(current, status=msgspec.structs.replace(current.status, devices=status))
            )
            result = is_met()
        return result

    monkeypatch.setattr(pre_bind, "is_ready_for_binding", is_ready)
    harness.wait_for = wait_for  # type: ignore[method-assign,assignment]
    assert harness.prepare(harness.place(pod_with(*names))).ok
    assert len(looked_at) <= 3 * len(names)


def test_drivers_are_named_once_if_any_of_their_devices_has_binding_conditions() -> None:
    def allocated(*drivers: str, conditions: Sequence[str]) -> ResourceClaim:
        results = [
            {"request": "r", "driver": each, "pool": "n", "device": "d", "bindingConditions": conditions}
            for each in drivers
        ]
        return claim("c", status={"allocation": {"devices": {"results": results}}})

    claims = [allocated("b", "a", "b", conditions=["Ready"]), allocated("c", conditions=[]), claim("pending")]
    assert drivers_with_binding_conditions(claims) == ["a", "b"]
