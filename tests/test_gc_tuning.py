"""The collector is the whole process's: nobody may leave it off, or more eager than somebody else wants it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kubestow import gc_tuning as collector


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.enable()


def test_it_comes_back_when_the_last_pause_ends() -> None:
    assert gc.isenabled()
    first, second = collector.paused(), collector.paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    with collector.paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_patience_makes_it_look_less_often_at_the_youngest() -> None:
    gc.set_threshold(700, 10, 10)
    collector.raise_thresholds()
    youngest, *older = gc.get_threshold()
    assert youngest > 700
    assert older == [10, 10]


@pytest.mark.parametrize("chosen", [0, 1_000_000])
def test_one_that_looks_never_or_hardly_ever_is_left_as_it_is(chosen: int) -> None:
    gc.set_threshold(chosen, 7, 7)
    collector.raise_thresholds()
    assert gc.get_threshold() == (chosen, 7, 7)
