"""The capacity of nodes for copies of a pod, counted and compared with placing them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.core import Node, Pod
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange
from kubestow.framework.evaluation.feasibility import PodCapacity
from kubestow.scheduling.decision.node_selection import Scope
from kubestow.testing import PluginHarness, node, pod


def capacity(harness: PluginHarness, pending: Pod, most: int = 7) -> PodCapacity | None:
    evaluations = harness.profiles["default-scheduler"].evaluations
    info = harness.info(pending)
    return evaluations.of(info).capacity(info, most)


def tried(harness: PluginHarness, pending: Pod, name: str, most: int) -> int:
    """The number of copies that can be placed on a node one after another."""
    scope, placed = Scope([name], preempts=False), 0
    while placed < most:
        info = harness.info(pod(f"copy-{placed}", cpu=str(pending.spec.containers[0].resources.requests["cpu"])))
        if harness.pipeline.decide_by_plugins(info, scope).node_name is None:
            break
        harness.cluster.assume(info, name)
        placed += 1
    for number in range(placed):
        harness.cluster.forget(f"uid-default-copy-{number}")
    return placed


NODES = st.lists(
    st.builds(
        lambda cpu, pods, taints: {"cpu": cpu, "max_pods": pods, "taints": taints},
        st.sampled_from(("0", "1", "2", "5", "9")),
        st.one_of(st.integers(0, 9), st.just(110)),
        st.sampled_from(((), ("a=b:NoSchedule",))),
    ),
    min_size=1,
    max_size=6,
)


@given(
    shapes=NODES,
    cpu=st.sampled_from(("100m", "500m", "1", "2")),
    there=st.integers(0, 5),
    most=st.sampled_from((1, 3, 7, 20)),
)
def test_counting_agrees_with_placing_one_after_another(
    shapes: list[dict[str, str]], cpu: str, there: int, most: int
) -> None:
    nodes: list[Node] = [node(f"n{number}", **shape) for number, shape in enumerate(shapes)]  # type: ignore[arg-type]
    harness = PluginHarness(nodes, [pod(f"there-{n}", cpu="1", node=f"n{n % len(nodes)}") for n in range(there)])
    pending = pod("pending", cpu=cpu)
    counted = capacity(harness, pending, most)
    assert counted is not None
    names = harness.cluster.nodes.names
    assert counted.on(harness.cluster.all_nodes()).tolist() == [tried(harness, pending, name, most) for name in names]


def test_hypothetical_nodes_are_counted() -> None:
    harness = PluginHarness([node("a", cpu="3"), node("b", cpu="1")], [pod("there", cpu="2", node="a")])
    counted = capacity(harness, pod("pending", cpu="1"))
    (leaving,) = (info for info in harness.cluster.nodes.pods[harness.cluster.nodes.rows["a"]].values())
    rows = np.array([harness.cluster.nodes.rows[name] for name in "ab"], np.intp)
    changes = [NodeChange(removed=(leaving,)), NodeChange()]
    assert counted is not None
    assert counted.on(HypotheticalNodes(harness.cluster.nodes, rows, changes)).tolist() == [3, 1]


def test_pods_with_anti_affinity_to_each_other_are_not_counted() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    harness = PluginHarness([node("a")])
    assert capacity(harness, pod("pending", labels={"app": "x"}, affinity=apart)) is None


def test_a_host_port_limits_the_count_to_one() -> None:
    harness = PluginHarness([node("a")])
    counted = capacity(harness, pod("pending", host_ports=(80,)))
    assert counted is not None and counted.on(harness.cluster.all_nodes()).tolist() == [1]
