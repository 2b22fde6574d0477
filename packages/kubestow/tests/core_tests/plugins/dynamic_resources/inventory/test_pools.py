"""Which devices a node can access: slices, pools, generations (semantics 8.16)."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.plugins.dynamic_resources.devices import DeviceHarness
from kubestow.testing import node, nodes
from kubestow.testing.devices import DRIVER, claim, device, exactly, pod_with, slice_of

CANNOT = "cannot allocate all claims"
NORTH = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "side", "operator": "In", "values": ["north"]}]}]}
INVALID = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "side", "operator": "Like", "values": ["n"]}]}]}
NODES = node("a", labels={"side": "north"}), node("b", labels={"side": "south"})


def two_nodes(*objects: Any) -> DeviceHarness:
    return DeviceHarness(*NODES, claim(), *objects)


def test_a_slice_with_a_node_name_is_for_this_node() -> None:
    assert two_nodes(slice_of("d0", node="b")).feasible(pod_with("c")) == {"b"}


def test_a_slice_for_all_nodes() -> None:
    assert two_nodes(slice_of("d0", allNodes=True)).feasible(pod_with("c")) == {"a", "b"}


def test_a_slice_with_a_node_selector_is_for_matching_nodes() -> None:
    assert two_nodes(slice_of("d0", nodeSelector=NORTH)).feasible(pod_with("c")) == {"a"}


@pytest.mark.parametrize("node_selection", [{"nodeName": "a"}, {"nodeSelector": NORTH}])
def test_a_slice_can_select_nodes_per_device(node_selection: Any) -> None:
    devices = device("d0", **node_selection), device("d1", allNodes=True), device("d2")
    harness = two_nodes(slice_of(*devices, perDeviceNodeSelection=True), claim("two", exactly(2)))
    assert harness.feasible(pod_with("c")) == {"a", "b"}
    assert harness.feasible(pod_with("two")) == {"a"}


def test_a_device_for_a_missing_node_is_not_accessible() -> None:
    assert CANNOT in two_nodes(slice_of(device("d0", nodeName="x"), perDeviceNodeSelection=True)).reason(pod_with("c"))


def test_a_slice_without_node_selection_is_not_accessible() -> None:
    assert CANNOT in two_nodes(slice_of("d0", allNodes=False)).reason(pod_with("c"))


@pytest.mark.parametrize(
    "invalid",
    [
        slice_of("d0", nodeSelector=INVALID),
        slice_of(device("d0", nodeSelector=INVALID), perDeviceNodeSelection=True),
    ],
)
def test_an_invalid_node_selector_is_an_error_that_names_the_slice(invalid: Any) -> None:
    assert "failed to perform node selection for slice pool-slice" in two_nodes(invalid).reason(pod_with("c"))


def test_a_pool_is_used_after_all_its_slices_are_published() -> None:
    harness = two_nodes(slice_of("d0", node="a", name="a-1", of=2))
    assert CANNOT in harness.reason(pod_with("c"))
    harness.put(slice_of("d1", node="a", name="a-2", of=2))
    assert harness.feasible(pod_with("c")) == {"a"}


def test_slices_for_other_nodes_count_for_completeness() -> None:
    of_a, of_b = (
        slice_of("d0", node="a", pool="p", name="p-1", of=2),
        slice_of("d1", node="b", pool="p", name="p-2", of=2),
    )
    assert two_nodes(of_a, of_b).feasible(pod_with("c")) == {"a", "b"}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = slice_of("old", node="a", name="p-2", generation=1)
    new = slice_of("new", node="a", name="p-1", generation=2)
    harness = two_nodes(new, old)
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=new"]


def test_a_slice_of_a_newer_generation_replaces_older_ones() -> None:
    old = slice_of("old", node="a", name="p-1", generation=1)
    new = slice_of("new", node="a", name="p-2", generation=2)
    harness = two_nodes(old, new)
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=new"]


def test_a_pool_is_ignored_if_slices_for_other_nodes_are_newer() -> None:
    of_a = slice_of("d0", node="a", pool="p", name="p-1", generation=1, of=2)
    of_b = slice_of("d1", node="b", pool="p", name="p-2", generation=2)
    assert two_nodes(of_a, of_b).feasible(pod_with("c")) == {"b"}


def test_allocation_mode_all_fails_on_an_incomplete_pool() -> None:
    harness = two_nodes(slice_of("d0", node="a", of=2), claim("all", exactly(0)))
    problem = f"asks for all devices, but resource pool {DRIVER}/a is currently being updated"
    assert problem in harness.reason(pod_with("all"))


DUPLICATE_DEVICE = slice_of("d0", "d0", node="a")
UNKNOWN_COUNTER_SET = slice_of(device("d0", consumesCounters=[{"counterSet": "x", "counters": {}}]), node="a")
SETS = [{"name": "x", "counters": {"m": {"value": "1"}}}] * 2
DUPLICATE_COUNTER_SET = slice_of(node="a", sharedCounters=SETS)
INVALID_CAPACITY = slice_of(device("d0", memory="lots"), node="a")


@pytest.mark.parametrize("invalid", [DUPLICATE_DEVICE, UNKNOWN_COUNTER_SET, INVALID_CAPACITY])
def test_an_invalid_pool_is_not_used_and_reported(invalid: Any) -> None:
    harness = two_nodes(invalid, claim("all", exactly(0)))
    refusals = harness.rejections(pod_with("c"))
    assert refusals["a"] == ("DynamicResources", ("invalid resource pools were encountered",))
    assert refusals["b"] == ("DynamicResources", (CANNOT,))
    assert f"resource pool {DRIVER}/a is currently invalid" in harness.reason(pod_with("all"))


def test_an_invalid_pool_with_shared_counters_is_reported_on_every_node() -> None:
    refusals = two_nodes(DUPLICATE_COUNTER_SET).rejections(pod_with("c"))
    assert {reasons for _, reasons in refusals.values()} == {("invalid resource pools were encountered",)}


def test_an_incomplete_pool_with_shared_counters_fails_claims_for_all_devices_on_every_node() -> None:
    sets = slice_of(node="a", of=2, sharedCounters=SETS[:1])
    harness = two_nodes(sets, slice_of("d0", node="b"), claim("all", exactly(0)))
    on_b = pod_with("all", spec={"nodeSelector": {"side": "south"}})
    assert f"resource pool {DRIVER}/a is currently being updated" in harness.reason(on_b)
    assert harness.feasible(pod_with("c")) == {"b"}


def test_a_pool_that_becomes_complete_no_longer_fails_claims_for_all_devices() -> None:
    sets = slice_of(node="a", name="a-sets", of=2, sharedCounters=SETS[:1])
    harness = two_nodes(sets, slice_of("d0", node="b"), claim("all", exactly(0)))
    on_b = pod_with("all", spec={"nodeSelector": {"side": "south"}})
    assert "being updated" in harness.reason(on_b)
    harness.put(slice_of("d1", node="a", name="a-devices", of=2))
    assert harness.feasible(on_b) == {"b"}


def test_shared_counters_of_one_node_serve_devices_of_the_pool_on_all_nodes() -> None:
    consumes = [{"counterSet": "x", "counters": {"m": {"value": "1"}}}]
    devices = slice_of(device("d0", consumesCounters=consumes), pool="p", name="p-1", of=2)
    sets = slice_of(node="a", pool="p", name="p-2", of=2, sharedCounters=SETS[:1])
    assert two_nodes(devices, sets).feasible(pod_with("c")) == {"a", "b"}


def test_an_unknown_counter_makes_a_pool_invalid() -> None:
    consumes = [{"counterSet": "x", "counters": {"other": {"value": "1"}}}]
    devices = slice_of(device("d0", consumesCounters=consumes), node="a", name="a-1", of=2)
    sets = slice_of(node="a", name="a-2", of=2, sharedCounters=SETS[:1])
    assert "invalid resource pools" in two_nodes(devices, sets).reason(pod_with("c"))


def test_pools_and_slices_are_searched_by_name() -> None:
    slices = slice_of("d2", node="a", pool="p2", name="s1"), slice_of("d1", node="a", pool="p1", name="s9")
    more = slice_of("d4", node="a", pool="p0", name="z", of=2), slice_of("d3", node="a", pool="p0", name="y", of=2)
    harness = two_nodes(*slices, *more, claim("many", exactly(4)))
    harness.run(pod_with("many"))
    assert harness.devices("many") == ["r=d3", "r=d4", "r=d1", "r=d2"]


def test_pools_with_binding_conditions_are_searched_last() -> None:
    with_conditions = slice_of(device("slow", bindingConditions=["Attached"]), node="a", pool="p1")
    harness = two_nodes(with_conditions, slice_of("quick", node="a", pool="p2"))
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=quick"]


def test_counters_consumed_on_other_nodes_are_not_available() -> None:
    consumes = [{"counterSet": "card", "counters": {"m": {"value": "2"}}}]
    sets = [{"name": "card", "counters": {"m": {"value": "3"}}}]
    slices = [
        slice_of(device(f"d-{n}", consumesCounters=consumes), node=n, pool="p", name=f"p-{n}", of=3) for n in ("a", "b")
    ]
    harness = two_nodes(*slices, slice_of(pool="p", name="p-sets", of=3, sharedCounters=sets), claim("second"))
    harness.run(pod_with("c", name="first"))
    assert CANNOT in harness.reason(pod_with("second"))


def test_a_changed_slice_is_used() -> None:
    harness = two_nodes(slice_of("d0", node="a"))
    assert harness.feasible(pod_with("c")) == {"a"}
    harness.put(slice_of(node="a"))
    assert CANNOT in harness.reason(pod_with("c"))


def test_each_node_can_have_its_own_slice() -> None:
    harness = DeviceHarness(*nodes(4), claim(), *(slice_of("d0", node=f"node-{number}") for number in (1, 3)))
    assert harness.feasible(pod_with("c")) == {"node-1", "node-3"}
