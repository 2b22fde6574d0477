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


class ObservedPods:
    """The pods that exist."""

    def __init__(self) -> None:
        self.uids: list[str] = []

    def pod_observed(self, info: PodInfo) -> None:
        self.uids.append(info.uid)

    def pod_ended(self, uid: str) -> None:
        self.uids.remove(uid)


def test_a_listener_to_pods_hears_of_all_of_them_until_it_is_dropped() -> None:
    cluster = Cluster()
    dropped, kept = ObservedPods(), ObservedPods()
    cluster.listen_to_pods(dropped)
    cluster.listen_to_pods(kept)
    info = cluster.shapes.info(pod("pending"))
    cluster.observe_pod(info)
    heard = dropped.uids
    assert heard == kept.uids == [info.uid]
    del dropped
    gc.collect()
    cluster.end_pod(info.uid)
    cluster.observe_pod(cluster.shapes.info(pod("next")))
    assert (heard, kept.uids) == ([info.uid], ["uid-default-next"])


def test_a_listener_is_dropped_with_its_last_reference() -> None:
    cluster = Cluster()
    cluster.add_node(node("a"))
    names = Names(cluster)
    heard = names.pods
    del names
    gc.collect()
    placed(cluster, "first", "a")
    assert heard == []
