"""How much of a device's capacity is taken: policies and rounding."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.meta import convert
from kubestow.api.resource import CapacityRequirements
from kubestow.plugins.dynamic_resources.allocator.consumable_capacity import consumed_capacity, has_capacity
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice
from tests.plugins.dynamic_resources.devices import device, slice_of


def gpu(value: str = "40Gi", **policy: Any) -> PooledDevice:
    capacity = {"memory": {"value": value} | ({"requestPolicy": policy} if policy else {})}
    source = slice_of(device("d0", capacity=capacity), node="n")
    return PooledDevice(source, source.spec.devices[0])


def asks(amount: str) -> CapacityRequirements:
    return convert(CapacityRequirements, {"requests": {"memory": amount}})


STEPS = {"validRange": {"min": "8Gi", "max": "32Gi", "step": "8Gi"}}


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        ({}, "5Gi", "5Gi"),
        ({"default": "10Gi"}, "5Gi", "5Gi"),
        ({"validValues": ["4Gi", "8Gi"]}, "5Gi", "8Gi"),
        ({"validValues": ["4Gi", "8Gi"]}, "9Gi", "9Gi"),
        (STEPS, "1Gi", "8Gi"),
        (STEPS, "8Gi", "8Gi"),
        (STEPS, "17Gi", "24Gi"),
        ({"validRange": {"min": "8Gi"}}, "9Gi", "9Gi"),
        ({"validRange": {"min": "1", "step": "3"}}, "3", "4"),
        ({"validRange": {"min": "0", "step": "1000"}}, "1", "1000"),
    ],
)
def test_a_request_is_rounded_up_to_what_may_be_had(policy: Any, asked: str, taken: str) -> None:
    assert consumed_capacity(gpu(**policy), asks(asked)) == {"memory": taken}


@pytest.mark.parametrize(("policy", "taken"), [({}, "40Gi"), (STEPS, "40Gi"), ({"default": "10Gi"}, "10Gi")])
def test_without_a_request_the_default_is_taken_or_everything(policy: Any, taken: str) -> None:
    assert consumed_capacity(gpu(**policy), None) == {"memory": taken}


@pytest.mark.parametrize(
    ("policy", "asked", "permitted"),
    [
        (STEPS, "32Gi", True),
        (STEPS, "33Gi", False),
        ({"validValues": ["4Gi", "8Gi"]}, "8Gi", True),
        ({"validValues": ["4Gi", "8Gi"]}, "9Gi", False),
        ({"validRange": {"max": "8Gi"}}, "9Gi", False),
        ({"validRange": {"step": "2Gi"}}, "3Gi", False),
        ({"default": "3Gi", "validValues": ["4Gi"]}, "3Gi", True),
        ({"default": "3Gi"}, "5Gi", True),
    ],
)
def test_only_permitted_amounts_are_had(policy: Any, asked: str, permitted: bool) -> None:
    if permitted and policy.get("default") == asked:
        assert has_capacity(gpu(**policy), None)
    else:
        assert has_capacity(gpu(**policy), asks(asked)) is permitted


def test_a_device_is_full_when_all_shares_together_are() -> None:
    gibi = 2**30 * 10**9
    assert has_capacity(gpu(), asks("10Gi"), {"memory": 20 * gibi}, {"memory": 10 * gibi})
    assert not has_capacity(gpu(), asks("10Gi"), {"memory": 20 * gibi}, {"memory": 11 * gibi}, None)


def test_a_capacity_that_is_not_there_cannot_be_asked_for() -> None:
    assert not has_capacity(gpu(), convert(CapacityRequirements, {"requests": {"cores": "1"}}))
