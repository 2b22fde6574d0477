"""A cluster whose pod groups a GangScheduling plugin reads and writes."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from core_tests.scheduling.gangs.groups import GATES, TEAMS
from kubestow.api.core import Pod
from kubestow.api.scheduling import Condition, PodGroup, PodGroupStatus
from kubestow.cluster.changes.catalog import KubernetesObject
from kubestow.errors import APIError
from kubestow.framework.gang import Gang
from kubestow.plugins.gang_scheduling.gang_scheduling import GangScheduling
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.testing import PluginHarness, node


class Groups(PluginHarness):
    """A cluster with a GangScheduling plugin that can patch pod groups."""

    def __init__(self, *pods: Pod, gates: Mapping[str, bool] | None = None) -> None:
        super().__init__([node("n")], gates=GATES if gates is None else gates, pod_group_apis=[TEAMS])
        self.plugin = GangScheduling(None, self)
        #: The number of writes that fail with a conflict.
        self.conflicts = 0
        for each in pods:
            self.add_pods(each)

    def add_pods(self, *pods: Pod) -> None:
        for each in pods:
            self.cluster.pod_groups.put(self.info(each))

    def add(self, obj: Any) -> None:
        self.cluster.catalog(type(obj)).put(obj)

    def gang(self, of: Pod) -> Gang | None:
        return self.plugin.gang_of(self.info(of))

    def conditions(self, name: str = "train") -> list[Condition]:
        found = self.cluster.catalog(PodGroup).get("default", name)
        assert found is not None
        return found.status.conditions

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        run_synchronously(work)

    async def patch(self, obj: KubernetesObject, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        assert subresource == "status" and isinstance(obj, PodGroup)
        if self.conflicts:
            self.conflicts -= 1
            raise APIError(409, "Conflict", "the object has been modified")
        status = msgspec.convert(changes["status"], PodGroupStatus)
        self.add(msgspec.structs.replace(obj, status=status))
        return "2"
