"""Devices that have to be made ready before their pod is bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from kubestow.framework.status import Status
from tests.plugins.dynamic_resources.devices import (
    DRIVER,
    DeviceWorld,
    allocation,
    claim,
    device,
    exactly,
    pod_with,
    slice_of,
    world,
)

T = TypeVar("T")
SLOW = slice_of(device("d0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"]), node="n")


def condition(kind: str, *, reason: str = "") -> dict[str, Any]:
    reported = {"type": kind, "status": "True", "reason": reason, "message": "see log"}
    return {"driver": DRIVER, "pool": "n", "device": "d0", "conditions": [reported]}


def reported(cluster: DeviceWorld, *conditions: dict[str, Any]) -> None:
    status = claim("c", status={"devices": list(conditions)}).status.devices
    current = cluster.claim()
    cluster.put(msgspec.structs.replace(current, status=msgspec.structs.replace(current.status, devices=status)))


def after_a_while(cluster: DeviceWorld, *conditions: dict[str, Any]) -> None:
    """The driver reports while the pod waits."""

    async def wait_for(answer: Callable[[], T | None], seconds: float) -> T | None:
        assert answer() is None
        reported(cluster, *conditions)
        return answer()

    cluster.wait_for = wait_for  # type: ignore[method-assign]


def test_a_pod_waits_until_its_devices_are_ready() -> None:
    cluster = world(SLOW, claim())
    after_a_while(cluster, condition("Attached"))
    assert cluster.prepare(cluster.place(pod_with("c"))).ok
    assert cluster.events == [("default/p", "BindingConditionsPending")]
    assert cluster.awaited == [(DRIVER, "success")]


def test_a_device_that_fails_fails_the_pod() -> None:
    cluster = world(SLOW, claim())
    after_a_while(cluster, condition("Broken", reason="Fire"))
    status = cluster.prepare(cluster.place(pod_with("c")))
    assert status == Status.error('device binding failed: claim=c, reason=Fire, message="see log"')
    assert cluster.awaited == [(DRIVER, "failure")]


def test_a_device_that_is_never_ready_fails_the_pod() -> None:
    cluster = world(SLOW, claim())
    status = cluster.prepare(cluster.place(pod_with("c")))
    assert status.message.startswith("device binding timeout")
    assert cluster.awaited == [(DRIVER, "timeout")]


def test_waiting_that_is_broken_off_is_told_of_as_an_error() -> None:
    cluster = world(SLOW, claim())

    async def wait_for(answer: Callable[[], T | None], seconds: float) -> T | None:
        raise asyncio.CancelledError

    cluster.wait_for = wait_for  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        cluster.prepare(cluster.place(pod_with("c")))
    assert cluster.awaited == [(DRIVER, "error")]


HELD: dict[str, Any] = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}


def test_devices_that_failed_are_taken_back_on_the_next_attempt() -> None:
    held = {"allocation": allocation("d0", at="n", **HELD), "devices": [condition("Broken")]}
    cluster = world(SLOW, claim("c", status=held))
    assert "deallocation of ResourceClaim completed" in cluster.reason(pod_with("c"))


@pytest.mark.parametrize(("since", "available"), [("2025-12-31T23:55:00Z", True), ("2025-12-31T00:00:00Z", False)])
def test_devices_are_waited_for_only_so_long(since: str, available: bool) -> None:
    held = {"allocation": allocation("d0", at="n", when=since, **HELD)}
    cluster = world(SLOW, claim("c", status=held))
    assert (cluster.decide(pod_with("c")).node_name is not None) is available


def test_devices_that_another_pod_waits_for_are_waited_for_no_longer_than_that() -> None:
    held = {"allocation": allocation("d0", at="n", when="2025-12-31T23:55:00Z", **HELD)}
    cluster = world(SLOW, claim("c", status=held))
    patience = []

    async def wait_for(answer: Callable[[], T | None], seconds: float) -> T | None:
        patience.append(seconds)
        return None

    cluster.wait_for = wait_for  # type: ignore[method-assign]
    status = cluster.prepare(cluster.place(pod_with("c")))
    assert status == Status.error("device binding timeout")
    assert patience == [300]


def test_a_claim_whose_devices_are_ready_needs_no_waiting() -> None:
    held = {"allocation": allocation("d0", at="n", **HELD), "devices": [condition("Attached")]}
    cluster = world(SLOW, claim("c", status=held))
    assert cluster.run(pod_with("c")).node_name == "n"


def test_a_pod_waits_for_every_condition_of_every_device_that_has_some() -> None:
    slow = device("d1", bindingConditions=["Attached", "Warm"], bindingFailureConditions=["Broken"])
    cluster = world(slice_of("d0", slow, node="n"), claim("c", exactly(2)))
    after_a_while(cluster, {**condition("Attached"), "device": "d1"})
    status = cluster.prepare(cluster.place(pod_with("c")))
    assert status == Status.error("device binding timeout")
