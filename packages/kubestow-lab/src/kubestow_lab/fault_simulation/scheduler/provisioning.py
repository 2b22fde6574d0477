"""A plugin that has pods wait on Permit for a node that is being provisioned, and that only new nodes concern."""

from __future__ import annotations

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import Permission, PermitPlugin
from kubestow.framework.status import Code, Status

NAME = "ProvisioningPlugin"
WAITS_FOR_NODE = "example.org/waits-for-node"
"""The label of pods that wait on Permit unless a node of this name exists."""

#: The seconds after which that wait times out. A node that comes before lets the next attempt succeed.
_LONGEST_WAIT = 5.0


class ProvisioningPlugin(PermitPlugin):
    """Looks for the node in each attempt, and not while a pod waits."""

    name = NAME
    events_to_register = (on(EventResource.NODE, Action.ADD, invalidates=Invalidation.NOTHING),)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        awaited = pod.metadata.labels.get(WAITS_FOR_NODE)
        if awaited is None or awaited in self.handle.cluster.nodes.rows:
            return Permission()
        return Permission(Status(Code.WAIT), _LONGEST_WAIT)
