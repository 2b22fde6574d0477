"""Filtering by the zones and regions of volumes (semantics 8.13)."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.plugins.volumes import plugin_harness, put
from kubestow.cluster.changes.events import EventResource
from kubestow.testing import PluginHarness, node, pod
from kubestow.testing.storage import claim, mounting, storage_class, volume

NAME = "VolumeZone"
CONFLICT = (NAME, ("node(s) had no available volume zone",))
ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
ONLY_VOLUME_ZONE = {
    "plugins": {"multiPoint": {"disabled": [{"name": "VolumeRestrictions"}, {"name": "VolumeBinding"}]}}
}
PROBE = pod("p", spec=mounting("data"))


def zoned(*labels: tuple[str, str]) -> PluginHarness:
    """Nodes in two zones, a node without a zone, and a bound volume with labels."""
    return plugin_harness(
        node("a", zone="a"),
        node("b", zone="b"),
        node("nowhere"),
        claim("data", volume="pv"),
        volume("pv", claim="data", labels=dict(labels)),
    )


def test_nodes_in_other_zones_are_rejected_and_unlabelled_nodes_pass() -> None:
    assert zoned((ZONE, "a")).rejections(PROBE) == {"b": CONFLICT}


def test_a_volume_label_can_list_several_zones() -> None:
    assert zoned((ZONE, "a__b")).feasible(PROBE) == {"a", "b", "nowhere"}


def test_a_volume_without_topology_labels_passes_all_nodes() -> None:
    assert zoned().feasible(PROBE) == {"a", "b", "nowhere"}


def test_a_beta_label_of_a_volume_matches_the_ga_label_of_a_node() -> None:
    assert zoned((BETA_ZONE, "b")).rejections(PROBE) == {"a": CONFLICT}


def test_a_label_with_an_empty_zone_is_ignored() -> None:
    assert zoned((ZONE, "a__")).feasible(PROBE) == {"a", "b", "nowhere"}


def test_the_verdict_follows_a_node_whose_zone_changes() -> None:
    harness = zoned((ZONE, "a"))
    assert harness.feasible(PROBE) == {"a", "nowhere"}
    harness.cluster.update_node(node("b", zone="a"))
    assert harness.feasible(PROBE) == {"a", "b", "nowhere"}


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
def test_pre_filter_reports_what_is_missing(objects: list[Any], reason: str) -> None:
    harness = plugin_harness(node("a", zone="a"), *objects, profile=ONLY_VOLUME_ZONE)
    assert harness.decide(PROBE).message.startswith(f"0/1 nodes are available: {reason}.")


def test_an_unbound_claim_with_delayed_binding_is_ignored() -> None:
    harness = plugin_harness(node("a", zone="a"), claim("data"), storage_class(), profile=ONLY_VOLUME_ZONE)
    assert harness.feasible(PROBE) == {"a"}


def test_a_volume_without_a_claim_name_is_rejected() -> None:
    harness = plugin_harness(node("a", zone="a"), profile=ONLY_VOLUME_ZONE)
    assert "PersistentVolumeClaim had no name" in harness.decide(pod("p", spec=mounting(""))).message


def test_the_filter_works_without_pre_filter() -> None:
    plugins = {"preFilter": {"disabled": [{"name": NAME}]}, "multiPoint": {"disabled": [{"name": "VolumeBinding"}]}}
    harness = plugin_harness(
        node("a", zone="a"),
        node("b", zone="b"),
        claim("data", volume="pv"),
        volume("pv", claim="data", labels={ZONE: "a"}),
        claim("lost", volume="gone"),
        claim("plain", volume="plain"),
        volume("plain"),
        profile={"plugins": plugins},
    )
    assert harness.rejections(PROBE) == {"b": CONFLICT}
    gone = (NAME, ('persistentvolume "gone" not found',))
    assert harness.rejections(pod("q", spec=mounting("lost"))) == {"a": gone, "b": gone}
    assert harness.feasible(pod("r", spec=mounting("plain"))) == {"a", "b"}


def test_hints_requeue_after_relevant_changes() -> None:
    harness = zoned()
    plugin = next(p for p in harness.profiles["default-scheduler"].plugins if p.name == NAME)
    hints: dict[str, Any] = {
        EventResource(registration.event.resource).name: registration.hint for registration in plugin.events_to_register
    }
    rejected = harness.info(PROBE)
    assert hints["STORAGE_CLASS"](rejected, None, storage_class())
    assert not hints["STORAGE_CLASS"](rejected, None, storage_class(waits=False))
    assert hints["PERSISTENT_VOLUME_CLAIM"](rejected, None, claim("data"))
    assert not hints["PERSISTENT_VOLUME_CLAIM"](rejected, None, claim("other"))
    assert hints["PERSISTENT_VOLUME"](rejected, None, volume())
    assert hints["PERSISTENT_VOLUME"](rejected, volume(), volume(labels={ZONE: "a"}))
    assert not hints["PERSISTENT_VOLUME"](rejected, volume(), volume(labels={"other": "a"}))


def test_the_verdict_follows_a_volume_whose_zone_changes() -> None:
    harness = zoned((ZONE, "a"))
    assert harness.feasible(PROBE) == {"a", "nowhere"}
    put(harness, volume("pv", claim="data", labels={ZONE: "b"}))
    assert harness.feasible(PROBE) == {"b", "nowhere"}
