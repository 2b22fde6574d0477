"""In-tree volumes that CSI drivers have taken over: the same volume in the driver's words.

A node on which an in-tree plugin has been migrated attaches its volumes through the CSI driver: they count against the
driver's limit under the driver's volume handle, and their topology is that of the driver's own node labels. The rules
are those of Kubernetes' CSI translation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kubestow.api.core import NodeSelectorRequirement, NodeSelectorTerm, Volume
from kubestow.api.storage import PersistentVolume, PersistentVolumeSpec
from kubestow.errors import InvalidObject

__all__ = [
    "BETA_REGION",
    "BETA_ZONE",
    "IN_TREE",
    "REGION",
    "ZONE",
    "InTreePlugin",
    "in_tree_plugin",
    "plugin_named",
    "translated_terms",
    "volume_handle",
]

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"

_ZONES_DELIMITER = "__"
_EBS_VOLUME = re.compile(r"vol-[^/]*")
_UNSPECIFIED = "UNSPECIFIED"

Terms = Sequence[NodeSelectorTerm]


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    """A volume plugin that used to be part of Kubernetes.

    ``source`` is the field of a volume that names it. ``migrates`` is False for plugins whose migration the scheduler
    knows of but never takes into account. ``topology_key`` is the driver's zone label on nodes.
    """

    name: str
    driver: str
    source: str
    topology_key: str | None = None
    migrates: bool = True


AWS_EBS = InTreePlugin(
    "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "aws_elastic_block_store", "topology.ebs.csi.aws.com/zone"
)
GCE_PD = InTreePlugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce_persistent_disk", "topology.gke.io/zone")
CINDER = InTreePlugin(
    "kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder", "topology.cinder.csi.openstack.org/zone"
)
AZURE_DISK = InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk")
PORTWORX = InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume")
AZURE_FILE = InTreePlugin("kubernetes.io/azure-file", "file.csi.azure.com", "azure_file", migrates=False)
VSPHERE = InTreePlugin("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "vsphere_volume", migrates=False)

IN_TREE = (AWS_EBS, GCE_PD, CINDER, AZURE_DISK, PORTWORX, AZURE_FILE, VSPHERE)
_BY_NAME = {plugin.name: plugin for plugin in IN_TREE}


def in_tree_plugin(source: Volume | PersistentVolumeSpec) -> InTreePlugin | None:
    """The in-tree plugin of a pod's inline volume or of a PersistentVolume, None when it is none of them."""
    return next((plugin for plugin in IN_TREE if getattr(source, plugin.source) is not None), None)


def plugin_named(name: str) -> InTreePlugin | None:
    """The in-tree plugin of a name, such as a storage class's provisioner."""
    return _BY_NAME.get(name)


# -- handles -------------------------------------------------------------------------------------------------------


def volume_handle(
    plugin: InTreePlugin, source: Volume | PersistentVolumeSpec, labels: Mapping[str, str] | None = None
) -> str:
    """The CSI driver's handle of an in-tree volume; ``labels`` are those of its PersistentVolume.

    Raises InvalidObject for a volume that cannot be translated.
    """
    if source.aws_elastic_block_store is not None:
        return _ebs_handle(source.aws_elastic_block_store.volume_id)
    if source.gce_persistent_disk is not None:
        return _gce_handle(source.gce_persistent_disk.pd_name, labels or {})
    if source.azure_disk is not None:
        return source.azure_disk.disk_uri
    if source.cinder is not None:
        return source.cinder.volume_id
    if source.portworx_volume is not None:
        return source.portworx_volume.volume_id
    raise InvalidObject(f"a volume of {plugin.name} has no CSI handle")


def _ebs_handle(volume_id: str) -> str:
    if not volume_id.startswith("aws://"):
        return volume_id
    _, _, path = volume_id.removeprefix("aws://").partition("/")
    handle = path.strip("/")
    if not _EBS_VOLUME.fullmatch(handle):
        raise InvalidObject(f"Invalid format for AWS volume ({volume_id})")
    return handle


def _gce_handle(disk: str, labels: Mapping[str, str]) -> str:
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or "").split(_ZONES_DELIMITER)
    if len(zones) > 1:
        return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{disk}"
    return f"projects/{_UNSPECIFIED}/zones/{zones[0] or _UNSPECIFIED}/disks/{disk}"


def _gce_region(zones: Sequence[str]) -> str:
    """The one region of zones such as ``europe-west1-b``."""
    parts = [zone.split("-") for zone in zones]
    regions = {"-".join(part[:2]) for part in parts if len(part) == 3}
    if len(regions) != 1 or any(len(part) != 3 for part in parts):
        raise InvalidObject(f"failed to get region from zones: {' '.join(zones)}")
    return regions.pop()


# -- topology ------------------------------------------------------------------------------------------------------


def translated_terms(plugin: InTreePlugin, volume: PersistentVolume) -> Terms | None:
    """The terms of a volume's node affinity where its plugin has been migrated; None when it has no requirement.

    Raises InvalidObject for a volume that cannot be translated.
    """
    volume_handle(plugin, volume.spec, volume.metadata.labels)
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity else None
    terms = None if required is None else required.node_selector_terms
    return terms if plugin.topology_key is None else _with_topology(terms, volume.metadata.labels, plugin.topology_key)


def _with_topology(terms: Terms | None, labels: Mapping[str, str], key: str) -> Terms | None:
    """Zones by the driver's label: those of the affinity, or else those of the volume's own labels."""
    zone, region = _topology_labels(terms or (), labels)
    if _values(terms or (), zone):
        terms = _renamed(terms or (), zone, key)
    elif zone in labels:
        terms = _narrowed(terms, key, labels[zone].split(_ZONES_DELIMITER))
    return _renamed(terms, BETA_REGION, REGION) if terms and region == BETA_REGION else terms


def _topology_labels(terms: Terms, labels: Mapping[str, str]) -> tuple[str, str]:
    """The generation of topology labels that a volume speaks."""
    keys = {requirement.key for term in terms for requirement in term.match_expressions}
    for described in (keys, labels):
        if ZONE in described:
            return ZONE, REGION
        if BETA_ZONE in described:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _values(terms: Terms, key: str) -> list[str]:
    requirements = (requirement for term in terms for requirement in term.match_expressions)
    return [value for requirement in requirements if requirement.key == key for value in requirement.values]


def _renamed(terms: Terms, old: str, new: str) -> Terms:
    def renamed(requirement: NodeSelectorRequirement) -> NodeSelectorRequirement:
        return msgspec.structs.replace(requirement, key=new) if requirement.key == old else requirement

    return [
        msgspec.structs.replace(
            term, match_expressions=[renamed(requirement) for requirement in term.match_expressions]
        )
        for term in terms
    ]


def _narrowed(terms: Terms | None, key: str, zones: Sequence[str]) -> Terms | None:
    wanted = sorted({zone.strip() for zone in zones} - {""})
    if not wanted:
        return terms
    requirement = NodeSelectorRequirement(key=key, operator="In", values=wanted)
    return [
        msgspec.structs.replace(term, match_expressions=[*term.match_expressions, requirement])
        for term in terms or [NodeSelectorTerm()]
    ]
