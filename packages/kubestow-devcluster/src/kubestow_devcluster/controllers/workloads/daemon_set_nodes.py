"""The nodes on which a DaemonSet's pods belong, computed on the same columnar node table as in the scheduler.

A daemon pod should run on a node that its node name, node selector, required node affinity and tolerations allow. A pod
that is already there continues to run if the only obstacle is an untolerated NoSchedule taint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from kubestow.api import meta
from kubestow.api.core import Node, NodeStatus, PodSpec, Taint, Toleration
from kubestow.cluster.nodes.selectors import selected_by
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.taints import NO_EXECUTE, NO_SCHEDULE, untolerated
from kubestow.cluster.nodes.views import Nodes
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import WatchEvent

__all__ = ["DaemonSetNodes", "EligibleNodes", "with_daemon_tolerations"]

_PREFIX = "node.kubernetes.io/"
#: The tolerations of every daemon pod.
_TOLERATIONS: tuple[dict[str, str], ...] = (
    *({"key": _PREFIX + name, "operator": "Exists", "effect": NO_EXECUTE} for name in ("not-ready", "unreachable")),
    *(
        {"key": _PREFIX + name, "operator": "Exists", "effect": NO_SCHEDULE}
        for name in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
_HOST_NETWORK_TOLERATION = {"key": _PREFIX + "network-unavailable", "operator": "Exists", "effect": NO_SCHEDULE}


@dataclass(frozen=True, slots=True)
class EligibleNodes:
    """Names of nodes: where a daemon pod should run, and where an existing one continues to (the former included)."""

    should_run: frozenset[str]
    should_continue_running: frozenset[str]


class DaemonSetNodes:
    """The labels and taints of all nodes."""

    def __init__(self) -> None:
        self._table = NodeTable()
        #: By the DaemonSet's uid: the table revision and the pod spec of the cached result.
        self._cache: dict[str, tuple[int, Object, EligibleNodes]] = {}

    def update(self, event: WatchEvent) -> bool:
        """Apply a change of a node. Returns whether it can change the eligible nodes of a DaemonSet."""
        revision = self._table.revision
        node = structs.replace(meta.decode(Node, event.object.data), status=NodeStatus())
        name = node.metadata.name
        if event.type == "DELETED":
            self._table.remove(name)
        elif name in self._table.rows:
            self._table.update(node)
        else:
            self._table.add(node)
        return self._table.revision != revision

    def __contains__(self, name: str) -> bool:
        return name in self._table.rows

    def eligible(self, uid: str, pod_spec: Object) -> EligibleNodes:
        """The nodes for pods with ``pod_spec`` of the DaemonSet ``uid``."""
        cached = self._cache.get(uid)
        if cached is None or cached[:2] != (self._table.revision, pod_spec):
            cached = self._cache[uid] = (self._table.revision, pod_spec, self._compute_eligible(pod_spec))
        return cached[2]

    def discard(self, uid: str) -> None:
        """Drop the cached result of a deleted DaemonSet."""
        self._cache.pop(uid, None)

    def _compute_eligible(self, pod_spec: Object) -> EligibleNodes:
        spec = meta.convert(PodSpec, with_daemon_tolerations(pod_spec))
        nodes = Nodes(self._table, slice(0, len(self._table)))
        selected = selected_by(nodes, spec)
        if spec.node_name:
            selected &= np.array(nodes.names) == spec.node_name
        return EligibleNodes(
            _names(nodes, selected & _tolerated(nodes, spec.tolerations, NO_SCHEDULE, NO_EXECUTE)),
            _names(nodes, selected & _tolerated(nodes, spec.tolerations, NO_EXECUTE)),
        )


def with_daemon_tolerations(pod_spec: Object) -> Object:
    """The pod spec of a template, with the tolerations of every daemon pod added."""
    added = (*_TOLERATIONS, *((_HOST_NETWORK_TOLERATION,) if pod_spec.get("hostNetwork") else ()))
    own = [toleration for toleration in pod_spec.get("tolerations") or () if toleration not in added]
    return {**pod_spec, "tolerations": [*own, *(dict(toleration) for toleration in added)]}


def _tolerated(nodes: Nodes, tolerations: list[Toleration], *effects: str) -> NDArray[np.bool_]:
    """Per node, bool: whether all its taints with these effects are tolerated."""

    def are_tolerated(taints: Sequence[Taint]) -> bool:
        return not untolerated(taints, tolerations, effects=effects)

    return nodes.by_taints(are_tolerated, np.bool_)


def _names(nodes: Nodes, mask: NDArray[np.bool_]) -> frozenset[str]:
    return frozenset(nodes.name(int(position)) for position in np.flatnonzero(mask))
