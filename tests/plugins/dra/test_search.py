"""Which devices a claim gets: requests, constraints, taints, counters, shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubestow.testing import node
from tests.plugins.dra.devices import (
    DRIVER,
    DeviceWorld,
    alternatives,
    claim,
    device,
    device_class,
    exactly,
    pod_with,
    slice_of,
)

NODE = node("n")
CANNOT = "cannot allocate all claims"


def world(*objects: Any, **fields: Any) -> DeviceWorld:
    return DeviceWorld(NODE, *objects, **fields)


def numbered(count: int, **attributes: Any) -> list[Mapping[str, Any]]:
    return [device(f"d{number}", attributes={"index": number, **attributes}) for number in range(count)]


def test_the_first_devices_that_match_are_taken() -> None:
    odd = f'device.attributes["{DRIVER}"].index % 2 == 1'
    cluster = world(slice_of(*numbered(6), node="n"), claim("c", exactly(2, odd)))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=d1", "r=d3"]


def test_the_class_chooses_too() -> None:
    late = device_class("gpu", f'device.attributes["{DRIVER}"].index > 3')
    cluster = world(slice_of(*numbered(6), node="n"), late, claim())
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=d4"]


def test_a_device_is_taken_once() -> None:
    cluster = world(slice_of("d0", "d1", node="n"), claim("a"), claim("b"), claim("c"))
    assert cluster.run(pod_with("a", name="pa")).node_name == "n"
    assert cluster.run(pod_with("b", name="pb")).node_name == "n"
    assert CANNOT in cluster.reason(pod_with("c", name="pc"))


def test_a_pod_gets_all_its_claims_or_none() -> None:
    cluster = world(slice_of("d0", "d1", node="n"), claim("a", exactly(1)), claim("b", exactly(2)))
    assert CANNOT in cluster.reason(pod_with("a", "b"))


def test_earlier_choices_are_taken_back_when_they_lead_nowhere() -> None:
    zero = f'device.attributes["{DRIVER}"].index == 0'
    cluster = world(slice_of(*numbered(2), node="n"), claim("c", exactly(name="any"), exactly(1, zero, name="zero")))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["any=d1", "zero=d0"]


def test_all_devices_means_every_one_that_matches() -> None:
    cluster = world(slice_of(*numbered(3), node="n"), claim("c", exactly(0)))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=d0", "r=d1", "r=d2"]


def test_all_devices_are_at_least_one() -> None:
    cluster = world(slice_of("d0", node="n"), claim("c", exactly(0, "false")))
    assert CANNOT in cluster.reason(pod_with("c"))


def test_all_devices_must_be_free() -> None:
    cluster = world(slice_of("d0", "d1", node="n"), claim("one"), claim("all", exactly(0)))
    cluster.run(pod_with("one", name="p1"))
    assert CANNOT in cluster.reason(pod_with("all", name="p2"))


def test_the_best_alternative_that_can_be_had_is_taken() -> None:
    cluster = world(slice_of("d0", "d1", node="n"), claim("c", alternatives(4, 2, 1)))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r/a1=d0", "r/a1=d1"]


def test_an_alternative_gives_way_to_what_comes_after_it() -> None:
    cluster = world(slice_of("d0", "d1", node="n"), claim("c", alternatives(2, 1), exactly(name="more")))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r/a1=d0", "more=d1"]


def test_a_claim_for_too_many_devices_is_an_error() -> None:
    cluster = world(slice_of("d0", node="n"), claim("c", exactly(33)))
    assert cluster.reason(pod_with("c")).endswith(
        "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    )


def test_alternatives_that_are_too_many_together_are_passed_over() -> None:
    many = slice_of(*(f"d{number}" for number in range(40)), node="n")
    cluster = world(many, claim("c", alternatives(20, 16, name="x"), alternatives(20, 16, name="y")))
    cluster.run(pod_with("c"))
    names = {name.partition("=")[0] for name in cluster.devices()}
    assert names == {"x/a1", "y/a1"}


def test_alternatives_that_are_too_many_however_chosen_are_not_searched_through() -> None:
    first = alternatives(20, 2, name="x")
    first["firstAvailable"][1]["selectors"] = [{"cel": {"expression": "false"}}]
    cluster = world(slice_of(*numbered(40), node="n"), claim("c", first, alternatives(20, 15, name="y")))
    assert CANNOT in cluster.reason(pod_with("c"))


# -- constraints -----------------------------------------------------------------------------------------------------


def sockets(*numbers: int) -> list[Mapping[str, Any]]:
    return [device(f"d{i}", attributes={"socket": number}) for i, number in enumerate(numbers)]


def test_devices_share_the_attribute_they_must_share() -> None:
    together = [{"matchAttribute": f"{DRIVER}/socket"}]
    cluster = world(slice_of(*sockets(0, 1, 1), node="n"), claim("c", exactly(2), constraints=together))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=d1", "r=d2"]


def test_devices_differ_in_the_attribute_they_must_not_share() -> None:
    apart = [{"distinctAttribute": f"{DRIVER}/socket", "requests": ["x", "y"]}]
    requests = exactly(name="x"), exactly(name="y")
    cluster = world(slice_of(*sockets(0, 0, 1), node="n"), claim("c", *requests, constraints=apart))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["x=d0", "y=d2"]


def test_of_one_request_only_the_latest_device_is_compared() -> None:
    apart = [{"distinctAttribute": f"{DRIVER}/socket"}]
    cluster = world(slice_of(*sockets(0, 1, 0), node="n"), claim("c", exactly(3), constraints=apart))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=d0", "r=d1", "r=d2"]


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_a_device_without_the_attribute_is_not_taken(kind: str) -> None:
    cluster = world(slice_of("d0", node="n"), claim("c", constraints=[{kind: "example.com/socket"}]))
    assert CANNOT in cluster.reason(pod_with("c"))


@pytest.mark.parametrize("requests", [["y"], ["r/a1"]])
def test_a_constraint_leaves_other_requests_alone(requests: list[str]) -> None:
    for kind in ("matchAttribute", "distinctAttribute"):
        constraint = {kind: f"{DRIVER}/socket", "requests": requests}
        cluster = world(slice_of(*sockets(0, 1), node="n"), claim("c", alternatives(2, 1), constraints=[constraint]))
        cluster.run(pod_with("c"))
        assert cluster.devices() == ["r/a0=d0", "r/a0=d1"]


def test_a_constraint_on_an_alternative_holds_when_it_is_chosen() -> None:
    together = {"matchAttribute": f"{DRIVER}/socket", "requests": ["r/a0"]}
    cluster = world(slice_of(*sockets(0, 1), node="n"), claim("c", alternatives(2, 1), constraints=[together]))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r/a1=d0"]


def test_all_devices_that_break_a_constraint_are_an_error() -> None:
    together = [{"matchAttribute": f"{DRIVER}/socket"}]
    cluster = world(slice_of(*sockets(0, 1), node="n"), claim("c", exactly(0), constraints=together))
    assert cluster.reason(pod_with("c")).endswith(
        f"claim default/c, request r: cannot add device {DRIVER}/n/d1 because a claim constraint would not be satisfied"
    )


def test_two_constraints_are_both_kept() -> None:
    both = [{"matchAttribute": f"{DRIVER}/socket"}, {"distinctAttribute": f"{DRIVER}/lane"}]
    lanes = [
        device(f"d{i}", attributes={"socket": s, "lane": lane}) for i, (s, lane) in enumerate([(0, 0), (0, 0), (0, 1)])
    ]
    requests = exactly(name="x"), exactly(name="y")
    cluster = world(slice_of(*lanes, node="n"), claim("c", *requests, constraints=both))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["x=d0", "y=d2"]


def test_a_constraint_of_an_unknown_kind_is_an_error() -> None:
    cluster = world(slice_of("d0", node="n"), claim("c", constraints=[{}]))
    assert "claim default/c, constraint #0: empty constraint" in cluster.reason(pod_with("c"))


# -- taints and admin access -----------------------------------------------------------------------------------------

SICK = {"key": "sick", "value": "very", "effect": "NoSchedule"}


def test_a_tainted_device_is_not_taken() -> None:
    cluster = world(slice_of(device("d0", taints=[SICK]), node="n"), claim())
    assert CANNOT in cluster.reason(pod_with("c"))


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "sick", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "sick", "operator": "Equal", "value": "very"},
        {"key": "sick", "value": "very"},
    ],
)
def test_a_tolerated_taint_keeps_nobody_away(toleration: Mapping[str, str]) -> None:
    cluster = world(slice_of(device("d0", taints=[SICK]), node="n"), claim("c", exactly(tolerations=[toleration])))
    assert cluster.run(pod_with("c")).node_name == "n"


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "other", "operator": "Exists"},
        {"key": "sick", "value": "a bit"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "sick", "operator": "In"},
    ],
)
def test_another_toleration_does_not_help(toleration: Mapping[str, str]) -> None:
    cluster = world(slice_of(device("d0", taints=[SICK]), node="n"), claim("c", exactly(tolerations=[toleration])))
    assert CANNOT in cluster.reason(pod_with("c"))


def test_a_taint_without_effect_keeps_nobody_away() -> None:
    cluster = world(slice_of(device("d0", taints=[SICK | {"effect": "None"}]), node="n"), claim())
    assert cluster.run(pod_with("c")).node_name == "n"


def test_admin_access_looks_at_devices_in_use_and_takes_none() -> None:
    watcher = claim("watcher", exactly(0, adminAccess=True))
    cluster = world(slice_of("d0", node="n"), claim(), watcher, claim("late"))
    cluster.run(pod_with("c", name="p1"))
    assert cluster.run(pod_with("watcher", name="p2")).node_name == "n"
    assert cluster.claim("watcher").status.allocation is not None
    assert CANNOT in cluster.reason(pod_with("late", name="p3"))


def test_admin_access_sees_a_device_once_in_a_claim() -> None:
    twice = claim("c", exactly(1, adminAccess=True, name="x"), exactly(1, adminAccess=True, name="y"))
    cluster = world(slice_of("d0", "d1", node="n"), twice)
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["x=d0", "y=d1"]


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


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_a_search_that_takes_too_long_is_given_up() -> None:
    args = {"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "10ms"}}]}
    together = [{"matchAttribute": f"{DRIVER}/half"}]
    halves = [device(f"d{i}", attributes={"half": i % 2}) for i in range(40)]
    cluster = world(slice_of(*halves, node="n"), claim("c", exactly(21), constraints=together), profile=args)
    assert cluster.reason(pod_with("c")).endswith("node n: timed out trying to allocate devices")


def test_claims_for_more_devices_than_can_be_searched_are_an_error() -> None:
    many = [slice_of(*(f"d{i}" for i in range(128)), node="n", pool=f"p{p}") for p in range(12)]
    claims = [claim(f"c{number}", exactly(32)) for number in range(40)]
    cluster = world(*many, *claims)
    assert "ask for too many devices" in cluster.reason(pod_with(*(f"c{number}" for number in range(40))))


# -- gates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "request_", "problem"),
    [
        ("DRAConsumableCapacity", exactly(capacity={"requests": {"memory": "1"}}), "DRAConsumableCapacity feature"),
        ("DRAPrioritizedList", alternatives(1), "DRAPrioritizedList feature"),
    ],
)
def test_what_a_gate_closes_is_refused(gate: str, request_: Mapping[str, Any], problem: str) -> None:
    cluster = world(slice_of("d0", node="n"), claim("c", request_), gates={gate: False})
    assert problem in cluster.reason(pod_with("c"))


def test_without_the_gate_for_taints_nobody_minds_them() -> None:
    sick = slice_of(device("d0", taints=[SICK]), node="n")
    assert world(sick, claim(), gates={"DRADeviceTaints": False}).run(pod_with("c")).node_name == "n"


def test_without_the_gate_for_parts_they_are_not_there() -> None:
    parts = slice_of(part("d0", "1Gi"), node="n", of=2)
    cluster = world(card("50Gi"), parts, claim(), gates={"DRAPartitionableDevices": False})
    assert CANNOT in cluster.reason(pod_with("c"))


def test_without_the_gate_for_binding_conditions_such_devices_are_left_alone() -> None:
    slow = slice_of(device("d0", bindingConditions=["Attached"]), node="n")
    assert CANNOT in world(slow, claim(), gates={"DRADeviceBindingConditions": False}).reason(pod_with("c"))


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}}, "unsupported count mode Some"),
        (
            {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All", "selectors": [{}]}},
            "claim default/c, request r, selector #0: CEL expression empty",
        ),
    ],
)
def test_a_request_that_cannot_be_read_is_an_error(request_: Mapping[str, Any], problem: str) -> None:
    assert problem in world(slice_of("d0", node="n"), claim("c", request_)).reason(pod_with("c"))


def test_a_broken_selector_hurts_only_who_uses_it() -> None:
    broken = device_class("broken", "device.nonsense")
    cluster = world(slice_of("d0", "d1", node="n"), broken, claim("bad", exactly(of="broken")), claim("good"))
    assert "class broken: selector #0: CEL compile error" in cluster.reason(pod_with("bad", name="p1"))
    assert cluster.run(pod_with("good", name="p2")).node_name == "n"


def test_a_selector_that_fails_names_its_claim() -> None:
    cluster = world(slice_of("d0", node="n"), claim("c", exactly(1, "true", f'device.attributes["{DRIVER}"].x == 1')))
    assert cluster.reason(pod_with("c")).endswith("claim default/c: selector #1: CEL runtime error: no such key: x")


# -- attributes ------------------------------------------------------------------------------------------------------


def test_versions_are_attributes_too() -> None:
    newer = f'device.attributes["{DRIVER}"].driver.isGreaterThan(semver("1.9.0"))'
    old, new = ({"name": n, "attributes": {"driver": {"version": v}}} for n, v in (("d0", "1.2.0"), ("d1", "1.10.0")))
    cluster = world(slice_of(old, new, node="n"), claim("c", exactly(1, newer)))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=d1"]


@pytest.mark.parametrize("value", [{"version": "latest"}, {}])
def test_an_attribute_that_cannot_be_read_fails_the_selector(value: Mapping[str, str]) -> None:
    odd = {"name": "d0", "attributes": {"example.com/odd": value}}
    cluster = world(slice_of(odd, node="n"), claim("c", exactly(1, "true")))
    assert "CEL runtime error: attribute example.com/odd" in cluster.reason(pod_with("c"))


def test_a_device_remembers_only_so_many_answers() -> None:
    cluster = world(slice_of("d0", node="n"), claim("many", exactly(1, *(f"{n} == {n}" for n in range(300)))))
    assert cluster.run(pod_with("many")).node_name == "n"


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


def test_without_a_timeout_the_search_goes_to_its_end() -> None:
    args = {"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "0s"}}]}
    cluster = world(slice_of("d0", node="n"), claim("c", exactly(2)), profile=args)
    assert CANNOT in cluster.reason(pod_with("c"))
