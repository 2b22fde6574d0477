"""Gangs that extenders are asked about preempt, too: without them it is found out how, and then they have their say."""

from __future__ import annotations

import pytest

from kubestow.scheduling.extenders.port import ExtenderVictims
from kubestow.testing import node, pod, pods
from tests.scheduling.extenders.scripted_extender import ScriptedExtender
from tests.scheduling.gangs.groups import GATES, gang_scheduling, group, members
from tests.scheduling.gangs.test_preemption import put, running, there
from tests.scheduling.queue.test_gated_pods import LeavingSlowly
from tests.scheduling.running import Living, in_virtual_time

LOW = pods(4, prefix="low", cpu="1", priority=1, node="n")
GANG = members(3, "train", cpu="1", priority=100)


def outcome(extender: ScriptedExtender) -> tuple[int, int]:
    """How many of a gang come to run on a full node, and how many of others are left."""
    found: list[tuple[int, int]] = []

    async def story(world: Living) -> None:
        put(world, GANG)
        await world.passes(60)
        found.append((running(world, GANG), len(there(world, LOW))))
        assert not world.scheduler.queue.in_flight_events()

    objects = (node("n", cpu="4"), *LOW, group("train", 3))
    in_virtual_time(story, *objects, extenders=[extender], **gang_scheduling())
    return found[0]


@pytest.mark.parametrize("verbs", [("prioritize",), ("filter",), ("filter", "preempt")], ids=" ".join)
def test_a_gang_preempts_where_extenders_do_not_mind(verbs: tuple[str, ...]) -> None:
    assert outcome(ScriptedExtender(*verbs)) == (3, 1)


@pytest.mark.parametrize(
    "extender",
    [
        ScriptedExtender("preempt", spared={}),
        ScriptedExtender("preempt", fails="out of order"),
        ScriptedExtender("preempt", spared={"n": ExtenderVictims(["uid-default-low-0"])}),
    ],
    ids=["it drops the node", "it fails", "it wants others evicted"],
)
def test_nobody_is_evicted_against_the_word_of_an_extender(extender: ScriptedExtender) -> None:
    assert outcome(extender) == (0, 4)
    assert extender.asked


def test_an_extender_is_asked_while_everybody_is_there() -> None:
    seen: list[int] = []

    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            seen.append(world.scheduler.cluster.pod_count)

        extender.meanwhile = meanwhile
        put(world, GANG)
        await world.passes(0.05)
        assert seen and set(seen) == {4}

    extender = ScriptedExtender("preempt", spared={})
    objects = (node("n", cpu="4"), *LOW, group("train", 3))
    in_virtual_time(story, *objects, extenders=[extender], **gang_scheduling())


@pytest.mark.parametrize("as_a_whole", [False, True])
def test_nobody_is_evicted_on_a_node_that_an_extender_refuses_for_good(as_a_whole: bool) -> None:
    low = [pod("low-a", cpu="1", priority=1, node="a"), pod("low-b", cpu="2", priority=2, node="b")]
    gang = members(2, "train", cpu="1", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(60)
        assert (running(world, gang), there(world, low)) == (2, ["low-a"])

    extender = ScriptedExtender("filter", passes={"b"})
    chosen = gang_scheduling()
    if as_a_whole:
        chosen["gates"] = GATES | {"WorkloadAwarePreemption": True}
    objects = (node("a", cpu="2"), node("b", cpu="2"), *low, group("train", 2, priority=100))
    in_virtual_time(story, *objects, extenders=[extender], **chosen)


def test_a_gang_that_comes_back_at_once_does_not_preempt_again() -> None:
    """What happens while an extender thinks brings it back before the first victim has been asked to go."""
    elsewhere = pod("elsewhere", node="c", cpu="1", priority=0)
    low = [elsewhere, *(pod(f"low-{name}", node=name, cpu="3", priority=0) for name in "ab")]
    extender = ScriptedExtender("preempt")

    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            world.cluster.remove(elsewhere)

        extender.meanwhile = meanwhile
        for each in members(2, "train", cpu="3", priority=100):
            world.cluster.put(each)
        await world.passes(60)
        assert len(extender.asked) == 3  # while it is tried without room, and about each pod and its room
        assert len(world.cluster.bindings) == 2

    in_virtual_time(
        story,
        *(node(name, cpu="4") for name in "ab"),
        *low,
        group("train", 2),
        extenders=[extender],
        cluster=LeavingSlowly(),
        **gang_scheduling(),
    )
