"""TopologyPlacementGenerator puts a whole pod group into one rack, zone or whatever label it names (reference 8.19).

It reads the topology constraint of Kubernetes' pod groups, of which the API allows one: a key of node labels. Every
value of that label is a placement, made of the nodes that have it. Once some of the group have nodes, the others follow
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.scheduling import PodGroup
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.pod_groups import PodGroupAPI, PodGroupName, memberships
from kubestow.cluster.pods import PodInfo
from kubestow.cluster.views import Nodes
from kubestow.framework.gangs import Gang
from kubestow.framework.interest import Interest, Spoils, on
from kubestow.framework.placements import Placement, PlacementGeneratePlugin
from kubestow.framework.plugin import Handle
from kubestow.framework.status import Status

__all__ = ["TopologyPlacementGenerator"]

_UNDETERMINED = "cannot determine domain for already scheduled pods"


class TopologyPlacementGenerator(PlacementGeneratePlugin):
    """One placement per value of the label that the group names."""

    name = "TopologyPlacementGenerator"
    kinds = (PodGroup,)

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.interests: Sequence[Interest] = (
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, spoils=Spoils.NOTHING),
            on(EventResource.ASSIGNED_POD, Action.DELETE, spoils=Spoils.NOTHING, hint=_is_sibling),
        )

    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        """The domains of the group's topology; only that of its placed pods if there are any."""
        key = self._key(gang)
        if not key:
            return None
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

    def _key(self, gang: Gang) -> str:
        name = gang.name
        if not isinstance(name, PodGroupName) or name.api is not PodGroupAPI.KUBERNETES:
            return ""
        group = self.handle.cluster.catalog(PodGroup).get(name.namespace, name.name)
        constraints = group.spec.scheduling_constraints.topology if group is not None else ()
        return constraints[0].key if constraints else ""

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
        placement = cluster.placement(uid)
        node_name = placement.node_name if placement is not None else ""
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
