"""Filtering by volumes: bound claims, static bindings, dynamic provisioning (semantics 8.12)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core_tests.plugins.volumes import plugin_harness, put
from kubestow.api.meta import LabelSelector, convert
from kubestow.api.storage import PersistentVolume
from kubestow.cluster.changes.events import EventResource
from kubestow.plugins.volume_binding.finder import PodVolumeClaims, find_pod_volumes
from kubestow.testing import PluginHarness, node, pod
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

NAME = "VolumeBinding"
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
PV_NOT_EXIST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
PROBE = pod("p", spec=mounting("data"))
ONLY_VOLUME_BINDING = {
    "plugins": {"multiPoint": {"disabled": [{"name": "VolumeRestrictions"}, {"name": "VolumeZone"}]}}
}


def zones(*objects: Any, **kwargs: Any) -> PluginHarness:
    """Nodes a and b in zones a and b."""
    return plugin_harness(node("a", zone="a"), node("b", zone="b"), *objects, **kwargs)


def rejected(*reasons: str) -> tuple[str, tuple[str, ...]]:
    return NAME, reasons


# -- bound claims --------------------------------------------------------------------------------------------------


def test_nodes_that_the_affinity_of_a_bound_volume_does_not_match_are_rejected() -> None:
    harness = zones(claim(volume="pv"), volume("pv", claim="data", zone="a"))
    assert harness.rejections(PROBE) == {"b": rejected(NODE_CONFLICT)}


def test_a_claim_bound_to_a_deleted_volume_rejects_all_nodes() -> None:
    harness = zones(claim(volume="pv"), profile=ONLY_VOLUME_BINDING)
    assert harness.rejections(PROBE) == {"a": rejected(PV_NOT_EXIST), "b": rejected(PV_NOT_EXIST)}


def test_each_node_reports_the_first_bound_claim_that_fails() -> None:
    harness = zones(
        claim(volume="pv"),
        volume("pv", claim="data", zone="a"),
        claim("more", volume="gone"),
        profile=ONLY_VOLUME_BINDING,
    )
    both = pod("p", spec=mounting("data", "more"))
    assert harness.rejections(both) == {"a": rejected(PV_NOT_EXIST), "b": rejected(NODE_CONFLICT)}


def test_an_invalid_volume_affinity_matches_no_node() -> None:
    invalid = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}}
    harness = zones(claim(volume="pv"), volume("pv", claim="data", spec={"nodeAffinity": invalid}))
    assert harness.rejections(PROBE) == {"a": rejected(NODE_CONFLICT), "b": rejected(NODE_CONFLICT)}


def test_a_volume_affinity_never_matches_nodes_by_name() -> None:
    named = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": named}}}
    harness = zones(claim(volume="pv"), volume("pv", claim="data", spec=spec))
    assert harness.feasible(PROBE) == set()


def test_the_affinity_of_a_migrated_volume_uses_the_zone_label_of_the_csi_driver() -> None:
    disk = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    harness = plugin_harness(
        node("a", zone="a", labels={"topology.ebs.csi.aws.com/zone": "elsewhere"}),
        node("b", zone="a"),
        csi_node("a", migrated=["kubernetes.io/aws-ebs"]),
        claim(volume="pv"),
        volume("pv", claim="data", zone="a", source=disk),
    )
    assert harness.rejections(PROBE) == {"a": rejected(NODE_CONFLICT)}


def test_a_migrated_volume_that_cannot_be_translated_is_an_error() -> None:
    disk = {"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}}
    harness = zones(
        csi_node("a", migrated=["kubernetes.io/aws-ebs"]), claim(volume="pv"), volume("pv", claim="data", source=disk)
    )
    assert harness.decide(PROBE).message.startswith('running "VolumeBinding" filter plugin: could not translate pv')


# -- static bindings -----------------------------------------------------------------------------------------------


def test_an_unbound_claim_needs_an_available_volume_that_matches_the_node() -> None:
    harness = zones(storage_class(), claim(), volume("pv", zone="a"))
    assert harness.rejections(PROBE) == {"b": rejected(BIND_CONFLICT)}


@pytest.mark.parametrize(
    "volume_object",
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
def test_unsuitable_volumes_are_not_bound(volume_object: Any) -> None:
    assert zones(storage_class(), claim(), volume_object).feasible(PROBE) == set()


def test_a_claim_selects_volumes_by_label() -> None:
    harness = zones(
        storage_class(),
        claim(selector={"matchLabels": {"tier": "gold"}}),
        volume("pv-1", zone="a"),
        volume("pv-2", zone="b", labels={"tier": "gold"}),
    )
    assert harness.feasible(PROBE) == {"b"}


def test_an_invalid_claim_selector_is_an_error_for_its_pods_only() -> None:
    invalid = {"matchExpressions": [{"key": "tier", "operator": "Near"}]}
    harness = zones(storage_class(), claim(selector=invalid), claim("fine"), volume("pv"))
    message = harness.decide(PROBE).message
    assert 'claim "default/data"' in message and "Near" in message
    assert harness.feasible(pod("q", spec=mounting("fine"))) == {"a", "b"}


def test_an_invalid_claim_size_is_an_error() -> None:
    harness = zones(storage_class(), claim(size="big"), volume("pv"))
    assert 'claim "default/data"' in harness.decide(PROBE).message


def test_a_pre_bound_volume_takes_precedence_over_other_volumes() -> None:
    harness = zones(storage_class(), claim(), volume("pv-1", zone="a", claim="data"), volume("pv-2", zone="b"))
    assert harness.rejections(PROBE) == {"b": rejected(BIND_CONFLICT)}


def test_two_claims_need_two_volumes() -> None:
    harness = zones(
        storage_class(),
        claim("x"),
        claim("y"),
        volume("pv-1", zone="a"),
        volume("pv-2", zone="a"),
        volume("pv-3", zone="b"),
    )
    assert harness.feasible(pod("p", spec=mounting("x", "y"))) == {"a"}


def test_a_volume_is_available_again_after_its_claim_ref_is_removed() -> None:
    harness = zones(storage_class(), claim(), volume("pv", zone="a"))
    assert harness.feasible(PROBE) == {"a"}
    put(harness, volume("pv", zone="a", claim="other"))
    assert harness.feasible(PROBE) == set()
    put(harness, volume("pv", zone="a"))
    assert harness.feasible(PROBE) == {"a"}


# -- dynamic provisioning ------------------------------------------------------------------------------------------


def test_volumes_are_provisioned_in_the_allowed_topologies_of_the_class() -> None:
    harness = zones(storage_class(provisioner=DRIVER, zones=["b"]), claim())
    assert harness.rejections(PROBE) == {"a": rejected(BIND_CONFLICT)}


def test_capacity_is_checked_if_the_driver_tracks_it() -> None:
    capacities = [capacity("small", available="1Mi", zone="a"), capacity("large", available="1Gi", zone="b")]
    harness = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(), *capacities)
    assert harness.feasible(PROBE) == {"a", "b"}
    put(harness, csi_driver(tracks_capacity=True))
    assert harness.rejections(PROBE) == {"a": rejected(NOT_ENOUGH_SPACE)}
    put(harness, capacity("small", available="9Gi", zone="a"))
    assert harness.feasible(PROBE) == {"a", "b"}


def test_maximum_volume_size_takes_precedence_over_capacity() -> None:
    capacities = capacity("all", available="9Gi", largest="1Mi")
    harness = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), capacities)
    assert harness.feasible(PROBE) == set()


def test_a_claim_without_a_size_needs_no_capacity() -> None:
    harness = zones(storage_class(provisioner=DRIVER), claim(size=None), csi_driver(tracks_capacity=True))
    assert harness.feasible(PROBE) == {"a", "b"}


def test_a_claim_with_a_selected_node_rejects_other_nodes() -> None:
    harness = zones(storage_class(provisioner=DRIVER), claim(selected_node="b"))
    assert harness.rejections(PROBE) == {"a": rejected(BIND_CONFLICT)}


def test_a_claim_with_a_selected_node_is_provisioned_although_a_volume_would_do() -> None:
    harness = zones(storage_class(provisioner=DRIVER, zones=["b"]), claim(selected_node="b"), volume("pv", zone="b"))
    decision = harness.schedule(PROBE)
    assert decision.node_name == "b"
    plugin: Any = next(p for p in harness.profiles["default-scheduler"].plugins if p.name == NAME)
    assert plugin.reserve(decision.state, decision.pod, "b") is None
    available = harness.cluster.catalog(PersistentVolume).get("", "pv")
    assert available is not None and available.spec.claim_ref is None


def test_bound_and_unbound_claims_both_report_their_reasons() -> None:
    harness = zones(claim(volume="pv"), volume("pv", claim="data", zone="a"), storage_class(), claim("more"))
    found = harness.rejections(pod("p", spec=mounting("data", "more")))
    assert found == {"a": rejected(BIND_CONFLICT), "b": rejected(NODE_CONFLICT, BIND_CONFLICT)}


# -- PreFilter -----------------------------------------------------------------------------------------------------


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
def test_pre_filter_rejects_pods_with_unusable_claims(objects: list[Any], spec: dict[str, Any], reason: str) -> None:
    harness = zones(*objects, profile=ONLY_VOLUME_BINDING)
    assert harness.decide(pod("p", spec=spec)).message.startswith(f"0/2 nodes are available: {reason}.")


def test_a_class_without_a_volume_binding_mode_is_an_error() -> None:
    harness = zones(claim(), storage_class(waits=None), profile=ONLY_VOLUME_BINDING)
    assert 'VolumeBindingMode not set for StorageClass "slow"' in harness.decide(PROBE).message


def test_the_claim_of_an_ephemeral_volume_is_found_by_pod_and_volume_name() -> None:
    harness = zones(ephemeral_claim("p", "s", volume="pv"), volume("pv", zone="b"))
    assert harness.feasible(pod("p", spec=mounting(ephemeral=["s"]))) == {"b"}


def test_filtering_without_pre_filter_is_an_error() -> None:
    harness = zones(
        claim(volume="pv"), volume("pv"), profile={"plugins": {"preFilter": {"disabled": [{"name": NAME}]}}}
    )
    assert harness.decide(PROBE).message == 'running "VolumeBinding" filter plugin: not found'


def test_a_pod_without_claims_passes_all_nodes() -> None:
    assert zones().feasible(pod("p")) == {"a", "b"}


# -- queueing hints ------------------------------------------------------------------------------------------------


def test_hints_requeue_after_relevant_changes() -> None:
    harness = zones()
    plugin = next(p for p in harness.profiles["default-scheduler"].plugins if p.name == NAME)
    hints: dict[str, Any] = {
        EventResource(registration.event.resource).name: registration.hint for registration in plugin.events_to_register
    }
    rejected_pod = harness.info(pod("p", spec=mounting("data", inline=[{"csi": {"driver": DRIVER}}])))
    assert hints["STORAGE_CLASS"](rejected_pod, None, storage_class())
    assert hints["STORAGE_CLASS"](rejected_pod, storage_class(), storage_class(zones=["a"]))
    assert not hints["STORAGE_CLASS"](rejected_pod, storage_class(), storage_class())
    assert hints["PERSISTENT_VOLUME_CLAIM"](rejected_pod, None, claim())
    assert not hints["PERSISTENT_VOLUME_CLAIM"](rejected_pod, None, claim("other"))
    assert hints["CSI_NODE"](rejected_pod, None, csi_node("a"))
    assert hints["CSI_NODE"](rejected_pod, csi_node("a"), csi_node("a", migrated=["kubernetes.io/cinder"]))
    assert not hints["CSI_NODE"](rejected_pod, csi_node("a"), csi_node("a", d=1))
    assert hints["CSI_DRIVER"](rejected_pod, csi_driver(tracks_capacity=True), csi_driver())
    assert not hints["CSI_DRIVER"](rejected_pod, csi_driver(), csi_driver(tracks_capacity=True))
    after_capacity_change = hints["CSI_STORAGE_CAPACITY"]
    assert after_capacity_change(rejected_pod, None, capacity("x", available="1Gi"))
    assert after_capacity_change(rejected_pod, capacity("x", available=None), capacity("x", available="1Gi"))
    assert after_capacity_change(rejected_pod, capacity("x", available="1Gi"), capacity("x", available="2Gi"))
    assert not after_capacity_change(rejected_pod, capacity("x", available="2Gi"), capacity("x", available="1Gi"))
    assert not after_capacity_change(rejected_pod, capacity("x", available="2Gi"), capacity("x", available="a lot"))


def test_invalid_and_missing_capacities_count_as_none() -> None:
    capacities = [capacity("odd", available="lots"), capacity("unsaid", available=None)]
    harness = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), *capacities)
    assert harness.feasible(PROBE) == set()


def test_a_capacity_object_with_a_missing_or_invalid_topology_covers_no_node() -> None:
    for_no_node = msgspec.structs.replace(capacity("nowhere", available="9Gi"), node_topology=None)
    greater = {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["1"]}]}
    invalid = msgspec.structs.replace(capacity("odd", available="9Gi"), node_topology=convert(LabelSelector, greater))
    harness = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), for_no_node, invalid)
    assert harness.feasible(PROBE) == set()


def test_a_class_that_is_deleted_after_pre_filter_is_an_error() -> None:
    harness = zones()
    claims = PodVolumeClaims(unbound=[claim()])
    found = find_pod_volumes(harness.cluster, claims, harness.cluster.all_nodes())
    assert claims.status(int(found.keys[0])).reasons == ('failed to find storage class "slow"',)
