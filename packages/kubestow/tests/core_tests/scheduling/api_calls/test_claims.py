"""Resource claims in a running scheduler: allocated before the pod is bound, waited for, deallocated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim
from kubestow.errors import APIError
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.scheduler.handle import DispatchedClaims
from kubestow.testing import node, pod
from kubestow.testing.devices import DRIVER, claim, device, device_class, exactly, pod_with, slice_of
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

GPU = slice_of("d0", node="n")
CLUSTER = (node("n"), device_class())


class CreatedClaims(Observer):
    """Whether each creation of a claim succeeded."""

    def __init__(self) -> None:
        self.succeeded: list[bool] = []

    def claim_created(self, *, succeeded: bool) -> None:
        self.succeeded.append(succeeded)


async def test_creations_of_claims_are_reported_as_they_ended() -> None:
    made, answers = claim("c"), list[ResourceClaim | Exception]()

    async def create(namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    observer, writer, dispatcher = CreatedClaims(), Mock(create=create), Mock()
    claims = DispatchedClaims(writer, dispatcher, observer)
    answers += [made, APIError(403, "Forbidden", "no quota")]
    assert await claims.create("default", {}) is made
    with pytest.raises(APIError):
        await claims.create("default", {})
    assert observer.succeeded == [True, False]


def pending(*claims: str, name: str = "p") -> Pod:
    return pod_with(*claims, name=name)


def test_a_claim_is_allocated_and_reserved_before_its_pod_is_bound() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pending("c"))
        await harness.settle()
        assert harness.node_of("p") == "n"
        written = harness.cluster.claim("c")
        assert written.status.allocation is not None
        assert written.status.allocation.devices.results[0].device == "d0"
        assert written.is_reserved_for("uid-default-p")

    in_virtual_time(scenario, *CLUSTER, GPU, claim())


def test_a_pod_waits_for_its_claim_and_then_for_a_device() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pending("c"))
        await harness.settle()
        assert harness.cluster.condition("p") is None  # gated, never tried
        harness.cluster.put(claim())
        await harness.advance(1)
        condition = harness.cluster.condition("p")
        assert condition is not None and "1 cannot allocate all claims" in condition.message
        harness.cluster.put(GPU)
        await harness.advance(30)
        assert harness.node_of("p") == "n"

    in_virtual_time(scenario, *CLUSTER)


def test_one_device_is_never_allocated_to_two_claims() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(5):
            harness.cluster.put(claim(f"c{number}"))
            harness.cluster.put(pending(f"c{number}", name=f"p{number}"))
        await harness.advance(60)
        held = [harness.cluster.claim(f"c{number}").status.allocation for number in range(5)]
        assert sum(allocation is not None for allocation in held) == 2
        assert sum(bool(harness.node_of(f"p{number}")) for number in range(5)) == 2

    in_virtual_time(scenario, *CLUSTER, slice_of("d0", "d1", node="n"))


def test_a_deallocated_claim_requeues_the_pods_that_wait_for_its_device() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pending("c", name="first"))
        await harness.settle()
        harness.cluster.put(pending("other", name="second"))
        await harness.settle()
        assert harness.node_of("second") == ""
        harness.cluster.remove(harness.cluster.pod("first"))
        harness.cluster.put(claim())
        await harness.advance(30)
        assert harness.node_of("second") == "n"

    in_virtual_time(scenario, *CLUSTER, GPU, claim(), claim("other"))


def test_a_claim_allocated_out_of_reach_is_deallocated_and_allocated_again() -> None:
    elsewhere = {
        "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "x", "device": "d0"}]},
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]
        },
    }

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pending("c"))
        await harness.advance(30)
        assert harness.node_of("p") == "n"

    in_virtual_time(scenario, *CLUSTER, GPU, claim("c", status={"allocation": elsewhere}))


def test_a_failed_binding_removes_the_reservation_of_its_claim() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.bind_failures.append(RuntimeError("broken"))
        harness.cluster.put(pending("c"))
        await harness.settle()
        assert not harness.cluster.claim("c").status.reserved_for
        await harness.advance(30)
        assert harness.node_of("p") == "n"
        assert harness.cluster.claim("c").is_reserved_for("uid-default-p")

    in_virtual_time(scenario, *CLUSTER, GPU, claim())


def test_a_pod_waits_until_its_devices_are_attached() -> None:
    slow = slice_of(device("d0", bindingConditions=["Attached"]), node="n")

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pending("c"))
        await harness.advance(20)
        assert harness.node_of("p") == ""
        assert "BindingConditionsPending" in [event.reason for event in harness.cluster.events]
        attached = {
            "driver": DRIVER,
            "pool": "n",
            "device": "d0",
            "conditions": [{"type": "Attached", "status": "True"}],
        }
        current = harness.cluster.claim("c")
        reported = claim("c", status={"devices": [attached]}).status.devices
        status = type(current.status)(
            allocation=current.status.allocation, reserved_for=current.status.reserved_for, devices=reported
        )
        harness.cluster.put(ResourceClaim(metadata=current.metadata, spec=current.spec, status=status))
        await harness.advance(10)
        assert harness.node_of("p") == "n"

    in_virtual_time(scenario, *CLUSTER, slow, claim())


def test_extended_resources_backed_by_devices_get_a_special_claim() -> None:
    kind = device_class("gpu", extendedResourceName="example.com/gpu")

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p", requests={"example.com/gpu": "1"}))
        await harness.settle()
        assert harness.node_of("p") == "n"
        (made,) = harness.cluster.objects(ResourceClaim).values()
        assert made.metadata.name.startswith("p-extended-resources-")
        assert made.is_reserved_for("uid-default-p")

    in_virtual_time(scenario, node("n"), kind, GPU)


def test_a_selector_that_does_not_compile_fails_only_its_own_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(slice_of("d0", "d1", node="n"))
        harness.cluster.put(claim("bad", exactly(1, "device.nonsense")))
        harness.cluster.put(pending("bad", name="bad"))
        harness.cluster.put(pending("c", name="good"))
        await harness.advance(5)
        assert harness.node_of("good") == "n"
        condition = harness.cluster.condition("bad")
        assert condition is not None and condition.reason == "SchedulerError"
        assert "claim default/bad: selector #0: CEL compile error" in condition.message

    in_virtual_time(scenario, *CLUSTER, GPU, claim())
