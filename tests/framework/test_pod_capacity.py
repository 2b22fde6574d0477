"""The capacity of nodes for copies of a pod, counted and compared with placing them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.core import Node, Pod
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange
from kubestow.framework.evaluation.pod_capacity import PodCapacity
from kubestow.scheduling.decision.scope import Scope
from kubestow.testing import World, node, pod

MOST = 7


def capacity(world: World, pending: Pod) -> PodCapacity | None:
    evaluations = world.profiles["default-scheduler"].evaluations
    return PodCapacity.of(world.cluster, evaluations, world.info(pending), MOST)


def tried(world: World, pending: Pod, name: str) -> int:
    """The number of copies that can be placed on a node one after another."""
    scope, placed = Scope([name], preempts=False), 0
    while placed < MOST:
        info = world.info(pod(f"copy-{placed}", cpu=str(pending.spec.containers[0].resources.requests["cpu"])))
        if world.pipeline.decide(info, scope).node_name is None:
            break
        world.cluster.assume(info, name)
        placed += 1
    for number in range(placed):
        world.cluster.forget(f"uid-default-copy-{number}")
    return placed


NODES = st.lists(
    st.builds(
        lambda cpu, pods, taints: {"cpu": cpu, "max_pods": pods, "taints": taints},
        st.sampled_from(("0", "1", "2", "5", "9")),
        st.integers(0, 9),
        st.sampled_from(((), ("a=b:NoSchedule",))),
    ),
    min_size=1,
    max_size=6,
)


@given(shapes=NODES, cpu=st.sampled_from(("100m", "500m", "1", "2")), there=st.integers(0, 5))
def test_counting_agrees_with_placing_one_after_another(shapes: list[dict[str, str]], cpu: str, there: int) -> None:
    nodes: list[Node] = [node(f"n{number}", **shape) for number, shape in enumerate(shapes)]  # type: ignore[arg-type]
    world = World(nodes, [pod(f"there-{n}", cpu="1", node=f"n{n % len(nodes)}") for n in range(there)])
    pending = pod("pending", cpu=cpu)
    counted = capacity(world, pending)
    assert counted is not None
    names = world.cluster.nodes.names
    assert counted.on(world.cluster.all_nodes()).tolist() == [tried(world, pending, name) for name in names]


def test_hypothetical_nodes_are_counted() -> None:
    world = World([node("a", cpu="3"), node("b", cpu="1")], [pod("there", cpu="2", node="a")])
    counted = capacity(world, pod("pending", cpu="1"))
    (leaving,) = (info for info in world.cluster.nodes.pods[world.cluster.nodes.rows["a"]].values())
    rows = np.array([world.cluster.nodes.rows[name] for name in "ab"], np.intp)
    changes = [NodeChange(removed=(leaving,)), NodeChange()]
    assert counted is not None
    assert counted.on(HypotheticalNodes(world.cluster.nodes, rows, changes)).tolist() == [3, 1]


def test_pods_with_anti_affinity_to_each_other_are_not_counted() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    world = World([node("a")])
    assert capacity(world, pod("pending", labels={"app": "x"}, affinity=apart)) is None


def test_a_host_port_limits_the_count_to_one() -> None:
    world = World([node("a")])
    counted = capacity(world, pod("pending", host_ports=(80,)))
    assert counted is not None and counted.on(world.cluster.all_nodes()).tolist() == [1]
