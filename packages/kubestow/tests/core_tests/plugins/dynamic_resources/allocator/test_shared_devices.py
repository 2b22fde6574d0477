"""Partitionable devices with shared counters, and devices with consumable capacity (semantics 8.16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_tests.plugins.dynamic_resources.devices import single_node
from kubestow.testing.devices import DRIVER, claim, device, exactly, pod_with, slice_of

CANNOT = "cannot allocate all claims"
TAINT = {"key": "sick", "value": "very", "effect": "NoSchedule"}


# -- shared counters -----------------------------------------------------------------------------------------------


def counters(**amounts: str) -> dict[str, Any]:
    return {name: {"value": amount} for name, amount in amounts.items()}


def partition(name: str, memory: str, **fields: Any) -> Mapping[str, Any]:
    return device(name, consumesCounters=[{"counterSet": "card", "counters": counters(memory=memory)}], **fields)


def counters_of(memory: str) -> Any:
    shared = [{"name": "card", "counters": counters(memory=memory)}]
    return slice_of(node="n", name="n-card", of=2, sharedCounters=shared)


def test_partitions_are_allocated_until_the_counters_are_consumed() -> None:
    partitions = slice_of(*(partition(f"d{i}", "20Gi") for i in range(4)), node="n", of=2)
    harness = single_node(counters_of("50Gi"), partitions, claim("a", exactly(2)), claim("b"))
    assert harness.run(pod_with("a", name="p1")).node_name == "n"
    assert CANNOT in harness.reason(pod_with("b", name="p2"))


def test_the_devices_of_one_search_consume_counters_together() -> None:
    partitions = slice_of(
        partition("big", "40Gi"), partition("small", "20Gi"), partition("tiny", "10Gi"), node="n", of=2
    )
    harness = single_node(counters_of("50Gi"), partitions, claim("c", exactly(2)))
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=big", "r=tiny"]


def test_a_device_rejected_for_its_taint_keeps_its_counter_charge() -> None:
    partitions = slice_of(partition("sick", "40Gi", taints=[TAINT]), partition("well", "40Gi"), node="n", of=2)
    harness = single_node(counters_of("50Gi"), partitions, claim())
    assert CANNOT in harness.reason(pod_with("c"))


def test_backtracking_returns_the_counters_of_a_device() -> None:
    index = [
        device(d["name"], attributes={"i": i}, consumesCounters=d["consumesCounters"])
        for i, d in enumerate([partition("d0", "40Gi"), partition("d1", "40Gi")])
    ]
    second = f'device.attributes["{DRIVER}"].i == 1'
    plain = slice_of(device("x", attributes={"i": 1}), node="n", pool="other")
    requests = exactly(name="any"), exactly(1, second, name="second")
    harness = single_node(counters_of("50Gi"), slice_of(*index, node="n", of=2), plain, claim("c", *requests))
    harness.run(pod_with("c"))
    assert harness.devices() == ["any=d0", "second=x"]


def test_without_the_gate_partitions_are_not_allocated() -> None:
    partitions = slice_of(partition("d0", "1Gi"), node="n", of=2)
    harness = single_node(counters_of("50Gi"), partitions, claim(), gates={"DRAPartitionableDevices": False})
    assert CANNOT in harness.reason(pod_with("c"))


# -- consumable capacity -------------------------------------------------------------------------------------------


def shared(memory: str = "40Gi", policy: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    capacity = {"memory": {"value": memory} | ({"requestPolicy": policy} if policy else {})}
    return device("d0", capacity=capacity, allowMultipleAllocations=True)


def capacity_request(amount: str) -> Mapping[str, Any]:
    return exactly(capacity={"requests": {"memory": amount}})


def test_a_device_is_shared_until_its_capacity_is_consumed() -> None:
    claims = [claim(name, capacity_request("15Gi")) for name in "abc"]
    harness = single_node(slice_of(shared(), node="n"), *claims)
    assert harness.run(pod_with("a", name="p1")).node_name == "n"
    assert harness.run(pod_with("b", name="p2")).node_name == "n"
    assert CANNOT in harness.reason(pod_with("c", name="p3"))


def test_shares_of_one_device_have_different_share_ids() -> None:
    harness = single_node(
        slice_of(shared(), node="n"), claim("c", capacity_request("10Gi"), {**capacity_request("10Gi"), "name": "s"})
    )
    harness.run(pod_with("c"))
    allocation = harness.claim().status.allocation
    assert allocation is not None
    one, other = allocation.devices.results
    assert one.share_id and other.share_id and one.share_id != other.share_id
    assert one.consumed_capacity == {"memory": "10Gi"}


def test_without_a_capacity_request_the_default_is_consumed() -> None:
    harness = single_node(slice_of(shared(policy={"default": "25Gi"}), node="n"), claim("a"), claim("b"))
    harness.run(pod_with("a", name="p1"))
    assert CANNOT in harness.reason(pod_with("b", name="p2"))


def test_consumed_capacity_is_rounded_up_by_the_policy() -> None:
    steps = {"validRange": {"min": "8Gi", "max": "32Gi", "step": "8Gi"}, "default": "8Gi"}
    harness = single_node(
        slice_of(shared(policy=steps), node="n"),
        claim("c", capacity_request("9Gi")),
        claim("big", capacity_request("33Gi")),
    )
    harness.run(pod_with("c"))
    allocation = harness.claim().status.allocation
    assert allocation is not None
    assert allocation.devices.results[0].consumed_capacity == {"memory": "16Gi"}
    assert CANNOT in harness.reason(pod_with("big", name="other"))


def test_a_request_for_a_capacity_that_the_device_lacks_fails() -> None:
    request = exactly(capacity={"requests": {"cores": "1"}})
    harness = single_node(slice_of(shared(), node="n"), claim("c", request))
    assert CANNOT in harness.reason(pod_with("c"))


def test_an_exclusive_device_must_have_the_requested_capacity() -> None:
    harness = single_node(slice_of(device("d0", memory="10Gi"), node="n"), claim("c", capacity_request("20Gi")))
    assert CANNOT in harness.reason(pod_with("c"))


def test_a_shared_partition_consumes_its_counters_once() -> None:
    capacity = {"memory": {"value": "40Gi"}}
    both = partition("d0", "40Gi", capacity=capacity, allowMultipleAllocations=True)
    claims = claim("a", capacity_request("10Gi")), claim("b", capacity_request("10Gi"))
    harness = single_node(counters_of("50Gi"), slice_of(both, node="n", of=2), *claims)
    assert harness.run(pod_with("a", name="p1")).node_name == "n"
    assert harness.run(pod_with("b", name="p2")).node_name == "n"


def test_backtracking_returns_consumed_capacity() -> None:
    small = device("d0", capacity={"memory": {"value": "10Gi"}}, allowMultipleAllocations=True)
    zero = f'device.attributes["{DRIVER}"].big == false'
    other = device(
        "d1", capacity={"memory": {"value": "10Gi"}}, allowMultipleAllocations=True, attributes={"big": True}
    )
    small = {**small, "attributes": {"big": {"bool": False}}}
    requests = (
        {**capacity_request("10Gi"), "name": "any"},
        exactly(1, zero, name="small", capacity={"requests": {"memory": "5Gi"}}),
    )
    harness = single_node(slice_of(small, other, node="n"), claim("c", *requests))
    harness.run(pod_with("c"))
    assert harness.devices() == ["any=d1", "small=d0"]


def test_without_the_gate_a_device_is_allocated_once() -> None:
    claims = claim("a"), claim("b")
    harness = single_node(slice_of(shared(), node="n"), *claims, gates={"DRAConsumableCapacity": False})
    harness.run(pod_with("a", name="p1"))
    assert CANNOT in harness.reason(pod_with("b", name="p2"))
