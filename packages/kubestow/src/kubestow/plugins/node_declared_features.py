"""NodeDeclaredFeatures keeps pods off nodes that lack a feature that their spec requires (semantics 8.20)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from kubestow.api.core import Node
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import HintKeys, Invalidation, on, only_itself
from kubestow.framework.interface import FilterPlugin, Handle, PreFilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.rules.minors import Behaviour

_MISSING_FEATURES = Status.unresolvable("node(s) didn't match Pod's required features")

_RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
_HOST_NETWORK_IN_USER_NAMESPACE = "UserNamespacesHostNetworkSupport"


class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    """Compares the features that a pod's spec requires with ``status.declaredFeatures`` of the nodes."""

    name = "NodeDeclaredFeatures"
    reads_requests = reads_volumes = False
    label_keys = ()
    missing_pre_filter_error: str | None = 'error reading "PreFilterNodeDeclaredFeatures" from cycle-state: not found'

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._enabled = handle.feature_enabled("NodeDeclaredFeatures")
        if not self._enabled:
            self.missing_pre_filter_error = None
        self._lists_features = not handle.emulates(Behaviour.DECLARED_FEATURES_ARE_NOT_LISTED)
        self._knows_user_namespaces = handle.emulates(Behaviour.HOST_NETWORK_IN_USER_NAMESPACE_IS_A_FEATURE)
        self.events_to_register = (
            on(
                EventResource.NODE,
                Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE,
                hint=self._is_schedulable_after_node_change,
                hint_keys=_keys_of_node_change,
            ),
            on(
                EventResource.POD,
                Action.UPDATE,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_pod_update,
                hint_keys=only_itself,
            ),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        return self._enabled and bool(self._required_features(pod))

    def signature(self, pod: PodInfo) -> Hashable:
        return self._required_features(pod)

    hint_signature = signature

    def hint_keys(self, pod: PodInfo) -> HintKeys | None:
        """The required features; None without any, because every node has them."""
        return self._required_features(pod) or None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        """Nothing to prepare: the required features follow from the pod's spec."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Evaluated once per distinct set of declared features."""
        required = self._required_features(pod)
        lacking = nodes.by_declared_features(lambda declared: not required <= declared, np.bool_)
        if not lacking.any():
            return None
        return Verdict.rejecting(lacking, _unsatisfied(required) if self._lists_features else _MISSING_FEATURES)

    def _required_features(self, pod: PodInfo) -> frozenset[str]:
        """The features that a node must declare to run the pod, derived from the pod's spec."""
        spec = pod.spec
        required = set()
        if any(
            rule.action == "RestartAllContainers"
            for container in (*spec.containers, *spec.init_containers)
            for rule in container.restart_policy_rules
        ):
            required.add(_RESTART_ALL_CONTAINERS)
        if self._knows_user_namespaces and spec.host_network and spec.host_users is False:
            required.add(_HOST_NETWORK_IN_USER_NAMESPACE)
        return frozenset(required)

    # -- queueing hints ----------------------------------------------------------------------------------------------

    def _is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        if old is not None and old.status.declared_features == new.status.declared_features:
            return False
        return self._required_features(pod) <= set(new.status.declared_features)

    def _is_schedulable_after_pod_update(self, pod: PodInfo, old: PodInfo, new: PodInfo) -> bool:
        return pod.uid == new.uid and self._required_features(old) != self._required_features(new)


def _keys_of_node_change(old: Node | None, new: Node) -> HintKeys:
    return new.status.declared_features


def _unsatisfied(required: frozenset[str]) -> Status:
    """The status of a node that lacks the required features; where features are listed, a pod requires at most one."""
    listed = ", ".join(sorted(required))
    return Status.unresolvable(f"node declared features check failed - unsatisfied requirements: {listed}")
