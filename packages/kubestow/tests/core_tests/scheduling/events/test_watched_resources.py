"""Which resources a scheduler watches: by its plugins, and by the gates of the minor version it emulates."""

from __future__ import annotations

import pytest

from kubestow.api.resource import DeviceClass
from kubestow.config import FeatureGates
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
