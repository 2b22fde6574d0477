"""Filtering by legacy disks and ReadWriteOncePod claims in use (semantics 8.11)."""

from __future__ import annotations

import numpy as np
import pytest

from core_tests.plugins.volumes import plugin_harness, put
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange
from kubestow.testing import PluginHarness, node, pod
from kubestow.testing.storage import claim, mounting, storage_class, volume

NAME = "VolumeRestrictions"
DISK_CONFLICT = (NAME, ("node(s) had no available disk",))
READ_WRITE_ONCE_POD_CONFLICT = (
    NAME,
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod",
    ),
)
GCE = {"gcePersistentDisk": {"pdName": "disk"}}
GCE_READ_ONLY = {"gcePersistentDisk": {"pdName": "disk", "readOnly": True}}
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": True}}
ISCSI = {"iscsi": {"iqn": "iqn.2026-01", "readOnly": False}}
RBD = {"rbd": {"monitors": ["a", "b"], "pool": "p", "image": "i"}}
RBD_WITH_OTHER_MONITORS = {"rbd": {"monitors": ["c"], "pool": "p", "image": "i"}}

READ_WRITE_ONCE_POD = ("ReadWriteOncePod",)


@pytest.mark.parametrize("disk", [GCE, EBS, ISCSI, RBD])
def test_two_pods_cannot_mount_one_disk_on_one_node(disk: dict[str, object]) -> None:
    harness = plugin_harness(node("a"), node("b"), pod("first", node="a", spec=mounting(inline=[disk])))
    assert harness.rejections(pod("second", spec=mounting(inline=[disk]))) == {"a": DISK_CONFLICT}


def test_disks_that_all_pods_mount_read_only_are_shared() -> None:
    harness = plugin_harness(node("a"), pod("first", node="a", spec=mounting(inline=[GCE_READ_ONLY])))
    assert harness.feasible(pod("second", spec=mounting(inline=[GCE_READ_ONLY]))) == {"a"}
    assert harness.rejections(pod("third", spec=mounting(inline=[GCE]))) == {"a": DISK_CONFLICT}


def test_rbd_images_with_other_monitors_do_not_conflict() -> None:
    harness = plugin_harness(node("a"), pod("first", node="a", spec=mounting(inline=[RBD])))
    assert harness.feasible(pod("second", spec=mounting(inline=[RBD_WITH_OTHER_MONITORS]))) == {"a"}


def test_a_disk_is_available_after_its_pod_is_deleted() -> None:
    harness = plugin_harness(node("a"), pod("first", node="a", spec=mounting(inline=[GCE])))
    second = pod("second", spec=mounting(inline=[GCE]))
    assert harness.feasible(second) == set()
    harness.cluster.remove_pod("uid-default-first")
    assert harness.feasible(second) == {"a"}


def harness_with_claim_in_use() -> PluginHarness:
    """Two nodes, and a pod on the first with a ReadWriteOncePod claim."""
    return plugin_harness(
        node("a"),
        node("b"),
        claim("data", volume="pv", modes=READ_WRITE_ONCE_POD),
        volume("pv", claim="data"),
        pod("first", node="a", spec=mounting("data")),
    )


def test_a_read_write_once_pod_claim_in_use_conflicts_on_all_nodes() -> None:
    assert harness_with_claim_in_use().rejections(pod("second", spec=mounting("data"))) == {
        "a": READ_WRITE_ONCE_POD_CONFLICT,
        "b": READ_WRITE_ONCE_POD_CONFLICT,
    }


def test_a_read_write_once_pod_claim_is_available_after_its_pod_is_deleted() -> None:
    harness = harness_with_claim_in_use()
    second = pod("second", spec=mounting("data"))
    assert harness.feasible(second) == set()
    harness.cluster.remove_pod("uid-default-first")
    assert harness.feasible(second) == {"a", "b"}


def test_claims_with_the_same_name_in_other_namespaces_do_not_conflict() -> None:
    harness = harness_with_claim_in_use()
    put(harness, claim("data", namespace="other", volume="pv2", modes=READ_WRITE_ONCE_POD), volume("pv2"))
    assert harness.feasible(pod("second", namespace="other", spec=mounting("data"))) == {"a", "b"}


def test_simulated_removals_match_claims_by_name_across_namespaces() -> None:
    harness = harness_with_claim_in_use()
    put(harness, pod("same-name", namespace="other", node="b", spec=mounting("data")))
    decision = harness.decide(pod("second", spec=mounting("data")))
    users = [harness.cluster.placed_pod(uid) for uid in ("uid-default-first", "uid-other-same-name")]
    changes = [NodeChange(removed=(user.info,)) for user in users if user is not None]
    nodes = HypotheticalNodes(harness.cluster.nodes, np.array([0, 1]), changes)
    assert decision.feasibility is not None
    assert [r.plugin for r in decision.feasibility.filters.rejections(nodes) if r.plugin == NAME] == []


def test_a_pod_is_unschedulable_until_its_claim_exists() -> None:
    harness = plugin_harness(node("a"), storage_class("slow", provisioner="csi.example.com"))
    waiting = pod("waiting", spec=mounting("data"))
    assert harness.decide(waiting).message.startswith(
        '0/1 nodes are available: persistentvolumeclaim "data" not found.'
    )
    put(harness, claim("data"))
    assert harness.feasible(waiting) == {"a"}


def test_hints_requeue_pods_that_share_a_volume() -> None:
    harness = harness_with_claim_in_use()
    plugin = next(p for p in harness.profiles["default-scheduler"].plugins if p.name == NAME)
    hints = {registration.event.label: registration.hint for registration in plugin.events_to_register}
    after_pod_deleted, after_claim_added = hints["PodDelete"], hints["PersistentVolumeClaimAdd"]
    assert after_pod_deleted is not None and after_claim_added is not None
    rejected = harness.info(pod("second", spec=mounting("data", inline=[GCE])))
    assert after_pod_deleted(rejected, harness.info(pod("x", node="a", spec=mounting("data"))), None)
    assert after_pod_deleted(rejected, harness.info(pod("x", node="a", spec=mounting(inline=[GCE_READ_ONLY]))), None)
    assert not after_pod_deleted(rejected, harness.info(pod("x", node="a", spec=mounting("other", inline=[EBS]))), None)
    assert not after_pod_deleted(rejected, harness.info(pod("x", namespace="y", node="a", spec=mounting("data"))), None)
    assert after_claim_added(rejected, None, claim("data")) and not after_claim_added(rejected, None, claim("other"))
