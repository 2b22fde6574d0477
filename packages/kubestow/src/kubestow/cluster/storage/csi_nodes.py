"""CSINodes as columns: attach limits, installed drivers and migrated in-tree plugins.

A CSINode has the name of its node; it can be created before the node and deleted after it. A column is made when it is
first read, and updated with every change of a CSINode from then on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import CSINode
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.nodes.table import NodeTable

__all__ = ["UNLIMITED", "CSINodes"]

#: The limit of a driver without a limit on a node.
UNLIMITED = 2**63 - 1

_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


class CSINodes:
    """The CSINodes of the nodes in a table; arrays have one entry per row of the table."""

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
        """Which nodes have a CSINode, bool."""
        return self._present.values

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
        self._limited.values[row] = any(limit is not None for limit in limits.values())
        for name, column in self._limits.items():
            limit = limits.get(name)
            column.values[row] = UNLIMITED if limit is None else limit
        for name, column in self._installed.items():
            column.values[row] = name in drivers
        migrated = migrated_plugins(csi_node)
        for name, column in self._migrated.items():
            column.values[row] = name in migrated

    def _refresh_all(self) -> None:
        for row in range(len(self._table)):
            self.refresh(row)


def migrated_plugins(csi_node: CSINode | None) -> frozenset[str]:
    """The names of the in-tree plugins that a CSINode reports as migrated."""
    listed = csi_node.metadata.annotations.get(_MIGRATED_PLUGINS) if csi_node else None
    return frozenset(listed.split(",")) if listed else frozenset()
