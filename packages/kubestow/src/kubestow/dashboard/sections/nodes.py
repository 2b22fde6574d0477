"""The nodes of the cluster as columns: names, labels and taints by code, amounts by resource.

Labels and taints are sent again as a whole when any node's change; amounts by row, as they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Taint
from kubestow.cluster.cache import Cluster
from kubestow.rules.requests import CPU, MEMORY, PODS

__all__ = ["NodesSection"]

#: The label keys offered to group nodes by: at most so many, with at most so many values each.
_MOST_KEYS, _MOST_VALUES = 24, 512
_MOST_RESOURCES = 24
#: Words in label keys by which nodes are usually grouped, the most usual first.
_USUAL = ("topology.kubernetes.io/zone", "pool", "nodegroup", "rack", "topology.kubernetes.io/region", "instance-type")

Amounts = dict[str, NDArray[np.int64]]


class NodesSection:
    """Implements :class:`~kubestow.dashboard.sections.section.Section` for the nodes in the scheduler cache."""

    name = "nodes"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._revision = -1
        self._described: dict[str, Any] = {}
        self._allocatable: Amounts = {}
        self._requested: Amounts = {}
        #: Whether each node is cordoned (bool).
        self._cordoned: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def refresh(self) -> dict[str, Any] | None:
        table = self._cluster.nodes
        former = self._allocatable, self._requested, self._cordoned
        self._read_amounts()
        if table.revision != self._revision or list(self._allocatable) != list(former[0]):
            self._described = _describe(table.names, table.objects)
            self._revision = table.revision
            return self.content()
        return self._difference(*former)

    def content(self) -> dict[str, Any]:
        return {
            **self._described,
            "resources": list(self._allocatable),
            "allocatable": {name: values.tolist() for name, values in self._allocatable.items()},
            "requested": {name: values.tolist() for name, values in self._requested.items()},
            "cordoned": np.flatnonzero(self._cordoned).tolist(),
        }

    def _read_amounts(self) -> None:
        table = self._cluster.nodes
        names = [name for name in table.allocatable.names() if table.allocatable[name].values.any()]
        names.sort(key=lambda name: (name != CPU, name != MEMORY, name))
        self._allocatable = {name: table.allocatable[name].values.copy() for name in names[:_MOST_RESOURCES]}
        self._requested = {name: table.requested[name].values.copy() for name in self._allocatable}
        self._allocatable[PODS] = table.allowed_pods.values.copy()
        self._requested[PODS] = table.pod_count.values.copy()
        self._cordoned = table.unschedulable.values.copy()

    def _difference(
        self, allocatable: Amounts, requested: Amounts, cordoned: NDArray[np.bool_]
    ) -> dict[str, Any] | None:
        changed = self._cordoned != cordoned
        for now, before in ((self._allocatable, allocatable), (self._requested, requested)):
            for name, values in now.items():
                changed |= values != before[name]
        rows = np.flatnonzero(changed)
        if not len(rows):
            return None
        return {
            "rows": rows.tolist(),
            "allocatable": {
                name: values[rows].tolist()
                for name, values in self._allocatable.items()
                if not np.array_equal(values, allocatable[name])
            },
            "requested": {name: values[rows].tolist() for name, values in self._requested.items()},
            "cordoned": self._cordoned[rows].astype(np.int8).tolist(),
        }


def _describe(names: Sequence[str], objects: Sequence[Node]) -> dict[str, Any]:
    """Names, labels and taints of all nodes: distinct values, and one code per node (0 for none)."""
    values_by_key: dict[str, dict[str, list[int]]] = {}
    taints: dict[tuple[Taint, ...], int] = {(): 0}
    codes = []
    for row, node in enumerate(objects):
        for key, value in node.metadata.labels.items():
            values_by_key.setdefault(key, {}).setdefault(value, []).append(row)
        codes.append(taints.setdefault(tuple(node.spec.taints), len(taints)))
    keys = [key for key, rows in values_by_key.items() if _groups_nodes(key, rows, len(objects))]
    keys.sort(key=lambda key: (_usualness(key), key))
    return {
        "names": list(names),
        "labels": {key: _coded(values_by_key[key], len(objects)) for key in keys[:_MOST_KEYS]},
        "taints": {"values": [[_taint(taint) for taint in each] for each in taints], "codes": codes},
    }


def _groups_nodes(key: str, rows: dict[str, list[int]], nodes: int) -> bool:
    """Whether a label has few enough values to group nodes by: a name of its own for each node is no group."""
    return len(rows) <= _MOST_VALUES and (len(rows) < nodes or _usualness(key) < len(_USUAL))


def _usualness(key: str) -> int:
    return next((rank for rank, word in enumerate(_USUAL) if word in key), len(_USUAL))


def _coded(rows_by_value: dict[str, list[int]], nodes: int) -> dict[str, Any]:
    codes = np.zeros(nodes, np.int32)
    values = sorted(rows_by_value)
    for code, value in enumerate(values, 1):
        codes[rows_by_value[value]] = code
    return {"values": values, "codes": codes.tolist()}


def _taint(taint: Taint) -> str:
    """A taint as ``kubectl taint`` writes it."""
    pair = f"{taint.key}={taint.value}" if taint.value else taint.key
    return f"{pair}:{taint.effect}"
