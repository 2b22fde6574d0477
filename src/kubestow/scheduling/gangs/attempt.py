"""An attempt to schedule a gang: what it is made of, what stood in its way, and what its pods are told about that."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.gang import Gang, GangOutcome
from kubestow.framework.interface import PostFilterResult
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code
from kubestow.scheduling.binding_cycle import BindingContext
from kubestow.scheduling.decision.pipeline import Decision
from kubestow.scheduling.decision.scope import EVERYWHERE, Scope
from kubestow.scheduling.failure_handler import Unscheduled
from kubestow.scheduling.gangs.barrier import GangBarrier
from kubestow.scheduling.gangs.trial import Failure
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["UNSCHEDULABLE", "Attempt", "Steps"]

UNSCHEDULABLE = "pod group is unschedulable"
"""What is said of a gang that does not fit, before anything else."""


class Steps(Protocol):
    """What a scheduler does with one pod, as far as the cycle of a gang is made of it."""

    async def decide(self, info: PodInfo, scope: Scope = EVERYWHERE) -> Decision:
        """Find a node; nothing changes. There is no pause unless extenders take part."""

    async def suppose(self, info: PodInfo, scope: Scope = EVERYWHERE) -> Decision:
        """The same in a cluster that only looks as it does now, so that it is no attempt and nobody is told."""

    def is_wanted(self, info: PodInfo) -> bool:
        """Whether a pod still wants a node."""

    async def agrees(self, info: PodInfo, room: PostFilterResult) -> bool:
        """Whether extenders let a pod preempt as it was found out without asking them."""

    def undo(self, reserved: BindingContext) -> None:
        """Take a placement back."""

    def begin(self, reserved: BindingContext) -> None:
        """Send a placed pod on its way to be bound."""

    async def schedule_alone(self, queued: QueuedPod, barrier: GangBarrier | None) -> None:
        """Schedule a pod by itself; it is bound only if those that it is to meet are."""


@dataclass
class Attempt:
    """One try to schedule a gang, and everything that stood in the way of its pods."""

    gang: Gang
    profile: Profile
    pods: list[QueuedPod]
    began: float
    #: When the last trial was over; None while nothing has been tried.
    decided: float | None = None
    failures: list[Failure] = field(default_factory=list)
    #: Among how many placements the gang had to choose; None when it may go anywhere.
    placements: int | None = None
    #: Why the gang could not preempt as a whole, if that was tried, and whether its pods keep the nodes that they were
    #: promised; None where that is for each pod to say.
    why_no_room: str = ""
    keeps_promises: bool | None = None

    @property
    def doorkeepers(self) -> frozenset[str]:
        """The plugins whose change of mind may help any of the pods."""
        plugins = (self.profile.gangs, self.profile.placement_generator if self.placements is not None else None)
        return frozenset(plugin.name for plugin in plugins if plugin is not None)

    @property
    def acts_as_one(self) -> bool:
        """Whether its pods are always decided about together, those too that the gang can do without."""
        return self.placements is not None or self.preempts_as_one

    @cached_property
    def preempts_as_one(self) -> bool:
        """Whether others are evicted for the gang as a whole, and not for its pods one after the other.

        The plugin is asked once: while extenders are waited for, it must not come to another mind.
        """
        return self.profile.runtime.preempts_as_a_whole(self.gang)

    @property
    def vetoed(self) -> frozenset[str]:
        """The nodes that extenders refused for good to any of the pods."""
        return frozenset().union(*(failure.vetoed for failure in self.failures))

    @property
    def needed(self) -> int:
        """How many of the pods have to be placed so that it was worth it."""
        return max(1, self.gang.min_count - len(self.gang.members.placed))

    def is_enough(self) -> bool:
        """Whether as many pods are placed now as the gang needs."""
        return len(self.gang.members.placed) >= self.gang.min_count

    def conclude(self, outcome: GangOutcome, message: str) -> None:
        """Tell the plugin that knows of the gang, and whoever watches."""
        runtime = self.profile.runtime
        runtime.gang_attempt_ended(self.gang, outcome, message, began=self.began, decided=self.decided)

    def summary(self, could: int) -> str:
        """How many pods the gang needs, and how many of them fit; of several placements, in the first."""
        gang, placements = self.gang, self.placements
        if could < gang.min_count:
            text = f"{gang.name} needs {gang.min_count} pods, {could} of {len(gang.members.pods)} fit"
        else:
            text = f"none of the {len(self.pods)} pods of {gang.name} that look for a node fits"
        if placements is not None:
            text = f"0/{placements} placements are available, first placement status: {text}"
        return f"{text}, preemption: {self.why_no_room}" if self.why_no_room else text

    def refusal(self, message: str) -> Unscheduled:
        """What a gang as a whole waits for.

        An error, or something that no event will change, is worth another try soon.
        """
        failures = self.failures
        is_error = any(failure.status.code is Code.ERROR for failure in failures)
        has_no_cure = any(not failure.rejectors and not failure.pending for failure in failures)
        keeps_promises = self.keeps_promises
        if keeps_promises is None:
            keeps_promises = any(failure.keeps_promise for failure in failures)
        own = self.doorkeepers
        return Unscheduled(
            "SchedulerError" if is_error else "Unschedulable",
            f"failed to schedule other pod from a pod group: {message}" if is_error else message,
            rejectors=frozenset() if has_no_cure else own.union(*(failure.rejectors for failure in failures)),
            pending=frozenset() if has_no_cure else frozenset().union(*(failure.pending for failure in failures)),
            nomination=None if keeps_promises else "",
        )

    def refusal_of(self, failure: Failure) -> Unscheduled:
        """What one pod waits for."""
        return Unscheduled(
            "SchedulerError" if failure.status.code is Code.ERROR else "Unschedulable",
            failure.message,
            rejectors=failure.rejectors | self.doorkeepers if failure.rejectors else failure.rejectors,
            pending=failure.pending,
            nomination=None if self.keeps_promises else "",
        )
