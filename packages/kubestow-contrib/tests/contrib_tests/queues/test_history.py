"""The history of queues and jobs: averages of uses, and its bounds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kubestow_contrib.queues import history
from kubestow_contrib.queues.history import History, JobRun, NodeUse, PodsOnNodes, averages

USES = st.lists(
    st.builds(
        lambda group, queue, start, length, amount: NodeUse(group, queue, start, start + length, amount),
        st.integers(0, 2),
        st.integers(0, 1),
        st.integers(-20, 120),
        st.integers(0, 90),
        st.integers(0, 8),
    ),
    max_size=12,
)


@given(USES)
def test_averages_are_those_of_the_parts_that_uses_cover(uses: list[NodeUse]) -> None:
    edges = np.linspace(0.0, 100.0, 8)
    found = averages(iter(uses), 3, 2, edges)
    expected = np.zeros((3, 2, 7))
    for use in uses:
        for column, (start, end) in enumerate(pairwise(edges)):
            covered = max(0.0, min(use.end, end) - max(use.start, start))
            expected[use.group, use.queue, column] += use.amount * covered / (end - start)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_samples_reach_back_to_the_beginning_in_bounded_memory() -> None:
    kept = History(["q"])
    for time in range(5_000):
        kept.sample(float(time), {"cpu": 10.0}, {"q": {"cpu": float(time)}}, {"q": {"cpu": 5.0}})
    times = [sample.time for sample in kept.samples]
    assert len(times) <= history._MOST_SAMPLES
    assert times[0] == 0.0
    assert times == sorted(set(times))
    assert max(np.diff(times)) < 40
    assert kept.samples[-1].used.tolist() == [[4_999.0]]


def test_the_latest_runs_are_kept() -> None:
    kept = History(["q"])
    for number in range(30):
        counts = {f"n{node}": 1 for node in range(10_000)}
        kept.add(JobRun(f"j{number}", "q", [PodsOnNodes({"cpu": 1}, counts)], number, number + 1.0))
    assert [run.name for run in kept.runs] == [f"j{number}" for number in range(20, 30)]
