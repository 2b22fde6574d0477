"""What CSINodes say about the nodes of the same name: limits, drivers and migrated plugins."""

from __future__ import annotations

import pytest

from kubestow.api.storage import CSINode, VolumeAttachment
from kubestow.cluster.cache import Cluster
from kubestow.cluster.storage.csi import AWS_EBS, GCE_PD, PORTWORX, UNLIMITED, CSINodes
from kubestow.rules.minors import Behaviour, Minor
from kubestow.testing import node
from kubestow.testing.storage import DRIVER, attachment, csi_node, volume

ALLOCATABLE_COUNTS = Minor(Behaviour.VOLUME_LIMITS_ARE_THOSE_OF_CSI_NODES.value.since - 1)
PORTWORX_IF_LISTED = Minor(Behaviour.PORTWORX_MIGRATES_EVERYWHERE.value.since - 1)


def csi_nodes_of(cluster: Cluster, minor: Minor) -> CSINodes:
    """Those of a minor version, of nodes that exist already."""
    found = CSINodes(cluster.nodes, cluster.catalog(CSINode), minor)
    for row in range(len(cluster.nodes)):
        found.refresh(row)
    return found


@pytest.mark.parametrize("node_first", [True, False])
def test_a_csi_node_counts_whether_it_was_created_before_its_node_or_after_it(node_first: bool) -> None:
    cluster = Cluster()
    cluster.add_node(node("other"))
    found = cluster.volumes.csi_nodes
    assert (found.limit(DRIVER).tolist(), found.installed(DRIVER).tolist()) == ([UNLIMITED], [False])
    if node_first:
        cluster.add_node(node("n"))
    cluster.catalog(CSINode).put(csi_node("n", csi_example_com=3, other_com=None, migrated=[AWS_EBS.name]))
    if not node_first:
        cluster.add_node(node("n"))
    assert found.present.tolist() == [False, True]
    assert found.limited.tolist() == [False, True]
    assert found.limit(DRIVER).tolist() == [UNLIMITED, 3]
    assert found.limit("other.com").tolist() == [UNLIMITED, UNLIMITED]
    assert found.installed("other.com").tolist() == [False, True]
    assert found.migrated(AWS_EBS.name).tolist() == [False, True]
    assert found.migrated(GCE_PD.name).tolist() == [False, False]
    cluster.catalog(CSINode).remove("", "n")
    assert (found.present.any(), found.limited.any(), found.installed(DRIVER).any()) == (False, False, False)
    assert found.limit(DRIVER).tolist() == [UNLIMITED, UNLIMITED]


def test_a_driver_without_a_limit_does_not_limit_its_node() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    cluster.catalog(CSINode).put(csi_node("n", csi_example_com=None))
    assert (cluster.volumes.csi_nodes.present.all(), cluster.volumes.csi_nodes.limited.any()) == (True, False)


def test_attachments_that_exist_before_their_node_are_counted_on_it() -> None:
    cluster = Cluster()
    attached = cluster.volumes.attached
    attached.count(cluster.all_nodes(), DRIVER)
    cluster.catalog(type(volume())).put(volume())
    cluster.catalog(VolumeAttachment).put(attachment("a", node="n", volume="pv"))
    cluster.add_node(node("n"))
    assert attached.count(cluster.all_nodes(), DRIVER).tolist() == [1]


def test_former_versions_read_limits_from_the_node_too() -> None:
    long_driver = "a-driver-with-a-long-name.storage.example.com"
    limits = {
        f"attachable-volumes-csi-{DRIVER}": "5",
        "attachable-volumes-csi-a-driver-with-a-long-na3268a905be10b58d": "7",  # the end is a SHA-1
    }
    cluster = Cluster()
    cluster.add_node(node("n", allocatable=limits))
    former = csi_nodes_of(cluster, ALLOCATABLE_COUNTS)
    assert former.limited.tolist() == [True]
    assert former.limit(DRIVER).tolist() == [5]
    assert former.limit(long_driver).tolist() == [7]
    assert former.limit("other.com").tolist() == [UNLIMITED]
    cluster.catalog(CSINode).put(csi_node("n", csi_example_com=3))
    former.refresh(0)
    assert former.limit(DRIVER).tolist() == [3]
    cluster.update_node(node("n", allocatable={"attachable-volumes-csi-other.com": "9"}))
    former.node_changed(0)
    assert former.limit("other.com").tolist() == [9]
    now = csi_nodes_of(cluster, Minor(ALLOCATABLE_COUNTS.number + 1))
    assert now.limit("other.com").tolist() == [UNLIMITED]


def test_in_tree_volumes_count_as_csi_with_a_csi_node_and_portworx_formerly_if_listed() -> None:
    cluster = Cluster()
    for name in ("bare", "plain", "listed"):
        cluster.add_node(node(name))
    cluster.catalog(CSINode).put(csi_node("plain"))
    cluster.catalog(CSINode).put(csi_node("listed", migrated=[AWS_EBS.name, PORTWORX.name]))
    former, now = (csi_nodes_of(cluster, minor) for minor in (PORTWORX_IF_LISTED, Minor(PORTWORX_IF_LISTED.number + 1)))
    assert now.counts_as_csi(PORTWORX).tolist() == [False, True, True]
    assert former.counts_as_csi(PORTWORX).tolist() == [False, False, True]
    assert former.counts_as_csi(AWS_EBS).tolist() == [False, True, True]
