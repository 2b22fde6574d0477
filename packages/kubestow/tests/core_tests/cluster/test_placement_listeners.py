"""Listeners to placements."""

from __future__ import annotations

import gc

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.testing import node, pod


class Names:
    """The names of the pods on each node, by row."""

    def __init__(self, cluster: Cluster) -> None:
        self.pods: list[tuple[str, str]] = []
        self._cluster = cluster
        cluster.listen_to_placements(self)

    def pod_added(self, row: int, info: PodInfo) -> None:
        self.pods.append((self._cluster.nodes.names[row], info.name))

    def pod_removed(self, row: int, info: PodInfo) -> None:
        self.pods.remove((self._cluster.nodes.names[row], info.name))


def placed(cluster: Cluster, name: str, node_name: str) -> PodInfo:
    info = cluster.shapes.info(pod(name, node=node_name))
    cluster.put_pod(info)
    return info


def test_a_listener_hears_of_pods_before_and_after() -> None:
    cluster = Cluster()
    cluster.add_node(node("a"))
    first = placed(cluster, "first", "a")
    names = Names(cluster)
    cluster.assume(cluster.shapes.info(pod("second")), "a")
    placed(cluster, "elsewhere", "b")
    assert names.pods == [("a", "first"), ("a", "second")]
    cluster.remove_pod(first.uid)
    cluster.add_node(node("b"))
    assert names.pods == [("a", "second"), ("b", "elsewhere")]
    cluster.remove_node("a")
    assert names.pods == [("b", "elsewhere")]


def test_a_simulation_is_undone() -> None:
    cluster = Cluster()
    cluster.add_node(node("a"))
    first = placed(cluster, "first", "a")
    names = Names(cluster)
    with cluster.simulate() as simulation:
        simulation.remove_pod(first.uid)
        cluster.assume(cluster.shapes.info(pod("second")), "a")
        assert names.pods == [("a", "second")]
    assert names.pods == [("a", "first")]


def test_a_listener_is_dropped_with_its_last_reference() -> None:
    cluster = Cluster()
    cluster.add_node(node("a"))
    names = Names(cluster)
    heard = names.pods
    del names
    gc.collect()
    placed(cluster, "first", "a")
    assert heard == []
