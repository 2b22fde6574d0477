"""VolumeBinding's filter: bound volumes, free volumes, volumes to be provided."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubestow.api.meta import LabelSelector, convert
from kubestow.cluster.events import EventResource
from kubestow.plugins.volume_binding.finder import PodVolumeClaims, find_pod_volumes
from kubestow.testing import World, node, pod
from kubestow.testing.storage import (
    DRIVER,
    capacity,
    claim,
    csi_driver,
    csi_node,
    ephemeral_claim,
    mounting,
    storage_class,
    volume,
)
from tests.plugins.volumes import put, world

NAME = "VolumeBinding"
OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
NONE_FREE = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
NO_SUCH_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
PROBE = pod("p", spec=mounting("data"))
ALONE = {"plugins": {"multiPoint": {"disabled": [{"name": "VolumeRestrictions"}, {"name": "VolumeZone"}]}}}


def zones(*objects: Any, **kwargs: Any) -> World:
    """Nodes a and b in zones a and b."""
    return world(node("a", zone="a"), node("b", zone="b"), *objects, **kwargs)


def refused(*reasons: str) -> tuple[str, tuple[str, ...]]:
    return NAME, reasons


# -- bound claims --------------------------------------------------------------------------------------------------


def test_a_bound_volume_keeps_the_pod_where_it_can_be_reached() -> None:
    there = zones(claim(volume="pv"), volume("pv", claim="data", zone="a"))
    assert there.refusals(PROBE) == {"b": refused(OUT_OF_REACH)}


def test_a_volume_that_is_gone_is_refused_everywhere() -> None:
    there = zones(claim(volume="pv"), profile=ALONE)
    assert there.refusals(PROBE) == {"a": refused(NO_SUCH_VOLUME), "b": refused(NO_SUCH_VOLUME)}


def test_the_first_claim_that_does_not_fit_gives_the_reason() -> None:
    there = zones(claim(volume="pv"), volume("pv", claim="data", zone="a"), claim("more", volume="gone"), profile=ALONE)
    both = pod("p", spec=mounting("data", "more"))
    assert there.refusals(both) == {"a": refused(NO_SUCH_VOLUME), "b": refused(OUT_OF_REACH)}


def test_an_affinity_that_cannot_be_read_reaches_no_node() -> None:
    odd = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}}
    there = zones(claim(volume="pv"), volume("pv", claim="data", spec={"nodeAffinity": odd}))
    assert there.refusals(PROBE) == {"a": refused(OUT_OF_REACH), "b": refused(OUT_OF_REACH)}


def test_an_affinity_never_finds_nodes_by_name() -> None:
    named = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": named}}}
    there = zones(claim(volume="pv"), volume("pv", claim="data", spec=spec))
    assert there.feasible(PROBE) == set()


def test_a_migrated_in_tree_volume_follows_the_drivers_own_zone_label() -> None:
    disk = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    there = world(
        node("a", zone="a", labels={"topology.ebs.csi.aws.com/zone": "elsewhere"}),
        node("b", zone="a"),
        csi_node("a", migrated=["kubernetes.io/aws-ebs"]),
        claim(volume="pv"),
        volume("pv", claim="data", zone="a", source=disk),
    )
    assert there.refusals(PROBE) == {"a": refused(OUT_OF_REACH)}


def test_an_in_tree_volume_that_cannot_be_translated_is_an_error() -> None:
    disk = {"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}}
    there = zones(
        csi_node("a", migrated=["kubernetes.io/aws-ebs"]), claim(volume="pv"), volume("pv", claim="data", source=disk)
    )
    assert there.decide(PROBE).message.startswith('running "VolumeBinding" filter plugin: could not translate pv')


# -- free volumes --------------------------------------------------------------------------------------------------


def test_a_waiting_claim_needs_a_free_volume_in_reach() -> None:
    there = zones(storage_class(), claim(), volume("pv", zone="a"))
    assert there.refusals(PROBE) == {"b": refused(NONE_FREE)}


@pytest.mark.parametrize(
    "unsuitable",
    [
        volume("pv", size="1Mi"),
        volume("pv", size="-1Gi"),
        volume("pv", size="much"),
        volume("pv", phase="Pending"),
        volume("pv", storage_class="fast"),
        volume("pv", modes=["ReadOnlyMany"]),
        volume("pv", claim="other"),
        volume("pv", claim="data", claim_uid="of-another-claim"),
        volume("pv", spec={"volumeMode": "Block"}),
        volume("pv", spec={"volumeAttributesClassName": "gold"}),
        volume("pv", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
)
def test_unsuitable_volumes_are_not_free_for_the_claim(unsuitable: Any) -> None:
    assert zones(storage_class(), claim(), unsuitable).feasible(PROBE) == set()


def test_a_claim_may_select_volumes_by_label() -> None:
    there = zones(
        storage_class(),
        claim(selector={"matchLabels": {"tier": "gold"}}),
        volume("pv-1", zone="a"),
        volume("pv-2", zone="b", labels={"tier": "gold"}),
    )
    assert there.feasible(PROBE) == {"b"}


def test_a_selector_that_cannot_be_read_is_the_pods_own_error() -> None:
    odd = {"matchExpressions": [{"key": "tier", "operator": "Near"}]}
    there = zones(storage_class(), claim(selector=odd), claim("fine"), volume("pv"))
    message = there.decide(PROBE).message
    assert 'claim "default/data"' in message and "Near" in message
    assert there.feasible(pod("q", spec=mounting("fine"))) == {"a", "b"}


def test_a_size_that_cannot_be_read_is_the_pods_own_error() -> None:
    there = zones(storage_class(), claim(size="big"), volume("pv"))
    assert 'claim "default/data"' in there.decide(PROBE).message


def test_a_volume_reserved_for_the_claim_decides_alone() -> None:
    there = zones(storage_class(), claim(), volume("pv-1", zone="a", claim="data"), volume("pv-2", zone="b"))
    assert there.refusals(PROBE) == {"b": refused(NONE_FREE)}


def test_two_claims_need_two_volumes() -> None:
    there = zones(
        storage_class(),
        claim("x"),
        claim("y"),
        volume("pv-1", zone="a"),
        volume("pv-2", zone="a"),
        volume("pv-3", zone="b"),
    )
    assert there.feasible(pod("p", spec=mounting("x", "y"))) == {"a"}


def test_a_volume_that_was_taken_is_free_again_once_its_claim_lets_go() -> None:
    there = zones(storage_class(), claim(), volume("pv", zone="a"))
    assert there.feasible(PROBE) == {"a"}
    put(there, volume("pv", zone="a", claim="other"))
    assert there.feasible(PROBE) == set()
    put(there, volume("pv", zone="a"))
    assert there.feasible(PROBE) == {"a"}


# -- volumes to be provided ----------------------------------------------------------------------------------------


def test_a_class_provides_volumes_in_the_zones_that_it_serves() -> None:
    there = zones(storage_class(provisioner=DRIVER, zones=["b"]), claim())
    assert there.refusals(PROBE) == {"a": refused(NONE_FREE)}


def test_capacity_is_checked_where_the_driver_tracks_it() -> None:
    rooms = [capacity("small", room="1Mi", zone="a"), capacity("large", room="1Gi", zone="b")]
    there = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(), *rooms)
    assert there.feasible(PROBE) == {"a", "b"}
    put(there, csi_driver(tracks_capacity=True))
    assert there.refusals(PROBE) == {"a": refused(NO_ROOM)}
    put(there, capacity("small", room="9Gi", zone="a"))
    assert there.feasible(PROBE) == {"a", "b"}


def test_the_largest_possible_volume_counts_for_more_than_what_is_left() -> None:
    rooms = capacity("all", room="9Gi", largest="1Mi")
    there = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), rooms)
    assert there.feasible(PROBE) == set()


def test_a_claim_without_a_size_needs_no_capacity() -> None:
    there = zones(storage_class(provisioner=DRIVER), claim(size=None), csi_driver(tracks_capacity=True))
    assert there.feasible(PROBE) == {"a", "b"}


def test_a_claim_whose_volume_is_being_provided_belongs_to_one_node() -> None:
    there = zones(storage_class(provisioner=DRIVER), claim(selected_node="b"))
    assert there.refusals(PROBE) == {"a": refused(NONE_FREE)}


def test_both_kinds_of_claims_give_their_reasons() -> None:
    there = zones(claim(volume="pv"), volume("pv", claim="data", zone="a"), storage_class(), claim("more"))
    found = there.refusals(pod("p", spec=mounting("data", "more")))
    assert found == {"a": refused(NONE_FREE), "b": refused(OUT_OF_REACH, NONE_FREE)}


# -- before any node is looked at ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "spec", "reason"),
    [
        ([], mounting("data"), 'persistentvolumeclaim "data" not found'),
        (
            [],
            mounting(ephemeral=["s"]),
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-s"',
        ),
        (
            [claim(volume="pv", phase="Lost")],
            mounting("data"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
        ),
        (
            [claim(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            mounting("data"),
            'persistentvolumeclaim "data" is being deleted',
        ),
        (
            [claim("p-s")],
            mounting(ephemeral=["s"]),
            "PVC default/p-s was not created for pod default/p (pod is not owner)",
        ),
        ([claim(), storage_class(waits=False)], mounting("data"), "pod has unbound immediate PersistentVolumeClaims"),
        ([claim()], mounting("data"), "pod has unbound immediate PersistentVolumeClaims"),
        (
            [claim(spec={"volumeName": "pv"}), storage_class()],
            mounting("data"),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)
def test_what_keeps_a_pod_from_being_looked_at(objects: list[Any], spec: dict[str, Any], reason: str) -> None:
    there = zones(*objects, profile=ALONE)
    assert there.decide(pod("p", spec=spec)).message.startswith(f"0/2 nodes are available: {reason}.")


def test_a_class_that_does_not_say_when_it_binds_is_an_error() -> None:
    there = zones(claim(), storage_class(waits=None), profile=ALONE)
    assert 'VolumeBindingMode not set for StorageClass "slow"' in there.decide(PROBE).message


def test_an_ephemeral_volume_of_ones_own_is_bound_like_any_other() -> None:
    there = zones(ephemeral_claim("p", "s", volume="pv"), volume("pv", zone="b"))
    assert there.feasible(pod("p", spec=mounting(ephemeral=["s"]))) == {"b"}


def test_without_its_pre_filter_the_filter_fails() -> None:
    there = zones(claim(volume="pv"), volume("pv"), profile={"plugins": {"preFilter": {"disabled": [{"name": NAME}]}}})
    assert there.decide(PROBE).message == 'running "VolumeBinding" filter plugin: not found'


def test_a_pod_without_claims_is_nobodys_business() -> None:
    assert zones().feasible(pod("p")) == {"a", "b"}


# -- hints ---------------------------------------------------------------------------------------------------------


def test_hints() -> None:
    there = zones()
    plugin = next(p for p in there.profiles["default-scheduler"].plugins if p.name == NAME)
    hints: dict[str, Any] = {
        EventResource(interest.event.resource).name: interest.hint for interest in plugin.events_to_register
    }
    waiting = there.info(pod("p", spec=mounting("data", inline=[{"csi": {"driver": DRIVER}}])))
    assert hints["STORAGE_CLASS"](waiting, None, storage_class())
    assert hints["STORAGE_CLASS"](waiting, storage_class(), storage_class(zones=["a"]))
    assert not hints["STORAGE_CLASS"](waiting, storage_class(), storage_class())
    assert hints["PERSISTENT_VOLUME_CLAIM"](waiting, None, claim())
    assert not hints["PERSISTENT_VOLUME_CLAIM"](waiting, None, claim("other"))
    assert hints["CSI_NODE"](waiting, None, csi_node("a"))
    assert hints["CSI_NODE"](waiting, csi_node("a"), csi_node("a", migrated=["kubernetes.io/cinder"]))
    assert not hints["CSI_NODE"](waiting, csi_node("a"), csi_node("a", d=1))
    assert hints["CSI_DRIVER"](waiting, csi_driver(tracks_capacity=True), csi_driver())
    assert not hints["CSI_DRIVER"](waiting, csi_driver(), csi_driver(tracks_capacity=True))
    grew = hints["CSI_STORAGE_CAPACITY"]
    assert grew(waiting, None, capacity("x", room="1Gi"))
    assert grew(waiting, capacity("x", room=None), capacity("x", room="1Gi"))
    assert grew(waiting, capacity("x", room="1Gi"), capacity("x", room="2Gi"))
    assert not grew(waiting, capacity("x", room="2Gi"), capacity("x", room="1Gi"))
    assert not grew(waiting, capacity("x", room="2Gi"), capacity("x", room="a lot"))


def test_capacity_that_cannot_be_read_is_no_capacity() -> None:
    rooms = [capacity("odd", room="lots"), capacity("unsaid", room=None)]
    there = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), *rooms)
    assert there.feasible(PROBE) == set()


def test_capacity_for_no_node_or_a_selector_that_cannot_be_read_helps_nobody() -> None:
    nowhere = msgspec.structs.replace(capacity("nowhere", room="9Gi"), node_topology=None)
    greater = {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["1"]}]}
    odd = msgspec.structs.replace(capacity("odd", room="9Gi"), node_topology=convert(LabelSelector, greater))
    there = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), nowhere, odd)
    assert there.feasible(PROBE) == set()


def test_a_class_that_is_gone_by_the_time_it_is_needed_is_an_error() -> None:
    there = zones()
    claims = PodVolumeClaims(unbound=[claim()])
    found = find_pod_volumes(there.cluster, claims, there.cluster.all_nodes())
    assert claims.status(int(found.keys[0])).reasons == ('failed to find storage class "slow"',)
