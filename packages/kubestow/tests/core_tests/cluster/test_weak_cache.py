"""The cache that keeps no value alive."""

from __future__ import annotations

from kubestow.cluster.pods.caches import WeakCache


class Value:
    """Something that allows weak references."""


def test_an_entry_lasts_as_long_as_its_value() -> None:
    cache: WeakCache[str, Value] = WeakCache()
    value = cache.put("a", Value())
    other = cache.put("b", Value())
    assert cache.get("a") is value and cache.get("b") is other
    del value
    assert cache.get("a") is None
    assert cache.get("b") is other
    assert len(cache) == 1


def test_the_end_of_a_replaced_value_does_not_drop_its_successor() -> None:
    cache: WeakCache[str, Value] = WeakCache()
    value = cache.put("a", Value())
    successor = cache.put("a", Value())
    del value
    assert cache.get("a") is successor


def test_values_do_not_keep_the_cache_alive_and_outlive_it() -> None:
    value = WeakCache[str, Value]().put("a", Value())
    del value
