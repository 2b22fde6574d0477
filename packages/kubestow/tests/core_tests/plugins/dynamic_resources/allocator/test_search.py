"""Which devices are allocated to a claim (semantics 8.16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from core_tests.plugins.dynamic_resources.devices import single_node
from kubestow.plugins.dynamic_resources.search import AllocationSearch
from kubestow.testing.devices import DRIVER, claim, device, device_class, exactly, pod_with, slice_of, subrequests

CANNOT = "cannot allocate all claims"


def numbered(count: int, **attributes: Any) -> list[Mapping[str, Any]]:
    return [device(f"d{number}", attributes={"index": number, **attributes}) for number in range(count)]


def test_the_first_matching_devices_are_allocated() -> None:
    odd_index = f'device.attributes["{DRIVER}"].index % 2 == 1'
    harness = single_node(slice_of(*numbered(6), node="n"), claim("c", exactly(2, odd_index)))
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=d1", "r=d3"]


def test_the_selectors_of_the_class_apply() -> None:
    late = device_class("gpu", f'device.attributes["{DRIVER}"].index > 3')
    harness = single_node(slice_of(*numbered(6), node="n"), late, claim())
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=d4"]


def test_a_device_is_allocated_once() -> None:
    harness = single_node(slice_of("d0", "d1", node="n"), claim("a"), claim("b"), claim("c"))
    assert harness.run(pod_with("a", name="pa")).node_name == "n"
    assert harness.run(pod_with("b", name="pb")).node_name == "n"
    assert CANNOT in harness.reason(pod_with("c", name="pc"))


def test_all_claims_of_a_pod_are_allocated_or_none() -> None:
    harness = single_node(slice_of("d0", "d1", node="n"), claim("a", exactly(1)), claim("b", exactly(2)))
    assert CANNOT in harness.reason(pod_with("a", "b"))


def test_the_search_backtracks() -> None:
    zero = f'device.attributes["{DRIVER}"].index == 0'
    harness = single_node(
        slice_of(*numbered(2), node="n"), claim("c", exactly(name="any"), exactly(1, zero, name="zero"))
    )
    harness.run(pod_with("c"))
    assert harness.devices() == ["any=d1", "zero=d0"]


def test_allocation_mode_all_allocates_all_matching_devices() -> None:
    harness = single_node(slice_of(*numbered(3), node="n"), claim("c", exactly(0)))
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=d0", "r=d1", "r=d2"]


def test_allocation_mode_all_needs_at_least_one_device() -> None:
    harness = single_node(slice_of("d0", node="n"), claim("c", exactly(0, "false")))
    assert CANNOT in harness.reason(pod_with("c"))


def test_allocation_mode_all_fails_if_a_device_is_in_use() -> None:
    harness = single_node(slice_of("d0", "d1", node="n"), claim("one"), claim("all", exactly(0)))
    harness.run(pod_with("one", name="p1"))
    assert CANNOT in harness.reason(pod_with("all", name="p2"))


def test_the_first_available_subrequest_is_allocated() -> None:
    harness = single_node(slice_of("d0", "d1", node="n"), claim("c", subrequests(4, 2, 1)))
    harness.run(pod_with("c"))
    assert harness.devices() == ["r/a1=d0", "r/a1=d1"]


def test_a_later_subrequest_is_tried_if_a_later_request_fails() -> None:
    harness = single_node(slice_of("d0", "d1", node="n"), claim("c", subrequests(2, 1), exactly(name="more")))
    harness.run(pod_with("c"))
    assert harness.devices() == ["r/a1=d0", "more=d1"]


def test_a_claim_for_too_many_devices_is_an_error() -> None:
    harness = single_node(slice_of("d0", node="n"), claim("c", exactly(33)))
    assert harness.reason(pod_with("c")).endswith(
        "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    )


def test_subrequests_that_exceed_the_claim_limit_are_skipped() -> None:
    many = slice_of(*(f"d{number}" for number in range(40)), node="n")
    harness = single_node(many, claim("c", subrequests(20, 16, name="x"), subrequests(20, 16, name="y")))
    harness.run(pod_with("c"))
    names = {name.partition("=")[0] for name in harness.devices()}
    assert names == {"x/a1", "y/a1"}


def test_a_request_whose_subrequests_all_exceed_the_claim_limit_fails_early() -> None:
    first = subrequests(20, 2, name="x")
    first["firstAvailable"][1]["selectors"] = [{"cel": {"expression": "false"}}]
    harness = single_node(slice_of(*numbered(40), node="n"), claim("c", first, subrequests(20, 15, name="y")))
    assert CANNOT in harness.reason(pod_with("c"))


# -- admin access and taints ---------------------------------------------------------------------------------------


TAINT = {"key": "sick", "value": "very", "effect": "NoSchedule"}


def test_a_tainted_device_is_not_allocated() -> None:
    harness = single_node(slice_of(device("d0", taints=[TAINT]), node="n"), claim())
    assert CANNOT in harness.reason(pod_with("c"))


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "sick", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "sick", "operator": "Equal", "value": "very"},
        {"key": "sick", "value": "very"},
    ],
)
def test_a_device_with_a_tolerated_taint_is_allocated(toleration: Mapping[str, str]) -> None:
    harness = single_node(
        slice_of(device("d0", taints=[TAINT]), node="n"), claim("c", exactly(tolerations=[toleration]))
    )
    assert harness.run(pod_with("c")).node_name == "n"


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "other", "operator": "Exists"},
        {"key": "sick", "value": "a bit"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "sick", "operator": "In"},
    ],
)
def test_a_toleration_that_does_not_match_the_taint_is_not_enough(toleration: Mapping[str, str]) -> None:
    harness = single_node(
        slice_of(device("d0", taints=[TAINT]), node="n"), claim("c", exactly(tolerations=[toleration]))
    )
    assert CANNOT in harness.reason(pod_with("c"))


def test_a_taint_with_another_effect_does_not_prevent_allocation() -> None:
    harness = single_node(slice_of(device("d0", taints=[TAINT | {"effect": "None"}]), node="n"), claim())
    assert harness.run(pod_with("c")).node_name == "n"


def test_admin_access_uses_devices_in_use_without_allocating_them() -> None:
    admin = claim("watcher", exactly(0, adminAccess=True))
    harness = single_node(slice_of("d0", node="n"), claim(), admin, claim("late"))
    harness.run(pod_with("c", name="p1"))
    assert harness.run(pod_with("watcher", name="p2")).node_name == "n"
    assert harness.claim("watcher").status.allocation is not None
    assert CANNOT in harness.reason(pod_with("late", name="p3"))


def test_admin_access_uses_a_device_once_per_claim() -> None:
    twice = claim("c", exactly(1, adminAccess=True, name="x"), exactly(1, adminAccess=True, name="y"))
    harness = single_node(slice_of("d0", "d1", node="n"), twice)
    harness.run(pod_with("c"))
    assert harness.devices() == ["x=d0", "y=d1"]


# -- limits --------------------------------------------------------------------------------------------------------


def test_a_search_ends_after_the_filter_timeout() -> None:
    args = {"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "1ms"}}]}
    together = [{"matchAttribute": f"{DRIVER}/half"}]
    halves = [device(f"d{i}", attributes={"half": i % 2}) for i in range(40)]
    harness = single_node(slice_of(*halves, node="n"), claim("c", exactly(21), constraints=together), profile=args)
    assert harness.reason(pod_with("c")).endswith("node n: timed out trying to allocate devices")


def test_a_search_that_reached_its_limit_is_not_repeated_for_the_same_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    args = {"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "1ms"}}]}
    together = [{"matchAttribute": f"{DRIVER}/half"}]
    halves = [device(f"d{i}", attributes={"half": i % 2}) for i in range(40)]
    harness = single_node(slice_of(*halves, node="n"), claim("c", exactly(21), constraints=together), profile=args)
    searches = 0
    run = AllocationSearch.run

    def counted(*given: Any) -> Any:
        nonlocal searches
        searches += 1
        return run(*given)

    monkeypatch.setattr(AllocationSearch, "run", counted)
    reasons = {harness.reason(pod_with("c")) for _ in range(3)}
    assert len(reasons) == 1 and reasons.pop().endswith("node n: timed out trying to allocate devices")
    assert searches == 1


def test_claims_for_more_devices_than_the_search_supports_are_an_error() -> None:
    many = [slice_of(*(f"d{i}" for i in range(128)), node="n", pool=f"p{p}") for p in range(12)]
    claims = [claim(f"c{number}", exactly(32)) for number in range(40)]
    harness = single_node(*many, *claims)
    assert "ask for too many devices" in harness.reason(pod_with(*(f"c{number}" for number in range(40))))


def test_without_a_timeout_the_search_is_complete() -> None:
    args = {"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "0s"}}]}
    harness = single_node(slice_of("d0", node="n"), claim("c", exactly(2)), profile=args)
    assert CANNOT in harness.reason(pod_with("c"))


# -- feature gates and errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "request_", "problem"),
    [
        ("DRAConsumableCapacity", exactly(capacity={"requests": {"memory": "1"}}), "DRAConsumableCapacity feature"),
        ("DRAPrioritizedList", subrequests(1), "DRAPrioritizedList feature"),
    ],
)
def test_a_request_for_a_disabled_feature_is_an_error(gate: str, request_: Mapping[str, Any], problem: str) -> None:
    harness = single_node(slice_of("d0", node="n"), claim("c", request_), gates={gate: False})
    assert problem in harness.reason(pod_with("c"))


def test_without_the_gate_taints_are_ignored() -> None:
    tainted = slice_of(device("d0", taints=[TAINT]), node="n")
    assert single_node(tainted, claim(), gates={"DRADeviceTaints": False}).run(pod_with("c")).node_name == "n"


def test_without_the_gate_devices_with_binding_conditions_are_not_allocated() -> None:
    with_conditions = slice_of(device("d0", bindingConditions=["Attached"]), node="n")
    assert CANNOT in single_node(with_conditions, claim(), gates={"DRADeviceBindingConditions": False}).reason(
        pod_with("c")
    )


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
def test_an_unsupported_request_is_an_error(request_: Mapping[str, Any], problem: str) -> None:
    assert problem in single_node(slice_of("d0", node="n"), claim("c", request_)).reason(pod_with("c"))


def test_an_invalid_selector_of_a_class_affects_only_its_claims() -> None:
    invalid = device_class("broken", "device.nonsense")
    harness = single_node(slice_of("d0", "d1", node="n"), invalid, claim("bad", exactly(of="broken")), claim("good"))
    assert "class broken: selector #0: CEL compile error" in harness.reason(pod_with("bad", name="p1"))
    assert harness.run(pod_with("good", name="p2")).node_name == "n"


def test_a_selector_error_names_the_claim() -> None:
    harness = single_node(
        slice_of("d0", node="n"), claim("c", exactly(1, "true", f'device.attributes["{DRIVER}"].x == 1'))
    )
    assert harness.reason(pod_with("c")).endswith("claim default/c: selector #1: CEL runtime error: no such key: x")


# -- attributes ----------------------------------------------------------------------------------------------------


def test_selectors_compare_versions() -> None:
    newer = f'device.attributes["{DRIVER}"].driver.isGreaterThan(semver("1.9.0"))'
    old, new = ({"name": n, "attributes": {"driver": {"version": v}}} for n, v in (("d0", "1.2.0"), ("d1", "1.10.0")))
    harness = single_node(slice_of(old, new, node="n"), claim("c", exactly(1, newer)))
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=d1"]


@pytest.mark.parametrize("value", [{"version": "latest"}, {}])
def test_an_invalid_attribute_fails_the_selector(value: Mapping[str, str]) -> None:
    odd_index = {"name": "d0", "attributes": {"example.com/odd": value}}
    harness = single_node(slice_of(odd_index, node="n"), claim("c", exactly(1, "true")))
    assert "CEL runtime error: attribute example.com/odd" in harness.reason(pod_with("c"))


def test_a_device_evicts_cached_selector_results() -> None:
    harness = single_node(slice_of("d0", node="n"), claim("many", exactly(1, *(f"{n} == {n}" for n in range(300)))))
    assert harness.run(pod_with("many")).node_name == "n"
