"""One attempt to schedule a gang: its pods, what stood in the way of each, and how that is reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from kubestow.api.reports import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE
from kubestow.framework.event_registration import EVERYTHING
from kubestow.framework.gang import Gang, GangOutcome
from kubestow.framework.profile import Profile
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.cycle.failure_handler import SchedulingFailure
from kubestow.scheduling.decision.result import Failed, Unschedulable
from kubestow.scheduling.queued_pod import QueuedPod

UNSCHEDULABLE = "pod group is unschedulable"
"""How the message about a gang that does not fit begins."""


@dataclass(frozen=True, slots=True)
class MemberFailure:
    """Why one member of a gang has no node.

    ``can_preempt`` tells that PostFilter nominated a node, ``keeps_nomination`` that victims of an earlier preemption
    are still being evicted for the pod. ``vetoed`` are the nodes that extenders rejected as unresolvable.
    """

    queued: QueuedPod
    status: Status
    message: str
    rejectors: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    can_preempt: bool = False
    keeps_nomination: bool = False
    vetoed: frozenset[str] = frozenset()

    @classmethod
    def of_decision(cls, queued: QueuedPod, decision: Unschedulable | Failed, *, is_nominated: bool) -> MemberFailure:
        """The decision about the pod found no node."""
        if isinstance(decision, Failed):
            return cls(queued, decision.status, decision.message, keeps_nomination=is_nominated)
        return cls(
            queued,
            decision.status,
            decision.message,
            rejectors=decision.rejectors,
            pending_plugins=decision.pending_plugins,
            can_preempt=decision.post_filter.has_nominated,
            keeps_nomination=is_nominated and decision.post_filter.nominating_result is None,
            vetoed=decision.vetoed,
        )

    @classmethod
    def of_status(cls, queued: QueuedPod, status: Status) -> MemberFailure:
        """The pod was placed, but rejected at Reserve or Permit."""
        failure = SchedulingFailure.of_status(status)
        return cls(queued, status, failure.message, failure.rejectors, failure.pending_plugins)


@dataclass
class GangAttempt:
    """One attempt to schedule the ``pods`` of a gang that wait for nodes. Times are seconds of the injected clock."""

    gang: Gang
    profile: Profile
    pods: list[QueuedPod]
    began: float
    #: When the last decision about a member ended; None before the first.
    decided: float | None = None
    failures: list[MemberFailure] = field(default_factory=list)
    #: How many topology placements the gang could choose from; None without a topology constraint.
    placement_count: int | None = None
    #: What the plugin that finds nodes for gangs answers; a success without one.
    search: Status = SUCCESS
    #: Why the gang could not preempt as a whole, if that was tried.
    preemption_message: str = ""
    #: Whether the pods keep their nominations; None where each pod's own failure decides.
    keeps_nominations: bool | None = None
    #: How it ended, None before that.
    outcome: GangOutcome | None = None

    @property
    def gang_plugins(self) -> frozenset[str]:
        """The plugins whose events may help any of the pods."""
        plugins = self.profile.runtime.plugins
        generator = plugins.placement_generate if self.placement_count is not None else None
        return frozenset(plugin.name for plugin in (plugins.gang_source, generator) if plugin is not None)

    @property
    def schedules_as_a_whole(self) -> bool:
        """Whether members beyond the minimum count are never scheduled by themselves."""
        return self.placement_count is not None or self.gang.has_segments or self.preempts_as_a_whole

    @cached_property
    def preempts_as_a_whole(self) -> bool:
        """Whether victims are found for the gang as a whole, and not for one pod after the other.

        The plugin is called once per attempt, so that its result cannot change while extenders are awaited.
        """
        return self.profile.gangs.preempts_as_a_whole(self.gang)

    @property
    def vetoed(self) -> frozenset[str]:
        """The nodes that extenders rejected as unresolvable for any of the pods."""
        return frozenset().union(*(failure.vetoed for failure in self.failures))

    @property
    def needed(self) -> int:
        """How many of the pods have to be placed."""
        return max(1, self.gang.min_count - len(self.gang.members.placed))

    def is_satisfied(self) -> bool:
        """Whether as many members are placed now as the gang needs, in all and of each role."""
        return len(self.gang.members.placed) >= self.gang.min_count and self.gang.is_satisfied()

    def refusal(self, placeable: int) -> str:
        """The message of the gang that too few members fit, ``placeable`` of them."""
        summary = f"{UNSCHEDULABLE}: {self.summary(placeable)}"
        first = next(iter(self.failures), None)
        return f"{summary}; {first.queued.info.key}: {first.message}" if first is not None else summary

    def refusals(self, placeable: int, message: str) -> Iterator[tuple[QueuedPod, str]]:
        """Each pod of the gang with its own message, given that of the gang."""
        own = {failure.queued.info.uid: failure for failure in reversed(self.failures)}
        for queued in self.pods:
            of_pod = own.get(queued.info.uid)
            text = message if of_pod is None else f"{of_pod.message} {UNSCHEDULABLE}: {self.summary(placeable)}"
            yield queued, text

    def end(self, outcome: GangOutcome, message: str) -> None:
        """Report the end of the attempt to the gang's plugin and to the observer."""
        self.outcome = outcome
        self.profile.gangs.gang_attempt_ended(self.gang, outcome, message, began=self.began, decided=self.decided)

    def summary(self, placeable: int) -> str:
        """How many members the gang needs and how many fit, in its first placement if there are several."""
        gang, count = self.gang, self.placement_count
        in_segments = placeable >= gang.min_count and gang.has_segments
        if self.search.ok and in_segments:
            text = f"{gang.name}: its pods were not placed in whole segments"
        elif not self.search.ok and self.search.code is not Code.PENDING:
            text = f"{gang.name}: {self.search.message}"
        elif placeable < gang.min_count:
            text = f"{gang.name} needs {gang.min_count} pods, {placeable} of {len(gang.members.pods)} fit"
        elif gang.roles and not gang.is_satisfied():
            needed = ", ".join(f"{role.min_count} of {role.name}" for role in gang.roles)
            text = f"{gang.name} needs {needed}, which do not fit together"
        else:
            text = f"none of the {len(self.pods)} pods of {gang.name} that look for a node fits"
        if count is not None:
            text = f"0/{count} placements are available, first placement status: {text}"
        if self.search.code is Code.PENDING:
            text = f"{text}, {self.search.message}"
        # Not just "preemption", as in the message of a pod before this text.
        return f"{text}, pod group preemption: {self.preemption_message}" if self.preemption_message else text

    def failure(self, message: str) -> SchedulingFailure:
        """The failure of the gang as a whole; after an error, or without any rejector, it is retried soon."""
        failures = self.failures
        is_error = any(failure.status.code is Code.ERROR for failure in failures)
        retries_soon = any(not failure.rejectors and not failure.pending_plugins for failure in failures)
        keeps_nominations = self.keeps_nominations
        if keeps_nominations is None:
            keeps_nominations = any(failure.keeps_nomination for failure in failures)
        rejectors = self.gang_plugins.union(*(failure.rejectors for failure in failures))
        if not self.search.ok or self.gang.has_segments:
            # Another node for a pod that fits may help the others. Plugins that name no events of their own count only
            # if they did reject a pod: the status that reports this attempt would have the gang tried again at once.
            filters = self.profile.runtime.plugins.filter
            rejectors |= {plugin.name for plugin in filters if plugin.events_to_register is not EVERYTHING}
        pending_plugins: frozenset[str] = frozenset().union(*(failure.pending_plugins for failure in failures))
        return SchedulingFailure(
            REASON_SCHEDULER_ERROR if is_error else REASON_UNSCHEDULABLE,
            f"failed to schedule other pod from a pod group: {message}" if is_error else message,
            rejectors=frozenset() if retries_soon else rejectors,
            pending_plugins=frozenset() if retries_soon else pending_plugins,
            nomination=None if keeps_nominations else "",
        )

    def failure_of(self, failure: MemberFailure) -> SchedulingFailure:
        """The failure of one pod."""
        return SchedulingFailure(
            REASON_SCHEDULER_ERROR if failure.status.code is Code.ERROR else REASON_UNSCHEDULABLE,
            failure.message,
            rejectors=failure.rejectors | self.gang_plugins if failure.rejectors else failure.rejectors,
            pending_plugins=failure.pending_plugins,
            nomination=None if self.keeps_nominations else "",
        )
