"""PreemptionToleration preempts like DefaultPreemption, but spares pods whose priority class tolerates it.

Two annotations of a PriorityClass say when its pods are spared. From ``minimum-preemptable-priority`` on, a preemptor
may evict them at once; by default that is any higher priority. One below has to wait until ``toleration-seconds`` have
passed since the pod was scheduled; a negative number means for ever. A class that is missing, or whose annotations are
malformed, tolerates nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.api.custom import CustomObject
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges
from kubestow.config.plugin_args import DefaultPreemptionArgs
from kubestow.framework.interface import FilterRunner, Handle
from kubestow.plugins.default_preemption.candidates import Candidates
from kubestow.plugins.default_preemption.default_preemption import DefaultPreemption

_PREFIX = "preemption-toleration.scheduling.x-k8s.io/"
_MINIMUM_PRIORITY, _SECONDS = f"{_PREFIX}minimum-preemptable-priority", f"{_PREFIX}toleration-seconds"


class PriorityClass(CustomObject, frozen=True):
    """A PriorityClass with its annotations."""

    resource: ClassVar[str] = "priorityclasses.v1.scheduling.k8s.io"
    value: int = 0


class PreemptionTolerationArgs(DefaultPreemptionArgs, frozen=True):
    """Those of DefaultPreemption."""

    def __post_init__(self) -> None:
        percentage, absolute = self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute
        if not 0 <= percentage <= 100:
            raise ValueError(f"minCandidateNodesPercentage is {percentage}, expected 0 to 100")
        if absolute < 0:
            raise ValueError(f"minCandidateNodesAbsolute is {absolute}, expected at least 0")
        if not percentage and not absolute:
            raise ValueError("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0")


class _Toleration(NamedTuple):
    """What the pods of a class tolerate."""

    minimum_priority: int
    seconds: float


class PreemptionToleration(DefaultPreemption):
    """Evicts pods of lower priority that do not tolerate it."""

    name = "PreemptionToleration"
    Args = PreemptionTolerationArgs
    kinds = (PriorityClass,)

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._tolerations: dict[str, _Toleration] = {}
        handle.cluster.catalog(PriorityClass).subscribe(self._class_changed)

    def may_evict(self, pod: PodInfo, others: PodChanges) -> NDArray[np.bool_]:
        """Which of the pods of some nodes may be evicted for a pod, bool."""
        found = super().may_evict(pod, others)
        if not self._tolerations:
            return found
        now, tolerations = self.handle.now().timestamp(), self._tolerations
        have_toleration = others.values_of(lambda shape: shape.spec.priority_class_name in tolerations)
        for position in np.flatnonzero(found & (have_toleration != 0)).tolist():
            found[position] = not self._is_spared(others.table.info(int(others.slots[position])), pod.priority, now)
        return found

    def _candidates(self, pod: PodInfo, filters: FilterRunner) -> Candidates:
        """None: former results do not hold, because pods cease to be spared as time passes."""
        return Candidates(self.handle.cluster.nodes)

    def _is_spared(self, victim: PodInfo, priority: int, now: float) -> bool:
        toleration = self._tolerations.get(victim.spec.priority_class_name)
        if toleration is None or priority >= toleration.minimum_priority:
            return False
        if toleration.seconds < 0:
            return True
        scheduled = condition_time(victim, "PodScheduled")
        return scheduled is None or scheduled + toleration.seconds > now

    def _class_changed(self, before: PriorityClass | None, after: PriorityClass | None) -> None:
        if before is not None:
            self._tolerations.pop(before.metadata.name, None)
        toleration = None if after is None else _toleration(after)
        if after is not None and toleration is not None:
            self._tolerations[after.metadata.name] = toleration


def _toleration(priority_class: PriorityClass) -> _Toleration | None:
    """What the pods of a class tolerate; None for nothing beside lower priorities."""
    annotations = priority_class.metadata.annotations
    if _MINIMUM_PRIORITY not in annotations and _SECONDS not in annotations:
        return None
    try:
        minimum = int(annotations.get(_MINIMUM_PRIORITY, priority_class.value + 1))
        return _Toleration(minimum, float(int(annotations.get(_SECONDS, "0"))))
    except ValueError:
        return None


def condition_time(pod: PodInfo, kind: str) -> float | None:
    """Since when a condition of a pod is true, in seconds since the Unix epoch; None if it is not, or not known."""
    for condition in pod.status.conditions:
        if condition.type == kind and condition.status == "True" and condition.last_transition_time:
            try:
                return datetime.fromisoformat(condition.last_transition_time).timestamp()
            except ValueError:
                return None
    return None
