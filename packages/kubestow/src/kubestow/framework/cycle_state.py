"""The data that plugins keep for one pod between extension points.

It is typed: a plugin stores one value of its own class and looks it up by that class, without string keys and casts.
What PreFilter has prepared from a pod's shape is shared by all pods of that shape; later writes belong to one cycle.
"""

from __future__ import annotations

from typing import Any, TypeVar

from kubestow.cluster.pods.shapes import PodInfo

S = TypeVar("S")


class CycleState:
    """Values by their type: ``state.put(SpreadCounts(...))``, later ``state[SpreadCounts]``.

    A state made from ``shared`` states also has the values that those have then, and keeps its own writes to itself.
    """

    __slots__ = ("_own", "_values")

    def __init__(self, *shared: CycleState) -> None:
        self._own: dict[type, object] = {}
        self._values: dict[type, Any] = {}
        for state in reversed(shared):
            if state._values:
                self._values |= state._values

    def put(self, value: object) -> None:
        """Store a value in place of one of the same type."""
        self._own[type(value)] = self._values[type(value)] = value

    def get(self, kind: type[S]) -> S | None:
        """The value of a type, None when there is none."""
        return self._values.get(kind)

    def own(self, kind: type[S]) -> S | None:
        """The value of a type that was put into this very state, None when there is none or only a shared one."""
        return self._own.get(kind)  # type: ignore[return-value]  # stored under its own type

    def __getitem__(self, kind: type[S]) -> S:
        """The value of a type. Raises KeyError when there is none."""
        if kind not in self._values:
            raise KeyError(kind.__name__)
        return self._values[kind]  # type: ignore[no-any-return]  # stored under its own type


class PodsToActivate:
    """Pods to activate once another pod has been scheduled (semantics 4.8): ``PodsToActivate.of(state).add(sibling)``.

    From Reserve on, a plugin adds them to the cycle state of the pod that is being scheduled. They are moved to activeQ
    at the end of a successful scheduling cycle, and those added later after PostBind; when the pod fails on the way
    they stay where they are. To activate pods at once, use the handle.
    """

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
