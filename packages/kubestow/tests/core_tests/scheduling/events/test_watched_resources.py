"""Which resources a scheduler watches: by its plugins, and by the gates of the minor version it emulates."""

from __future__ import annotations

from typing import ClassVar

import pytest

from kubestow.api.custom import CustomObject
from kubestow.api.resource import DeviceClass
from kubestow.config import FeatureGates
from kubestow.errors import KubestowError
from kubestow.rules.minors import Minor
from kubestow.scheduling.events.resources import watched

DEVICE_KINDS = {"DeviceClass", "ResourceClaim", "ResourceSlice"}


@pytest.mark.parametrize(("version", "kinds"), [("1.34", set()), ("1.33", DEVICE_KINDS), ("1.31", DEVICE_KINDS)])
def test_devices_and_claims_are_watched_if_the_gate_of_the_minor_version_is_on(version: str, kinds: set[str]) -> None:
    minor = Minor.parse(version, subject="test")
    assert {resource.kind for resource in set(watched(())) - set(watched((), FeatureGates(minor=minor)))} == kinds
    enabled = FeatureGates({"DynamicResourceAllocation": True}, minor=minor)
    assert watched((), enabled) == watched(())


def test_a_kind_of_a_disabled_gate_is_watched_for_a_plugin_that_registers_for_it() -> None:
    gates = FeatureGates(minor=Minor.parse("1.33", subject="test"))
    assert set(watched([DeviceClass], gates)) - set(watched((), gates)) == {
        resource for resource in watched(()) if resource.type is DeviceClass
    }


class Rack(CustomObject, frozen=True):
    """What one plugin reads of a custom resource."""

    resource: ClassVar[str] = "racks.v1.example.com"


class OtherRack(CustomObject, frozen=True):
    """What another plugin reads of the same resource."""

    resource: ClassVar[str] = "racks.v1.example.com"


def test_plugins_that_read_a_resource_into_two_structs_are_an_error() -> None:
    with pytest.raises(KubestowError, match=r"racks.v1.example.com is read into both .*Rack and .*Rack, expected one"):
        watched([Rack, OtherRack])
