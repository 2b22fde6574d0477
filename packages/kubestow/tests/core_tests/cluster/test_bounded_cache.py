"""The bounded cache: what it keeps, and what it evicts first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow.cluster.pods.caches import BoundedCache


def test_the_least_recently_used_entry_is_evicted_first() -> None:
    cache = BoundedCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_entries_are_evicted_until_their_costs_fit_the_budget() -> None:
    cache = BoundedCache[str, int](100)
    for key in "abc":
        cache.put(key, 0, cost=30)
    cache.put("large", 0, cost=60)
    assert [cache.get(key) for key in "abc"] == [None, None, 0]
    assert cache.get("large") == 0


def test_a_minimum_of_entries_is_kept_whatever_they_cost() -> None:
    cache = BoundedCache[int, int](10, minimum=3)
    for number in range(5):
        cache.put(number, number, cost=100)
    assert [cache.get(number) for number in range(5)] == [None, None, 2, 3, 4]


def test_a_value_takes_the_place_and_the_cost_of_an_earlier_one() -> None:
    cache = BoundedCache[str, int](100)
    cache.put("a", 1, cost=90)
    cache.put("a", 2, cost=10)
    cache.put("b", 3, cost=90)
    assert (cache.get("a"), cache.get("b")) == (2, 3)


def test_a_new_generation_starts_empty() -> None:
    cache = BoundedCache[str, int](10)
    cache.start_generation(("labels", 1))
    cache.put("a", 1)
    cache.start_generation(("labels", 1))
    assert cache.get("a") == 1
    cache.start_generation(("labels", 2))
    assert cache.get("a") is None


def test_a_smaller_budget_evicts_at_once() -> None:
    cache = BoundedCache[int, int](10)
    for number in range(6):
        cache.put(number, number)
    cache.resize(2)
    assert [cache.get(number) for number in range(6)] == [None, None, None, None, 4, 5]


def test_only_the_entries_to_be_kept_are_retained() -> None:
    cache = BoundedCache[int, int](10)
    for number in range(6):
        cache.put(number, number)
    cache.retain(lambda number: number % 2 == 0)
    assert [cache.get(number) for number in range(6)] == [0, None, 2, None, 4, None]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60))), st.integers(1, 4))
def test_the_budget_is_never_exceeded(puts: list[tuple[int, int]], minimum: int) -> None:
    cache = BoundedCache[int, int](100, minimum=minimum)
    costs: dict[int, int] = {}
    for key, cost in puts:
        cache.put(key, cost, cost=cost)
        costs[key] = cost
        cached = [key for key in costs if cache.get(key) is not None]
        assert len(cached) == len(cache)
        assert sum(costs[key] for key in cached) <= 100 or len(cached) <= minimum
