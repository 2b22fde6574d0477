"""A change of scale in the middle of an update is shared between the replica sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow.devcluster.controllers.workloads.proportional_scaling import Share, shared

SIZES = st.lists(st.integers(1, 50), min_size=2, max_size=5)


def test_sets_grow_in_proportion_to_their_size() -> None:
    sets = [Share("old", 6, 10), Share("new", 4, 10)]
    assert shared(sets, 20) == {"old": 12, "new": 8}
    assert shared(sets, 5) == {"old": 3, "new": 2}


def test_what_rounding_leaves_goes_to_the_largest() -> None:
    sets = [Share("older", 5, 13), Share("old", 5, 13), Share("new", 3, 13)]
    assert shared(sets, 15) == {"older": 6, "old": 6, "new": 3}
    assert shared(sets, 14) == {"older": 5, "old": 6, "new": 3}
    assert shared(sets, 12) == {"older": 4, "old": 5, "new": 3}


def test_nothing_is_left_of_a_deployment_scaled_to_nothing() -> None:
    assert shared([Share("old", 5, 10), Share("new", 5, 10)], 0) == {"old": 0, "new": 0}


@given(SIZES, st.integers(0, 200))
def test_together_they_have_what_is_wanted_and_none_goes_the_other_way(sizes: list[int], most: int) -> None:
    total = sum(sizes)
    after = shared([Share(str(number), size, total) for number, size in enumerate(sizes)], most)
    steps = [after[str(number)] - size for number, size in enumerate(sizes)]
    assert sum(after.values()) == most and min(after.values()) >= 0
    assert all(step >= 0 for step in steps) if most >= total else all(step <= 0 for step in steps)
