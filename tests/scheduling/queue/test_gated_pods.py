"""Pods that wait at PreEnqueue, and the events that reach them there."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kubestow.errors import APIError
from kubestow.scheduling.ports import ObjectReference
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.scheduler_harness import Living, in_virtual_time
from tests.scheduling.extenders.scripted_extender import ScriptedExtender


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


class LeavingSlowly(MemoryCluster):
    """It takes a while until a pod is told to go, and until it is gone."""

    async def delete_pod(self, pod: ObjectReference) -> None:
        await asyncio.sleep(20)
        current = self.pod(pod.name)
        metadata = msgspec.structs.replace(current.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        self.put(msgspec.structs.replace(current, metadata=metadata))
        asyncio.get_running_loop().call_later(10, self.remove, current)


def test_a_preemptor_whose_binding_elsewhere_fails_comes_back_when_its_victim_has_gone() -> None:
    """It goes elsewhere because a node comes while an extender thinks, before its evictions begin."""

    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            if len(extender.asked) == 1:
                world.cluster.put(node("b", cpu="4"))
                await world.passes(1)

        extender.meanwhile = meanwhile
        world.cluster.bind_failures.append(APIError(500, "InternalError", "no"))
        world.cluster.put(pod("high", cpu="3", priority=100))
        await world.passes(60)
        assert world.cluster.bind_failures == []
        assert world.node_of("high")

    extender = ScriptedExtender("filter", passes={"a", "b"})
    nodes = (node("a", cpu="4"), node("small", cpu="4"))
    low = pod("low", node="a", cpu="3", priority=0)
    in_virtual_time(story, *nodes, low, extenders=[extender], cluster=LeavingSlowly())


def test_a_preemptor_that_comes_back_at_once_does_not_preempt_again() -> None:
    """What happens while an extender thinks brings it back before the first victim has been asked to go."""

    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            world.cluster.remove(elsewhere)

        extender.meanwhile = meanwhile
        world.cluster.put(pod("high", cpu="3", priority=100))
        await world.passes(60)
        assert extender.asked == [("preempt", "high", ["a", "b"])]
        assert world.node_of("high")

    extender = ScriptedExtender("preempt")
    elsewhere = pod("elsewhere", node="c", cpu="1", priority=0)
    low = [elsewhere, *(pod(f"low-{name}", node=name, cpu="3", priority=0) for name in "ab")]
    in_virtual_time(story, node("a", cpu="4"), node("b", cpu="4"), *low, extenders=[extender], cluster=LeavingSlowly())
