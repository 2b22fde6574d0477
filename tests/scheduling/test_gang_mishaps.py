"""Gangs that something happens to at the wrong moment, and plugins that go wrong about them."""

from __future__ import annotations

from kubestow.testing import node, pod, pods
from tests.scheduling.gangs import gang_scheduling, group, members
from tests.scheduling.living import Living, in_virtual_time
from tests.scheduling.scripted_extender import ScriptedExtender
from tests.scheduling.test_gang_preemption import put, there

LOW = pods(2, prefix="low", cpu="2", priority=1, node="n")


def test_nobody_is_evicted_for_a_gang_that_loses_a_pod_while_extenders_think() -> None:
    gang = members(2, "train", cpu="2", priority=100)

    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            if len(extender.asked) == 2:  # the first time was about the gang as it is
                world.cluster.remove(gang[0])
                await world.passes(1)

        extender.meanwhile = meanwhile
        put(world, gang)
        await world.passes(30)
        assert len(there(world, LOW)) == 2

    extender = ScriptedExtender("preempt")
    in_virtual_time(story, node("n", cpu="4"), *LOW, group("train", 2), extenders=[extender], **gang_scheduling())


def test_a_pod_whose_group_is_gone_evicts_nobody() -> None:
    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            extender.meanwhile = None
            put(world, members(2, "train", cpu="4", priority=100))
            await world.passes(1)
            world.cluster.remove(group("train", 2))
            await world.passes(1)

        extender.meanwhile = meanwhile
        world.cluster.put(pod("other", cpu="1"))
        await world.passes(30)
        assert len(there(world, LOW)) == 2

    extender = ScriptedExtender("filter")
    objects = (node("n", cpu="5"), *LOW, group("train", 2))
    in_virtual_time(story, *objects, extenders=[extender], **gang_scheduling())


def test_a_group_that_needs_more_while_extenders_think_holds_no_nodes() -> None:
    gang = members(2, "train", cpu="2")

    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            extender.meanwhile = None
            world.cluster.put(group("train", 3))
            await world.passes(1)

        extender.meanwhile = meanwhile
        put(world, gang)
        await world.passes(10)
        world.cluster.put(pod("other", cpu="4"))
        await world.passes(10)
        assert world.node_of("other") == "n"

    extender = ScriptedExtender("filter")
    in_virtual_time(story, node("n", cpu="4"), group("train", 2), extenders=[extender], **gang_scheduling())
