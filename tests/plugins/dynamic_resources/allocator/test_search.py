"""Which devices a claim gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.plugins.dynamic_resources.devices import (
    DRIVER,
    alternatives,
    claim,
    device,
    device_class,
    exactly,
    pod_with,
    slice_of,
    world,
)

CANNOT = "cannot allocate all claims"


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


# -- admin access and taints -----------------------------------------------------------------------------------------


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


def test_without_a_timeout_the_search_goes_to_its_end() -> None:
    args = {"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "0s"}}]}
    cluster = world(slice_of("d0", node="n"), claim("c", exactly(2)), profile=args)
    assert CANNOT in cluster.reason(pod_with("c"))


# -- gates and mistakes ----------------------------------------------------------------------------------------------


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
