"""Pods that a plugin wants tried again once another pod has come so far (semantics 4.8, pods-to-activate).

A plugin names them in the cycle state of the pod that is being scheduled, from Reserve on. They are moved to the active
queue at the end of that pod's scheduling cycle, if it succeeded, and those named later after PostBind; where the pod
fails on the way they stay where they are. Who wants pods tried again at once asks the handle.
"""

from __future__ import annotations

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState

__all__ = ["PodsToActivate"]


class PodsToActivate:
    """The pods that one cycle wants to be tried again: ``PodsToActivate.of(state).add(sibling)``."""

    __slots__ = ("_pods",)

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}

    @classmethod
    def of(cls, state: CycleState) -> PodsToActivate:
        """Those of a cycle, shared by all plugins that take part in it."""
        found = state.own(cls)
        if found is None:
            found = cls()
            state.put(found)
        return found

    def add(self, *pods: PodInfo) -> None:
        """Name pods; naming one twice is naming it once."""
        self._pods.update((pod.uid, pod) for pod in pods)

    def take(self) -> list[PodInfo]:
        """The pods named since the last time."""
        pods, self._pods = list(self._pods.values()), {}
        return pods
