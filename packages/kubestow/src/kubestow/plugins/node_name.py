"""NodeName keeps a pod that has ``spec.nodeName`` off all other nodes (semantics 8.4)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import events_of_nodes_without_hints, on
from kubestow.framework.interface import FilterPlugin, Handle
from kubestow.framework.status import Status, Verdict

_OTHER_NODE = Status.unresolvable("node(s) didn't match the requested node name")


class NodeName(FilterPlugin):
    """Rejects every node but the one in ``spec.nodeName``. Only simulated pods have one; queued pods do not."""

    name = "NodeName"
    reads_requests = reads_volumes = False
    label_keys = ()

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.events_to_register = (on(EventResource.NODE, Action.ADD), *events_of_nodes_without_hints(handle))

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The node name is not part of a pod's shape, so results are cached only for pods without one."""
        return None if pod.spec.node_name else ()

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        if not pod.spec.node_name:
            return None
        return Verdict.rejecting(~nodes.named(pod.spec.node_name), _OTHER_NODE)
