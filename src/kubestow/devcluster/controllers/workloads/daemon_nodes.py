"""The nodes that a daemon set's pods belong on, answered from the same columns of nodes that the scheduler uses.

A pod should run where node name, selector, required affinity and taints let it. It may stay, though it would not be put
there today, where only a taint that evicts nobody keeps it off.
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
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.storage.store import Event

__all__ = ["DaemonNodes", "Eligible", "with_tolerations"]

_PREFIX = "node.kubernetes.io/"
#: What every daemon pod tolerates: nodes that are not well, and nodes that take no others.
_TOLERATIONS: tuple[dict[str, str], ...] = (
    *({"key": _PREFIX + name, "operator": "Exists", "effect": NO_EXECUTE} for name in ("not-ready", "unreachable")),
    *(
        {"key": _PREFIX + name, "operator": "Exists", "effect": NO_SCHEDULE}
        for name in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
_HOST_NETWORK_TOLERATION = {"key": _PREFIX + "network-unavailable", "operator": "Exists", "effect": NO_SCHEDULE}


@dataclass(frozen=True, slots=True)
class Eligible:
    """Names of nodes: where a daemon set's pod should run, and where it may stay (the former among them)."""

    should_run: frozenset[str]
    may_stay: frozenset[str]


class DaemonNodes:
    """All nodes of the cluster, with their labels and taints."""

    def __init__(self) -> None:
        self._table = NodeTable()
        #: By daemon set: the revision of the table and the spec for which the answer holds.
        self._answers: dict[str, tuple[int, Object, Eligible]] = {}

    def observe(self, event: Event) -> bool:
        """Take note of a change of a node; whether it can change an answer."""
        before = self._table.revision
        node = structs.replace(meta.decode(Node, event.object.data), status=NodeStatus())
        name = node.metadata.name
        if event.type == "DELETED":
            self._table.remove(name)
        elif name in self._table.rows:
            self._table.update(node)
        else:
            self._table.add(node)
        return self._table.revision != before

    def __contains__(self, name: str) -> bool:
        return name in self._table.rows

    def eligible(self, uid: str, spec: Object) -> Eligible:
        """The nodes for pods with this spec, of the daemon set with this uid."""
        known = self._answers.get(uid)
        if known is None or known[:2] != (self._table.revision, spec):
            known = self._answers[uid] = (self._table.revision, spec, self._decide(spec))
        return known[2]

    def forget(self, uid: str) -> None:
        """The daemon set is gone."""
        self._answers.pop(uid, None)

    def _decide(self, spec: Object) -> Eligible:
        pod = meta.convert(PodSpec, with_tolerations(spec))
        nodes = Nodes(self._table, slice(0, len(self._table)))
        chosen = selected_by(nodes, pod)
        if pod.node_name:
            chosen &= np.array(nodes.names) == pod.node_name
        return Eligible(
            _names(nodes, chosen & _tolerating(nodes, pod.tolerations, NO_SCHEDULE, NO_EXECUTE)),
            _names(nodes, chosen & _tolerating(nodes, pod.tolerations, NO_EXECUTE)),
        )


def with_tolerations(spec: Object) -> Object:
    """The spec of a template, with what every daemon pod tolerates."""
    added = (*_TOLERATIONS, *((_HOST_NETWORK_TOLERATION,) if spec.get("hostNetwork") else ()))
    own = [one for one in spec.get("tolerations") or () if one not in added]
    return {**spec, "tolerations": [*own, *(dict(one) for one in added)]}


def _tolerating(nodes: Nodes, tolerations: list[Toleration], *effects: str) -> NDArray[np.bool_]:
    """The nodes that have no taint of these effects but tolerated ones, bool."""

    def tolerated(taints: Sequence[Taint]) -> bool:
        return not untolerated(taints, tolerations, effects=effects)

    return nodes.by_taints(tolerated, np.bool_)


def _names(nodes: Nodes, mask: NDArray[np.bool_]) -> frozenset[str]:
    return frozenset(nodes.name(int(position)) for position in np.flatnonzero(mask))
