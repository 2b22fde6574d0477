"""Consumable capacity: request policies and rounding (semantics 8.16)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.meta import convert
from kubestow.api.resource import CapacityRequirements
from kubestow.plugins.dynamic_resources.pools import PooledDevice
from kubestow.plugins.dynamic_resources.search import consumed_capacity, has_capacity
from kubestow.testing.devices import device, slice_of


def gpu(value: str = "40Gi", **policy: Any) -> PooledDevice:
    capacity = {"memory": {"value": value} | ({"requestPolicy": policy} if policy else {})}
    source = slice_of(device("d0", capacity=capacity), node="n")
    return PooledDevice(source, source.spec.devices[0])


def requirements(amount: str) -> CapacityRequirements:
    return convert(CapacityRequirements, {"requests": {"memory": amount}})


WITH_STEP = {"validRange": {"min": "8Gi", "max": "32Gi", "step": "8Gi"}}


@pytest.mark.parametrize(
    ("policy", "requested", "consumed"),
    [
        ({}, "5Gi", "5Gi"),
        ({"default": "10Gi"}, "5Gi", "5Gi"),
        ({"validValues": ["4Gi", "8Gi"]}, "5Gi", "8Gi"),
        ({"validValues": ["4Gi", "8Gi"]}, "9Gi", "9Gi"),
        (WITH_STEP, "1Gi", "8Gi"),
        (WITH_STEP, "8Gi", "8Gi"),
        (WITH_STEP, "17Gi", "24Gi"),
        ({"validRange": {"min": "8Gi"}}, "9Gi", "9Gi"),
        ({"validRange": {"min": "1", "step": "3"}}, "3", "4"),
        ({"validRange": {"min": "0", "step": "1000"}}, "1", "1000"),
    ],
)
def test_a_request_is_rounded_up_by_the_policy(policy: Any, requested: str, consumed: str) -> None:
    assert consumed_capacity(gpu(**policy), requirements(requested)) == {"memory": consumed}


@pytest.mark.parametrize(("policy", "consumed"), [({}, "40Gi"), (WITH_STEP, "40Gi"), ({"default": "10Gi"}, "10Gi")])
def test_without_a_request_the_default_or_the_whole_capacity_is_consumed(policy: Any, consumed: str) -> None:
    assert consumed_capacity(gpu(**policy), None) == {"memory": consumed}


@pytest.mark.parametrize(
    ("policy", "requested", "permitted"),
    [
        (WITH_STEP, "32Gi", True),
        (WITH_STEP, "33Gi", False),
        ({"validValues": ["4Gi", "8Gi"]}, "8Gi", True),
        ({"validValues": ["4Gi", "8Gi"]}, "9Gi", False),
        ({"validRange": {"max": "8Gi"}}, "9Gi", False),
        ({"validRange": {"step": "2Gi"}}, "3Gi", False),
        ({"default": "3Gi", "validValues": ["4Gi"]}, "3Gi", True),
        ({"default": "3Gi"}, "5Gi", True),
    ],
)
def test_only_permitted_amounts_can_be_consumed(policy: Any, requested: str, permitted: bool) -> None:
    if permitted and policy.get("default") == requested:
        assert has_capacity(gpu(**policy), None)
    else:
        assert has_capacity(gpu(**policy), requirements(requested)) is permitted


HALVES: Any = {"validRange": {"min": "500m", "max": "2500m", "step": "500m"}}


@pytest.mark.parametrize(
    ("policy", "requested", "consumed"),
    [
        (HALVES, "100m", "500m"),
        (HALVES, "1250m", "1500m"),
        (HALVES, "1500m", "1500m"),
        (HALVES, "1600m", "2"),
        (HALVES, "3", "3"),
        ({"validRange": {"min": "1", "step": "3"}}, "1500m", "4"),
    ],
)
def test_ranges_with_fractions_of_a_unit_are_rounded_to_thousandths(policy: Any, requested: str, consumed: str) -> None:
    assert consumed_capacity(gpu(**policy), requirements(requested), has_fractions=True) == {"memory": consumed}
    assert has_capacity(gpu(**policy), requirements(requested), has_fractions=True) is (requested != "3")


def test_ranges_without_the_gate_are_computed_in_whole_units() -> None:
    assert consumed_capacity(gpu(**HALVES), requirements("1250m")) == {"memory": "2"}


def test_amounts_beyond_64_bits_of_thousandths_are_computed_in_whole_units() -> None:
    policy: Any = {"validRange": {"min": "500m", "max": "8Ei", "step": "500m"}}
    assert consumed_capacity(gpu(**policy), requirements("1250m"), has_fractions=True) == {"memory": "2"}


def test_all_allocations_together_must_fit_into_the_capacity() -> None:
    gibi = 2**30 * 10**9
    assert has_capacity(gpu(), requirements("10Gi"), {"memory": 20 * gibi}, {"memory": 10 * gibi})
    assert not has_capacity(gpu(), requirements("10Gi"), {"memory": 20 * gibi}, {"memory": 11 * gibi}, None)


def test_a_request_for_a_missing_capacity_fails() -> None:
    assert not has_capacity(gpu(), convert(CapacityRequirements, {"requests": {"cores": "1"}}))
