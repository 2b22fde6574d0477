"""What happens while an extender thinks: nodes and pods come and go, and the decision is about things as they are."""

from __future__ import annotations

from kubestow.testing import node, pod
from tests.scheduling.extenders.scripted_extender import ScriptedExtender
from tests.scheduling.running import Living, in_virtual_time


def told(extender: ScriptedExtender, *objects: object, during: str = "filter", waits: float = 5.0) -> list[str]:
    """Schedule pod ``p``; ``objects`` are the nodes. What happens is given by ``extender.meanwhile``."""
    found: list[str] = []

    async def scenario(harness: Living) -> None:
        happens = extender.happens  # type: ignore[attr-defined]

        async def meanwhile(verb: str) -> None:
            if verb == during and not found:
                found.append("")
                happens(harness)

        extender.meanwhile = meanwhile
        harness.cluster.put(pod("p", cpu="3"))
        await harness.passes(waits)
        found.append(harness.node_of("p") if ("default", "p") in _pods(harness) else "gone")

    in_virtual_time(scenario, *objects, extenders=[extender])
    return found[1:]


def _pods(harness: Living) -> set[tuple[str, str]]:
    return {(one.metadata.namespace, one.metadata.name) for one in harness.cluster.pods()}


def thinking(*verbs: str, happens: object, **answers: object) -> ScriptedExtender:
    extender = ScriptedExtender(*verbs, **answers)  # type: ignore[arg-type]
    extender.happens = happens  # type: ignore[attr-defined]
    return extender


def test_a_node_deleted_during_filtering_is_not_chosen() -> None:
    # Rows are numbered afresh when "a" goes: "c" takes its place.
    extender = thinking("filter", happens=lambda harness: harness.cluster.remove(node("a")), passes={"a", "b"})
    assert told(extender, node("a"), node("b"), node("c")) == ["b"]


def test_a_node_deleted_during_scoring_is_not_chosen() -> None:
    scores = {"a": 10, "b": 5, "c": 1}
    extender = thinking("prioritize", happens=lambda harness: harness.cluster.remove(node("a")), scores=scores)
    assert told(extender, node("a"), node("b"), node("c"), during="prioritize") == ["b"]


def test_a_node_filled_up_during_the_call_is_not_chosen() -> None:
    extender = thinking(
        "filter", happens=lambda harness: harness.cluster.put(pod("other", node="a", cpu="2")), passes={"a", "b"}
    )
    assert told(extender, node("a"), node("b", cpu="3")) == ["b"]


def test_a_node_that_gains_the_first_anti_affinity_pod_during_the_call_is_not_chosen() -> None:
    """Until that pod came nobody had any use for anti-affinity."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    loner = pod("loner", node="a", affinity=affinity)
    extender = thinking("filter", happens=lambda harness: harness.cluster.put(loner), passes={"a", "b"})
    assert told(extender, node("a", cpu="64"), node("b")) == ["b"]


def test_a_pod_whose_only_node_is_deleted_during_the_call_is_retried() -> None:
    def happens(harness: Living) -> None:
        harness.cluster.remove(node("a"))
        harness.cluster.put(node("b"))

    assert told(thinking("filter", happens=happens), node("a")) == ["b"]


def test_a_node_added_during_the_call_is_not_chosen() -> None:
    extender = thinking("filter", happens=lambda harness: harness.cluster.put(node("late", cpu="64")))
    assert told(extender, node("a")) == ["a"]


def test_a_pod_deleted_during_the_call_is_dropped() -> None:
    extender = thinking("filter", happens=lambda harness: harness.cluster.remove(pod("p")))
    assert told(extender, node("a")) == ["gone"]


def test_a_pod_bound_by_another_client_during_the_call_is_dropped() -> None:
    extender = thinking(
        "filter", happens=lambda harness: harness.cluster.put(pod("p", node="b", cpu="3")), passes={"a"}
    )
    assert told(extender, node("a"), node("b")) == ["b"]


def test_pods_without_an_interested_extender_are_scheduled_during_the_call() -> None:
    async def scenario(harness: Living) -> None:
        async def slow(verb: str) -> None:
            await harness.passes(3)

        extender.meanwhile = slow
        harness.cluster.put(pod("slow", requests={"x.y/gpu": "1"}))
        harness.cluster.put(pod("quick"))
        await harness.passes(4)
        assert [bound for bound, _ in harness.cluster.bindings] == ["default/slow", "default/quick"]

    extender = ScriptedExtender("filter", managedResources=[{"name": "x.y/gpu"}])
    in_virtual_time(scenario, node("a", allocatable={"x.y/gpu": "1"}), extenders=[extender])
