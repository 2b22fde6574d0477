"""Which devices a node reaches: slices, pools, generations."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.testing import node, nodes
from tests.plugins.dynamic_resources.devices import DRIVER, DeviceWorld, claim, device, exactly, pod_with, slice_of

CANNOT = "cannot allocate all claims"
NORTH = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "side", "operator": "In", "values": ["north"]}]}]}
UNREADABLE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "side", "operator": "Like", "values": ["n"]}]}]}
NODES = node("a", labels={"side": "north"}), node("b", labels={"side": "south"})


def world(*objects: Any) -> DeviceWorld:
    return DeviceWorld(*NODES, claim(), *objects)


def test_devices_of_one_node_are_for_that_node() -> None:
    assert world(slice_of("d0", node="b")).feasible(pod_with("c")) == {"b"}


def test_devices_of_all_nodes_are_for_all() -> None:
    assert world(slice_of("d0", allNodes=True)).feasible(pod_with("c")) == {"a", "b"}


def test_devices_of_selected_nodes_are_for_those() -> None:
    assert world(slice_of("d0", nodeSelector=NORTH)).feasible(pod_with("c")) == {"a"}


@pytest.mark.parametrize("where", [{"nodeName": "a"}, {"nodeSelector": NORTH}])
def test_each_device_may_say_for_which_nodes_it_is(where: Any) -> None:
    devices = device("d0", **where), device("d1", allNodes=True), device("d2")
    cluster = world(slice_of(*devices, perDeviceNodeSelection=True), claim("two", exactly(2)))
    assert cluster.feasible(pod_with("c")) == {"a", "b"}
    assert cluster.feasible(pod_with("two")) == {"a"}


def test_a_device_for_a_node_that_is_not_there_is_for_nobody() -> None:
    assert CANNOT in world(slice_of(device("d0", nodeName="x"), perDeviceNodeSelection=True)).reason(pod_with("c"))


def test_a_slice_for_nobody_known_is_left_alone() -> None:
    assert CANNOT in world(slice_of("d0", allNodes=False)).reason(pod_with("c"))


@pytest.mark.parametrize(
    "unreadable",
    [
        slice_of("d0", nodeSelector=UNREADABLE),
        slice_of(device("d0", nodeSelector=UNREADABLE), perDeviceNodeSelection=True),
    ],
)
def test_a_selector_that_cannot_be_read_is_an_error_that_names_its_slice(unreadable: Any) -> None:
    assert "failed to perform node selection for slice pool-slice" in world(unreadable).reason(pod_with("c"))


def test_a_pool_is_used_once_all_its_slices_are_there() -> None:
    cluster = world(slice_of("d0", node="a", name="a-1", of=2))
    assert CANNOT in cluster.reason(pod_with("c"))
    cluster.put(slice_of("d1", node="a", name="a-2", of=2))
    assert cluster.feasible(pod_with("c")) == {"a"}


def test_slices_for_other_nodes_count_for_completeness() -> None:
    here, there = (
        slice_of("d0", node="a", pool="p", name="p-1", of=2),
        slice_of("d1", node="b", pool="p", name="p-2", of=2),
    )
    assert world(here, there).feasible(pod_with("c")) == {"a", "b"}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = slice_of("old", node="a", name="p-2", generation=1)
    new = slice_of("new", node="a", name="p-1", generation=2)
    cluster = world(new, old)
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=new"]


def test_a_newer_slice_takes_the_place_of_older_ones() -> None:
    old = slice_of("old", node="a", name="p-1", generation=1)
    new = slice_of("new", node="a", name="p-2", generation=2)
    cluster = world(old, new)
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=new"]


def test_a_pool_that_is_newer_elsewhere_is_obsolete_here() -> None:
    here = slice_of("d0", node="a", pool="p", name="p-1", generation=1, of=2)
    there = slice_of("d1", node="b", pool="p", name="p-2", generation=2)
    assert world(here, there).feasible(pod_with("c")) == {"b"}


def test_all_devices_wait_for_a_pool_that_is_being_updated() -> None:
    cluster = world(slice_of("d0", node="a", of=2), claim("all", exactly(0)))
    problem = f"asks for all devices, but resource pool {DRIVER}/a is currently being updated"
    assert problem in cluster.reason(pod_with("all"))


TWICE = slice_of("d0", "d0", node="a")
DANGLING = slice_of(device("d0", consumesCounters=[{"counterSet": "x", "counters": {}}]), node="a")
SETS = [{"name": "x", "counters": {"m": {"value": "1"}}}] * 2
SAME_SETS = slice_of(node="a", sharedCounters=SETS)
UNREADABLE_CAPACITY = slice_of(device("d0", memory="lots"), node="a")


@pytest.mark.parametrize("invalid", [TWICE, DANGLING, SAME_SETS, UNREADABLE_CAPACITY])
def test_an_invalid_pool_is_not_used_and_said_so(invalid: Any) -> None:
    cluster = world(invalid, claim("all", exactly(0)))
    refusals = cluster.refusals(pod_with("c"))
    assert refusals["a"] == ("DynamicResources", ("invalid resource pools were encountered",))
    assert refusals["b"] == ("DynamicResources", (CANNOT,))
    assert f"resource pool {DRIVER}/a is currently invalid" in cluster.reason(pod_with("all"))


def test_a_counter_that_its_set_lacks_makes_a_pool_invalid() -> None:
    consumes = [{"counterSet": "x", "counters": {"other": {"value": "1"}}}]
    devices = slice_of(device("d0", consumesCounters=consumes), node="a", name="a-1", of=2)
    sets = slice_of(node="a", name="a-2", of=2, sharedCounters=SETS[:1])
    assert "invalid resource pools" in world(devices, sets).reason(pod_with("c"))


def test_pools_are_tried_by_name_and_slices_too() -> None:
    slices = slice_of("d2", node="a", pool="p2", name="s1"), slice_of("d1", node="a", pool="p1", name="s9")
    more = slice_of("d4", node="a", pool="p0", name="z", of=2), slice_of("d3", node="a", pool="p0", name="y", of=2)
    cluster = world(*slices, *more, claim("many", exactly(4)))
    cluster.run(pod_with("many"))
    assert cluster.devices("many") == ["r=d3", "r=d4", "r=d1", "r=d2"]


def test_pools_whose_devices_must_be_made_ready_come_last() -> None:
    slow = slice_of(device("slow", bindingConditions=["Attached"]), node="a", pool="p1")
    cluster = world(slow, slice_of("quick", node="a", pool="p2"))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=quick"]


def test_counters_drawn_upon_on_other_nodes_are_gone_here_too() -> None:
    consumes = [{"counterSet": "card", "counters": {"m": {"value": "2"}}}]
    sets = [{"name": "card", "counters": {"m": {"value": "3"}}}]
    slices = [
        slice_of(device(f"d-{n}", consumesCounters=consumes), node=n, pool="p", name=f"p-{n}", of=3) for n in ("a", "b")
    ]
    cluster = world(*slices, slice_of(pool="p", name="p-sets", of=3, sharedCounters=sets), claim("second"))
    cluster.run(pod_with("c", name="first"))
    assert CANNOT in cluster.reason(pod_with("second"))


def test_a_slice_that_changes_is_seen() -> None:
    cluster = world(slice_of("d0", node="a"))
    assert cluster.feasible(pod_with("c")) == {"a"}
    cluster.put(slice_of(node="a"))
    assert CANNOT in cluster.reason(pod_with("c"))


def test_the_nodes_of_a_cluster_may_differ_in_everything() -> None:
    cluster = DeviceWorld(*nodes(4), claim(), *(slice_of("d0", node=f"node-{number}") for number in (1, 3)))
    assert cluster.feasible(pod_with("c")) == {"node-1", "node-3"}
