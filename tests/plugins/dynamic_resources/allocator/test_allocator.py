"""What is remembered of searches is what searching again would find."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.resource import ResourceClaim
from kubestow.cluster.nodes.views import Nodes
from kubestow.plugins.dynamic_resources.state import DynamicResourcesState
from kubestow.scheduling.decision.pipeline import Decision
from kubestow.testing import nodes
from tests.plugins.dynamic_resources.devices import (
    DRIVER,
    DeviceWorld,
    alternatives,
    claim,
    device,
    exactly,
    pod_with,
    slice_of,
)

EVEN = f'device.attributes["{DRIVER}"].index % 2 == 0'
REQUESTS = (
    [exactly(1)],
    [exactly(2)],
    [exactly(1, EVEN)],
    [alternatives(3, 1)],
    [exactly(1, name="x"), exactly(1, EVEN, name="y")],
)
SLICES = (
    slice_of(*(device(f"d{i}", attributes={"index": i}) for i in range(3)), node="node-0"),
    slice_of(*(device(f"d{i}", attributes={"index": i}) for i in range(2)), node="node-1"),
    slice_of(*(device(f"d{i}", attributes={"index": i}) for i in range(2)), pool="shared"),
)


def world() -> DeviceWorld:
    return DeviceWorld(*nodes(3), *SLICES)


def afresh(cluster: DeviceWorld, placed: list[Decision]) -> DeviceWorld:
    """A world that has never been asked, with the same claims and pods."""
    fresh = world()
    fresh.put(*cluster.cluster.catalog(ResourceClaim))
    for decision in placed:
        assert decision.node_name is not None
        fresh.cluster.assume(decision.pod, decision.node_name)
    return fresh


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(range(len(REQUESTS))), st.booleans()), min_size=1, max_size=8))
def test_a_world_that_remembers_decides_like_one_that_does_not(story: list[tuple[int, bool]]) -> None:
    cluster = world()
    placed: list[Decision] = []
    for number, (kind, stays) in enumerate(story):
        cluster.put(claim(f"c{number}", *REQUESTS[kind]))
        wanted = pod_with(f"c{number}", name=f"p{number}")
        fresh = afresh(cluster, placed)
        assert cluster.feasible(wanted) == fresh.feasible(wanted)
        decision = cluster.run(wanted)
        assert fresh.run(wanted).node_name == decision.node_name
        assert fresh.devices(f"c{number}") == cluster.devices(f"c{number}")
        if decision.node_name is not None:
            placed.append(decision)
            if not stays:
                cluster.spawn(cluster.plugin._updates.deallocate(cluster.claim(f"c{number}")))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(range(len(REQUESTS))), max_size=5), st.integers(0, 2))
def test_one_node_asked_alone_answers_as_among_all(taken: list[int], row: int) -> None:
    cluster = world()
    for number, kind in enumerate(taken):
        cluster.put(claim(f"c{number}", *REQUESTS[kind]))
        cluster.run(pod_with(f"c{number}", name=f"p{number}"))
    cluster.put(claim("last", exactly(2)))
    info = cluster.info(pod_with("last"))
    kept = DynamicResourcesState([cluster.claim("last")])
    together = cluster.plugin._filter.verdict(kept, info, cluster.cluster.all_nodes())
    alone = cluster.plugin._filter.verdict(kept, info, Nodes(cluster.cluster.nodes, np.array([row], np.intp)))
    assert alone.status(0) == together.status(row)
