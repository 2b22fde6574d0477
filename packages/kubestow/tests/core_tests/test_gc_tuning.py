"""The collector is global to the process: pauses nest, and settings of the application are respected."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kubestow import gc_tuning


@pytest.fixture(autouse=True)
def restore_settings() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.enable()


def test_the_collector_is_on_again_when_the_last_pause_ends() -> None:
    assert gc.isenabled()
    first, second = gc_tuning.paused(), gc_tuning.paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with gc_tuning.paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_objects_of_a_pause_are_not_collected_as_young_ones() -> None:
    gc.collect()
    with gc_tuning.paused():
        kept = [[number] for number in range(100_000)]
    with gc_tuning.paused():  # so that nothing is collected while we look
        young = {id(each) for each in gc.get_objects(generation=0)}
    assert not any(id(each) in young for each in kept)


def test_what_the_application_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        with gc_tuning.paused():
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_raising_thresholds_changes_that_of_the_youngest_generation_only() -> None:
    gc.set_threshold(700, 10, 10)
    gc_tuning.raise_thresholds()
    youngest, *older = gc.get_threshold()
    assert youngest > 700
    assert older == [10, 10]


@pytest.mark.parametrize("threshold", [0, 1_000_000])
def test_a_threshold_of_zero_or_above_ours_is_kept(threshold: int) -> None:
    gc.set_threshold(threshold, 7, 7)
    gc_tuning.raise_thresholds()
    assert gc.get_threshold() == (threshold, 7, 7)
