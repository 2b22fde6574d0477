"""The scheduler: queue, scheduling cycle, binding cycle, tied together on one event loop.

The scheduling cycle is an ordinary function, one pod at a time; between two awaits the world does not move, so it needs
no locks. Only where extenders have a say does it wait on the way, and even then for one pod at a time. A placed pod
goes on in a task of its own. Nothing is remembered that the API server does not hold: a scheduler that is killed and
started again carries on from the watch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

from kubestow import config
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ExtenderError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.gang import GangPlugin
from kubestow.framework.interface import PostFilterResult, Victims
from kubestow.framework.pods_to_activate import PodsToActivate
from kubestow.framework.profile import Profile, Registry, build_profile
from kubestow.framework.status import Code, Status
from kubestow.scheduling.binding_cycle import BindingContext
from kubestow.scheduling.bindings import Bindings
from kubestow.scheduling.decision.pipeline import Decider, Decision, RandomTie
from kubestow.scheduling.decision.scope import EVERYWHERE, Scope
from kubestow.scheduling.events.change_notifier import ChangeNotifier
from kubestow.scheduling.events.cluster_events import ASSIGNED_POD_DELETE
from kubestow.scheduling.events.handlers import EventHandlers
from kubestow.scheduling.events.resources import watched
from kubestow.scheduling.extenders.port import EXTENDER, Extender, Extenders
from kubestow.scheduling.extenders.stages import ExtendedDecider
from kubestow.scheduling.failure_handler import Unscheduled, UnscheduledPods
from kubestow.scheduling.gangs.barrier import GangBarrier
from kubestow.scheduling.gangs.cycle import Gangs
from kubestow.scheduling.handle import Handle
from kubestow.scheduling.leadership import Leadership, NoLeaderElection
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.ports import Clock, ClusterAPI
from kubestow.scheduling.preemption.evictions import Evictions
from kubestow.scheduling.queue.hints import QueueingHints
from kubestow.scheduling.queue.queued_pod import QueuedPod
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.waiting_pods import WaitingPods
from kubestow.scheduling.writes.dispatcher import Dispatcher
from kubestow.scheduling.writes.pod_reports import Reports

__all__ = ["Scheduler"]

_log = logging.getLogger(__name__)

#: Longest stretch of scheduling cycles before other tasks get their turn, in seconds.
_TURN = 0.004
#: How long binding cycles and other work may go on when the scheduler shuts down, in seconds.
_LAST_WORK = 10.0
#: How long work that was cancelled may take to end, in seconds.
_LAST_WORDS = 1.0


class Scheduler:
    """Schedules the pods of a cluster until cancelled."""

    def __init__(
        self,
        configuration: config.SchedulerConfiguration,
        *,
        registry: Registry,
        api: ClusterAPI,
        clock: Clock,
        random: Random,
        gates: config.FeatureGates | None = None,
        observer: Observer | None = None,
        extenders: Sequence[Extender] = (),
        pod_max_in_unschedulable_pods: float = 300.0,
        leadership: Leadership | None = None,
    ) -> None:
        gates = gates or config.FeatureGates()
        self._observer = observer = observer or Observer()
        configuration = config.apply_ignored_resources(configuration)
        self.cluster = Cluster()
        self.waiting = WaitingPods()
        self.dispatcher = dispatcher = Dispatcher(
            api, clock=clock, random=random, known=lambda uid: self.handlers.known(uid), observer=observer
        )
        self._reports = Reports(api, dispatcher, clock)
        self._evictions = Evictions(
            api,
            dispatcher=dispatcher,
            cancel_binding=lambda uid: self._bindings.cancel_binding(uid),
            clock=clock,
            known=lambda uid: self.handlers.known(uid),
            placed_pod=lambda uid: self.cluster.placed_pod(uid),
            activate=lambda uid: self.queue.activate([uid]),
            observer=observer,
        )
        news = ChangeNotifier()
        self._handle = handle = Handle(
            self.cluster,
            gates,
            api,
            dispatcher=dispatcher,
            clock=clock,
            random=random,
            evictions=self._evictions,
            waiting=self.waiting,
            news=news,
            queue=lambda: self.queue,
            observer=observer,
        )
        self.profiles: dict[str, Profile] = {
            profile.scheduler_name: build_profile(
                profile,
                registry,
                handle,
                percentage_of_nodes_to_score=configuration.percentage_of_nodes_to_score,
                monotonic=clock.monotonic,
                observer=observer.of_profile(profile.scheduler_name),
            )
            for profile in configuration.profiles
        }
        self._api = api
        self._clock = clock
        self._wake = asyncio.Event()
        self.leadership = leadership or NoLeaderElection()
        #: Set when the caches are full, and when we lead.
        self.synced, self.leading = asyncio.Event(), asyncio.Event()
        self._leads_before_it_watches = configuration.delay_cache_until_active
        self.queue = SchedulingQueue(
            sort_key=next(iter(self.profiles.values())).runtime.sort_key,
            hints=QueueingHints(
                self.profiles.values(),
                hear_everything=(EXTENDER,) if extenders else (),
            ),
            gate=self._gate,
            clock=clock,
            initial_backoff=configuration.pod_initial_backoff_seconds,
            max_backoff=configuration.pod_max_backoff_seconds,
            max_unschedulable=pod_max_in_unschedulable_pods,
            observer=observer,
            on_change=self._wake.set,
        )
        plugins = [plugin for profile in self.profiles.values() for plugin in profile.plugins]
        self._watched = watched({kind for plugin in plugins for kind in plugin.watched_kinds()})
        self.handlers = EventHandlers(
            self.cluster,
            self.queue,
            scheduler_names=self.profiles.keys(),
            watched=self._watched,
            on_pod_deleted=self._assumed_pod_deleted,
            on_pod_settled=dispatcher.settled,
            on_synced=self.synced.set,
            on_news=news.happened,
            monotonic=clock.monotonic,
            on_handled=observer.handled,
        )
        self._decider = Decider(self.cluster, self.profiles, RandomTie(random))
        self._extenders = Extenders(self.cluster, extenders)
        self._extended_decider = ExtendedDecider(self._decider, self._extenders)
        self._unscheduled = UnscheduledPods(
            self.cluster,
            self.queue,
            self.handlers,
            leadership=self.leadership,
            reports=self._reports,
            clock=clock,
            observer=observer,
        )
        self._gangs = Gangs(
            self.cluster,
            self.queue,
            unscheduled=self._unscheduled,
            evictions=self._evictions,
            steps=self,
            random=random,
        )
        self._bindings = Bindings(
            queue=self.queue,
            waiting=self.waiting,
            extenders=self._extenders,
            dispatcher=dispatcher,
            reports=self._reports,
            clock=clock,
            observer=observer,
            nominates=gates.enabled("NominatedNodeNameForExpectation"),
            on_failed=self._binding_failed,
            on_bound=self._activate_named,
        )

    @property
    def bindings_under_way(self) -> int:
        """How many placed pods are on their way to be bound."""
        return len(self._bindings.tasks)

    @property
    def extenders_prioritizing(self) -> int:
        """How many extenders are being asked for scores."""
        return self._extenders.prioritizing

    # -- running -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch, and schedule while leading, until cancelled; work under way then gets a while to finish.

        Raises what ends the watch, and what ends the lead; without the lead nothing that is under way is waited for.
        """
        watching = asyncio.create_task(self._watch(), name="watch")
        leading = asyncio.create_task(self._lead(), name="lead")
        scheduling = asyncio.create_task(self._schedule_forever(), name="schedule")
        try:
            await asyncio.wait((watching, leading, scheduling), return_when=asyncio.FIRST_COMPLETED)
            for task in (leading, watching, scheduling):
                if task.done():
                    task.result()
        finally:
            scheduling.cancel()
            self._gangs.close()
            draining = asyncio.create_task(self._drain(), name="drain")
            try:
                await asyncio.wait((draining, leading), return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.dispatcher.close()
                await _end([scheduling, draining, leading, watching, *self._under_way()])
            await self.leadership.release()

    async def begun(self) -> None:
        """Return when scheduling begins: the caches are full, and we lead."""
        await self.synced.wait()
        await self.leading.wait()

    async def _watch(self) -> None:
        if self._leads_before_it_watches:
            await self.leading.wait()
        await self._api.subscribe(self._watched, self.handlers)

    async def _lead(self) -> None:
        if not self._leads_before_it_watches:
            await self.synced.wait()
        await self.leadership.acquire()
        self.leading.set()
        await self.leadership.hold()

    async def _drain(self) -> None:
        """Let what is under way come to an end by itself, but not for ever."""
        for waiting in self.waiting.all():
            waiting.reject("", "the scheduler is shutting down")
        try:
            async with asyncio.timeout(_LAST_WORK):
                while work := self._under_way():
                    await asyncio.wait(work)
        except TimeoutError:
            _log.warning("shutting down before %d tasks have come to an end", len(self._under_way()))

    def _under_way(self) -> list[asyncio.Task[None]]:
        """What outlives a scheduling cycle."""
        return [*self._bindings.tasks, *self._handle.background, *self._evictions.tasks, *self.dispatcher.tasks]

    async def _schedule_forever(self) -> None:
        await self.begun()
        self._gangs.incomplete.begin(self.profiles)
        while True:
            self._wake.clear()
            self.queue.flush()
            began = self._clock.monotonic()
            while (queued := self.queue.pop()) is not None:
                await self.schedule_one(queued)
                if self._clock.monotonic() - began > _TURN:
                    break
            if self.queue.ready:
                await asyncio.sleep(0)
            else:
                await self._wait_for_work()

    async def _wait_for_work(self) -> None:
        """Sleep until a pod is ready or a backoff ends."""
        seconds = max(0.0, self.queue.next_flush() - self._clock.monotonic())
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _gate(self, info: PodInfo) -> tuple[str, Status] | None:
        """The first PreEnqueue plugin that keeps a pod out of the active queue; an error is told of on the pod."""
        profile = self.profiles[info.spec.scheduler_name]
        status = profile.runtime.run_pre_enqueue_plugins(info)
        if status.ok:
            return None
        if status.code is Code.ERROR and self.leadership.is_leader:
            message = f'running PreEnqueue plugin "{status.plugin}": {status.message}'
            self._reports.failed(info, message)
            self._reports.pending(info, "SchedulerError", message, None)
        if isinstance(profile.gangs, GangPlugin) and profile.gangs.name == status.plugin:
            self._gangs.incomplete.kept_out(info, profile)
        return status.plugin, status

    # -- the scheduling cycle --------------------------------------------------------------------------------------

    async def schedule_one(self, queued: QueuedPod) -> None:
        """One scheduling cycle (semantics 5.1), of a single pod or of the gang that it belongs to (4.10).

        It runs through without a pause unless it has to wait for extenders.
        """
        if self._is_pointless(queued.info):
            self.queue.done(queued.info.uid)
            return
        profile = self.profiles[queued.info.spec.scheduler_name]
        try:
            gang = profile.runtime.gang_of(queued.info)
        except PluginError as error:
            self._give_back(queued, Status.error(str(error)))
            return
        if gang is not None:
            await self._gangs.schedule(gang, queued, profile)
        elif (status := profile.runtime.gang_admission(queued.info)).ok:
            await self.schedule_alone(queued)
        else:
            self._give_back(queued, status)

    async def schedule_alone(self, queued: QueuedPod, barrier: GangBarrier | None = None) -> None:
        """Decide about a single pod, and take the placement as done."""
        decision = await self.decide(queued.info)
        if self.is_wanted(queued.info):
            self._act(queued, decision, barrier)
        else:
            self.queue.done(queued.info.uid)

    def is_wanted(self, info: PodInfo) -> bool:
        """Whether a pod still wants a node; while extenders are waited for it may have changed its mind."""
        known = self.handlers.known(info.uid)
        return known is not None and not known.spec.node_name and not known.terminating

    def _act(self, queued: QueuedPod, decision: Decision, barrier: GangBarrier | None) -> None:
        """Do what was decided."""
        info = queued.info
        if decision.node_name is None:
            self._failed(queued, decision)
            return
        promised = self.cluster.nomination(info.uid)
        self.cluster.assume(info, decision.node_name)
        if promised != decision.node_name:
            self.handlers.release_nomination(info, promised)
        profile = self.profiles[info.spec.scheduler_name]
        status = profile.runtime.run_reserve_plugins(decision.state, info, decision.node_name)
        waits: dict[str, float] = {}
        if status.ok:
            status, waits = profile.runtime.run_permit_plugins(decision.state, info, decision.node_name)
        reserved = BindingContext(queued, info, decision.node_name, decision.state, profile, waits, barrier)
        if status.ok:
            self.begin(reserved)
        else:
            self.undo(reserved)
            self._give_back(queued, status)

    def begin(self, reserved: BindingContext) -> None:
        """Send a placed pod on its way to be bound."""
        if reserved.promised != reserved.node_name:
            self.handlers.release_nomination(reserved.info, reserved.promised)
        if reserved.waits:
            self.waiting.add(reserved.info, reserved.waits)
        self._bindings.start(reserved)
        self._activate_named(reserved)

    def _activate_named(self, reserved: BindingContext) -> None:
        """Bring back the pods that plugins have named in this cycle (semantics 4.8)."""
        named = reserved.state.own(PodsToActivate)
        if named is not None:
            self._handle.activate(named.take())

    async def decide(self, info: PodInfo, scope: Scope = EVERYWHERE) -> Decision:
        """What is to become of a pod. Whatever goes wrong costs it this attempt, and the log says where."""
        began = self._clock.monotonic()
        decision = await self.suppose(info, scope)
        self._observer.attempted(decision, self._clock.monotonic() - began)
        return decision

    async def suppose(self, info: PodInfo, scope: Scope = EVERYWHERE) -> Decision:
        """What would become of a pod if the cluster were as it is made to look now; nobody is told."""
        try:
            if scope.asks_extenders and self._extenders and self._extenders.take_part(info):
                return _logged_decision(await self._extended_decider.decide(info, scope))
            return _logged_decision(self._decider.decide(info, scope))
        except Exception as error:
            return _broken_decision(info, error)

    async def agrees(self, info: PodInfo, room: PostFilterResult) -> bool:
        """Whether extenders let a pod preempt as it was found out without asking them."""
        node_name = room.nominated_node_name or ""
        if not self._extenders or not self._extenders.take_part_in_preemption(info):
            return True
        try:
            left = await self._extenders.preempt(info, {node_name: Victims(room.victims, room.violations)})
        except ExtenderError as error:
            _log.warning("extenders cannot be asked about preemption for pod %s: %s", info.key, error.problem)
            return False
        agreed = {victim.uid for victim in left[node_name].pods} if node_name in left else set()
        return agreed == {victim.uid for victim in room.victims}

    def _is_pointless(self, info: PodInfo) -> bool:
        if info.terminating:
            self._reports.failed(info, f"skip schedule deleting pod: {info.key}")
            return True
        return self.cluster.placed_pod(info.uid) is not None

    def _failed(self, queued: QueuedPod, decision: Decision) -> None:
        """No node: say why, and wait for what could help (semantics 5.9)."""
        for action in decision.actions:
            self._handle.spawn(_carried_out(action))
        self._make_room(queued.info, decision)  # first, so that the pod is gated if it comes back at once
        self._unscheduled.give_back(queued, Unscheduled.by_decision(decision))

    def _make_room(self, info: PodInfo, decision: Decision) -> None:
        """Carry out what PostFilter decided."""
        result = decision.nomination
        if result is None or not result.status.ok or not result.nominated_node_name:
            return
        for lower_priority_nominated in result.lower_priority_nominated:
            self.cluster.drop_nomination(lower_priority_nominated.uid)
        self._evictions.start(
            info,
            result.nominated_node_name,
            victims=result.victims,
            lower_priority_nominated=result.lower_priority_nominated,
        )

    def _give_back(self, queued: QueuedPod, status: Status, *, nomination: str = "") -> None:
        self._unscheduled.give_back(queued, Unscheduled.by_status(status, nomination=nomination))

    # -- placements that come to nothing ---------------------------------------------------------------------------

    def _binding_failed(self, reserved: BindingContext, status: Status) -> None:
        """Undo, and tell the queue that the node has room again: before or after the pod itself (semantics 4.7)."""
        self.undo(reserved)
        left = reserved.info.on(reserved.node_name)
        refused = status.code.is_rejection
        if not refused:
            self.queue.move(ASSIGNED_POD_DELETE, left, None)
        # Siblings that are bound already may be lost without this one, so nobody else gets its room.
        keeps_room = reserved.barrier is not None and reserved.barrier.may_leave_a_part
        self._give_back(reserved.queued, status, nomination=reserved.node_name if keeps_room else "")
        if refused:
            self.queue.move(ASSIGNED_POD_DELETE, left, None, among=lambda info: info.uid != left.uid)

    def undo(self, reserved: BindingContext) -> None:
        """Take a placement back."""
        self.waiting.remove(reserved.info.uid)
        reserved.profile.runtime.run_unreserve_plugins(reserved.state, reserved.info, reserved.node_name)
        self.cluster.forget(reserved.info.uid)

    def _assumed_pod_deleted(self, uid: str) -> None:
        """A pod on its way to be bound is being deleted."""
        waiting = self.waiting.get(uid)
        if waiting is not None:
            waiting.reject("", "removed")
            return
        self._gangs.leave(uid, "removed")
        placed_pod = self.cluster.placed_pod(uid)
        if placed_pod is not None:
            self.cluster.forget(uid)
            self.queue.move(ASSIGNED_POD_DELETE, placed_pod.info.on(placed_pod.node_name), None)


def _logged_decision(decision: Decision) -> Decision:
    """The same, after the log has been told what a plugin did wrong."""
    if decision.error is not None:
        _log.error("pod %s: %s", decision.pod.key, decision.error, exc_info=decision.error.__cause__)
    return decision


def _broken_decision(info: PodInfo, error: Exception) -> Decision:
    """The decision about a pod when deciding itself went wrong."""
    _log.error("scheduling cycle of pod %s failed", info.key, exc_info=error)
    message = f"{type(error).__name__}: {error}"
    return Decision(info, CycleState(), status=Status.error(message), message=message)


async def _carried_out(action: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """What a plugin wants done, called where it can fail without doing harm."""
    await action()


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and let go of how they end; those that do not mind are left behind after a moment."""
    for task in tasks:
        task.cancel()
    ended, _ = await asyncio.wait(tasks, timeout=_LAST_WORDS)
    for task in ended:
        if not task.cancelled():
            task.exception()
