"""What CSINodes say of the nodes, as columns: attach limits, installed drivers, migrated in-tree plugins.

A CSINode has the name of its node; it may come before the node and outlive it. A column is made when somebody first
asks for it and follows every CSINode from then on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import CSINode
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.nodes.table import NodeTable

__all__ = ["UNLIMITED", "CSINodes"]

#: The limit of a driver that has none on a node.
UNLIMITED = 2**63 - 1

_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


class CSINodes:
    """The CSINodes of a node table."""

    def __init__(self, table: NodeTable, csi_nodes: Catalog[CSINode]) -> None:
        self._table = table
        self._csi_nodes = csi_nodes
        self._present = table.columns.new(np.bool_)
        self._limited = table.columns.new(np.bool_)
        self._limits: dict[str, Column] = {}
        self._installed: dict[str, Column] = {}
        self._migrated: dict[str, Column] = {}

    @property
    def present(self) -> NDArray[np.bool_]:
        """Where there is a CSINode at all, bool over all rows."""
        return self._present.values

    @property
    def limited(self) -> NDArray[np.bool_]:
        """Where any driver has a limit, bool over all rows."""
        return self._limited.values

    def limit(self, driver: str) -> NDArray[np.int64]:
        """How many volumes a driver can attach, UNLIMITED where it does not say, int64 over all rows."""
        if driver not in self._limits:
            self._limits[driver] = self._table.columns.new(np.int64, UNLIMITED)
            self._describe_all()
        return self._limits[driver].values

    def installed(self, driver: str) -> NDArray[np.bool_]:
        """Where a driver is installed, bool over all rows."""
        if driver not in self._installed:
            self._installed[driver] = self._table.columns.new(np.bool_)
            self._describe_all()
        return self._installed[driver].values

    def migrated(self, plugin: str) -> NDArray[np.bool_]:
        """Where an in-tree plugin is reported as migrated to CSI, bool over all rows."""
        if plugin not in self._migrated:
            self._migrated[plugin] = self._table.columns.new(np.bool_)
            self._describe_all()
        return self._migrated[plugin].values

    def describe(self, row: int) -> None:
        """Bring a row in line with its CSINode: the node or the CSINode is new, changed or gone."""
        csi_node = self._csi_nodes.get("", self._table.names[row])
        drivers = {driver.name: driver for driver in csi_node.spec.drivers} if csi_node else {}
        self._present.values[row] = csi_node is not None
        limits = {name: d.allocatable.count for name, d in drivers.items() if d.allocatable is not None}
        self._limited.values[row] = any(limit is not None for limit in limits.values())
        for name, column in self._limits.items():
            limit = limits.get(name)
            column.values[row] = UNLIMITED if limit is None else limit
        for name, column in self._installed.items():
            column.values[row] = name in drivers
        migrated = migrated_plugins(csi_node)
        for name, column in self._migrated.items():
            column.values[row] = name in migrated

    def _describe_all(self) -> None:
        for row in range(len(self._table)):
            self.describe(row)


def migrated_plugins(csi_node: CSINode | None) -> frozenset[str]:
    """The in-tree plugins that a CSINode reports as migrated."""
    listed = csi_node.metadata.annotations.get(_MIGRATED_PLUGINS) if csi_node else None
    return frozenset(listed.split(",")) if listed else frozenset()
