"""Candidates for extenders: one of them is picked by the same costs as without extenders (semantics 9.4, 9.5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_tests.decisions import preemption_of
from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import Shapes
from kubestow.framework.interface import Victims
from kubestow.plugins.default_preemption.candidates import pick_one_node
from kubestow.testing import PluginHarness, node, pod

start_times = st.sampled_from([None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])
pods_on_node = st.lists(st.tuples(st.integers(-2, 2), start_times), min_size=1, max_size=3)


@given(st.lists(pods_on_node, min_size=2, max_size=4))
def test_without_changes_by_extenders_the_same_candidate_is_picked(
    nodes: list[list[tuple[int, str | None]]],
) -> None:
    bound = [
        pod(f"{row}-{n}", node=f"n{row}", priority=priority, status={"startTime": start_time})
        for row, on_node in enumerate(nodes)
        for n, (priority, start_time) in enumerate(on_node)
    ]
    harness = PluginHarness([node(f"n{row}", max_pods=len(on_node)) for row, on_node in enumerate(nodes)], bound)
    nomination = preemption_of(harness.decide(pod("p", priority=10)))
    assert nomination is not None
    assert nomination.extender_candidates is not None
    victims_by_node = nomination.extender_candidates.victims_by_node()
    assert pick_one_node(victims_by_node) == nomination.nominated_node_name
    assert nomination.extender_candidates.select(victims_by_node).victims == nomination.victims


def victims(*pods: Pod) -> Victims:
    shapes = Shapes()
    return Victims(tuple(shapes.info(each) for each in pods))


def test_victims_chosen_by_an_extender_are_compared_in_the_order_it_returned() -> None:
    victims_by_node = {"a": victims(pod("x", priority=3), pod("y", priority=1)), "b": victims(pod("z", priority=2))}
    assert pick_one_node(victims_by_node) == "b"


def test_the_start_times_of_unsorted_victims_count_for_the_highest_priority() -> None:
    def start_time(name: str, priority: int, day: int) -> Pod:
        return pod(name, priority=priority, status={"startTime": f"2026-01-{day:02}T00:00:00Z"})

    victims_by_node = {
        "a": victims(start_time("a1", 1, 9), start_time("a2", 2, 3)),
        "b": victims(start_time("b1", 1, 1), start_time("b2", 2, 5)),
    }
    assert pick_one_node(victims_by_node) == "b"
