"""Extenders and preemption: what they say of the candidates, and the choice among those that are left."""

from __future__ import annotations

import msgspec

from kubestow.scheduling.extenders.port import ExtenderVictims
from kubestow.scheduling.ports import ObjectReference
from kubestow.testing import MemoryCluster, node, pod
from tests.scheduling.extenders.scripted_extender import ScriptedExtender
from tests.scheduling.running import Living, in_virtual_time


class Terminating(MemoryCluster):
    """Its pods take long to go."""

    async def delete_pod(self, pod: ObjectReference) -> None:
        current = self.pod(pod.name)
        metadata = msgspec.structs.replace(current.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        self.put(msgspec.structs.replace(current, metadata=metadata))


#: Two nodes that are full; by itself, preemption takes the less important victim.
FULL = (
    node("a"),
    node("b"),
    pod("cheap", node="a", cpu="4", priority=1),
    pod("dear", node="b", cpu="4", priority=2),
)


def evicted(*extenders: ScriptedExtender) -> tuple[set[str], str]:
    """Who is evicted for an important pod, and what the pod's condition says meanwhile."""
    found: list[tuple[set[str], str]] = []

    async def story(world: Living) -> None:
        world.cluster.put(pod("p", cpu="3", priority=10))
        await world.settles()
        left = {one.metadata.name for one in world.cluster.pods() if not one.metadata.deletion_timestamp}
        condition = world.cluster.condition("p")
        found.append(({"cheap", "dear"} - left, "" if condition is None else condition.message))

    in_virtual_time(story, *FULL, extenders=extenders)
    return found[0]


def spared(**victims: str) -> dict[str, ExtenderVictims]:
    return {name: ExtenderVictims([f"uid-default-{victim}"] if victim else []) for name, victim in victims.items()}


def test_without_an_extender_the_least_harm_is_done() -> None:
    assert evicted()[0] == {"cheap"}


def test_an_extender_sees_all_candidates() -> None:
    extender = ScriptedExtender("preempt")
    assert evicted(extender)[0] == {"cheap"}
    assert ("preempt", "p", ["a", "b"]) in extender.asked


def test_an_extender_narrows_the_candidates_down() -> None:
    assert evicted(ScriptedExtender("preempt", spared=spared(b="dear")))[0] == {"dear"}


def test_a_victim_that_is_named_twice_is_evicted_once() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("p", cpu="3", priority=10))
        await world.passes(5)
        assert [event.reason for event in world.cluster.events].count("Preempted") == 1

    twice = {"b": ExtenderVictims(["uid-default-dear", "uid-default-dear"])}
    extender = ScriptedExtender("preempt", spared=twice)
    in_virtual_time(story, *FULL, extenders=[extender], cluster=Terminating())


def test_the_next_extender_is_asked_about_what_is_left() -> None:
    second = ScriptedExtender("preempt", urlPrefix="http://second")
    evicted(ScriptedExtender("preempt", spared=spared(b="dear")), second)
    assert ("preempt", "p", ["b"]) in second.asked


def test_nobody_is_evicted_when_no_candidate_is_left() -> None:
    victims, message = evicted(ScriptedExtender("preempt", spared={}))
    assert victims == set()
    assert message.endswith(" preemption: no candidate node for preemption")


def test_a_node_without_victims_is_an_error() -> None:
    victims, message = evicted(ScriptedExtender("preempt", spared=spared(a="")))
    assert victims == set()
    assert message.endswith('preemption: expected at least one victim pod on node "a"')


def test_a_node_without_victims_is_dropped_if_the_extender_may_be_ignored() -> None:
    extender = ScriptedExtender("preempt", spared=spared(a="", b="dear"), ignorable=True)
    assert evicted(extender)[0] == {"dear"}


def test_a_victim_that_is_not_on_the_node_is_an_error() -> None:
    victims, message = evicted(ScriptedExtender("preempt", spared=spared(a="dear")))
    assert victims == set()
    assert "extender: http://extender claims to preempt pod (UID: uid-default-dear) on node: a" in message


def test_a_node_that_nobody_knows_is_an_error() -> None:
    _, message = evicted(ScriptedExtender("preempt", spared=spared(x="dear")))
    assert message.endswith('nodeinfo not found for node name "x"')


def test_an_extender_that_fails_ends_the_preemption() -> None:
    victims, message = evicted(ScriptedExtender("preempt", fails="out of order"))
    assert victims == set()
    assert message.endswith("preemption: out of order")


def test_an_extender_that_may_be_ignored_does_not() -> None:
    assert evicted(ScriptedExtender("preempt", fails="out of order", ignorable=True))[0] == {"cheap"}


def test_a_candidate_that_goes_meanwhile_is_not_chosen() -> None:
    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            world.cluster.remove(node("a"))

        extender.meanwhile = meanwhile
        world.cluster.put(pod("p", cpu="3", priority=10))
        await world.settles()
        assert "dear" not in {one.metadata.name for one in world.cluster.pods()}

    extender = ScriptedExtender("preempt")
    in_virtual_time(story, *FULL, extenders=[extender])
