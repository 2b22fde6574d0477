"""What plugins remember of shapes, and what they forget first."""

from __future__ import annotations

from kubestow.cluster.pods.shapes import Shape, Shapes
from kubestow.plugins.shape_cache import ShapeCache
from kubestow.testing import pod


def shapes(count: int) -> list[Shape]:
    known = Shapes()
    return [known.info(pod(f"p{number}", labels={"app": str(number)})).shape for number in range(count)]


def remembered(memory: ShapeCache[int], some: list[Shape]) -> list[int]:
    return [number for number, shape in enumerate(some) if memory.get(shape) == number]


def filled(some: list[Shape], *, in_use: set[int]) -> ShapeCache[int]:
    numbers = {shape: number for number, shape in enumerate(some)}
    memory = ShapeCache[int](lambda shape: numbers[shape] in in_use)
    for number, shape in enumerate(some):
        memory.put(shape, number)
    return memory


def test_few_are_all_remembered_in_use_or_not() -> None:
    some = shapes(100)
    assert remembered(filled(some, in_use=set()), some) == list(range(100))


def test_those_in_use_outlive_many_that_are_not() -> None:
    some = shapes(2000)
    assert set(range(100)) <= set(remembered(filled(some, in_use=set(range(100))), some))


def test_of_those_in_use_the_ones_seen_last_are_remembered() -> None:
    some = shapes(1000)
    assert remembered(filled(some, in_use=set(range(1000))), some) == list(range(744, 1000))


def test_one_that_is_new_is_remembered_before_it_is_in_use() -> None:
    some = shapes(129)
    assert remembered(filled(some, in_use=set()), some) == [128]
