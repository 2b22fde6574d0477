"""The nodes on which a DaemonSet's pods belong.

A daemon pod should run on a node that its node name, node selector, required node affinity and tolerations allow. A pod
that is already there continues to run if the only obstacle is an untolerated NoSchedule taint.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import msgspec

from kubestow.api import meta
from kubestow.api.core import PodSpec, Taint
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, selects_node, untolerated
from kubestow.rules.workloads import tolerate_node_conditions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import WatchEvent

__all__ = ["DaemonSetNodes", "EligibleNodes"]


class _Labels(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class _Taints(msgspec.Struct, frozen=True):
    taints: tuple[Taint, ...] = ()


class _Node(msgspec.Struct, frozen=True):
    """What of a node decides whether daemon pods belong there."""

    metadata: _Labels = _Labels()
    spec: _Taints = _Taints()


class EligibleNodes(NamedTuple):
    """Names of nodes: where a daemon pod should run, and where an existing one continues to (the former included)."""

    should_run: Set[str]
    should_continue_running: Set[str]


class _DaemonPods:
    """The eligible nodes of the pods with one spec, kept up to date node by node."""

    def __init__(self, template: Object, nodes: dict[str, _Node]) -> None:
        self.template = template
        spec = dict(template)
        tolerate_node_conditions(spec)
        self._spec = meta.convert(PodSpec, spec)
        self._should_run: set[str] = set()
        self._should_continue: set[str] = set()
        self.eligible = EligibleNodes(self._should_run, self._should_continue)
        for name, node in nodes.items():
            self.update(name, node)

    def update(self, name: str, node: _Node | None) -> None:
        """Judge a new or changed node; None for a deleted one."""
        should_run = should_continue = False
        if node is not None and self._spec.node_name in ("", name):
            taints, tolerations = node.spec.taints, self._spec.tolerations
            is_selected = selects_node(self._spec, name, node.metadata.labels)
            should_continue = is_selected and not untolerated(taints, tolerations, effects=(NO_EXECUTE,))
            should_run = should_continue and not untolerated(taints, tolerations, effects=(NO_SCHEDULE,))
        for names, belongs in ((self._should_run, should_run), (self._should_continue, should_continue)):
            if belongs:
                names.add(name)
            else:
                names.discard(name)


class DaemonSetNodes:
    """The labels and taints of all nodes, and the eligible ones of each DaemonSet."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        #: By the DaemonSet's uid.
        self._daemon_pods: dict[str, _DaemonPods] = {}

    def update(self, event: WatchEvent) -> bool:
        """Apply a change of a node. Returns whether it can change the eligible nodes of a DaemonSet."""
        name = event.object.name
        node = None if event.type == "DELETED" else meta.decode(_Node, event.object.data)
        if self._nodes.get(name) == node:
            return False
        if node is None:
            del self._nodes[name]
        else:
            self._nodes[name] = node
        for pods in self._daemon_pods.values():
            pods.update(name, node)
        return True

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def eligible(self, uid: str, template: Object) -> EligibleNodes:
        """The nodes for pods with the template's spec of the DaemonSet ``uid``, valid until the next change."""
        pods = self._daemon_pods.get(uid)
        if pods is None or pods.template != template:
            pods = self._daemon_pods[uid] = _DaemonPods(template, self._nodes)
        return pods.eligible

    def discard(self, uid: str) -> None:
        """Drop the eligible nodes of a deleted DaemonSet."""
        self._daemon_pods.pop(uid, None)
