"""Reads the pod groups of three APIs: Kubernetes, the co-scheduling plugin and Volcano (semantics 4.10, 8.18).

A pod names its group by a field, a label or an annotation; the group sets how many pods it needs at the same time and
how long they wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubestow.api.scheduling import CoschedulingPodGroup, PodGroup, VolcanoPodGroup
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.pod_groups import PodGroupAPI, PodGroupName, memberships
from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["DEFAULT_SCHEDULE_TIMEOUT", "AnyPodGroup", "PodGroupLister", "gang_policy", "name_of"]

AnyPodGroup = PodGroup | CoschedulingPodGroup | VolcanoPodGroup

#: How long placed members wait for each other before they are bound, in seconds, where the group sets no timeout.
DEFAULT_SCHEDULE_TIMEOUT = 300.0

_KINDS: dict[PodGroupAPI, type[AnyPodGroup]] = {
    PodGroupAPI.KUBERNETES: PodGroup,
    PodGroupAPI.COSCHEDULING: CoschedulingPodGroup,
    PodGroupAPI.VOLCANO: VolcanoPodGroup,
}
_APIS = {kind: api for api, kind in _KINDS.items()}


class PodGroupLister:
    """The pod groups of some APIs in the cluster cache."""

    def __init__(self, cluster: Cluster, apis: Sequence[PodGroupAPI]) -> None:
        self._catalogs = {api: cluster.catalog(_KINDS[api]) for api in apis}
        self.kinds = tuple(_KINDS[api] for api in apis)

    def name_for(self, pod: PodInfo) -> PodGroupName | None:
        """The group that a pod names; of several, the one whose API is first in the order of PodGroupAPI."""
        return next((name for name in memberships(pod) if name.api in self._catalogs), None)

    def get(self, name: PodGroupName) -> AnyPodGroup | None:
        """A group by name, None if it does not exist."""
        return self._catalogs[name.api].get(name.namespace, name.name)


def name_of(group: AnyPodGroup) -> PodGroupName:
    """The name by which pods refer to a group."""
    return PodGroupName(_APIS[type(group)], group.metadata.namespace, group.metadata.name)


def gang_policy(group: AnyPodGroup) -> tuple[int, float]:
    """The number of pods that a group needs at the same time, and how long they wait for each other in seconds."""
    if isinstance(group, PodGroup):
        gang = group.spec.scheduling_policy.gang
        return (gang.min_count if gang is not None else 0), DEFAULT_SCHEDULE_TIMEOUT
    timeout = group.spec.schedule_timeout_seconds if isinstance(group, CoschedulingPodGroup) else None
    return group.spec.min_member, float(timeout) if timeout else DEFAULT_SCHEDULE_TIMEOUT
