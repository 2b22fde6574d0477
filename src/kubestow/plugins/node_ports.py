"""NodePorts keeps pods off nodes where a host port they ask for is taken (semantics 8.7)."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin, PreFilterPlugin
from kubestow.framework.status import Status, Verdict

__all__ = ["NodePorts"]

_REFUSAL = Status.unschedulable("node(s) didn't have free ports for the requested pod ports")


def _freed_a_wanted_port(pod: PodInfo, old: PodInfo, new: None) -> bool:
    placed = old.spec.node_name or old.status.nominated_node_name
    return bool(placed) and any(
        freed.conflicts_with(wanted) for freed in old.shape.host_ports for wanted in pod.shape.host_ports
    )


class NodePorts(PreFilterPlugin, FilterPlugin):
    """Compares the pod's host ports with those in use on each node."""

    name = "NodePorts"
    missing_pre_filter_error = 'reading "PreFilterNodePorts" from cycleState: not found'
    events_to_register = (
        on(EventResource.POD, Action.ADD | Action.UPDATE, requeues=False),
        on(EventResource.POD, Action.DELETE, hint=_freed_a_wanted_port),
        on(EventResource.NODE, Action.ADD, invalidates=Invalidation.ROW),
    )

    def applies_to(self, pod: PodInfo) -> bool:
        """Only pods with host ports."""
        return bool(pod.shape.host_ports)

    def signature(self, pod: PodInfo) -> Hashable:
        """The host ports."""
        return pod.shape.host_ports

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Nothing to prepare."""
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Any conflict rejects."""
        taken = np.zeros(len(nodes), np.bool_)
        for port in pod.shape.host_ports:
            taken |= nodes.port_taken(port)
        return Verdict.rejecting(taken, _REFUSAL) if taken.any() else None
