"""The claims and disks in use are those of the placed pods."""

from __future__ import annotations

from kubestow.cluster.cache import Cluster
from kubestow.cluster.storage.pod_volumes import disks_of
from kubestow.testing import node, pod
from kubestow.testing.storage import mounting

DISK = {"gcePersistentDisk": {"pdName": "d"}}


def test_a_claim_is_used_as_long_as_a_placed_pod_names_it() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    in_use = cluster.volumes.in_use
    for name in "ab":
        spec = mounting("data", ephemeral=["scratch"], inline=[{"emptyDir": {}}])
        cluster.put_pod(cluster.shapes.info(pod(name, node="n", spec=spec)))
    assert in_use.is_claim_used("default", "data")
    assert not in_use.is_claim_used("other", "data")
    assert not in_use.is_claim_used("default", "a-scratch")
    cluster.remove_pod("uid-default-a")
    assert in_use.is_claim_used("default", "data")
    cluster.remove_pod("uid-default-b")
    assert not in_use.is_claim_used("default", "data")


def test_a_disk_is_in_use_where_a_placed_pod_mounts_it() -> None:
    cluster = Cluster()
    for name in "nm":
        cluster.add_node(node(name))
    info = cluster.shapes.info(pod("a", node="n", spec=mounting(inline=[DISK])))
    wanted = disks_of(info.shape)
    cluster.put_pod(info)
    assert cluster.volumes.in_use.conflicts(cluster.all_nodes(), wanted).tolist() == [True, False]
    cluster.remove_pod(info.uid)
    assert cluster.volumes.in_use.conflicts(cluster.all_nodes(), wanted).tolist() == [False, False]
