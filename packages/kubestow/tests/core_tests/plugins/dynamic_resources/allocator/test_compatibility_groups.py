"""Compatibility groups of partitions, with the gate DRADeviceCompatibilityGroups of 1.37 and without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.plugins.dynamic_resources.allocator.test_shared_devices import CANNOT, counters
from core_tests.plugins.dynamic_resources.devices import DeviceHarness, single_node
from kubestow.api.resource import ResourceClaim
from kubestow.rules.minors import Minor
from kubestow.testing.devices import allocation, claim, device, exactly, pod_with, slice_of

#: The groups of a partition by counter set.
Groups = Mapping[str, Sequence[str]]


def partition(name: str, **groups: Sequence[str]) -> Mapping[str, Any]:
    """A device that consumes a counter of each of some sets, with its groups there."""
    consumed = counters(memory="1Gi")
    consumes = [{"counterSet": each, "counters": consumed, "compatibilityGroups": its} for each, its in groups.items()]
    return device(name, consumesCounters=consumes)


def cards(*devices: Mapping[str, Any]) -> tuple[Any, Any]:
    """The slices of a pool: its cards, and their partitions."""
    sets = [{"name": name, "counters": counters(memory="64Gi")} for name in ("card", "other")]
    card = slice_of(node="n", name="n-card", of=2, sharedCounters=sets)
    return card, slice_of(*devices, node="n", of=2)


def with_gate(*objects: Any, enabled: bool = True) -> DeviceHarness:
    return single_node(*objects, gates={"DRADeviceCompatibilityGroups": enabled}, minor=Minor(37))


def found(harness: DeviceHarness, name: str = "c") -> list[str]:
    harness.run(pod_with(name, name=f"pod-of-{name}"))
    return [each.partition("=")[2] for each in harness.devices(name)]


@pytest.mark.parametrize(
    ("first", "second", "are_compatible"),
    [
        (["a"], ["a"], True),
        (["a", "b"], ["b", "c"], True),
        (["a"], ["b"], False),
        ([], [], True),
        ([], ["a"], False),
        (["a"], [], False),
    ],
)
@pytest.mark.parametrize("in_one_search", [True, False])
def test_partitions_of_one_card_need_a_group_in_common_or_none(
    first: list[str], second: list[str], are_compatible: bool, in_one_search: bool
) -> None:
    slices = cards(partition("d0", card=first), partition("d1", card=second))
    if in_one_search:
        harness = with_gate(*slices, claim("c", exactly(2)))
        assert found(harness) == (["d0", "d1"] if are_compatible else [])
    else:
        harness = with_gate(*slices, claim("held", status={"allocation": allocation("d0")}), claim())
        assert found(harness) == (["d1"] if are_compatible else [])


def test_all_partitions_need_the_same_group_in_common() -> None:
    harness = with_gate(
        *cards(partition("d0", card=["a", "b"]), partition("d1", card=["b", "c"]), partition("d2", card=["c", "a"])),
        claim("c", exactly(3)),
        claim("two", exactly(2)),
    )
    assert found(harness) == []
    assert found(harness, "two") == ["d0", "d1"]


def test_a_partition_needs_a_group_on_each_of_its_cards_and_not_across_them() -> None:
    harness = with_gate(
        *cards(partition("d0", card=["a"]), partition("d1", other=["b"]), partition("both", card=["a"], other=["c"])),
        claim("c", exactly(2)),
        claim("three", exactly(3)),
    )
    assert found(harness, "three") == []
    assert found(harness) == ["d0", "d1"]


def test_backtracking_gives_up_the_groups_of_a_device() -> None:
    devices = partition("d0", card=["a"]), partition("d1", card=["b"]), partition("d2", card=["b"])
    assert found(with_gate(*cards(*devices), claim("c", exactly(2)))) == ["d1", "d2"]


def test_a_further_share_of_a_device_needs_no_group() -> None:
    shared = dict(partition("d0", card=["a"]), allowMultipleAllocations=True)
    held = {"allocation": allocation("d0", shareID="s", consumedCapacity={})}
    slices = cards(shared, partition("d1", card=["b"]))
    assert found(with_gate(*slices, claim("held", status=held), claim())) == ["d0"]


def test_devices_without_counters_have_no_groups() -> None:
    slices = cards(partition("d0", card=["a"]), device("whole"))
    assert found(with_gate(*slices, claim("c", exactly(2)))) == ["d0", "whole"]


# -- without the gate ------------------------------------------------------------------------------------------------


def test_without_the_gate_devices_with_groups_are_not_used() -> None:
    slices = cards(partition("d0", card=["a"]), partition("d1", card=[]))
    assert found(with_gate(*slices, claim(), enabled=False)) == ["d1"]


def test_without_the_gate_nothing_is_used_beside_an_allocated_device_with_groups() -> None:
    slices = cards(partition("d0", card=["a"]), partition("d1", card=[]), partition("d2", other=[]))
    held = claim("held", status={"allocation": allocation("d0")})
    assert found(with_gate(*slices, held, claim(), enabled=False)) == ["d2"]
    both = cards(partition("d0", card=["a"]), partition("d1", card=[], other=[]))
    harness = with_gate(*both, held, claim(), enabled=False)
    assert CANNOT in harness.reason(pod_with("c"))


def test_when_the_device_with_groups_is_free_again_the_others_are_used() -> None:
    slices = cards(partition("d0", card=["a"]), partition("d1", card=[]))
    harness = with_gate(*slices, claim("held", status={"allocation": allocation("d0")}), claim(), enabled=False)
    assert found(harness) == []
    harness.cluster.catalog(ResourceClaim).remove("default", "held")
    assert found(harness) == ["d1"]


# -- against a simple search -----------------------------------------------------------------------------------------

groups_of_a_card = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
partitions = st.lists(
    st.dictionaries(st.sampled_from(["card", "other"]), groups_of_a_card, min_size=1), min_size=1, max_size=6
)


def are_compatible(devices: Sequence[Groups]) -> bool:
    """Whether the devices of each card have a group in common, or none at all."""
    for card in ("card", "other"):
        its = [set(each[card]) for each in devices if card in each]
        if its and any(its) and not set.intersection(*its):
            return False
    return True


@settings(max_examples=80)
@given(partitions, st.integers(1, 4), st.data())
def test_the_first_compatible_devices_in_order_are_allocated(
    devices: list[Groups], count: int, data: st.DataObject
) -> None:
    numbers = range(len(devices))
    held = data.draw(st.sets(st.sampled_from(numbers), max_size=2).filter(lambda its: its_fit(devices, its)))
    names = [f"d{number}" for number in numbers]
    slices = cards(*(partition(name, **groups) for name, groups in zip(names, devices, strict=True)))
    status = {"allocation": allocation(*(names[number] for number in sorted(held)))}
    harness = with_gate(*slices, *([claim("held", status=status)] if held else []), claim("c", exactly(count)))
    free = [number for number in numbers if number not in held]
    fitting = (each for each in combinations(free, count) if its_fit(devices, {*held, *each}))
    assert found(harness) == [names[number] for number in next(fitting, ())]


def its_fit(devices: list[Groups], numbers: set[int]) -> bool:
    return are_compatible([devices[number] for number in numbers])
