"""The scheduling cycle of a gang: all its pods are decided about in one go (reference 4.10).

When the first pod of a gang comes to the head of the queue, its siblings are taken out of the queue too and placed one
after the other on the cluster as it is, each seeing those before it. With enough of them placed, all go on to be bound,
and whoever is left over is scheduled by itself. Otherwise every placement is taken back before anything else happens:
one cycle is at its end before the next begins, so no other pod is ever decided about with half a gang in place. That is
why two gangs cannot wait for each other, and why none holds anything while it waits.

Nobody is evicted for half a gang either. When placing alone does not suffice, the members are placed once more in a
cluster in which the victims of each preemption are gone; only if the whole gang fits then are the victims evicted.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from kubestow.cluster.pods import PodInfo
from kubestow.cluster.state import Cluster
from kubestow.errors import PluginError
from kubestow.framework.gangs import Gang, GangPlugin, Outcome
from kubestow.framework.plugin import PostFilterResult
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status
from kubestow.scheduling.binding_cycle import Reserved, permit
from kubestow.scheduling.decision import Decision
from kubestow.scheduling.evictions import Evictions
from kubestow.scheduling.group_preemption import Clearing, make_room_for_all
from kubestow.scheduling.placements import choose
from kubestow.scheduling.queue import SchedulingQueue
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.rendezvous import Rendezvous
from kubestow.scheduling.scope import EVERYWHERE, Scope
from kubestow.scheduling.trial import Failure, Trial

__all__ = ["Gangs", "Refusal", "Steps"]

#: How long a gang may be incomplete before its pods are told, in seconds.
_PATIENCE = 3.0
_UNSCHEDULABLE = "pod group is unschedulable"
_NOT_FOR_PLACEMENTS = "workload aware preemption is not supported for pod groups with scheduling constraints"
_NOT_ENOUGH = "it would not fit even if all pods of lower priority were evicted"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod gets no node now, and what may change that. ``nomination`` None leaves the pod's nomination alone."""

    reason: str
    message: str
    rejectors: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    nomination: str | None = None


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

    def undo(self, reserved: Reserved) -> None:
        """Take a placement back."""

    def begin(self, reserved: Reserved) -> None:
        """Send a placed pod on its way to be bound."""

    async def schedule_alone(self, queued: QueuedPod, meeting: Rendezvous | None) -> None:
        """Schedule a pod by itself; it is bound only if those that it is to meet are."""

    def refuse(self, queued: QueuedPod, refusal: Refusal) -> None:
        """Give a pod back to the queue, and tell it why."""

    def tell(self, info: PodInfo, message: str) -> None:
        """Tell a pod why it has to stay where it is; no node's room is kept for it meanwhile."""


@dataclass(slots=True)
class _Attempt:
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
        plugins = (self.profile.gangs, self.profile.placements.generator if self.placements is not None else None)
        return frozenset(plugin.name for plugin in plugins if plugin is not None)

    @property
    def acts_as_one(self) -> bool:
        """Whether its pods are always decided about together, those too that the gang can do without."""
        return self.placements is not None or self.preempts_as_one

    @property
    def preempts_as_one(self) -> bool:
        """Whether others are evicted for the gang as a whole, and not for its pods one after the other."""
        plugin = self.profile.gang_preemption
        return plugin is not None and plugin.preempts_for(self.gang)

    @property
    def vetoed(self) -> frozenset[str]:
        """The nodes that extenders refused for good to any of the pods."""
        return frozenset().union(*(failure.vetoed for failure in self.failures))

    @property
    def needed(self) -> int:
        """How many of the pods have to be placed so that it was worth it."""
        return max(1, self.gang.quorum - len(self.gang.members.placed))

    def is_enough(self) -> bool:
        """Whether as many pods are placed now as the gang needs."""
        return len(self.gang.members.placed) >= self.gang.quorum

    def conclude(self, outcome: Outcome, message: str) -> None:
        """Tell the plugin that knows of the gang, and whoever watches."""
        self.profile.asking.concluded(outcome.value, self.began, decided=self.decided)
        if self.profile.gangs is not None:
            self.profile.gangs.concluded(self.gang, outcome, message)


class Gangs:
    """Schedules gangs, and keeps what has to be known of them until the last of their pods is bound."""

    def __init__(
        self, cluster: Cluster, queue: SchedulingQueue, *, evictions: Evictions, steps: Steps, random: Random
    ) -> None:
        self._cluster, self._queue, self._evictions, self._steps = cluster, queue, evictions, steps
        self._random = random
        self._meetings: dict[Hashable, Rendezvous] = {}
        #: Pods that wait for the rest of their gang and have not been told so yet, with the time when they will be (of
        #: the event loop), the first first: all have to be as patient.
        self._untold: dict[str, tuple[float, GangPlugin]] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._speaks = False

    def begin(self, profiles: Mapping[str, Profile]) -> None:
        """Scheduling begins: from now on pods are told, those too that waited before."""
        self._speaks = True
        for queued in self._queue.waiting():
            plugin = profiles[queued.info.spec.scheduler_name].gangs
            if plugin is not None and self._is_kept_out(queued.info.uid, plugin):
                self.kept_out(queued.info, plugin)

    def close(self) -> None:
        """Let nobody wait any longer, and tell nobody to: the scheduler is shutting down."""
        self._speaks = False
        for meeting in list(self._meetings.values()):
            meeting.fail("the scheduler is shutting down")
        if self._telling is not None:
            self._telling.cancel()

    def leave(self, uid: str, why: str) -> None:
        """A pod that may be on its way to be bound never will be."""
        for meeting in list(self._meetings.values()):
            meeting.leave(uid, why)

    # -- the cycle -------------------------------------------------------------------------------------------------

    async def schedule(self, gang: Gang, first: QueuedPod, profile: Profile) -> None:
        """Decide about a gang of which one pod has come to the head of the queue."""
        attempt = _Attempt(gang, profile, self._gathered(gang, first), profile.asking.now())
        if self._is_hindered(attempt):
            return
        try:
            trial = await self._placed(attempt)
        except PluginError as error:
            trial = Status.error(str(error))
        if isinstance(trial, Status):
            self._turn_away(attempt, trial)
        elif self._is_done(attempt, trial):
            await self._carry_out(attempt, trial)
        else:
            could = len(gang.members.placed)
            trial.undo()
            if not await self._made_room(attempt):
                self._refuse(attempt, could)

    def _is_done(self, attempt: _Attempt, trial: Trial) -> bool:
        """Whether enough pods have nodes: as many as the gang needs, and one of them at least if all act as one."""
        return attempt.is_enough() and (bool(trial.placed) or not attempt.acts_as_one or not attempt.pods)

    def _gathered(self, gang: Gang, first: QueuedPod) -> list[QueuedPod]:
        """The gang's pods that wait for a node, the most important first; without those that have to wait longer."""
        pods, placed = [first], gang.members.placed
        for uid in list(gang.members.ready):
            sibling = self._queue.take(uid) if uid not in placed else None
            if sibling is not None:
                pods.append(sibling)
        return sorted(pods, key=lambda queued: (-queued.info.priority, queued.initial_attempt or queued.timestamp))

    def _is_hindered(self, attempt: _Attempt) -> bool:
        """Whether there is no point in trying; then the pods have been given back."""
        gang, pods = attempt.gang, attempt.pods
        names = sorted({pod.spec.scheduler_name for pod in gang.members.pods.values()})
        meeting = self._meetings.get(gang.name)
        could = len(gang.members.placed) + len(pods)
        if len(names) > 1:
            message = (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{names[0]}" and "{names[1]}"'
            )
            self._give_back(pods, Refusal("SchedulerError", message))
            attempt.conclude(Outcome.ERROR, message)
        elif meeting is not None and meeting.failure is not None:  # and not everybody has gone yet
            self._give_back(pods, Refusal("Unschedulable", meeting.failure))
        elif could < gang.quorum:
            if not self._postponed(attempt, could):
                self._refuse(attempt, could)
        else:
            return False
        return True

    def _postponed(self, attempt: _Attempt, could: int) -> bool:
        """Let the pods wait for siblings that back off after an error, if these make up the number; whether they do."""
        ends = [self._queue.error_backoff_end(uid) for uid in attempt.gang.members.ready]
        backing_off = sorted(end for end in ends if end is not None)
        if could + len(backing_off) < attempt.gang.quorum:
            return False
        for queued in attempt.pods:
            self._queue.postpone(queued, backing_off[attempt.gang.quorum - could - 1])
        return True

    async def _placed(self, attempt: _Attempt) -> Trial | Status:
        """The pods placed where they may be: in one placement of the gang, or anywhere. Raises PluginError."""
        gang, plugins, pods = attempt.gang, attempt.profile.placements, attempt.pods
        placements = plugins.generate(gang, [queued.info for queued in pods], self._cluster.all_nodes())
        if placements is None or isinstance(placements, Status):
            return await self._tried(attempt) if placements is None else placements
        attempt.placements = len(placements)
        if len(placements) == 1:
            return await self._tried(attempt, Scope(placements[0].nodes.names))
        choice = await choose(
            placements,
            lambda scope: self._tried(attempt, scope),
            cluster=self._cluster,
            profile=attempt.profile,
            gang=gang,
            pods=pods,
            needed=attempt.needed,
            random=self._random,
        )
        trial = self._new_trial(attempt)
        for queued, node_name in choice.assignments:
            if queued in attempt.pods:  # and has not gone meanwhile
                await trial.run([queued], Scope([node_name]))
        trial.failures += [failure for failure in choice.failures if failure.queued in attempt.pods]
        return self._ended(attempt, trial)

    async def _tried(self, attempt: _Attempt, scope: Scope = EVERYWHERE) -> Trial:
        """The pods placed as far as possible. Should that be too few, those that found no node get to go first."""
        trial = await self._trial(attempt, attempt.pods, scope)
        shapes = {queued.info.shape for queued in attempt.pods}
        if attempt.is_enough() or not trial.placed or len(shapes) == 1:
            return trial
        trial.undo()
        failed = [failure.queued for failure in trial.failures]
        return await self._trial(attempt, [*failed, *(reserved.queued for reserved in trial.placed)], scope)

    async def _trial(
        self, attempt: _Attempt, pods: Sequence[QueuedPod], scope: Scope = EVERYWHERE, *, evicting: bool = False
    ) -> Trial:
        trial = self._new_trial(attempt, evicting=evicting)
        await trial.run(pods, scope)
        return self._ended(attempt, trial)

    def _new_trial(self, attempt: _Attempt, *, evicting: bool = False, supposing: bool = False) -> Trial:
        return Trial(
            self._cluster,
            attempt.profile,
            self._steps.suppose if evicting or supposing else self._steps.decide,
            is_wanted=self._steps.is_wanted,
            siblings=attempt.gang.members.pods,
            evicting=evicting,
        )

    def _ended(self, attempt: _Attempt, trial: Trial) -> Trial:
        """A trial is over: what is to be known of it, whether or not it is taken back."""
        for queued in trial.gone:
            attempt.pods.remove(queued)
            self._queue.done(queued.info.uid)
        attempt.failures += trial.failures
        attempt.decided = attempt.profile.asking.now()
        return trial

    # -- enough pods have nodes ------------------------------------------------------------------------------------

    async def _carry_out(self, attempt: _Attempt, trial: Trial) -> None:
        """Ask for permission, and send the pods on their way; who is left over is scheduled like any other pod."""
        permitted, refused = self._permitted([reserved for reserved in trial.placed if self._is_there(reserved)])
        if not attempt.is_enough():
            could = len(attempt.gang.members.placed)
            for reserved in reversed(permitted):
                self._steps.undo(reserved)
            attempt.failures = [*refused, *trial.failures]
            self._refuse(attempt, could)
            return
        left_over = [] if attempt.acts_as_one else [failure.queued for failure in trial.failures]
        meeting = self._meeting(attempt.gang, permitted, left_over)
        for reserved in permitted:
            self._steps.begin(replace(reserved, meeting=meeting))
        for failure in refused:
            self._steps.refuse(failure.queued, _refusal(attempt, failure))
        if permitted:
            attempt.conclude(Outcome.SCHEDULED, "")
        elif attempt.failures and attempt.pods:
            self._conclude_left_over(attempt)
        for queued in left_over:
            await self._schedule_left_over(queued, meeting)
        if attempt.acts_as_one and trial.failures:
            await self._keep_waiting(attempt, trial.failures)

    async def _keep_waiting(self, attempt: _Attempt, failures: list[Failure]) -> None:
        """Make room for those that a gang can do without, or let them wait for it."""
        pods = [failure.queued for failure in failures]
        further = replace(attempt, pods=pods, failures=failures, began=attempt.profile.asking.now(), decided=None)
        if not await self._made_room(further):
            for failure in failures:
                self._steps.refuse(failure.queued, _refusal(further, failure))

    def _conclude_left_over(self, attempt: _Attempt) -> None:
        """Nobody was placed of those that a gang can do without."""
        outcome = Outcome.UNSCHEDULABLE
        if any(failure.status.code is Code.ERROR for failure in attempt.failures):
            outcome = Outcome.ERROR
        elif any(failure.has_room for failure in attempt.failures):
            outcome = Outcome.WAITING_ON_PREEMPTION
        first = attempt.failures[0]
        attempt.conclude(outcome, f"{_UNSCHEDULABLE}: {first.queued.info.key}: {first.message}")

    async def _schedule_left_over(self, queued: QueuedPod, meeting: Rendezvous | None) -> None:
        """Schedule by itself who is not needed; the meeting that expects it goes on for as long as that takes."""
        await self._steps.schedule_alone(queued, meeting)
        info = queued.info
        if meeting is not None and not self._cluster.is_assumed(info.uid):
            meeting.leave(info.uid, f"{info.key}: found no node")

    def _is_there(self, reserved: Reserved) -> bool:
        """Whether a pod still is what it was when it was placed; extenders may have taken their time since."""
        uid = reserved.info.uid
        if self._steps.is_wanted(reserved.info) and self._cluster.is_assumed(uid):
            return True
        self._steps.undo(reserved)
        self._queue.done(uid)
        return False

    def _permitted(self, placed: Iterable[Reserved]) -> tuple[list[Reserved], list[Failure]]:
        permitted, refused = [], []
        for reserved in placed:
            status, waits = permit(reserved.profile, reserved.state, reserved.info, reserved.node_name)
            if status.ok:
                permitted.append(replace(reserved, waits=waits))
            else:
                self._steps.undo(reserved)
                refused.append(Failure.of_status(reserved.queued, status))
        return permitted, refused

    def _meeting(self, gang: Gang, coming: Sequence[Reserved], left_over: Sequence[QueuedPod]) -> Rendezvous | None:
        """Where pods meet before they are bound: with those on their way already, if that is not over.

        Who is left over may come too; deciding about it may take longer than the others need to be bound.
        """
        bound = gang.members.placed.difference(reserved.info.uid for reserved in coming)
        meeting = self._meetings.get(gang.name)
        if meeting is None and len(bound) < gang.quorum:
            meeting = self._meetings[gang.name] = Rendezvous(
                str(gang.name),
                quorum=gang.quorum,
                bound=bound,
                timeout=gang.timeout,
                holding=lambda: self._holding(gang),
                on_end=lambda: self._meetings.__delitem__(gang.name),
            )
        if meeting is not None:
            for queued in (*(reserved.queued for reserved in coming), *left_over):
                meeting.expect(queued.info.uid)
        return meeting

    def _holding(self, gang: Gang) -> Iterable[str]:
        """The members that have a node, or have been promised one that is still there."""
        members, nodes = gang.members, self._cluster.nodes.rows
        return members.placed.union(uid for uid in members.ready if self._cluster.nomination(uid) in nodes)

    # -- too few have ----------------------------------------------------------------------------------------------

    async def _made_room(self, attempt: _Attempt) -> bool:
        """Evict others if the whole gang fits then; whether it does."""
        if attempt.placements is not None:  # it would be a preemption for each of them (reference 9.1)
            attempt.why_no_room = _NOT_FOR_PLACEMENTS if attempt.preempts_as_one else ""
            return False
        try:
            if attempt.preempts_as_one:
                clearing = await self._cleared_for_all(attempt)
            else:
                clearing = await self._cleared_one_by_one(attempt)
        except PluginError as error:
            attempt.why_no_room = str(error)
            return False
        if clearing is not None:
            self._make_room(attempt, clearing)
        return clearing is not None

    async def _cleared_one_by_one(self, attempt: _Attempt) -> Clearing | None:
        """Let each pod preempt, the victims of those before it gone. Extenders are asked at the end: while they think,
        nobody may be imagined gone.
        """
        if not any(failure.has_room for failure in attempt.failures):
            return None
        scope = Scope(barred=attempt.vetoed, asks_extenders=False)
        trial = await self._trial(attempt, attempt.pods, scope, evicting=True)
        fits = attempt.is_enough()
        trial.undo()
        if not fits or not trial.promised:
            return None
        for queued, room in trial.promised:
            if not await self._steps.agrees(queued.info, room):
                return None
        promises = [(reserved.queued, reserved.node_name) for reserved in trial.placed]
        promises += [(queued, room.nominated_node_name or "") for queued, room in trial.promised]
        siblings = {queued.info.uid for queued, _ in promises}
        outranked = {pod.uid: pod for _, room in trial.promised for pod in room.outranked if pod.uid not in siblings}
        victims = [victim for _, room in trial.promised for victim in room.victims]
        return Clearing(promises, trial.failures, victims, list(outranked.values()))

    async def _cleared_for_all(self, attempt: _Attempt) -> Clearing | None:
        """Let the gang preempt as a whole; if it cannot, the attempt knows why."""
        profile, infos = attempt.profile, [queued.info for queued in attempt.pods]
        plugin = profile.gang_preemption
        assert plugin is not None
        scope = Scope(barred=attempt.vetoed, makes_room=False, asks_extenders=False)
        found = profile.asking(plugin, "PodGroupPostFilter", plugin.evictable, attempt.gang, infos)
        if isinstance(found, Status):
            attempt.why_no_room, attempt.keeps_promises = found.message, found.code is Code.PENDING
            return None
        attempt.why_no_room, attempt.keeps_promises = _NOT_ENOUGH, False
        return await make_room_for_all(
            found,
            attempt.pods,
            cluster=self._cluster,
            profile=profile,
            needed=attempt.needed,
            within=scope.rows(self._cluster),
            run=lambda: self._supposed(attempt, scope),
            is_wanted=self._steps.is_wanted,
        )

    async def _supposed(self, attempt: _Attempt, scope: Scope) -> Trial:
        """A trial of which nobody is told."""
        trial = self._new_trial(attempt, supposing=True)
        await trial.run(attempt.pods, scope)
        return trial

    def _make_room(self, attempt: _Attempt, clearing: Clearing) -> None:
        """Promise every pod the node that it will have, and begin the evictions."""
        message = f"pod group is waiting for preemption to complete: {attempt.gang.name}"
        waiting = _refusal_of_all(attempt, message)
        for queued, node_name in clearing.promises:
            self._steps.refuse(queued, replace(waiting, nomination=node_name))
        for failure in clearing.failures:
            self._steps.refuse(failure.queued, replace(waiting, message=f"{failure.message} {message}"))
        told = [queued for queued, _ in clearing.promises] + [failure.queued for failure in clearing.failures]
        for queued in attempt.pods:
            if queued not in told:  # it has gone meanwhile
                self._steps.refuse(queued, waiting)
        for pod in clearing.outranked:
            self._cluster.drop_nomination(pod.uid)
        preemptors = [queued.info for queued, _ in clearing.promises]
        if attempt.preempts_as_one:
            preemptors += [failure.queued.info for failure in clearing.failures]
        self._evictions.start_for_group(
            preemptors, attempt.gang.uid, victims=clearing.victims, outranked=clearing.outranked
        )
        attempt.conclude(Outcome.WAITING_ON_PREEMPTION, message)

    def _refuse(self, attempt: _Attempt, could: int) -> None:
        """Give all pods back, those that had found a node too: what may help one of them may help them all."""
        summary = f"{_UNSCHEDULABLE}: {_summary(attempt, could)}"
        first = next(iter(attempt.failures), None)
        reason = f"{summary}; {first.queued.info.key}: {first.message}" if first is not None else summary
        refusal = _refusal_of_all(attempt, reason)
        own = {failure.queued.info.uid: failure for failure in reversed(attempt.failures)}
        for queued in attempt.pods:
            failure = own.get(queued.info.uid)
            message = reason if failure is None else f"{failure.message} {summary}"
            self._steps.refuse(queued, replace(refusal, message=message))
        attempt.conclude(Outcome.ERROR if refusal.reason == "SchedulerError" else Outcome.UNSCHEDULABLE, reason)

    def _turn_away(self, attempt: _Attempt, status: Status) -> None:
        """Give all pods back because of what a plugin said of the gang as a whole."""
        is_error = status.code is Code.ERROR
        message = status.message if is_error else f"{_UNSCHEDULABLE}: {status.message}"
        refusal = _refusal_of_all(attempt, message)
        if is_error:
            refusal = replace(refusal, reason="SchedulerError", rejectors=frozenset())
        elif status.plugin:
            refusal = replace(refusal, rejectors=refusal.rejectors | {status.plugin})
        self._give_back(attempt.pods, refusal)
        attempt.conclude(Outcome.ERROR if is_error else Outcome.UNSCHEDULABLE, message)

    def _give_back(self, pods: Iterable[QueuedPod], refusal: Refusal) -> None:
        for queued in pods:
            self._steps.refuse(queued, refusal)

    # -- gangs that are not complete -------------------------------------------------------------------------------

    def kept_out(self, info: PodInfo, plugin: GangPlugin) -> None:
        """A pod waits for its group or for its siblings. If that takes long, it will be told, and promised nothing."""
        if not self._speaks:
            return
        if not self._is_kept_out(info.uid, plugin):  # it has not been waiting up to now
            self._untold.pop(info.uid, None)
        loop = asyncio.get_running_loop()
        self._untold.setdefault(info.uid, (loop.time() + _PATIENCE, plugin))
        if self._telling is None:
            self._telling = loop.call_later(_PATIENCE, self._tell)

    def _tell(self) -> None:
        """Tell those who have waited long enough, and once more those of their siblings who know of fewer."""
        loop = asyncio.get_running_loop()
        due = list(itertools.takewhile(lambda uid: self._untold[uid][0] <= loop.time(), self._untold))
        waiting = {uid: self._untold.pop(uid)[1] for uid in due}
        for uid, plugin in list(waiting.items()):
            queued = self._queue.get(uid)
            gang = plugin.gang_of(queued.info) if queued is not None else None
            if gang is not None:
                waiting |= {sibling: plugin for sibling in gang.members.pods if sibling not in self._untold}
        for uid, plugin in waiting.items():
            self._tell_one(uid, plugin)
        # However many come one after the other, their siblings are not told more often than this.
        self._telling = loop.call_later(_PATIENCE, self._tell) if self._untold else None

    def _tell_one(self, uid: str, plugin: GangPlugin) -> None:
        queued = self._queue.get(uid)
        if queued is not None and self._is_kept_out(uid, plugin):
            status = plugin.pre_enqueue(queued.info)
            if not status.ok:
                self._steps.tell(queued.info, status.message)

    def _is_kept_out(self, uid: str, plugin: GangPlugin) -> bool:
        """Whether a pod waits for the rest of its gang by what the queue knows."""
        queued = self._queue.get(uid)
        return queued is not None and queued.place is Place.GATED and queued.gated_by == plugin.name


def _summary(attempt: _Attempt, could: int) -> str:
    """How many pods the gang needs, and how many of them fit; of several placements, in the first."""
    gang, placements = attempt.gang, attempt.placements
    if could < gang.quorum:
        text = f"{gang.name} needs {gang.quorum} pods, {could} of {len(gang.members.pods)} fit"
    else:
        text = f"none of the {len(attempt.pods)} pods of {gang.name} that look for a node fits"
    if placements is not None:
        text = f"0/{placements} placements are available, first placement status: {text}"
    return f"{text}, preemption: {attempt.why_no_room}" if attempt.why_no_room else text


def _refusal_of_all(attempt: _Attempt, message: str) -> Refusal:
    """What a gang as a whole waits for. An error, or something that no event will change, is worth another try soon."""
    failures = attempt.failures
    is_error = any(failure.status.code is Code.ERROR for failure in failures)
    has_no_cure = any(not failure.rejectors and not failure.pending for failure in failures)
    keeps_promises = attempt.keeps_promises
    if keeps_promises is None:
        keeps_promises = any(failure.keeps_promise for failure in failures)
    own = attempt.doorkeepers
    return Refusal(
        "SchedulerError" if is_error else "Unschedulable",
        f"failed to schedule other pod from a pod group: {message}" if is_error else message,
        rejectors=frozenset() if has_no_cure else own.union(*(failure.rejectors for failure in failures)),
        pending=frozenset() if has_no_cure else frozenset().union(*(failure.pending for failure in failures)),
        nomination=None if keeps_promises else "",
    )


def _refusal(attempt: _Attempt, failure: Failure) -> Refusal:
    """What one pod waits for."""
    return Refusal(
        "SchedulerError" if failure.status.code is Code.ERROR else "Unschedulable",
        failure.message,
        rejectors=failure.rejectors | attempt.doorkeepers if failure.rejectors else failure.rejectors,
        pending=failure.pending,
        nomination=None if attempt.keeps_promises else "",
    )
