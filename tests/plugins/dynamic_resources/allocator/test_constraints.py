"""Attributes that devices have to share, or must not."""

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


def sockets(*numbers: int) -> list[Mapping[str, Any]]:
    return [device(f"d{i}", attributes={"socket": number}) for i, number in enumerate(numbers)]


def test_devices_share_the_attribute_they_must_share() -> None:
    together = [{"matchAttribute": f"{DRIVER}/socket"}]
    cluster = world(slice_of(*sockets(0, 1, 1), node="n"), claim("c", exactly(2), constraints=together))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=d1", "r=d2"]


def test_devices_differ_in_the_attribute_they_must_not_share() -> None:
    apart = [{"distinctAttribute": f"{DRIVER}/socket", "requests": ["x", "y"]}]
    requests = exactly(name="x"), exactly(name="y")
    cluster = world(slice_of(*sockets(0, 0, 1), node="n"), claim("c", *requests, constraints=apart))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["x=d0", "y=d2"]


def test_of_one_request_only_the_latest_device_is_compared() -> None:
    apart = [{"distinctAttribute": f"{DRIVER}/socket"}]
    cluster = world(slice_of(*sockets(0, 1, 0), node="n"), claim("c", exactly(3), constraints=apart))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r=d0", "r=d1", "r=d2"]


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_a_device_without_the_attribute_is_not_taken(kind: str) -> None:
    cluster = world(slice_of("d0", node="n"), claim("c", constraints=[{kind: "example.com/socket"}]))
    assert CANNOT in cluster.reason(pod_with("c"))


@pytest.mark.parametrize("requests", [["y"], ["r/a1"]])
def test_a_constraint_leaves_other_requests_alone(requests: list[str]) -> None:
    for kind in ("matchAttribute", "distinctAttribute"):
        constraint = {kind: f"{DRIVER}/socket", "requests": requests}
        cluster = world(slice_of(*sockets(0, 1), node="n"), claim("c", alternatives(2, 1), constraints=[constraint]))
        cluster.run(pod_with("c"))
        assert cluster.devices() == ["r/a0=d0", "r/a0=d1"]


def test_a_constraint_on_an_alternative_holds_when_it_is_chosen() -> None:
    together = {"matchAttribute": f"{DRIVER}/socket", "requests": ["r/a0"]}
    cluster = world(slice_of(*sockets(0, 1), node="n"), claim("c", alternatives(2, 1), constraints=[together]))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["r/a1=d0"]


def test_all_devices_that_break_a_constraint_are_an_error() -> None:
    together = [{"matchAttribute": f"{DRIVER}/socket"}]
    cluster = world(slice_of(*sockets(0, 1), node="n"), claim("c", exactly(0), constraints=together))
    assert cluster.reason(pod_with("c")).endswith(
        f"claim default/c, request r: cannot add device {DRIVER}/n/d1 because a claim constraint would not be satisfied"
    )


def test_two_constraints_are_both_kept() -> None:
    both = [{"matchAttribute": f"{DRIVER}/socket"}, {"distinctAttribute": f"{DRIVER}/lane"}]
    lanes = [
        device(f"d{i}", attributes={"socket": s, "lane": lane}) for i, (s, lane) in enumerate([(0, 0), (0, 0), (0, 1)])
    ]
    requests = exactly(name="x"), exactly(name="y")
    cluster = world(slice_of(*lanes, node="n"), claim("c", *requests, constraints=both))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["x=d0", "y=d2"]


def test_a_constraint_of_an_unknown_kind_is_an_error() -> None:
    cluster = world(slice_of("d0", node="n"), claim("c", constraints=[{}]))
    assert "claim default/c, constraint #0: empty constraint" in cluster.reason(pod_with("c"))


def test_a_device_that_is_taken_back_does_not_count_against_others() -> None:
    apart = [{"distinctAttribute": f"{DRIVER}/socket"}]
    first, second = exactly(1, name="x"), exactly(1, name="y", of="even")
    even = device_class("even", f'device.attributes["{DRIVER}"].socket == 0')
    cluster = world(slice_of(*sockets(0, 1), node="n"), even, claim("c", first, second, constraints=apart))
    cluster.run(pod_with("c"))
    assert cluster.devices() == ["x=d1", "y=d0"]
