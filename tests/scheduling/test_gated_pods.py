"""Pods that wait at PreEnqueue, and the events that reach them there."""

from __future__ import annotations

import pytest

from kubestow.testing import node, pod
from kubestow.testing.living import Living, in_virtual_time


@pytest.mark.parametrize("first", ["port", "big"])
def test_what_helped_a_preemptor_while_its_evictions_went_on_is_not_forgotten(first: str) -> None:
    """The node is refused for its port; once that is free, only the pod that takes the CPU is left to go."""
    priorities = {"port": 1, "big": 1, first: 2}

    async def story(world: Living) -> None:
        world.cluster.put(pod("high", cpu="3", host_ports=[80], priority=100))
        await world.passes(5)
        assert world.node_of("high") == "n"

    in_virtual_time(
        story,
        node("n", cpu="4"),
        pod("port", node="n", host_ports=[80], priority=priorities["port"]),
        pod("big", node="n", cpu="3", priority=priorities["big"]),
    )
