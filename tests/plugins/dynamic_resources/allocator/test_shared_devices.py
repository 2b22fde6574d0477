"""Parts of devices and shares of devices: had until the whole is used up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.plugins.dynamic_resources.devices import (
    DRIVER,
    claim,
    device,
    exactly,
    pod_with,
    slice_of,
    world,
)

CANNOT = "cannot allocate all claims"
SICK = {"key": "sick", "value": "very", "effect": "NoSchedule"}


# -- counters --------------------------------------------------------------------------------------------------------


def counters(**amounts: str) -> dict[str, Any]:
    return {name: {"value": amount} for name, amount in amounts.items()}


def part(name: str, memory: str, **fields: Any) -> Mapping[str, Any]:
    return device(name, consumesCounters=[{"counterSet": "card", "counters": counters(memory=memory)}], **fields)


def card(memory: str) -> Any:
    shared = [{"name": "card", "counters": counters(memory=memory)}]
    return slice_of(node="n", name="n-card", of=2, sharedCounters=shared)


def test_parts_of_a_device_are_had_until_it_is_used_up() -> None:
    parts = slice_of(*(part(f"d{i}", "20Gi") for i in range(4)), node="n", of=2)
    cluster = world(card("50Gi"), parts, claim("a", exactly(2)), claim("b"))
    assert cluster.run(pod_with("a", name="p1")).node_name == "n"
    assert CANNOT in cluster.reason(pod_with("b", name="p2"))


def test_counters_of_one_search_add_up() -> None:
    parts = slice_of(part("big", "40Gi"), part("small", "20Gi"), part("tiny", "10Gi"), node="n", of=2)
    cluster = world(card("50Gi"), parts, claim("c", exactly(2)))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=big", "r=tiny"]


def test_a_device_refused_for_its_taint_keeps_its_counters_for_the_search() -> None:
    parts = slice_of(part("sick", "40Gi", taints=[SICK]), part("well", "40Gi"), node="n", of=2)
    cluster = world(card("50Gi"), parts, claim())
    assert CANNOT in cluster.reason(pod_with("c"))


def test_a_device_that_is_taken_back_returns_its_counters() -> None:
    index = [
        device(d["name"], attributes={"i": i}, consumesCounters=d["consumesCounters"])
        for i, d in enumerate([part("d0", "40Gi"), part("d1", "40Gi")])
    ]
    second = f'device.attributes["{DRIVER}"].i == 1'
    plain = slice_of(device("x", attributes={"i": 1}), node="n", pool="other")
    requests = exactly(name="any"), exactly(1, second, name="second")
    cluster = world(card("50Gi"), slice_of(*index, node="n", of=2), plain, claim("c", *requests))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["any=d0", "second=x"]


def test_without_the_gate_for_parts_they_are_not_there() -> None:
    parts = slice_of(part("d0", "1Gi"), node="n", of=2)
    cluster = world(card("50Gi"), parts, claim(), gates={"DRAPartitionableDevices": False})
    assert CANNOT in cluster.reason(pod_with("c"))


# -- shares ----------------------------------------------------------------------------------------------------------


def shared(memory: str = "40Gi", policy: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    capacity = {"memory": {"value": memory} | ({"requestPolicy": policy} if policy else {})}
    return device("d0", capacity=capacity, allowMultipleAllocations=True)


def share(amount: str) -> Mapping[str, Any]:
    return exactly(capacity={"requests": {"memory": amount}})


def test_a_device_is_shared_until_it_is_full() -> None:
    claims = [claim(name, share("15Gi")) for name in "abc"]
    cluster = world(slice_of(shared(), node="n"), *claims)
    assert cluster.run(pod_with("a", name="p1")).node_name == "n"
    assert cluster.run(pod_with("b", name="p2")).node_name == "n"
    assert CANNOT in cluster.reason(pod_with("c", name="p3"))


def test_shares_of_one_device_are_told_apart() -> None:
    cluster = world(slice_of(shared(), node="n"), claim("c", share("10Gi"), {**share("10Gi"), "name": "s"}))
    cluster.run(pod_with("c"))
    allocation = cluster.claim().status.allocation
    assert allocation is not None
    one, other = allocation.devices.results
    assert one.share_id and other.share_id and one.share_id != other.share_id
    assert one.consumed_capacity == {"memory": "10Gi"}


def test_who_does_not_say_takes_the_default_or_everything() -> None:
    cluster = world(slice_of(shared(policy={"default": "25Gi"}), node="n"), claim("a"), claim("b"))
    cluster.run(pod_with("a", name="p1"))
    assert CANNOT in cluster.reason(pod_with("b", name="p2"))


def test_a_share_is_rounded_up_to_what_the_policy_offers() -> None:
    steps = {"validRange": {"min": "8Gi", "max": "32Gi", "step": "8Gi"}, "default": "8Gi"}
    cluster = world(slice_of(shared(policy=steps), node="n"), claim("c", share("9Gi")), claim("big", share("33Gi")))
    cluster.run(pod_with("c"))
    allocation = cluster.claim().status.allocation
    assert allocation is not None
    assert allocation.devices.results[0].consumed_capacity == {"memory": "16Gi"}
    assert CANNOT in cluster.reason(pod_with("big", name="other"))


def test_a_capacity_that_a_device_lacks_cannot_be_asked_for() -> None:
    wanted = exactly(capacity={"requests": {"cores": "1"}})
    cluster = world(slice_of(shared(), node="n"), claim("c", wanted))
    assert CANNOT in cluster.reason(pod_with("c"))


def test_a_device_that_is_not_shared_has_to_have_the_capacity_too() -> None:
    cluster = world(slice_of(device("d0", memory="10Gi"), node="n"), claim("c", share("20Gi")))
    assert CANNOT in cluster.reason(pod_with("c"))


def test_shares_of_a_part_draw_on_its_counters_once() -> None:
    capacity = {"memory": {"value": "40Gi"}}
    both = part("d0", "40Gi", capacity=capacity, allowMultipleAllocations=True)
    claims = claim("a", share("10Gi")), claim("b", share("10Gi"))
    cluster = world(card("50Gi"), slice_of(both, node="n", of=2), *claims)
    assert cluster.run(pod_with("a", name="p1")).node_name == "n"
    assert cluster.run(pod_with("b", name="p2")).node_name == "n"


def test_a_share_that_is_taken_back_leaves_room_for_others() -> None:
    small = device("d0", capacity={"memory": {"value": "10Gi"}}, allowMultipleAllocations=True)
    zero = f'device.attributes["{DRIVER}"].big == false'
    other = device(
        "d1", capacity={"memory": {"value": "10Gi"}}, allowMultipleAllocations=True, attributes={"big": True}
    )
    small = {**small, "attributes": {"big": {"bool": False}}}
    requests = (
        {**share("10Gi"), "name": "any"},
        exactly(1, zero, name="small", capacity={"requests": {"memory": "5Gi"}}),
    )
    cluster = world(slice_of(small, other, node="n"), claim("c", *requests))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["any=d1", "small=d0"]


def test_without_the_gate_for_shares_a_device_is_had_once() -> None:
    claims = claim("a"), claim("b")
    cluster = world(slice_of(shared(), node="n"), *claims, gates={"DRAConsumableCapacity": False})
    cluster.run(pod_with("a", name="p1"))
    assert CANNOT in cluster.reason(pod_with("b", name="p2"))
