"""TopologyPlacementGenerator puts a whole pod group into one rack, zone or whatever label it names (semantics 8.19).

It reads the topology constraint of Kubernetes' pod groups, of which the API allows one: a key of node labels. Every
value of that label is a placement, made of the nodes that have it. Once some of the group have nodes, the others follow
them.

Where nobody else says what a gang is (without the plugin GangScheduling), it does: then no group waits for its number,
but the pods of each are decided about together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.scheduling import PodGroup
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import memberships, native_name
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import EventRegistration, Invalidation, on
from kubestow.framework.gang import Gang, GangOutcome, GangSource
from kubestow.framework.interface import Handle
from kubestow.framework.placement import Placement, PlacementGeneratePlugin
from kubestow.framework.status import Status
from kubestow.plugins.gang_scheduling.pod_group_conditions import PodGroupConditions

__all__ = ["TopologyPlacementGenerator"]

#: How long members may wait for each other before they are bound, in seconds (semantics 8.18).
_TIMEOUT = 300.0
_UNDETERMINED = "cannot determine domain for already scheduled pods"


class TopologyPlacementGenerator(PlacementGeneratePlugin, GangSource):
    """One placement per value of the label that the group names."""

    name = "TopologyPlacementGenerator"
    kinds = (PodGroup,)

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._conditions = PodGroupConditions(handle)
        self.events_to_register: Sequence[EventRegistration] = (
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, invalidates=Invalidation.NOTHING),
            on(EventResource.ASSIGNED_POD, Action.DELETE, invalidates=Invalidation.NOTHING, hint=_is_sibling),
        )

    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The group that a pod names, whether or not it exists."""
        name = next(filter(None, map(native_name, memberships(pod))), None)
        if name is None:
            return None
        group = self.handle.cluster.catalog(PodGroup).get(name.namespace, name.name)
        uid = "" if group is None else group.metadata.uid
        return Gang(name, uid, 0, _TIMEOUT, self.handle.cluster.pod_groups.members(name))

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """The group has a condition for it."""
        self._conditions.attempt_ended(gang, outcome, message)

    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        """The domains of the group's topology; only that of its placed pods if there are any."""
        name = native_name(gang.name)
        if name is None:
            return None
        group = self.handle.cluster.catalog(PodGroup).get(name.namespace, name.name)
        if group is None:
            return Status.error(f'podgroup.scheduling.k8s.io "{name.name}" not found')
        if not group.spec.scheduling_constraints.topology:
            return None
        key = group.spec.scheduling_constraints.topology[0].key
        values = nodes.label_values(key)
        chosen = self._chosen(gang, key)
        if isinstance(chosen, Status):
            return chosen
        ids = nodes.label(key)
        there = {number: value for number in np.unique(ids).tolist() if (value := values[number]) is not None}
        return [
            Placement(value, nodes.select(_having(ids, number)))
            for number, value in sorted(there.items(), key=lambda entry: entry[1])
            if chosen is None or value == chosen
        ]

    def _chosen(self, gang: Gang, key: str) -> str | Status | None:
        """The domain in which the group is already; an error when that is not one domain."""
        chosen: str | None = None
        for uid in gang.members.placed:
            domain = self._domain(uid, gang.members.pods[uid], key)
            if isinstance(domain, Status):
                return domain
            if chosen not in (None, domain):
                both = ", ".join(sorted((str(chosen), domain)))
                return Status.error(f"{_UNDETERMINED}: more than 1 domain found for pod group: {both}")
            chosen = domain
        return chosen

    def _domain(self, uid: str, pod: PodInfo, key: str) -> str | Status:
        cluster = self.handle.cluster
        placed_pod = cluster.placed_pod(uid)
        node_name = placed_pod.node_name if placed_pod is not None else ""
        row = cluster.nodes.rows.get(node_name)
        if row is None:
            return Status.error(
                f'{_UNDETERMINED}: getting node for pod {pod.key}: nodeinfo not found for node name "{node_name}"'
            )
        domain = cluster.nodes.objects[row].metadata.labels.get(key)
        return (
            Status.error(f"{_UNDETERMINED}: no topology domain found for pod {pod.key}") if domain is None else domain
        )


def _having(ids: NDArray[np.int32], number: int) -> NDArray[np.bool_]:
    having: NDArray[np.bool_] = np.equal(ids, number)
    return having


def _is_sibling(pod: PodInfo, old: PodInfo, new: None) -> bool:
    """Whether a pod of the same group has left its node, and perhaps its domain with it."""
    return not set(memberships(pod)).isdisjoint(memberships(old))
