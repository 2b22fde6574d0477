"""Pods to activate once another pod has been scheduled (semantics 4.8, pods-to-activate).

From Reserve on, a plugin adds them to the cycle state of the pod that is being scheduled. They are moved to the active
queue at the end of a successful scheduling cycle, and those added later after PostBind; when the pod fails on the way
they stay where they are. To activate pods at once, use the handle.
"""

from __future__ import annotations

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState

__all__ = ["PodsToActivate"]


class PodsToActivate:
    """The pods to activate after one cycle: ``PodsToActivate.of(state).add(sibling)``."""

    __slots__ = ("_pods",)

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}

    @classmethod
    def of(cls, state: CycleState) -> PodsToActivate:
        """Those of a cycle, shared by all its plugins."""
        found = state.own(cls)
        if found is None:
            found = cls()
            state.put(found)
        return found

    def add(self, *pods: PodInfo) -> None:
        """Add pods; adding one twice has no effect."""
        self._pods.update((pod.uid, pod) for pod in pods)

    def take(self) -> list[PodInfo]:
        """The pods added since the last call."""
        pods, self._pods = list(self._pods.values()), {}
        return pods
