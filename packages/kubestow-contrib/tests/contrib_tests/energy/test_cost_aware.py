"""CostAware: prices of nodes by label and annotation, charged by share or by node."""

from __future__ import annotations

from typing import Any

import pytest

from contrib_tests.watched_nodes import profile_of
from kubestow.api.core import Node
from kubestow.errors import ConfigurationError
from kubestow.testing import PluginHarness, check_plugin, node, pod
from kubestow_contrib.energy import CostAware

TYPE = "node.kubernetes.io/instance-type"
PRICE = "kubestow.dev/price-per-hour"
ARGS = {"defaultPrice": 9, "prices": {"small": 0.1, "large": 0.3}}


def priced(name: str, *, cpu: str = "4", kind: str = "", price: str = "") -> Node:
    made = node(name, cpu=cpu, memory="64Gi", labels={TYPE: kind} if kind else {})
    if price:
        made.metadata.annotations[PRICE] = price
    return made


def scores(nodes: list[Node], args: dict[str, Any], *, placed: str = "") -> dict[str, int]:
    pods = [pod("placed", cpu="1", node=placed)] if placed else []
    harness = PluginHarness(nodes, pods, profile=profile_of("CostAware", args), plugins=[CostAware])
    return harness.scores(pod("p", cpu="2"), "CostAware")


def test_a_share_of_the_price_is_charged() -> None:
    # Two of four CPUs for 0.1, two of sixteen for 0.3: 0.05 and 0.0375 per hour.
    nodes = [priced("small", kind="small"), priced("large", cpu="16", kind="large"), priced("unknown")]
    assert scores(nodes, ARGS) == {"small": 99, "large": 100, "unknown": 0}
    assert scores(nodes[:2], ARGS) == {"small": 0, "large": 100}


def test_a_node_that_is_paid_for_costs_nothing_more() -> None:
    nodes = [priced("small", kind="small"), priced("large", cpu="16", kind="large")]
    charged = ARGS | {"charge": "Node"}
    assert scores(nodes, charged) == {"small": 100, "large": 0}
    assert scores(nodes, charged, placed="large") == {"small": 0, "large": 100}


@pytest.mark.parametrize(("price", "expected"), [("0.05", 100), ("0.5", 0), ("nan", 0), ("-1", 0), ("free", 0)])
def test_the_annotation_takes_precedence_if_it_is_a_price(price: str, expected: int) -> None:
    nodes = [priced("annotated", kind="large", price=price), priced("small", kind="small")]
    assert scores(nodes, ARGS | {"charge": "Node"})["annotated"] == expected


@pytest.mark.parametrize("charge", ["Share", "Node"])
def test_the_contract_is_kept(charge: str) -> None:
    nodes = [priced("a", kind="small"), priced("b", kind="large", price="0.2"), priced("c")]
    check_plugin(CostAware, args=ARGS | {"charge": charge}, nodes=nodes, events=60)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "defaultPrice"),
        ({"defaultPrice": -1}, "prices must be at least 0, got -1"),
        ({"defaultPrice": 1, "prices": {"a": -0.5}}, "prices must be at least 0, got -0.5"),
        ({"defaultPrice": 1, "charge": "Hour"}, "charge"),
    ],
)
def test_bad_args_are_rejected(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        scores([], args)
