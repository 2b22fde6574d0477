"""TopologyPlacementGenerator places a whole pod group in one topology domain, such as a rack or zone (semantics 8.19).

It reads the topology constraint of Kubernetes' pod groups, a key of node labels. Each value of that label is a
placement: the nodes that have the value. Once members of the group have nodes, their domain is the only placement.

In a profile without GangScheduling this plugin declares the gangs. Then no group waits for a minimum number of pods,
but the pods of each are still scheduled in one cycle.

PodGroupPodsCount prefers the placement that takes most pods of a group (semantics 8.19).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import COMPOSITE, KUBERNETES, PodGroupName
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import EventRegistration, Invalidation, on
from kubestow.framework.gang import (
    Gang,
    GangOutcome,
    GangSource,
    Placement,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    Proposal,
    placements_by_label,
)
from kubestow.framework.interface import Handle, normalized
from kubestow.framework.status import Status
from kubestow.plugins.gang_scheduling.gang_scheduling import DEFAULT_SCHEDULE_TIMEOUT, PodGroupConditions

_POD_GROUP_NOT_FOUND = 'podgroup.scheduling.k8s.io "{}" not found'
_UNDETERMINED = "cannot determine domain for already scheduled pods: "
_SEVERAL_DOMAINS = _UNDETERMINED + "more than 1 domain found for pod group: {}"
_NODE_NOT_FOUND = _UNDETERMINED + 'getting node for pod {}: nodeinfo not found for node name "{}"'
_NO_DOMAIN = _UNDETERMINED + "no topology domain found for pod {}"


class TopologyPlacementGenerator(PlacementGeneratePlugin, GangSource):
    """Generates one placement per value of the node label in the group's topology constraint."""

    name = "TopologyPlacementGenerator"
    kinds = (PodGroup,)

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._pod_groups = handle.cluster.catalog(PodGroup)
        self._composites = handle.cluster.catalog(CompositePodGroup)
        self._conditions = PodGroupConditions(handle)
        self.events_to_register: Sequence[EventRegistration] = (
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, invalidates=Invalidation.NOTHING),
            on(
                EventResource.ASSIGNED_POD,
                Action.DELETE,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_pod_deleted,
            ),
        )

    def hint_signature(self, pod: PodInfo) -> Hashable:
        """The groups."""
        return tuple(self.handle.cluster.pod_groups.memberships(pod))

    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        """The domains of the group's topology, sorted by label value; only the current one if members have nodes."""
        name = gang.name
        if not isinstance(name, PodGroupName) or name.api not in (KUBERNETES.name, COMPOSITE):
            return None
        catalog = self._composites if name.api == COMPOSITE else self._pod_groups
        group: PodGroup | CompositePodGroup | None = catalog.get(name.namespace, name.name)
        if group is None:
            return Status.error(_POD_GROUP_NOT_FOUND.format(name.name))
        if not group.spec.scheduling_constraints.topology:
            return None
        key = group.spec.scheduling_constraints.topology[0].key
        current = self._current_domain(gang, key)
        if isinstance(current, Status):
            return current
        return placements_by_label(nodes, key, current)

    def _current_domain(self, gang: Gang, key: str) -> str | Status | None:
        """The one domain of the placed members, None without any; an error if there is not exactly one."""
        current: str | None = None
        for uid in gang.members.placed:
            domain = self._domain_of(uid, gang.members.pods[uid], key)
            if isinstance(domain, Status):
                return domain
            if current not in (None, domain):
                return Status.error(_SEVERAL_DOMAINS.format(", ".join(sorted((str(current), domain)))))
            current = domain
        return current

    def _domain_of(self, uid: str, pod: PodInfo, key: str) -> str | Status:
        cluster = self.handle.cluster
        placed_pod = cluster.placed_pod(uid)
        node_name = placed_pod.node_name if placed_pod is not None else ""
        row = cluster.nodes.rows.get(node_name)
        if row is None:
            return Status.error(_NODE_NOT_FOUND.format(pod.key, node_name))
        domain = cluster.nodes.objects[row].metadata.labels.get(key)
        return Status.error(_NO_DOMAIN.format(pod.key)) if domain is None else domain

    # -- gangs ---------------------------------------------------------------------------------------------------

    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The group that a pod names, whether it exists or not."""
        group_name = KUBERNETES.group_of(pod.pod)
        if not group_name:
            return None
        name = PodGroupName(KUBERNETES.name, pod.namespace, group_name)
        group = self._pod_groups.get(name.namespace, name.name)
        uid = "" if group is None else group.metadata.uid
        return Gang(name, uid, 0, DEFAULT_SCHEDULE_TIMEOUT, self.handle.cluster.pod_groups.members(name))

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """Updates the condition of the group (semantics 4.10)."""
        self._conditions.attempt_ended(gang, outcome, message)

    # -- queueing hints ------------------------------------------------------------------------------------------

    def _is_schedulable_after_pod_deleted(self, pod: PodInfo, old: PodInfo, new: None) -> bool:
        """Whether the deleted pod was of the same group; without placed members the group can use another domain."""
        groups = self.handle.cluster.pod_groups
        return not set(groups.memberships(pod)).isdisjoint(groups.memberships(old))


class PodGroupPodsCount(PlacementScorePlugin):
    """Counts the group's pods that would have nodes, including those that have them already."""

    name = "PodGroupPodsCount"
    events_to_register = ()

    def score_placement(self, gang: Gang, proposal: Proposal) -> int:
        return len(gang.members.placed) + len(proposal.assignments)

    def normalize_placements(self, gang: Gang, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """The placement with most pods gets 100."""
        return normalized(scores)
