"""The balances that NodeResourcesBalancedAllocation keeps equal those that are computed for a single node each time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.core import Node
from kubestow.cluster.nodes.views import NodeRows, Nodes
from kubestow.framework.cycle_state import CycleState
from kubestow.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from kubestow.testing import PluginHarness, node, pod

NODES = 60  # single rows up to an eighth of them
PROFILE = {
    "pluginConfig": [
        {
            "name": "NodeResourcesBalancedAllocation",
            "args": {"resources": [{"name": name, "weight": 1} for name in ("cpu", "memory", "ephemeral-storage")]},
        }
    ]
}
NUMBERS = st.integers(0, NODES - 1)
EVENTS = st.one_of(
    st.tuples(st.just("placed"), st.lists(st.tuples(NUMBERS, st.integers(1, 4)), min_size=1, max_size=12)),
    st.tuples(st.just("forgotten"), st.lists(st.tuples(NUMBERS, st.just(0)), min_size=1, max_size=12)),
    st.tuples(st.just("simulated"), st.lists(st.tuples(NUMBERS, st.integers(1, 4)), min_size=1, max_size=6)),
    st.tuples(st.just("resized"), st.lists(st.tuples(NUMBERS, st.integers(0, 9)), min_size=1, max_size=2)),
    st.tuples(st.just("removed"), st.lists(st.tuples(NUMBERS, st.just(0)), min_size=1, max_size=2)),
)


def sized(number: int, cpu: int) -> Node:
    return node(f"n{number}", cpu=str(cpu), memory=f"{1 + number % 7}Gi", allocatable={"ephemeral-storage": "4Gi"})


class Comparison:
    """A cluster, and the pods placed in it by the number of their node."""

    def __init__(self, *, default: bool, count: int = NODES) -> None:
        self.harness = PluginHarness(
            [sized(number, 4) for number in range(count)], profile=None if default else PROFILE
        )
        self.cluster = self.harness.cluster
        profile = self.harness.profiles["default-scheduler"]
        self.plugin = next(p for p in profile.plugins if isinstance(p, NodeResourcesBalancedAllocation))
        self.placed: dict[int, list[str]] = {}
        self.seed = 0

    def happens(self, kind: str, number: int, amount: int) -> None:
        name, cluster = f"n{number}", self.cluster
        if name not in cluster.nodes.rows:
            cluster.add_node(sized(number, amount))
        elif kind in ("placed", "simulated"):
            self.seed += 1
            info = self.harness.info(pod(f"p{self.seed}", cpu=f"{amount * 300}m", memory=f"{number}Mi"))
            cluster.assume(info, name)
            if kind == "placed":
                self.placed.setdefault(number, []).append(info.uid)
        elif kind == "forgotten" and self.placed.get(number):
            cluster.forget(self.placed[number].pop())
        elif kind == "resized":
            cluster.update_node(sized(number, amount))
        elif kind == "removed" and not self.placed.get(number):
            cluster.remove_node(name)

    def compare(self) -> None:
        info = self.harness.info(pod("incoming", cpu="700m", memory="100Mi"))
        single = self.plugin.score_rows(CycleState(), info, NodeRows(self.cluster.nodes, self.rows()))
        assert self.plugin.score(CycleState(), info, self.cluster.all_nodes()).tolist() == single
        some = Nodes(self.cluster.nodes, slice(1, 3))
        assert self.plugin.score(CycleState(), info, some).tolist() == single[1:3]

    def rows(self) -> range:
        return range(len(self.cluster.nodes))


@given(st.booleans(), st.lists(EVENTS, max_size=8))
@settings(max_examples=40)
def test_kept_balances_follow_pods_and_nodes(default: bool, events: list[tuple[str, list[tuple[int, int]]]]) -> None:
    comparison = Comparison(default=default)
    comparison.compare()
    for kind, changes in events:
        if kind == "simulated":
            with comparison.cluster.simulate():
                for number, amount in changes:
                    comparison.happens(kind, number, amount)
                comparison.compare()
        else:
            for number, amount in changes:
                comparison.happens(kind, number, amount)
        comparison.compare()


@pytest.mark.parametrize("default", [True, False])
def test_kept_balances_follow_many_pods_in_a_large_cluster(default: bool) -> None:
    """More than a few rows change, and less than an eighth of all."""
    comparison = Comparison(default=default, count=400)
    comparison.compare()
    for amount in (1, 2):
        for number in range(0, 400, 10):
            comparison.happens("placed", number, amount)
        comparison.compare()
