"""The order of preemption candidates."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kubestow.cluster.pods.shapes import Shapes
from kubestow.cluster.pods.table import PodChanges
from kubestow.plugins.default_preemption.candidates import CandidateRanking
from kubestow.testing import pod

VICTIMS = st.lists(st.lists(st.integers(-2, 2), max_size=3), min_size=1, max_size=6)


@given(VICTIMS, st.data())
def test_the_first_in_order_has_the_lowest_costs_and_so_has_each_of_the_rest(
    priorities: list[list[int]], data: st.DataObject
) -> None:
    shapes = Shapes()
    pods = [
        [
            shapes.info(pod(f"p{row}-{at}", priority=priority))
            for at, priority in enumerate(sorted(row_of, reverse=True))
        ]
        for row, row_of in enumerate(priorities)
    ]
    counts = data.draw(st.lists(st.integers(0, 2), min_size=len(pods), max_size=len(pods)))
    ranking = CandidateRanking.of(PodChanges.of(pods, -1), np.array(counts, np.int64))
    order = ranking.order()
    assert sorted(order.tolist()) == list(range(len(pods)))
    for position in range(len(order)):
        assert order[position] in ranking.lowest(np.sort(order[position:]))
        row = int(order[position])
        pairs = (np.array([other, row]) for other in range(len(pods)) if other != row)
        assert ranking.better_than(row) == sum(row not in ranking.lowest(pair) for pair in pairs)
