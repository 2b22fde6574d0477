"""PodState, with the test tables of scheduler-plugins."""

from __future__ import annotations

import pytest

from contrib_tests.watched_nodes import profile_of
from kubestow.testing import PluginHarness, check_plugin, node, pod
from kubestow_contrib.pod_state import PodState


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([(6, 0), (3, 0), (0, 0)], [100, 50, 0]),
        ([(0, 2), (0, 1), (0, 0)], [0, 50, 100]),
        ([(5, 2), (3, 1)], [100, 0]),
        ([(5, 4), (3, 1)], [0, 100]),
        ([(5, 0), (3, 1), (2, 1), (0, 1)], [100, 50, 33, 0]),
    ],
)
def test_nodes_with_ending_pods_are_preferred_to_those_with_nominated_pods(
    counts: list[tuple[int, int]], expected: list[int]
) -> None:
    names = [f"node-{number}" for number in range(len(counts))]
    pods = [
        pod(f"{name}-{kind}-{number}", node=name, deleting=kind == "ending")
        for name, (terminating, _) in zip(names, counts, strict=True)
        for kind, count in (("ending", terminating), ("regular", 10))
        for number in range(count)
    ]
    harness = PluginHarness([node(name) for name in names], pods, profile=profile_of("PodState"), plugins=[PodState])
    for name, (_, nominated) in zip(names, counts, strict=True):
        for number in range(nominated):
            harness.cluster.nominate(harness.info(pod(f"{name}-nominated-{number}")), name)
    assert list(harness.scores(pod(), "PodState").values()) == expected


def test_the_contract_is_kept() -> None:
    check_plugin(PodState, pods=[pod("a"), pod("b", deleting=True)])
