"""Events that are kept while pods are in flight."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.scheduling.queue.places import PodsInFlight
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

NODE_ADDED = ClusterEvent(EventResource.NODE, Action.ADD)


def events_of(flight: PodsInFlight, uid: str) -> list[object]:
    return [event.new for event in flight.since(uid)]


def test_a_pod_gets_the_events_since_it_was_popped() -> None:
    flight = PodsInFlight()
    flight.add("first")
    flight.keep(NODE_ADDED, None, 1)
    flight.add("second")
    flight.keep(NODE_ADDED, None, 2)
    assert events_of(flight, "first") == [1, 2]
    assert events_of(flight, "second") == [2]
    assert events_of(flight, "third") == []


def test_an_event_of_one_pod_is_not_delivered_to_others() -> None:
    flight = PodsInFlight()
    flight.add("one")
    flight.add("other")
    flight.keep(NODE_ADDED, None, 1, only="other")
    assert events_of(flight, "one") == []
    assert events_of(flight, "other") == [1]


def test_pods_are_listed_in_the_order_in_which_they_were_popped() -> None:
    flight = PodsInFlight()
    for uid in ("b", "a", "c"):
        flight.add(uid)
    flight.done("a")
    assert flight.uids() == ["b", "c"]


def test_no_event_is_kept_without_a_pod_in_flight() -> None:
    flight = PodsInFlight()
    flight.keep(NODE_ADDED)
    flight.add("one")
    flight.keep(NODE_ADDED)
    assert flight.counts() == {"NodeAdd": 1, "PodPopped": 1}
    flight.done("one")
    assert not flight.counts()


def test_events_are_dropped_again_and_again_while_attempts_overlap() -> None:
    """The log is truncated several times, and never has more than the events of a few pods."""
    flight = PodsInFlight()
    for number in range(10):
        flight.add(f"pod-{number}")
        for event in range(1500):
            flight.keep(NODE_ADDED, None, (number, event))
        if number:
            flight.done(f"pod-{number - 1}")
        assert events_of(flight, f"pod-{number}") == [(number, event) for event in range(1500)]
        assert flight.counts()["NodeAdd"] <= 3000


@pytest.mark.parametrize(
    ("cpu", "place"), [(None, Place.UNSCHEDULABLE), ("1", Place.UNSCHEDULABLE), ("16", Place.BACKOFF)]
)
def test_a_rejected_pod_does_not_wait_for_an_event_that_it_has_missed_in_flight(cpu: str | None, place: Place) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue, clock = harness.scheduler.queue, harness.scheduler.environment.clock
        harness.cluster.put(pod("a", cpu="9"))
        await harness.settle()
        queued = queue.pop_pod("uid-default-a")
        assert queued is not None
        if cpu is not None:
            harness.cluster.put(node("new", cpu=cpu))
        rejectors = frozenset({"NodeResourcesFit"})
        queue.return_after_failure(queued, rejectors=rejectors, pending_plugins=frozenset(), now=clock.monotonic())
        assert queued.place is place

    in_virtual_time(scenario, node("n"))


@given(st.lists(st.tuples(st.sampled_from(["pop", "end", "event"]), st.integers(0, 3)), max_size=60), st.integers(1, 9))
def test_truncating_the_event_log_loses_no_event_of_a_pod_in_flight(steps: list[tuple[str, int]], repeats: int) -> None:
    """Compares with one list per pod, with enough events to truncate the shared log."""
    flight, lists, number = PodsInFlight(), dict[str, list[int]](), 0
    for step, which in steps:
        uid = f"pod-{which}"
        if step == "pop" and uid not in flight:
            flight.add(uid)
            lists[uid] = []
        elif step == "end":
            flight.done(uid)
            lists.pop(uid, None)
        elif step == "event":
            for _ in range(repeats * 100):
                number += 1
                flight.keep(NODE_ADDED, None, number)
                for kept in lists.values():
                    kept.append(number)
        assert len(flight) == len(lists)
        assert all(events_of(flight, uid) == kept for uid, kept in lists.items())
