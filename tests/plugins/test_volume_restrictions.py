"""VolumeRestrictions: legacy disks and claims that only one pod at a time may use."""

from __future__ import annotations

import numpy as np
import pytest

from kubestow.cluster.nodes.views import Change, HypotheticalNodes
from kubestow.testing import World, node, pod
from kubestow.testing.storage import claim, mounting, storage_class, volume
from tests.plugins.volumes import put, world

NAME = "VolumeRestrictions"
NO_DISK = (NAME, ("node(s) had no available disk",))
CLAIM_TAKEN = (
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
RBD_ELSEWHERE = {"rbd": {"monitors": ["c"], "pool": "p", "image": "i"}}

EXCLUSIVE = ("ReadWriteOncePod",)


@pytest.mark.parametrize("disk", [GCE, EBS, ISCSI, RBD])
def test_two_pods_cannot_mount_one_disk_on_one_node(disk: dict[str, object]) -> None:
    there = world(node("a"), node("b"), pod("first", node="a", spec=mounting(inline=[disk])))
    assert there.refusals(pod("second", spec=mounting(inline=[disk]))) == {"a": NO_DISK}


def test_disks_that_everybody_mounts_read_only_are_shared() -> None:
    there = world(node("a"), pod("first", node="a", spec=mounting(inline=[GCE_READ_ONLY])))
    assert there.feasible(pod("second", spec=mounting(inline=[GCE_READ_ONLY]))) == {"a"}
    assert there.refusals(pod("third", spec=mounting(inline=[GCE]))) == {"a": NO_DISK}


def test_rbd_images_of_other_monitors_are_other_disks() -> None:
    there = world(node("a"), pod("first", node="a", spec=mounting(inline=[RBD])))
    assert there.feasible(pod("second", spec=mounting(inline=[RBD_ELSEWHERE]))) == {"a"}


def test_a_disk_is_free_again_when_its_pod_goes() -> None:
    there = world(node("a"), pod("first", node="a", spec=mounting(inline=[GCE])))
    second = pod("second", spec=mounting(inline=[GCE]))
    assert there.feasible(second) == set()
    there.cluster.remove_pod("uid-default-first")
    assert there.feasible(second) == {"a"}


def exclusive_claim() -> World:
    return world(
        node("a"),
        node("b"),
        claim("data", volume="pv", modes=EXCLUSIVE),
        volume("pv", claim="data"),
        pod("first", node="a", spec=mounting("data")),
    )


def test_an_exclusive_claim_in_use_is_refused_on_every_node() -> None:
    assert exclusive_claim().refusals(pod("second", spec=mounting("data"))) == {"a": CLAIM_TAKEN, "b": CLAIM_TAKEN}


def test_an_exclusive_claim_is_free_again_when_its_pod_goes() -> None:
    there = exclusive_claim()
    second = pod("second", spec=mounting("data"))
    assert there.feasible(second) == set()
    there.cluster.remove_pod("uid-default-first")
    assert there.feasible(second) == {"a", "b"}


def test_another_namespaces_claim_of_the_same_name_is_another_claim() -> None:
    there = exclusive_claim()
    put(there, claim("data", namespace="other", volume="pv2", modes=EXCLUSIVE), volume("pv2"))
    assert there.feasible(pod("second", namespace="other", spec=mounting("data"))) == {"a", "b"}


def test_without_its_user_a_node_would_take_the_pod_even_if_only_the_claims_name_agrees() -> None:
    there = exclusive_claim()
    put(there, pod("namesake", namespace="other", node="b", spec=mounting("data")))
    decision = there.decide(pod("second", spec=mounting("data")))
    users = [there.cluster.placed_pod(uid) for uid in ("uid-default-first", "uid-other-namesake")]
    changes = [Change(removed=(user.info,)) for user in users if user is not None]
    nodes = HypotheticalNodes(there.cluster.nodes, np.array([0, 1]), changes)
    assert decision.feasibility is not None
    assert [r.plugin for r in decision.feasibility.filters.refusals(nodes) if r.plugin == NAME] == []


def test_a_pod_waits_for_its_claim_to_be_created() -> None:
    there = world(node("a"), storage_class("slow", provisioner="csi.example.com"))
    waiting = pod("waiting", spec=mounting("data"))
    assert there.decide(waiting).message.startswith('0/1 nodes are available: persistentvolumeclaim "data" not found.')
    put(there, claim("data"))
    assert there.feasible(waiting) == {"a"}


def test_hints_wake_only_those_who_share_a_volume() -> None:
    there = exclusive_claim()
    plugin = next(p for p in there.profiles["default-scheduler"].plugins if p.name == NAME)
    hints = {interest.event.label: interest.hint for interest in plugin.events_to_register}
    freed, added = hints["PodDelete"], hints["PersistentVolumeClaimAdd"]
    assert freed is not None and added is not None
    wanting = there.info(pod("second", spec=mounting("data", inline=[GCE])))
    assert freed(wanting, there.info(pod("x", node="a", spec=mounting("data"))), None)
    assert freed(wanting, there.info(pod("x", node="a", spec=mounting(inline=[GCE_READ_ONLY]))), None)
    assert not freed(wanting, there.info(pod("x", node="a", spec=mounting("other", inline=[EBS]))), None)
    assert not freed(wanting, there.info(pod("x", namespace="y", node="a", spec=mounting("data"))), None)
    assert added(wanting, None, claim("data")) and not added(wanting, None, claim("other"))
