"""A catalogue of hostile quantities, and what each counts as (semantics 7.5)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from kubestow.api.formats.quantity import Quantity, millis, units
from kubestow.errors import InvalidQuantity
from kubestow.testing import PluginHarness, node, pod

MOST = 2**63 - 1
INSUFFICIENT_MEMORY = {"a": ("NodeResourcesFit", ("Insufficient memory",))}


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("quantity", "in_units", "in_millis"),
    [
        ("9223372036854775807", MOST, MOST),
        ("9223372036854775808", MOST, MOST),
        ("9223372036854775807m", 9223372036854776, MOST),
        ("9223372036854775808m", 9223372036854776, MOST),
        ("1E", 10**18, MOST),
        ("8Ei", MOST, MOST),
        ("1e30", MOST, MOST),
        ("1e999999999", MOST, MOST),
        ("-1", -1, -1000),
        ("-1e30", -MOST, -MOST),
        ("1Ki", 1024, 1024000),
        ("0.5m", 1, 1),
        ("1n", 1, 1),
        ("1e-30", 1, 1),
        ("-1n", -1, -1),
        ("0", 0, 0),
        (1e22, MOST, MOST),
        (1.5, 2, 1500),
    ],
)
def test_a_quantity_is_rounded_away_from_zero_and_saturates(quantity: Quantity, in_units: int, in_millis: int) -> None:
    assert (units(quantity), millis(quantity)) == (in_units, in_millis)


@pytest.mark.parametrize(
    "quantity", ["", ".", "1e", "1 ", " 1", "0x10", "NaN", "Infinity", "1,5", "1Kim", "9e18m", "1e3i", "٣", "--1"]
)
def test_other_text_is_refused(quantity: str) -> None:
    with pytest.raises(InvalidQuantity, match="is not a resource quantity"):
        units(quantity)


@pytest.mark.parametrize("amount", ["9223372036854775807", "1e30"])
def test_a_pod_with_such_a_request_fits_nowhere(amount: str) -> None:
    harness = PluginHarness([node("a", cpu="4", memory="8Gi")])
    assert harness.rejections(pod("p", cpu="1", memory=amount)) == INSUFFICIENT_MEMORY
    assert harness.rejections(pod("p", cpu=amount, memory="1")) == {"a": ("NodeResourcesFit", ("Insufficient cpu",))}


def test_the_requests_of_the_containers_of_a_pod_saturate_together() -> None:
    harness = PluginHarness([node("a", cpu="4", memory="8Gi")])
    container = {"image": "i", "resources": {"requests": {"memory": str(MOST)}}}
    hostile = pod("p", spec={"containers": [{"name": name, **container} for name in ("c0", "c1", "c2")]})
    assert harness.info(hostile).requests["memory"] == MOST
    assert harness.rejections(hostile) == INSUFFICIENT_MEMORY


def test_a_node_with_such_an_amount_takes_one_pod_that_requests_as_much() -> None:
    harness = PluginHarness([node("a", cpu="1e30", memory="1e30")])
    hostile = pod("p", cpu="1e30", memory="1e30")
    assert harness.feasible(hostile) == {"a"}
    harness.cluster.put_pod(harness.info(pod("x", cpu="1e30", memory="1e30", node="a")))
    assert harness.rejections(hostile) == {"a": ("NodeResourcesFit", ("Insufficient cpu", "Insufficient memory"))}


def test_a_negative_request_takes_nothing_and_counts_as_negative_on_its_node() -> None:
    harness = PluginHarness([node("a", cpu="1", memory="8Gi")])
    assert harness.feasible(pod("p", cpu="-1", memory="-1")) == {"a"}
    harness.cluster.put_pod(harness.info(pod("x", cpu="-1", memory="1", node="a")))
    assert harness.feasible(pod("p", cpu="2", memory="1")) == {"a"}


@pytest.mark.parametrize("others", [0, 2])
def test_the_sums_of_a_node_wrap_around_and_recover_when_pods_leave(others: int) -> None:
    """QUIRK: as in Go. ``others`` are further nodes, with which the plugins compute in arrays."""
    small = [node(f"n{number}", cpu="4", memory="8Gi") for number in range(others)]
    harness = PluginHarness([node("a", cpu="4", memory="8Gi"), *small])
    row = harness.cluster.nodes.rows["a"]
    sums, rejected = [], []
    hostile = [harness.info(pod(f"h{number}", cpu="0", memory=str(MOST), node="a")) for number in range(3)]
    for info in hostile:
        harness.cluster.put_pod(info)
        sums.append(harness.cluster.nodes.requested["memory"].values.item(row))
        rejected.append("a" not in harness.feasible(pod("p", cpu="1", memory="1Gi")))
        harness.scores(pod("p", cpu="1", memory="1Gi"), "NodeResourcesBalancedAllocation")
    assert sums == [MOST, -2, MOST - 2]
    assert rejected == [True, False, True]
    for info in hostile:
        harness.cluster.remove_pod(info.uid)
    assert harness.cluster.nodes.requested["memory"].values.item(row) == 0
    assert "a" in harness.feasible(pod("p", cpu="1", memory="8Gi"))


def test_a_subtraction_beyond_64_bits_wraps_around_for_one_node_as_for_many() -> None:
    """A node with 2**63 - 1 bytes of which -2 are requested has a negative rest in 64 bits."""
    huge, other = node("a", cpu="4", memory=str(MOST)), node("b", cpu="0", memory="0")
    for nodes in ([huge], [huge, other]):
        harness = PluginHarness(nodes)
        for number in range(2):
            info = harness.info(pod(f"h{number}", cpu="0", memory=str(MOST), node="a"))
            harness.cluster.put_pod(info)
        assert "a" not in harness.feasible(pod("p", cpu="1", memory="1Gi"))
