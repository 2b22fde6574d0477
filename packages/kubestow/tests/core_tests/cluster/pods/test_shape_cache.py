"""What the cache by shape keeps, and what it drops first."""

from __future__ import annotations

from kubestow.cluster.pods.shapes import ShapeCache, ShapeGroup, Shapes
from kubestow.testing import pod


def shapes(count: int) -> list[ShapeGroup]:
    interned = Shapes()
    return [interned.info(pod(f"p{number}", cpu=str(number + 1))).shape.group(None) for number in range(count)]


def cached_numbers(cache: ShapeCache[int], some: list[ShapeGroup]) -> list[int]:
    return [number for number, shape in enumerate(some) if cache.get(shape) == number]


def cache_of(some: list[ShapeGroup], *, in_use: set[int]) -> ShapeCache[int]:
    numbers = {group.family: number for number, group in enumerate(some)}
    cache = ShapeCache[int](lambda family: numbers[family] in in_use)
    for number, shape in enumerate(some):
        cache.put(shape, number)
    return cache


def test_a_few_shapes_are_all_cached() -> None:
    some = shapes(100)
    assert cached_numbers(cache_of(some, in_use=set()), some) == list(range(100))


def test_shapes_in_use_are_kept_among_many_that_are_not() -> None:
    some = shapes(2000)
    assert set(range(100)) <= set(cached_numbers(cache_of(some, in_use=set(range(100))), some))


def test_of_shapes_in_use_the_most_recent_are_kept() -> None:
    some = shapes(1000)
    assert cached_numbers(cache_of(some, in_use=set(range(1000))), some) == list(range(744, 1000))


def test_a_new_shape_is_kept_before_it_is_in_use() -> None:
    some = shapes(129)
    assert cached_numbers(cache_of(some, in_use=set()), some) == [128]
