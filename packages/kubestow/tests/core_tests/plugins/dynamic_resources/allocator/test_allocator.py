"""Solutions that the allocator has cached equal those of a new search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.plugins.dynamic_resources.devices import DeviceHarness
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.nodes.views import Nodes
from kubestow.plugins.dynamic_resources import allocator
from kubestow.plugins.dynamic_resources.allocator import _Results
from kubestow.plugins.dynamic_resources.filtering import DynamicResourcesState
from kubestow.scheduling.decision.result import Decision
from kubestow.testing import nodes
from kubestow.testing.devices import DRIVER, claim, device, exactly, pod_with, slice_of, subrequests

EVEN = f'device.attributes["{DRIVER}"].index % 2 == 0'
REQUESTS = (
    [exactly(1)],
    [exactly(2)],
    [exactly(1, EVEN)],
    [subrequests(3, 1)],
    [exactly(1, name="x"), exactly(1, EVEN, name="y")],
)
SLICES = (
    slice_of(*(device(f"d{i}", attributes={"index": i}) for i in range(3)), node="node-0"),
    slice_of(*(device(f"d{i}", attributes={"index": i}) for i in range(2)), node="node-1"),
    slice_of(*(device(f"d{i}", attributes={"index": i}) for i in range(2)), pool="shared"),
)


def new_harness() -> DeviceHarness:
    return DeviceHarness(*nodes(3), *SLICES)


def without_cache(harness: DeviceHarness, placed: list[Decision]) -> DeviceHarness:
    """A harness without cached solutions, with the same claims and placed pods."""
    fresh = new_harness()
    fresh.put(*harness.cluster.catalog(ResourceClaim))
    for decision in placed:
        assert decision.node_name is not None
        fresh.cluster.assume(decision.pod, decision.node_name)
    return fresh


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(range(len(REQUESTS))), st.booleans()), min_size=1, max_size=8))
def test_cached_solutions_equal_those_of_a_new_search(claims: list[tuple[int, bool]]) -> None:
    harness = new_harness()
    placed: list[Decision] = []
    for number, (kind, keeps_claim) in enumerate(claims):
        harness.put(claim(f"c{number}", *REQUESTS[kind]))
        incoming = pod_with(f"c{number}", name=f"p{number}")
        fresh = without_cache(harness, placed)
        assert harness.feasible(incoming) == fresh.feasible(incoming)
        decision = harness.run(incoming)
        assert fresh.run(incoming).node_name == decision.node_name
        assert fresh.devices(f"c{number}") == harness.devices(f"c{number}")
        if decision.node_name is not None:
            placed.append(decision)
            if not keeps_claim:
                harness.spawn(harness.plugin._updates.deallocate(harness.claim(f"c{number}")))


@settings(max_examples=30)
@given(st.lists(st.sampled_from(range(len(REQUESTS))), max_size=5), st.integers(0, 2))
def test_a_view_of_one_node_gets_the_verdict_of_this_node_in_the_whole_view(allocated: list[int], row: int) -> None:
    harness = new_harness()
    for number, kind in enumerate(allocated):
        harness.put(claim(f"c{number}", *REQUESTS[kind]))
        harness.run(pod_with(f"c{number}", name=f"p{number}"))
    harness.put(claim("last", exactly(2)))
    info = harness.info(pod_with("last"))
    state = DynamicResourcesState([harness.claim("last")])
    of_all_nodes = harness.plugin._filter.verdict(state, info, harness.cluster.all_nodes())
    of_one_node = harness.plugin._filter.verdict(state, info, Nodes(harness.cluster.nodes, np.array([row], np.intp)))
    assert of_one_node.status(0) == of_all_nodes.status(row)


def test_the_results_of_other_claims_are_not_counted_again_for_each_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = new_harness()
    names = [f"c{number}" for number in range(30)]
    harness.put(*(claim(name, exactly(1, f"{number} >= 0")) for number, name in enumerate(names)))
    counted = 0

    def cost(results: _Results) -> int:
        nonlocal counted
        counted += 1
        return 1 + len(results.solutions)

    monkeypatch.setattr(_Results, "cost", property(cost))
    for name in names:
        harness.schedule(pod_with(name, name=f"p-{name}"))
    assert counted <= 4 * len(names)


def test_the_results_of_the_claims_that_were_used_least_recently_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_MAX_CACHED_SOLUTIONS", 20)
    harness = new_harness()
    names = [f"c{number}" for number in range(30)]
    harness.put(*(claim(name, exactly(1, f"{number} >= 0")) for number, name in enumerate(names)))
    for name in names:
        harness.schedule(pod_with(name, name=f"p-{name}"))
        kept = harness.plugin._filter._allocator._results.values()
        assert sum(results.cost for results in list(kept)[:-1]) <= 20
