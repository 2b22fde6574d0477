"""The translation of in-tree volumes to CSI volumes."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import NodeSelectorTerm
from kubestow.api.meta import convert
from kubestow.cluster.storage.csi import in_tree_plugin, translated_terms, volume_handle
from kubestow.errors import InvalidObject
from kubestow.testing.storage import volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
GCE = {"gcePersistentDisk": {"pdName": "disk"}}
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def handle(source: dict[str, Any], **labels: str) -> str:
    pv = volume("pv", source=source, labels=labels)
    plugin = in_tree_plugin(pv.spec)
    assert plugin is not None
    return volume_handle(plugin, pv.spec, pv.metadata.labels)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (EBS, "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws://zone/vol-2"}}, "vol-2"),
        ({"awsElasticBlockStore": {"volumeID": "aws:///vol-3"}}, "vol-3"),
        (GCE, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"),
        ({"azureDisk": {"diskURI": "uri"}}, "uri"),
        ({"cinder": {"volumeID": "c"}}, "c"),
        ({"portworxVolume": {"volumeID": "p"}}, "p"),
    ],
)
def test_handles(source: dict[str, Any], expected: str) -> None:
    assert handle(source) == expected


def test_the_handle_of_a_gce_disk_has_its_zone_or_the_region_of_its_zones() -> None:
    assert handle(GCE, **{ZONE: "europe-west1-b"}) == "projects/UNSPECIFIED/zones/europe-west1-b/disks/disk"
    regional = handle(GCE, **{ZONE: "europe-west1-b__europe-west1-c"})
    assert regional == "projects/UNSPECIFIED/regions/europe-west1/disks/disk"


@pytest.mark.parametrize("zones", ["a__b", "europe-west1-b__europe-west2-b"])
def test_a_gce_disk_in_no_single_region_cannot_be_translated(zones: str) -> None:
    with pytest.raises(InvalidObject, match="failed to get region from zones"):
        handle(GCE, **{ZONE: zones})


@pytest.mark.parametrize("source", [{"azureFile": {"shareName": "s"}}, {"vsphereVolume": {"volumePath": "p"}}])
def test_some_plugins_are_never_migrated(source: dict[str, Any]) -> None:
    plugin = in_tree_plugin(volume("pv", source=source).spec)
    assert plugin is not None and not plugin.migrates
    with pytest.raises(InvalidObject):
        handle(source)


def terms(*expressions: tuple[str, list[str]]) -> list[NodeSelectorTerm]:
    requirements = [{"key": key, "operator": "In", "values": values} for key, values in expressions]
    return [convert(NodeSelectorTerm, {"matchExpressions": requirements})]


def translated(source: dict[str, Any], affinity: list[NodeSelectorTerm] | None, **labels: str) -> Any:
    spec = None if affinity is None else {"nodeAffinity": {"required": {"nodeSelectorTerms": _raw(affinity)}}}
    pv = volume("pv", source=source, labels=labels, spec=spec)
    plugin = in_tree_plugin(pv.spec)
    assert plugin is not None
    return translated_terms(plugin, pv)


def _raw(affinity: list[NodeSelectorTerm]) -> Any:
    return [
        {"matchExpressions": [{"key": r.key, "operator": r.operator, "values": r.values} for r in t.match_expressions]}
        for t in affinity
    ]


def test_zones_of_the_affinity_are_renamed_to_the_drivers_label() -> None:
    assert translated(EBS, terms((ZONE, ["a"]))) == terms((EBS_ZONE, ["a"]))


def test_zones_of_the_labels_are_added_to_an_affinity_without_zones() -> None:
    narrowed = terms(("disk", ["ssd"]), (EBS_ZONE, ["a", "b"]))
    assert translated(EBS, terms(("disk", ["ssd"])), **{ZONE: "b__a"}) == narrowed
    assert translated(EBS, None, **{ZONE: "a"}) == terms((EBS_ZONE, ["a"]))


def test_labels_without_zones_change_nothing() -> None:
    assert translated(EBS, None, **{ZONE: " "}) is None
    assert translated(EBS, None) is None


def test_a_beta_region_label_becomes_the_stable_one() -> None:
    older = terms((BETA_ZONE, ["a"]), (BETA_REGION, ["r"]))
    assert translated(EBS, older) == terms((EBS_ZONE, ["a"]), (REGION, ["r"]))
    assert translated(EBS, None, **{BETA_ZONE: "a"}) == terms((EBS_ZONE, ["a"]))


def test_a_driver_without_topology_does_not_change_the_affinity() -> None:
    assert translated({"azureDisk": {"diskURI": "u"}}, terms((ZONE, ["a"]))) == terms((ZONE, ["a"]))
