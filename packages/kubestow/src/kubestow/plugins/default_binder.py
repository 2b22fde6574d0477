"""DefaultBinder binds a pod to its node through the API server (semantics 8.17)."""

from __future__ import annotations

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, Unreachable
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import BindPlugin
from kubestow.framework.status import Status


class DefaultBinder(BindPlugin):
    """Creates the pod's Binding; any error of the API server fails the binding cycle."""

    name = "DefaultBinder"
    time_limit = None  # if the outcome of the request is unknown, the pod is read until the API server answers
    events_to_register = ()

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """None once the API server has accepted the binding."""
        try:
            await self.handle.bind(pod, node_name)
        except (APIError, Unreachable) as error:
            return Status.error(str(error))
        return None
