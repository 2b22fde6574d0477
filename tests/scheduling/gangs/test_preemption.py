"""Gangs and preemption: others are evicted for a whole gang, never for a part of one."""

from __future__ import annotations

import msgspec

from kubestow.api.core import Pod
from kubestow.scheduling.ports import ObjectReference
from kubestow.testing import MemoryCluster, node, pod, pods
from tests.scheduling.gangs.groups import gang_scheduling, group, member, members
from tests.scheduling.running import Living, in_virtual_time

BOTH = gang_scheduling()


class LeavingSlowly(MemoryCluster):
    """Pods that are deleted stay until they are removed."""

    deletions = 0

    async def delete_pod(self, pod: ObjectReference) -> None:
        self.deletions += 1
        current = self.pod(pod.name)
        metadata = msgspec.structs.replace(current.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        self.put(msgspec.structs.replace(current, metadata=metadata))


def there(world: Living, some: list[Pod]) -> list[str]:
    """Those of some pods that have not been deleted."""
    names = {each.metadata.name for each in world.cluster.pods()}
    return [each.metadata.name for each in some if each.metadata.name in names]


def put(world: Living, some: list[Pod]) -> None:
    for each in some:
        world.cluster.put(each)


def running(world: Living, some: list[Pod]) -> int:
    return sum(bool(world.node_of(each.metadata.name)) for each in some)


def test_a_gang_takes_the_places_of_pods_of_lower_priority() -> None:
    low = pods(4, prefix="low", cpu="1", priority=1, node="n")
    gang = members(4, "train", cpu="1", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(5)
        assert (running(world, gang), there(world, low)) == (4, [])

    in_virtual_time(story, node("n", cpu="4"), *low, group("train", 4), **BOTH)


def test_a_gang_on_several_nodes_evicts_on_each_of_them() -> None:
    low = [pod("low-a", cpu="3", priority=1, node="a"), pod("low-b", cpu="3", priority=1, node="b")]
    gang = members(2, "train", cpu="3", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(5)
        assert (running(world, gang), there(world, low)) == (2, [])
        preempted = [event for event in world.cluster.events if event.reason == "Preempted"]
        assert {event.note for event in preempted} == {"Preempted by podgroup uid-train on node cluster"}

    in_virtual_time(story, node("a", cpu="4"), node("b", cpu="4"), *low, group("train", 2), **BOTH)


def test_nobody_is_evicted_for_a_gang_that_does_not_fit_as_a_whole() -> None:
    low = pods(2, prefix="low", cpu="1", priority=1, node="n")
    equal = pods(2, prefix="equal", cpu="1", priority=100, node="n")
    gang = members(3, "train", cpu="1", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(30)
        assert (running(world, gang), len(there(world, low))) == (0, 2)

    in_virtual_time(story, node("n", cpu="4"), *low, *equal, group("train", 3), **BOTH)


def test_only_as_many_are_evicted_as_the_gang_needs_room() -> None:
    low = pods(4, prefix="low", cpu="1", priority=1, node="n")
    gang = members(3, "train", cpu="1", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(5)
        assert (running(world, gang), len(there(world, low))) == (3, 2)

    in_virtual_time(story, node("n", cpu="5"), *low, group("train", 3), **BOTH)


def test_the_gang_is_told_that_it_waits_for_room_and_promised_its_nodes() -> None:
    low = pod("low", cpu="3", priority=1, node="n", metadata={"finalizers": ["example.org/keep"]})
    gang = members(2, "train", cpu="2", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.settles()
        condition = world.cluster.condition("train-0")
        assert condition is not None
        assert condition.message == "pod group is waiting for preemption to complete: default/train"
        assert [world.cluster.pod(each.metadata.name).status.nominated_node_name for each in gang] == ["n", "n"]

    cluster = LeavingSlowly()
    in_virtual_time(story, node("n", cpu="4"), low, group("train", 2), cluster=cluster, **BOTH)


def test_a_gang_waits_for_victims_that_take_their_time() -> None:
    low = pods(2, prefix="low", cpu="2", priority=1, node="n")
    gang = members(2, "train", cpu="2", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(20)
        assert running(world, gang) == 0
        for each in low:
            world.cluster.remove(each)
        await world.passes(5)
        assert running(world, gang) == 2
        assert cluster.deletions == 2

    cluster = LeavingSlowly()
    in_virtual_time(story, node("n", cpu="4"), *low, group("train", 2), cluster=cluster, **BOTH)


def test_who_is_not_needed_for_the_gang_may_preempt_by_itself() -> None:
    low = pod("low", cpu="2", priority=1, node="n")
    gang = members(4, "train", cpu="1", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(5)
        assert (running(world, gang), there(world, [low])) == (4, [])

    in_virtual_time(story, node("n", cpu="4"), low, group("train", 2), **BOTH)


def test_a_gang_never_evicts_its_own_pods() -> None:
    running_one = member("train-low", "train", cpu="3", priority=1, node="n")
    gang = [member("train-high", "train", cpu="3", priority=100)]

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(5)
        assert there(world, [running_one]) == ["train-low"]

    in_virtual_time(story, node("n", cpu="4"), running_one, group("train", 2), **BOTH)
