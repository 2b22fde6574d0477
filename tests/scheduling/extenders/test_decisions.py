"""What happens while an extender thinks: nodes and pods come and go, and the decision is about things as they are."""

from __future__ import annotations

from kubestow.testing import node, pod
from tests.scheduling.extenders.scripted_extender import ScriptedExtender
from tests.scheduling.running import Living, in_virtual_time


def told(extender: ScriptedExtender, *objects: object, during: str = "filter", waits: float = 5.0) -> list[str]:
    """Schedule pod ``p``; ``objects`` are the nodes. What happens is given by ``extender.meanwhile``."""
    found: list[str] = []

    async def story(world: Living) -> None:
        happens = extender.happens  # type: ignore[attr-defined]

        async def meanwhile(verb: str) -> None:
            if verb == during and not found:
                found.append("")
                happens(world)

        extender.meanwhile = meanwhile
        world.cluster.put(pod("p", cpu="3"))
        await world.passes(waits)
        found.append(world.node_of("p") if ("default", "p") in _pods(world) else "gone")

    in_virtual_time(story, *objects, extenders=[extender])
    return found[1:]


def _pods(world: Living) -> set[tuple[str, str]]:
    return {(one.metadata.namespace, one.metadata.name) for one in world.cluster.pods()}


def thinking(*verbs: str, happens: object, **answers: object) -> ScriptedExtender:
    extender = ScriptedExtender(*verbs, **answers)  # type: ignore[arg-type]
    extender.happens = happens  # type: ignore[attr-defined]
    return extender


def test_a_node_that_goes_meanwhile_is_not_chosen() -> None:
    # Rows are numbered afresh when "a" goes: "c" takes its place.
    extender = thinking("filter", happens=lambda world: world.cluster.remove(node("a")), passes={"a", "b"})
    assert told(extender, node("a"), node("b"), node("c")) == ["b"]


def test_a_node_that_goes_while_scores_are_awaited_is_not_chosen() -> None:
    scores = {"a": 10, "b": 5, "c": 1}
    extender = thinking("prioritize", happens=lambda world: world.cluster.remove(node("a")), scores=scores)
    assert told(extender, node("a"), node("b"), node("c"), during="prioritize") == ["b"]


def test_a_node_that_fills_up_meanwhile_is_not_chosen() -> None:
    extender = thinking(
        "filter", happens=lambda world: world.cluster.put(pod("other", node="a", cpu="2")), passes={"a", "b"}
    )
    assert told(extender, node("a"), node("b", cpu="3")) == ["b"]


def test_a_node_with_the_first_pod_that_shuns_it_is_not_chosen() -> None:
    """Until that pod came nobody had any use for anti-affinity."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    loner = pod("loner", node="a", affinity=affinity)
    extender = thinking("filter", happens=lambda world: world.cluster.put(loner), passes={"a", "b"})
    assert told(extender, node("a", cpu="64"), node("b")) == ["b"]


def test_a_pod_whose_only_node_goes_meanwhile_gets_another_try() -> None:
    def happens(world: Living) -> None:
        world.cluster.remove(node("a"))
        world.cluster.put(node("b"))

    assert told(thinking("filter", happens=happens), node("a")) == ["b"]


def test_a_node_that_nobody_asked_the_extender_about_is_not_chosen() -> None:
    extender = thinking("filter", happens=lambda world: world.cluster.put(node("late", cpu="64")))
    assert told(extender, node("a")) == ["a"]


def test_a_pod_that_is_deleted_meanwhile_is_left_alone() -> None:
    extender = thinking("filter", happens=lambda world: world.cluster.remove(pod("p")))
    assert told(extender, node("a")) == ["gone"]


def test_a_pod_that_somebody_else_binds_meanwhile_is_left_alone() -> None:
    extender = thinking("filter", happens=lambda world: world.cluster.put(pod("p", node="b", cpu="3")), passes={"a"})
    assert told(extender, node("a"), node("b")) == ["b"]


def test_pods_that_no_extender_cares_about_are_scheduled_between() -> None:
    async def story(world: Living) -> None:
        async def slow(verb: str) -> None:
            await world.passes(3)

        extender.meanwhile = slow
        world.cluster.put(pod("slow", requests={"x.y/gpu": "1"}))
        world.cluster.put(pod("quick"))
        await world.passes(4)
        assert [bound for bound, _ in world.cluster.bindings] == ["default/slow", "default/quick"]

    extender = ScriptedExtender("filter", managedResources=[{"name": "x.y/gpu"}])
    in_virtual_time(story, node("a", allocatable={"x.y/gpu": "1"}), extenders=[extender])
