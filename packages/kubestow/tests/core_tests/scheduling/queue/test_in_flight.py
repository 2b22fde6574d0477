"""Events that are kept while pods are in flight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.scheduling.queue.places import PodsInFlight

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


@given(st.lists(st.tuples(st.sampled_from(["pop", "end", "event"]), st.integers(0, 3)), max_size=60), st.integers(1, 9))
def test_truncating_the_event_log_loses_no_event_of_a_pod_in_flight(steps: list[tuple[str, int]], repeats: int) -> None:
    """Compares with one list per pod, with enough events to truncate the shared log."""
    flight, lists, number = PodsInFlight(), dict[str, list[int]](), 0
    for step, pod in steps:
        uid = f"pod-{pod}"
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
