"""NodeDeclaredFeatures keeps pods off nodes that lack a feature their spec needs (semantics 8.20)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from kubestow.api.core import Node
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin, Handle, PreFilterPlugin
from kubestow.framework.status import Status, Verdict

__all__ = ["NodeDeclaredFeatures"]

_REFUSAL = Status.unresolvable("node(s) didn't match Pod's required features")

_RESTART_ALL = "RestartAllContainersOnContainerExits"
_HOST_NETWORK_IN_USER_NAMESPACE = "UserNamespacesHostNetworkSupport"


def _required(pod: PodInfo) -> frozenset[str]:
    """The features that a node must declare to run a pod, as far as its spec tells."""
    spec = pod.spec
    required = set()
    if any(
        rule.action == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    ):
        required.add(_RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        required.add(_HOST_NETWORK_IN_USER_NAMESPACE)
    return frozenset(required)


class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    """Compares what a pod's spec implies with ``status.declaredFeatures`` of the nodes."""

    name = "NodeDeclaredFeatures"
    missing_pre_filter_error = 'error reading "PreFilterNodeDeclaredFeatures" from cycle-state: not found'

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._enabled = handle.feature_enabled("NodeDeclaredFeatures")
        self.events_to_register = (
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, hint=_declares_enough_now),
            on(EventResource.POD, Action.UPDATE, invalidates=Invalidation.NOTHING, hint=_requires_something_else),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods that require any feature."""
        return self._enabled and bool(_required(pod))

    def signature(self, pod: PodInfo) -> Hashable:
        """The features."""
        return _required(pod)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        """Nothing to prepare."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Decided once per distinct set of declared features."""
        required = _required(pod)
        lacking = nodes.by_declared_features(lambda declared: not required <= declared, np.bool_)
        return Verdict.rejecting(lacking, _REFUSAL) if lacking.any() else None


def _declares_enough_now(pod: PodInfo, old: Node | None, new: Node) -> bool:
    if old is not None and old.status.declared_features == new.status.declared_features:
        return False
    return _required(pod) <= set(new.status.declared_features)


def _requires_something_else(pod: PodInfo, old: PodInfo, new: PodInfo) -> bool:
    return pod.uid == new.uid and _required(old) != _required(new)
