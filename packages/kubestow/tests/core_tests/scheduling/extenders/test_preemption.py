"""Extenders with a preempt verb: how they narrow the candidates, and the choice among the rest."""

from __future__ import annotations

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from core_tests.scheduling.fixture import TerminatingCluster
from kubestow.scheduling.extenders.stages import ExtenderVictims
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

#: Two full nodes; without an extender, preemption evicts the victim of lower priority.
FULL = (
    node("a"),
    node("b"),
    pod("low", node="a", cpu="4", priority=1),
    pod("high", node="b", cpu="4", priority=2),
)


def evicted(*extenders: ScriptedExtender) -> tuple[set[str], str]:
    """The pods that a preemptor evicts, and the message of its condition."""
    found: list[tuple[set[str], str]] = []

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p", cpu="3", priority=10))
        await harness.settle()
        left = {one.metadata.name for one in harness.cluster.pods() if not one.metadata.deletion_timestamp}
        condition = harness.cluster.condition("p")
        found.append(({"low", "high"} - left, "" if condition is None else condition.message))

    in_virtual_time(scenario, *FULL, extenders=extenders)
    return found[0]


def accepted(**victims: str) -> dict[str, ExtenderVictims]:
    return {name: ExtenderVictims([f"uid-default-{victim}"] if victim else []) for name, victim in victims.items()}


def test_without_an_extender_the_victim_of_lowest_priority_is_evicted() -> None:
    assert evicted()[0] == {"low"}


def test_an_extender_sees_all_candidates() -> None:
    extender = ScriptedExtender("preempt")
    assert evicted(extender)[0] == {"low"}
    assert ("preempt", "p", ["a", "b"]) in extender.calls


def test_an_extender_can_drop_candidates() -> None:
    assert evicted(ScriptedExtender("preempt", victims=accepted(b="high")))[0] == {"high"}


def test_a_victim_that_an_extender_lists_twice_is_evicted_once() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p", cpu="3", priority=10))
        await harness.advance(5)
        assert [event.reason for event in harness.cluster.events].count("Preempted") == 1

    twice = {"b": ExtenderVictims(["uid-default-high", "uid-default-high"])}
    extender = ScriptedExtender("preempt", victims=twice)
    in_virtual_time(scenario, *FULL, extenders=[extender], cluster=TerminatingCluster())


def test_the_next_extender_gets_the_remaining_candidates() -> None:
    second = ScriptedExtender("preempt", urlPrefix="http://second")
    evicted(ScriptedExtender("preempt", victims=accepted(b="high")), second)
    assert ("preempt", "p", ["b"]) in second.calls


def test_no_pod_is_evicted_without_a_remaining_candidate() -> None:
    victims, message = evicted(ScriptedExtender("preempt", victims={}))
    assert victims == set()
    assert message.endswith(" preemption: no candidate node for preemption")


def test_a_node_without_victims_is_an_error() -> None:
    victims, message = evicted(ScriptedExtender("preempt", victims=accepted(a="")))
    assert victims == set()
    assert message.endswith('preemption: expected at least one victim pod on node "a"')


def test_a_node_without_victims_is_dropped_if_the_extender_is_ignorable() -> None:
    extender = ScriptedExtender("preempt", victims=accepted(a="", b="high"), ignorable=True)
    assert evicted(extender)[0] == {"high"}


def test_a_victim_that_is_not_on_the_node_is_an_error() -> None:
    victims, message = evicted(ScriptedExtender("preempt", victims=accepted(a="high")))
    assert victims == set()
    assert "extender: http://extender claims to preempt pod (UID: uid-default-high) on node: a" in message


def test_an_unknown_node_is_an_error() -> None:
    _, message = evicted(ScriptedExtender("preempt", victims=accepted(x="high")))
    assert message.endswith('nodeinfo not found for node name "x"')


def test_an_extender_that_fails_ends_the_preemption() -> None:
    victims, message = evicted(ScriptedExtender("preempt", fails="out of order"))
    assert victims == set()
    assert message.endswith("preemption: out of order")


def test_an_ignorable_extender_that_fails_does_not_end_the_preemption() -> None:
    assert evicted(ScriptedExtender("preempt", fails="out of order", ignorable=True))[0] == {"low"}


def test_a_candidate_node_deleted_during_the_call_is_not_chosen() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            harness.cluster.remove(node("a"))

        extender.during_call = during_call
        harness.cluster.put(pod("p", cpu="3", priority=10))
        await harness.settle()
        assert "high" not in {one.metadata.name for one in harness.cluster.pods()}

    extender = ScriptedExtender("preempt")
    in_virtual_time(scenario, *FULL, extenders=[extender])
