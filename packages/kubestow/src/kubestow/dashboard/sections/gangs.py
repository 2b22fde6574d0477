"""Gangs and their members."""

from __future__ import annotations

import heapq
from typing import Any

from kubestow.cluster.pods.pod_groups import PodGroupName
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.dashboard.sections.section import WholeSection
from kubestow.errors import PluginError
from kubestow.scheduling.scheduler import Scheduler

__all__ = ["GangsSection"]

#: Gangs that are listed, those that lack most pods first, and their members.
_MOST_GANGS, _MOST_MEMBERS = 50, 64


class GangsSection(WholeSection):
    """The pod groups that have members."""

    name = "gangs"

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def _read(self) -> dict[str, Any]:
        groups = self._scheduler.cluster.pod_groups
        names = heapq.nlargest(_MOST_GANGS, groups, key=self._lacking)
        return {"count": len(groups), "gangs": [self._gang(name) for name in names]}

    def _lacking(self, name: PodGroupName) -> tuple[int, str]:
        members = self._scheduler.cluster.pod_groups.members(name)
        return len(members.pods) - len(members.placed), str(name)

    def _gang(self, name: PodGroupName) -> dict[str, Any]:
        members = self._scheduler.cluster.pod_groups.members(name)
        pods = list(members.pods.values())
        return {
            "name": str(name),
            "api": name.api.value,
            "minCount": self._min_count(pods[0]),
            "pods": len(pods),
            "placed": len(members.placed),
            "members": [self._member(info) for info in pods[:_MOST_MEMBERS]],
        }

    def _min_count(self, info: PodInfo) -> int | None:
        """How many members must have nodes at the same time; None if the profile does not schedule the group as one."""
        profile = self._scheduler.profiles.get(info.spec.scheduler_name)
        try:
            gang = None if profile is None else profile.gangs.gang_of(info)
        except PluginError:
            return None
        return None if gang is None else gang.min_count

    def _member(self, info: PodInfo) -> dict[str, str]:
        placed_pod = self._scheduler.cluster.placed_pod(info.uid)
        if placed_pod is not None:
            is_waiting = self._scheduler.waiting_pods.get(info.uid) is not None
            state = "waiting on permit" if is_waiting else "assumed" if placed_pod.assumed else "placed"
            return {"pod": info.key, "state": state, "node": placed_pod.node_name}
        queued = self._scheduler.queue.pods.get(info.uid)
        return {"pod": info.key, "state": "in flight" if queued is None else queued.place.value, "node": ""}
