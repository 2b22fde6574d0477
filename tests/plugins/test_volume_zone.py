"""VolumeZone: pods stay in the zones and regions of their volumes."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.cluster.events import EventResource
from kubestow.testing import World, node, pod
from kubestow.testing.storage import claim, mounting, storage_class, volume
from tests.plugins.volumes import put, world

NAME = "VolumeZone"
WRONG_ZONE = (NAME, ("node(s) had no available volume zone",))
ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
ALONE = {"plugins": {"multiPoint": {"disabled": [{"name": "VolumeRestrictions"}, {"name": "VolumeBinding"}]}}}
PROBE = pod("p", spec=mounting("data"))


def zoned(*labels: tuple[str, str]) -> World:
    """Nodes in two zones and one in none, and a volume with labels."""
    return world(
        node("a", zone="a"),
        node("b", zone="b"),
        node("nowhere"),
        claim("data", volume="pv"),
        volume("pv", claim="data", labels=dict(labels)),
    )


def test_a_pod_follows_its_volume_and_unlabelled_nodes_take_all() -> None:
    assert zoned((ZONE, "a")).refusals(PROBE) == {"b": WRONG_ZONE}


def test_a_volume_may_be_in_several_zones() -> None:
    assert zoned((ZONE, "a__b")).feasible(PROBE) == {"a", "b", "nowhere"}


def test_a_volume_without_topology_goes_anywhere() -> None:
    assert zoned().feasible(PROBE) == {"a", "b", "nowhere"}


def test_a_volumes_older_label_finds_nodes_with_only_the_newer_one() -> None:
    assert zoned((BETA_ZONE, "b")).refusals(PROBE) == {"a": WRONG_ZONE}


def test_a_label_that_cannot_be_read_does_not_count() -> None:
    assert zoned((ZONE, "a__")).feasible(PROBE) == {"a", "b", "nowhere"}


def test_a_node_that_moves_is_judged_anew() -> None:
    there = zoned((ZONE, "a"))
    assert there.feasible(PROBE) == {"a", "nowhere"}
    there.cluster.update_node(node("b", zone="a"))
    assert there.feasible(PROBE) == {"a", "b", "nowhere"}


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([claim("data", volume="gone")], 'persistentvolume "gone" not found'),
        ([claim("data", storage_class="")], "PersistentVolumeClaim had no pv name and storageClass name"),
        ([claim("data")], 'storageclass.storage.k8s.io "slow" not found'),
        ([claim("data"), storage_class(waits=None)], 'VolumeBindingMode not set for StorageClass "slow"'),
        ([claim("data"), storage_class(waits=False)], "PersistentVolume had no name"),
    ],
)
def test_what_is_missing_is_named(objects: list[Any], reason: str) -> None:
    there = world(node("a", zone="a"), *objects, profile=ALONE)
    assert there.decide(PROBE).message.startswith(f"0/1 nodes are available: {reason}.")


def test_an_unbound_claim_that_waits_for_the_node_says_nothing() -> None:
    there = world(node("a", zone="a"), claim("data"), storage_class(), profile=ALONE)
    assert there.feasible(PROBE) == {"a"}


def test_a_claim_without_a_name_is_refused() -> None:
    there = world(node("a", zone="a"), profile=ALONE)
    assert "PersistentVolumeClaim had no name" in there.decide(pod("p", spec=mounting(""))).message


def test_the_filter_finds_out_for_itself_when_its_pre_filter_is_disabled() -> None:
    plugins = {"preFilter": {"disabled": [{"name": NAME}]}, "multiPoint": {"disabled": [{"name": "VolumeBinding"}]}}
    there = world(
        node("a", zone="a"),
        node("b", zone="b"),
        claim("data", volume="pv"),
        volume("pv", claim="data", labels={ZONE: "a"}),
        claim("lost", volume="gone"),
        claim("plain", volume="plain"),
        volume("plain"),
        profile={"plugins": plugins},
    )
    assert there.refusals(PROBE) == {"b": WRONG_ZONE}
    gone = (NAME, ('persistentvolume "gone" not found',))
    assert there.refusals(pod("q", spec=mounting("lost"))) == {"a": gone, "b": gone}
    assert there.feasible(pod("r", spec=mounting("plain"))) == {"a", "b"}


def test_hints() -> None:
    there = zoned()
    plugin = next(p for p in there.profiles["default-scheduler"].plugins if p.name == NAME)
    hints: dict[str, Any] = {
        EventResource(interest.event.resource).name: interest.hint for interest in plugin.events_to_register
    }
    wanting = there.info(PROBE)
    assert hints["STORAGE_CLASS"](wanting, None, storage_class())
    assert not hints["STORAGE_CLASS"](wanting, None, storage_class(waits=False))
    assert hints["PERSISTENT_VOLUME_CLAIM"](wanting, None, claim("data"))
    assert not hints["PERSISTENT_VOLUME_CLAIM"](wanting, None, claim("other"))
    assert hints["PERSISTENT_VOLUME"](wanting, None, volume())
    assert hints["PERSISTENT_VOLUME"](wanting, volume(), volume(labels={ZONE: "a"}))
    assert not hints["PERSISTENT_VOLUME"](wanting, volume(), volume(labels={"other": "a"}))


def test_volumes_that_come_later_are_seen() -> None:
    there = zoned((ZONE, "a"))
    assert there.feasible(PROBE) == {"a", "nowhere"}
    put(there, volume("pv", claim="data", labels={ZONE: "b"}))
    assert there.feasible(PROBE) == {"b", "nowhere"}
