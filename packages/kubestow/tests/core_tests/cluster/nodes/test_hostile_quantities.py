"""A catalogue of hostile quantities, and what each counts as (semantics 7.5)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize("amount", ["-1", "-9007199254740993", f"-{MOST}", "-1e30"])
def test_every_node_has_room_for_a_negative_request_however_large(amount: str) -> None:
    sizes = {"small": "4", "large": str(2**53 - 1), "extreme": str(MOST)}
    nodes = [node(name, allocatable={"example.com/card": size}) for name, size in sizes.items()]
    harness = PluginHarness([*nodes, node("without")])
    assert harness.feasible(pod("p", requests={"example.com/card": amount})) == {*sizes, "without"}


@pytest.mark.parametrize("others", [0, 2])
def test_the_sums_of_a_node_saturate_and_are_exact_again_when_pods_leave(others: int) -> None:
    """``others`` are further nodes, with which the plugins compute in arrays."""
    small = [node(f"n{number}", cpu="4", memory="8Gi") for number in range(others)]
    harness = PluginHarness([node("a", cpu="4", memory="8Gi"), *small])
    row = harness.cluster.nodes.rows["a"]
    victim = pod("p", cpu="1", memory="1Gi")
    hostile = [harness.info(pod(f"h{number}", cpu="0", memory=str(MOST), node="a")) for number in range(3)]
    harness.cluster.put_pod(harness.info(pod("kept", cpu="1", memory="1Gi", node="a")))
    for info in hostile:
        harness.cluster.put_pod(info)
        assert harness.cluster.nodes.requested["memory"].values.item(row) == MOST
        assert "a" not in harness.feasible(victim)
        for plugin in ("NodeResourcesFit", "NodeResourcesBalancedAllocation"):
            assert all(0 <= score <= 100 for score in harness.scores(victim, plugin).values())
    for info in hostile:
        harness.cluster.remove_pod(info.uid)
    assert harness.cluster.nodes.requested["memory"].values.item(row) == 2**30
    assert not harness.cluster.nodes.has_extreme
    assert "a" in harness.feasible(pod("p", cpu="1", memory="7Gi"))
    assert "a" not in harness.feasible(pod("p", cpu="1", memory="8Gi"))


def test_two_pods_with_8e_of_memory_do_not_make_other_pods_fail() -> None:
    harness = PluginHarness([node("a", cpu="4", memory="8Gi"), node("b", cpu="4", memory="8Gi")])
    for number in range(2):
        hostile = pod(f"h{number}", requests={"memory": "8E", "ephemeral-storage": "8E"}, node="a")
        harness.cluster.put_pod(harness.info(hostile))
    best_effort = pod("p")  # NodeResourcesFit's filter does not look at memory
    assert harness.feasible(best_effort) == {"a", "b"}
    assert harness.scores(best_effort, "NodeResourcesFit")["a"] < harness.scores(best_effort, "NodeResourcesFit")["b"]


AMOUNTS = st.sampled_from([0, 1, 2**30, 2**53 - 1, 2**53 + 1, 2**62, 8 * 10**18, MOST, 10**30])
STRATEGIES: list[dict[str, Any]] = [
    {"type": "LeastAllocated"},
    {"type": "MostAllocated"},
    {
        "type": "RequestedToCapacityRatio",
        "requestedToCapacityRatio": {
            "shape": [
                {"utilization": 0, "score": 3},
                {"utilization": 40, "score": 10},
                {"utilization": 100, "score": 1},
            ]
        },
    },
]


def _plain_score(strategy: str, usages: Sequence[tuple[int, int, int]]) -> int:
    """The rule (semantics 8.8) by capacity, use with the pod, and weight of each resource; no integer has a limit."""
    values = []
    for capacity, used, weight in usages:
        if not capacity:
            continue
        if strategy == "LeastAllocated":
            values.append((max(capacity - used, 0) * 100 // capacity, weight))
        elif strategy == "MostAllocated":
            values.append((min(used, capacity) * 100 // capacity, weight))
        else:
            utilization = 100 if used > capacity else used * 100 // capacity
            values.append(
                (30 + 70 * utilization // 40 if utilization <= 40 else 100 - 90 * (utilization - 40) // 60, weight)
            )
    total, weights = sum(value * weight for value, weight in values), sum(weight for _, weight in values)
    if strategy == "RequestedToCapacityRatio":
        return (2 * total + weights) // (2 * weights) if weights else 0
    return total // weights if weights else 0


@settings(max_examples=40)
@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), AMOUNTS, AMOUNTS, st.booleans()), max_size=6),
    st.tuples(AMOUNTS, AMOUNTS),
    st.sampled_from(STRATEGIES),
)
def test_filter_and_scores_are_those_of_exact_integers(
    nodes: list[tuple[int, int]],
    placed: list[tuple[int, int, int, bool]],
    request: tuple[int, int],
    strategy: dict[str, Any],
) -> None:
    """Whatever is added and removed: as if sums and products had no limit, amounts of one pod or node saturating."""
    resources = [{"name": "memory", "weight": 1}, {"name": "ephemeral-storage", "weight": 3}]
    args = {"scoringStrategy": {**strategy, "resources": resources}}
    harness = PluginHarness(profile={"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]})
    names = [f"n{number}" for number in range(len(nodes))]
    for name, (memory, disk) in zip(names, nodes, strict=True):
        allocatable = {"ephemeral-storage": str(disk)}
        harness.cluster.add_node(node(name, cpu="4", memory=str(memory), allocatable=allocatable))
    sums = {name: [0, 0, 0] for name in names}  # memory, memory with defaults, disk
    removed = []
    for number, (where, memory, disk, stays) in enumerate(placed):
        name = names[where % len(names)]
        requests = {"memory": str(memory), "ephemeral-storage": str(disk)}
        info = harness.info(pod(f"x{number}", requests=requests, node=name))
        harness.cluster.put_pod(info)
        if stays:
            added = (
                info.requests.get("memory", 0),
                info.nonzero_requests[1],
                info.requests.get("ephemeral-storage", 0),
            )
            sums[name] = [before + more for before, more in zip(sums[name], added, strict=True)]
        else:
            removed.append(info.uid)
    for uid in removed:
        harness.cluster.remove_pod(uid)
    for amounts in (request, (0, 0)):
        requests = {"memory": str(amounts[0]), "ephemeral-storage": str(amounts[1])}
        wanted = harness.info(pod("p", requests=requests))
        asked = [wanted.shape.requests.get(name, 0) for name in ("memory", "ephemeral-storage")]
        scored = [wanted.shape.scored_requests.get(name, 0) for name in ("memory", "ephemeral-storage")]
        feasible = harness.feasible(wanted.pod)
        scores = harness.scores(wanted.pod, "NodeResourcesFit")
        balanced = harness.scores(wanted.pod, "NodeResourcesBalancedAllocation")
        for name, capacities in zip(names, nodes, strict=True):
            capacity = [min(each, MOST) for each in capacities]
            memory, memory_with_defaults, disk = sums[name]
            fits = zip(capacity, (memory, disk), asked, strict=True)
            assert (name in feasible) == all(more == 0 or have - before >= more for have, before, more in fits)
            if name in feasible:
                used = (min(memory_with_defaults, MOST), min(disk, MOST))
                usages = zip(capacity, used, scored, (1, 3), strict=True)
                plain = [(have, before + more, weight) for have, before, more, weight in usages]
                assert scores[name] == _plain_score(strategy["type"], plain)
                assert 0 <= balanced.get(name, 0) <= 100  # it skips pods without requests


def test_a_node_with_as_much_as_64_bits_hold_can_be_negative_in_use() -> None:
    """A node with 2**63 - 1 bytes of which -2 are requested has room for 2**63 - 1 more."""
    huge, other = node("a", cpu="4", memory=str(MOST)), node("b", cpu="0", memory="0")
    for nodes in ([huge], [huge, other]):
        harness = PluginHarness(nodes)
        harness.cluster.put_pod(harness.info(pod("x", cpu="0", memory="-2", node="a")))
        assert "a" in harness.feasible(pod("p", cpu="1", memory=str(MOST)))
        scores = harness.scores(pod("p", cpu="1", memory="1Gi"), "NodeResourcesFit")
        assert all(0 <= score <= 100 for score in scores.values())
