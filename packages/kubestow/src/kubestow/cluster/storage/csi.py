"""CSI: drivers on nodes, and the translation of in-tree volumes to CSI volumes (semantics 8.11, 8.12).

CSINodes are kept as columns: attach limits, installed drivers and migrated in-tree plugins. A CSINode has the name of
its node; it can be created before the node and deleted after it. A column is made when it is first read, and updated
with every change of a CSINode from then on.

A node on which an in-tree plugin has been migrated attaches the plugin's volumes through a CSI driver. They count
against the driver's limit under the driver's handle, and their topology uses the driver's node labels. The rules of
migration are those of ``k8s.io/csi-translation-lib``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, NodeSelectorRequirement, NodeSelectorTerm, Volume
from kubestow.api.storage import CSINode, PersistentVolume, PersistentVolumeSpec
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.nodes.table import NodeTable
from kubestow.errors import InvalidObject
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor
from kubestow.rules.requests import allocatable_amounts

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"

_ZONES_DELIMITER = "__"
_EBS_VOLUME = re.compile(r"vol-[^/]*")
_UNSPECIFIED = "UNSPECIFIED"

Terms = Sequence[NodeSelectorTerm]


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    """A volume plugin that was part of Kubernetes, and the CSI driver that replaces it.

    ``source`` is the field of a volume's source. ``topology_key`` is the driver's zone label on nodes. ``migrates`` is
    False for plugins whose migration kube-scheduler does not consider.
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
    """The in-tree plugin of an inline volume or of a PersistentVolume, None for other volumes."""
    return next((plugin for plugin in IN_TREE if getattr(source, plugin.source) is not None), None)


def plugin_named(name: str) -> InTreePlugin | None:
    """The in-tree plugin with a name, such as a storage class's provisioner; None for other names."""
    return _BY_NAME.get(name)


# -- handles -------------------------------------------------------------------------------------------------------


def volume_handle(
    plugin: InTreePlugin, source: Volume | PersistentVolumeSpec, labels: Mapping[str, str] | None = None
) -> str:
    """The CSI handle of an in-tree volume; ``labels`` are those of its PersistentVolume.

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
    """The common region of zones such as ``europe-west1-b``. Raises InvalidObject when there is none."""
    parts = [zone.split("-") for zone in zones]
    regions = {"-".join(part[:2]) for part in parts if len(part) == 3}
    if len(regions) != 1 or any(len(part) != 3 for part in parts):
        raise InvalidObject(f"failed to get region from zones: {' '.join(zones)}")
    return regions.pop()


# -- topology ------------------------------------------------------------------------------------------------------


def translated_terms(plugin: InTreePlugin, volume: PersistentVolume) -> Terms | None:
    """The terms of an in-tree volume's node affinity on nodes where its plugin has been migrated, None without any.

    Raises InvalidObject for a volume that cannot be translated.
    """
    volume_handle(plugin, volume.spec, volume.metadata.labels)
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity else None
    terms = None if required is None else required.node_selector_terms
    return terms if plugin.topology_key is None else _with_topology(terms, volume.metadata.labels, plugin.topology_key)


def _with_topology(terms: Terms | None, labels: Mapping[str, str], key: str) -> Terms | None:
    """Require the driver's zone label: the zones in the node affinity, else those in the volume's labels."""
    zone, region = _topology_labels(terms or (), labels)
    if _values(terms or (), zone):
        terms = _renamed(terms or (), zone, key)
    elif zone in labels:
        terms = _narrowed(terms, key, labels[zone].split(_ZONES_DELIMITER))
    return _renamed(terms, BETA_REGION, REGION) if terms and region == BETA_REGION else terms


def _topology_labels(terms: Terms, labels: Mapping[str, str]) -> tuple[str, str]:
    """The zone and region labels that a volume uses: the stable ones or the beta ones."""
    keys = {requirement.key for term in terms for requirement in term.match_expressions}
    for used in (keys, labels):
        if ZONE in used:
            return ZONE, REGION
        if BETA_ZONE in used:
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


#: The limit of a driver without a limit on a node.
UNLIMITED = 2**63 - 1

_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


class CSINodes:
    """The CSINodes of the nodes in a table; arrays have one entry per row of the table.

    Volumes are counted by the rules of a ``minor`` version.
    """

    def __init__(self, table: NodeTable, csi_nodes: Catalog[CSINode], minor: Minor = DEFAULT_MINOR) -> None:
        self._table = table
        self._reads_allocatable = not minor.has(Behaviour.VOLUME_LIMITS_ARE_THOSE_OF_CSI_NODES)
        self._portworx_counts_if_listed = not minor.has(Behaviour.PORTWORX_MIGRATES_EVERYWHERE)
        self._csi_nodes = csi_nodes
        self._present = table.columns.new(np.bool_)
        self._limited = table.columns.new(np.bool_)
        self._limits: dict[str, Column] = {}
        self._installed: dict[str, Column] = {}
        self._migrated: dict[str, Column] = {}

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which nodes have a CSINode, bool."""
        return self._present.values

    def counts_as_csi(self, plugin: InTreePlugin) -> NDArray[np.bool_]:
        """Where the volumes of an in-tree plugin count as those of its CSI driver, bool (semantics 8.11).

        QUIRK: migration can no longer be disabled, so that is every node with a CSINode, whatever the CSINode lists;
        but see :attr:`Behaviour.PORTWORX_MIGRATES_EVERYWHERE`.
        """
        if plugin is PORTWORX and self._portworx_counts_if_listed:
            return self.migrated(plugin.name)
        return self.present

    @property
    def limited(self) -> NDArray[np.bool_]:
        """Which nodes have a limit for any driver, bool."""
        return self._limited.values

    def limit(self, driver: str) -> NDArray[np.int64]:
        """The number of volumes that a driver can attach, int64; UNLIMITED without a limit."""
        if driver not in self._limits:
            self._limits[driver] = self._table.columns.new(np.int64, UNLIMITED)
            self._refresh_all()
        return self._limits[driver].values

    def installed(self, driver: str) -> NDArray[np.bool_]:
        """Where a driver is installed, bool."""
        if driver not in self._installed:
            self._installed[driver] = self._table.columns.new(np.bool_)
            self._refresh_all()
        return self._installed[driver].values

    def migrated(self, plugin: str) -> NDArray[np.bool_]:
        """Where an in-tree plugin is reported as migrated to CSI, bool."""
        if plugin not in self._migrated:
            self._migrated[plugin] = self._table.columns.new(np.bool_)
            self._refresh_all()
        return self._migrated[plugin].values

    def refresh(self, row: int) -> None:
        """Update a row after its node was added, or its CSINode added, changed or deleted."""
        csi_node = self._csi_nodes.get("", self._table.names[row])
        drivers = {driver.name: driver for driver in csi_node.spec.drivers} if csi_node else {}
        self._present.values[row] = csi_node is not None
        limits = {name: d.allocatable.count for name, d in drivers.items() if d.allocatable is not None}
        allocatable = _volume_limits(self._table.objects[row]) if self._reads_allocatable else {}
        self._limited.values[row] = bool(allocatable) or any(limit is not None for limit in limits.values())
        for name, column in self._limits.items():
            limit = limits.get(name)
            if limit is None:
                limit = allocatable.get(_limit_key(name))
            column.values[row] = UNLIMITED if limit is None else limit
        for name, column in self._installed.items():
            column.values[row] = name in drivers
        migrated = migrated_plugins(csi_node)
        for name, column in self._migrated.items():
            column.values[row] = name in migrated

    def node_changed(self, row: int) -> None:
        """Update a row after the allocatable resources of its node have changed."""
        if self._reads_allocatable:
            self.refresh(row)

    def _refresh_all(self) -> None:
        for row in range(len(self._table)):
            self.refresh(row)


_LIMIT_PREFIX, _LONGEST_LIMIT_KEY = "attachable-volumes-csi-", 62


def _volume_limits(node: Node) -> dict[str, int]:
    """The limits of attached volumes among a node's allocatable resources, by resource."""
    amounts = allocatable_amounts(node.status.allocatable)
    return {name: amount for name, amount in amounts.items() if name.startswith("attachable-volumes-")}


def _limit_key(driver: str) -> str:
    """The resource that limits the volumes of a driver; a long name ends with a hash (``GetCSIAttachLimitKey``)."""
    key = _LIMIT_PREFIX + driver
    if len(key) <= _LONGEST_LIMIT_KEY:
        return key
    return _LIMIT_PREFIX + driver[:23] + sha1(driver.encode(), usedforsecurity=False).hexdigest()[:16]


def migrated_plugins(csi_node: CSINode | None) -> frozenset[str]:
    """The names of the in-tree plugins that a CSINode reports as migrated."""
    listed = csi_node.metadata.annotations.get(_MIGRATED_PLUGINS) if csi_node else None
    return frozenset(listed.split(",")) if listed else frozenset()
