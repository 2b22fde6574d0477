"""Sums and comparisons of resource lists in their own notation."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.rules.resource_lists import added, exceeding, formatted, greatest, pod_resources, subtracted


def test_quantities_are_added_in_their_notation() -> None:
    assert added({"cpu": "500m", "memory": "512Mi"}, {"memory": "1Gi"}) == {"cpu": "500m", "memory": "1536Mi"}
    assert subtracted({"cpu": "2"}, {"cpu": "500m", "pods": "-1"}) == {"cpu": "1500m", "pods": "1"}


def test_the_greatest_quantity_is_one_of_those_given() -> None:
    assert greatest({"cpu": "1", "memory": "1Gi"}, {"cpu": "1500m"}) == {"cpu": "1500m", "memory": "1Gi"}


def test_what_exceeds_its_bound_is_named_in_order() -> None:
    amounts = {"pods": "3", "memory": "2Gi", "cpu": "1", "storage": "9"}
    bounds = {"pods": "2", "memory": "1Gi", "cpu": "1", "services": "0"}
    assert exceeding(amounts, bounds) == ["memory", "pods"]
    assert formatted(amounts, ["memory", "pods"]) == "memory=2Gi,pods=3"


def container(policy: str = "", **limits: str) -> dict[str, Any]:
    return {"resources": {"limits": limits, "requests": {"cpu": "1"}}, "restartPolicy": policy}


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        ({"containers": [container(cpu="1"), container(cpu="2", memory="1Gi")]}, {"cpu": "3", "memory": "1Gi"}),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="4")]}, {"cpu": "4"}),
        ({"containers": [container(cpu="3")], "initContainers": [container("Always", cpu="4")]}, {"cpu": "7"}),
        ({"containers": [container(cpu="1")], "resources": {"limits": {"cpu": "9", "x/y": "1"}}}, {"cpu": "9"}),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "1", "memory": "1Gi"}}, {"cpu": "2"}),
        ({}, {}),
    ],
)
def test_the_limits_of_a_pod(spec: dict[str, Any], limits: dict[str, str]) -> None:
    assert pod_resources(spec, "limits") == limits


def test_the_overhead_counts_towards_requests_unless_it_is_left_out() -> None:
    spec = {"containers": [container(cpu="1")], "overhead": {"cpu": "1", "memory": "1Gi"}}
    assert pod_resources(spec, "requests") == {"cpu": "2", "memory": "1Gi"}
    assert pod_resources(spec, "requests", with_overhead=False) == {"cpu": "1"}
