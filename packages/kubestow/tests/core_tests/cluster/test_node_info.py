"""One node at a time: the values that kube-scheduler's NodeInfo has, also of hypothetical nodes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.node_info import ImageState, NodeInfos
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange, Nodes
from kubestow.testing import node, pod

GIB = 2**30
GPUS = {"example.com/gpu": "2"}
REQUIRED = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
PREFERRED = {
    "podAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}
        ]
    }
}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_node(node("empty", cpu="2", memory="4Gi", max_pods=10))
    images, gpus = {"nginx:1": 1000, "mirror/nginx:1": 1000}, {"example.com/gpu": "8"}
    cluster.add_node(node("used", cpu="4", memory="8Gi", images=images, allocatable=gpus))
    cluster.put_pod(cluster.shapes.info(pod("plain", node="used", cpu="1500m", memory="1Gi")))
    cluster.put_pod(cluster.shapes.info(pod("ports", node="used", host_ports=[8080], affinity=REQUIRED)))
    cluster.put_pod(cluster.shapes.info(pod("near", node="used", affinity=PREFERRED, requests=GPUS)))
    return cluster


def test_amounts_are_whole_numbers_of_millicores_bytes_and_counts(cluster: Cluster) -> None:
    empty, used = NodeInfos(cluster.all_nodes())
    assert (empty.name, empty.node.metadata.name) == ("empty", "empty")
    assert (empty.allocatable.milli_cpu, empty.allocatable.memory) == (2000, 4 * GIB)
    assert empty.allocatable.allowed_pod_number == 10
    assert (used.requested.milli_cpu, used.requested.memory) == (1500, GIB)
    assert used.nonzero_requested.milli_cpu == 1500 + 2 * 100
    assert used.nonzero_requested.memory == GIB + 2 * 200 * 2**20
    assert used.allocatable.scalar_resources == {"example.com/gpu": 8}
    assert used.requested["example.com/gpu"] == 2
    assert used.requested["example.com/none"] == used.nonzero_requested["example.com/gpu"] == 0
    assert all(type(amount) is int for amount in used.allocatable.values())


def test_pods_ports_and_images_are_those_of_the_node(cluster: Cluster) -> None:
    empty, used = NodeInfos(cluster.all_nodes())
    assert [info.name for info in used.pods] == ["plain", "ports", "near"]
    assert [info.name for info in used.pods_with_affinity] == ["ports", "near"]
    assert [info.name for info in used.pods_with_required_anti_affinity] == ["ports"]
    assert [port.port for port in used.used_ports] == [8080]
    assert used.image_states == {"nginx:1": ImageState(1000, 1), "mirror/nginx:1": ImageState(1000, 1)}
    assert not empty.pods and not empty.used_ports and not empty.image_states


def test_a_hypothetical_node_has_the_values_after_its_change(cluster: Cluster) -> None:
    row = cluster.nodes.rows["used"]
    pods = {info.name: info for info in cluster.nodes.pods[row].values()}
    change = NodeChange(removed=(pods["ports"], pods["plain"]))
    (info,) = NodeInfos(HypotheticalNodes(cluster.nodes, np.array([row]), [change]))
    assert [one.name for one in info.pods] == ["near"]
    assert info.requested.milli_cpu == 0 and info.nonzero_requested.milli_cpu == 100
    assert not info.used_ports and not info.pods_with_required_anti_affinity


def test_each_column_is_read_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    requested = Nodes.requested

    def counted(self: Nodes, resource: str) -> NDArray[np.int64]:
        reads.append(resource)
        return requested(self, resource)

    monkeypatch.setattr(Nodes, "requested", counted)
    assert sum(info.requested.milli_cpu for info in NodeInfos(cluster.all_nodes())) == 1500
    assert reads == ["cpu"]
