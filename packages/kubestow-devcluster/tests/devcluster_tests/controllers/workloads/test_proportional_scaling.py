"""Scaling a Deployment during a rolling update distributes the change over its ReplicaSets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow_devcluster.controllers.workloads.deployments import ReplicaSetSize, scale_proportionally

SIZES = st.lists(st.integers(1, 50), min_size=2, max_size=5)


def test_replica_sets_grow_in_proportion_to_their_size() -> None:
    sets = [ReplicaSetSize("old", 6, 10), ReplicaSetSize("new", 4, 10)]
    assert scale_proportionally(sets, 20) == {"old": 12, "new": 8}
    assert scale_proportionally(sets, 5) == {"old": 3, "new": 2}


def test_rounding_errors_go_to_the_largest_replica_set() -> None:
    sets = [ReplicaSetSize("older", 5, 13), ReplicaSetSize("old", 5, 13), ReplicaSetSize("new", 3, 13)]
    assert scale_proportionally(sets, 15) == {"older": 6, "old": 6, "new": 3}
    assert scale_proportionally(sets, 14) == {"older": 5, "old": 6, "new": 3}
    assert scale_proportionally(sets, 12) == {"older": 4, "old": 5, "new": 3}


def test_scaling_to_zero_scales_every_replica_set_to_zero() -> None:
    assert scale_proportionally([ReplicaSetSize("old", 5, 10), ReplicaSetSize("new", 5, 10)], 0) == {"old": 0, "new": 0}


@given(SIZES, st.integers(0, 200))
def test_the_sizes_add_up_to_the_total_and_all_change_in_one_direction(sizes: list[int], allowed: int) -> None:
    total = sum(sizes)
    before = [ReplicaSetSize(str(number), size, total) for number, size in enumerate(sizes)]
    after = scale_proportionally(before, allowed)
    steps = [after[str(number)] - size for number, size in enumerate(sizes)]
    assert sum(after.values()) == allowed and min(after.values()) >= 0
    assert all(step >= 0 for step in steps) if allowed >= total else all(step <= 0 for step in steps)
