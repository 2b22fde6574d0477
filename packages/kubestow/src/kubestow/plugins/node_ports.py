"""NodePorts keeps pods off nodes where a host port that they request is in use (semantics 8.7)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import (
    HintKeys,
    Invalidation,
    events_of_nodes_without_hints,
    on,
    placed_pods,
)
from kubestow.framework.interface import FilterPlugin, Handle, PreFilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.rules.minors import Behaviour

_PORTS_IN_USE = Status.unschedulable("node(s) didn't have free ports for the requested pod ports")


class NodePorts(PreFilterPlugin, FilterPlugin):
    """Compares the pod's host ports with those in use on each node."""

    name = "NodePorts"
    reads_requests = reads_volumes = False
    label_keys = ()
    missing_pre_filter_error = 'reading "PreFilterNodePorts" from cycleState: not found'

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._counts = placed_pods(handle, Behaviour.HINTS_LOOK_AT_NOMINATED_PODS)
        self.events_to_register = (
            on(EventResource.POD, Action.ADD | Action.UPDATE, requeues=False),
            on(
                EventResource.POD,
                Action.DELETE,
                hint=self._is_schedulable_after_pod_deleted,
                hint_keys=self._keys_of_deleted_pod,
            ),
            on(EventResource.NODE, Action.ADD, invalidates=Invalidation.ROW),
            *events_of_nodes_without_hints(handle),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        return bool(pod.shape.host_ports)

    def signature(self, pod: PodInfo) -> Hashable:
        return pod.shape.host_ports

    hint_signature = signature

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        """Protocol and number of the host ports."""
        return [(port.protocol, port.port) for port in pod.shape.host_ports]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        """Nothing to prepare: the host ports are part of the pod's shape."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        in_use = np.zeros(len(nodes), np.bool_)
        for port in pod.shape.host_ports:
            in_use |= nodes.port_taken(port)
        return Verdict.rejecting(in_use, _PORTS_IN_USE) if in_use.any() else None

    # -- queueing hints ----------------------------------------------------------------------------------------------

    def _is_schedulable_after_pod_deleted(self, pod: PodInfo, old: PodInfo, new: None) -> bool:
        """Whether the deleted pod was placed and one of its host ports conflicts with one of the pod's."""
        requested = pod.shape.host_ports
        return self._counts(old) and any(requested.conflicts_with(freed) for freed in old.shape.host_ports)

    def _keys_of_deleted_pod(self, old: PodInfo, new: None) -> HintKeys:
        return self.hint_keys(old) if self._counts(old) else ()
