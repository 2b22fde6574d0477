"""Gangs: pods that get their nodes all together or not at all.

A plugin that derives from :class:`GangPlugin` says which pods are a gang. Of a gang the scheduler decides in one go
(:mod:`kubestow.scheduling.gangs.scheduling_cycle`): with enough members placed all of them go on to be bound, otherwise none keeps
anything.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges
from kubestow.framework.interface import Plugin, PreEnqueuePlugin
from kubestow.framework.status import Status

__all__ = ["Evictable", "Gang", "GangOutcome", "GangPlugin", "GangPreemptionPlugin", "GangSource"]


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that belong together. Its ``name`` is its identity, and as text what people are told; ``uid`` is that of the
    object that stands for it.

    So many of its members as the ``min_count`` says must have nodes at the same time. For so many seconds as the
    ``timeout`` says may placed members wait for each other before they are bound.
    """

    name: Hashable
    uid: str
    min_count: int
    timeout: float
    members: Members


class GangOutcome(StrEnum):
    """How an attempt to schedule a gang ended."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    WAITING_ON_PREEMPTION = "waiting_on_preemption"
    ERROR = "error"


class GangSource(Plugin):
    """Knows which pods are a gang."""

    @abstractmethod
    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The gang that a pod belongs to, None for a pod that is scheduled by itself."""

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """An attempt to schedule a gang has ended; the message says why it went no better."""


class GangPlugin(GangSource, PreEnqueuePlugin):
    """Knows which pods are a gang, and keeps them out of the queue until there are enough of them.

    A profile has at most one such plugin that counts, the first; without any, the first other source of gangs does.
    """


@dataclass(frozen=True, slots=True)
class Evictable:
    """Whom one may evict for a gang, in units of which each goes as a whole, the one to be spared first first.

    ``units`` has a run of pods per unit; ``rows`` (intp, one per pod) are those of their nodes in the node table.
    """

    units: PodChanges
    rows: NDArray[np.intp]


class GangPreemptionPlugin(Plugin):
    """Says whom one may evict for a gang as a whole; the scheduler finds out how few of them have to go.

    A profile has at most one such plugin that counts: the first of its PostFilter plugins.
    """

    @abstractmethod
    def preempts_as_a_whole(self, gang: Gang) -> bool:
        """Whether this plugin has a say; otherwise the pods of the gang preempt one after the other."""

    @abstractmethod
    def evictable_units(self, gang: Gang, pods: Sequence[PodInfo]) -> Evictable | Status:
        """Whom, or why nobody. ``pods`` are the members that look for a node now.

        A PENDING status means that the room which was made for them before is still being cleared.
        """
