"""Constraints on the attributes of devices: matchAttribute and distinctAttribute (semantics 8.16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from core_tests.plugins.dynamic_resources.devices import single_node
from kubestow.testing.devices import DRIVER, claim, device, device_class, exactly, pod_with, slice_of, subrequests

CANNOT = "cannot allocate all claims"


def devices_on_sockets(*numbers: int) -> list[Mapping[str, Any]]:
    return [device(f"d{i}", attributes={"socket": number}) for i, number in enumerate(numbers)]


def test_match_attribute_requires_equal_values() -> None:
    match = [{"matchAttribute": f"{DRIVER}/socket"}]
    harness = single_node(slice_of(*devices_on_sockets(0, 1, 1), node="n"), claim("c", exactly(2), constraints=match))
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=d1", "r=d2"]


def test_distinct_attribute_requires_different_values() -> None:
    distinct = [{"distinctAttribute": f"{DRIVER}/socket", "requests": ["x", "y"]}]
    requests = exactly(name="x"), exactly(name="y")
    harness = single_node(slice_of(*devices_on_sockets(0, 0, 1), node="n"), claim("c", *requests, constraints=distinct))
    harness.run(pod_with("c"))
    assert harness.devices() == ["x=d0", "y=d2"]


def test_distinct_attribute_compares_only_the_latest_device_of_a_request() -> None:
    distinct = [{"distinctAttribute": f"{DRIVER}/socket"}]
    harness = single_node(
        slice_of(*devices_on_sockets(0, 1, 0), node="n"), claim("c", exactly(3), constraints=distinct)
    )
    harness.run(pod_with("c"))
    assert harness.devices() == ["r=d0", "r=d1", "r=d2"]


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_a_device_without_the_attribute_is_rejected(kind: str) -> None:
    harness = single_node(slice_of("d0", node="n"), claim("c", constraints=[{kind: "example.com/socket"}]))
    assert CANNOT in harness.reason(pod_with("c"))


@pytest.mark.parametrize("requests", [["y"], ["r/a1"]])
def test_a_constraint_applies_to_its_requests_only(requests: list[str]) -> None:
    for kind in ("matchAttribute", "distinctAttribute"):
        constraint = {kind: f"{DRIVER}/socket", "requests": requests}
        harness = single_node(
            slice_of(*devices_on_sockets(0, 1), node="n"), claim("c", subrequests(2, 1), constraints=[constraint])
        )
        harness.run(pod_with("c"))
        assert harness.devices() == ["r/a0=d0", "r/a0=d1"]


def test_a_constraint_on_a_subrequest_applies_if_it_is_chosen() -> None:
    match = {"matchAttribute": f"{DRIVER}/socket", "requests": ["r/a0"]}
    harness = single_node(
        slice_of(*devices_on_sockets(0, 1), node="n"), claim("c", subrequests(2, 1), constraints=[match])
    )
    harness.run(pod_with("c"))
    assert harness.devices() == ["r/a1=d0"]


def test_a_constraint_that_excludes_one_of_all_devices_is_an_error() -> None:
    match = [{"matchAttribute": f"{DRIVER}/socket"}]
    harness = single_node(slice_of(*devices_on_sockets(0, 1), node="n"), claim("c", exactly(0), constraints=match))
    assert harness.reason(pod_with("c")).endswith(
        f"claim default/c, request r: cannot add device {DRIVER}/n/d1 because a claim constraint would not be satisfied"
    )


def test_all_constraints_apply() -> None:
    both = [{"matchAttribute": f"{DRIVER}/socket"}, {"distinctAttribute": f"{DRIVER}/lane"}]
    lanes = [
        device(f"d{i}", attributes={"socket": s, "lane": lane}) for i, (s, lane) in enumerate([(0, 0), (0, 0), (0, 1)])
    ]
    requests = exactly(name="x"), exactly(name="y")
    harness = single_node(slice_of(*lanes, node="n"), claim("c", *requests, constraints=both))
    harness.run(pod_with("c"))
    assert harness.devices() == ["x=d0", "y=d2"]


def test_a_constraint_of_unknown_type_is_an_error() -> None:
    harness = single_node(slice_of("d0", node="n"), claim("c", constraints=[{}]))
    assert "claim default/c, constraint #0: empty constraint" in harness.reason(pod_with("c"))


def test_backtracking_removes_devices_from_constraints() -> None:
    distinct = [{"distinctAttribute": f"{DRIVER}/socket"}]
    first, second = exactly(1, name="x"), exactly(1, name="y", of="even")
    even = device_class("even", f'device.attributes["{DRIVER}"].socket == 0')
    harness = single_node(
        slice_of(*devices_on_sockets(0, 1), node="n"), even, claim("c", first, second, constraints=distinct)
    )
    harness.run(pod_with("c"))
    assert harness.devices() == ["x=d1", "y=d0"]
