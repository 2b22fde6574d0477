"""The scheduler: the composition of its parts, and the loop that pops one pod after the other.

    event handlers ─► cluster cache, queue ─► scheduling cycle ─► binding cycle ─► dispatcher ─► API server

Everything runs on one event loop. The scheduling cycle is synchronous, so it needs no locks; only where extenders take
part does it await, and even then one cycle ends before the next begins. Each assumed pod continues in a task of its
own. The scheduler keeps no state that has to survive a restart: it continues from the watch.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from kubestow import config
from kubestow.api.custom import CustomObject
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.errors import PluginError
from kubestow.framework.gang import GangOutcome
from kubestow.framework.profile import Profile, Registry, build_profile
from kubestow.framework.status import SUCCESS, Status
from kubestow.log_fields import fields
from kubestow.rules.minors import Behaviour
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.api_calls.pod_reports import PodReports
from kubestow.scheduling.background_work import BackgroundTasks, ChangeNotifier
from kubestow.scheduling.cycle.binding_confirmation import BindingConfirmations
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.binding_cycle import BindingCycles
from kubestow.scheduling.cycle.failure_handler import FailureHandler, SchedulingFailure
from kubestow.scheduling.cycle.scheduling_cycle import SchedulingCycle
from kubestow.scheduling.decision.node_selection import RandomTie
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.environment import Environment, Leadership, NoLeaderElection, Timer
from kubestow.scheduling.events.cluster_events import ASSIGNED_POD_DELETE
from kubestow.scheduling.events.handlers import EventHandlers, UnreadableObject, WatchListener
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.events.resources import watched
from kubestow.scheduling.events.unreadable_reports import UnreadableReports
from kubestow.scheduling.extenders.stages import EXTENDER, Extender, Extenders
from kubestow.scheduling.gangs.barrier import GangBarriers, GangBindingCycles
from kubestow.scheduling.gangs.incomplete import IncompleteGangs
from kubestow.scheduling.gangs.placer import GangPlacer
from kubestow.scheduling.gangs.pod_groups import PodGroupPlacer, PodGroupPreemption, PodGroupSchedulingCycle
from kubestow.scheduling.gangs.preemption import GangPreemption
from kubestow.scheduling.gangs.scheduling_cycle import GangSchedulingCycle
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.preemption.evictions import Evictions, PreemptionsInProgress
from kubestow.scheduling.queue.budget import ATTEMPT_BUDGET
from kubestow.scheduling.queue.entities import EntityQueue
from kubestow.scheduling.queue.queueing_hints import QueueingHints
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.queue.without_hints import EventsWithoutHints, SchedulingQueueWithoutHints
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler.handle import QueueRequests, SchedulerHandle
from kubestow.scheduling.scheduler_state import ListedState, SchedulerState
from kubestow.scheduling.waiting_pods import WaitingPods

_log = logging.getLogger(__name__)

B = TypeVar("B", bound=BindingCycles[Any])

#: Longest stretch of scheduling cycles before other tasks run, in seconds.
_MAX_STRETCH = 0.004
#: After a stretch of more than this many seconds, that is after a slow attempt, other tasks get a share of its time: a
#: binding takes a few turns of the event loop, and each turn would take another slow attempt.
_LONG_STRETCH, _SHARE_OF_OTHERS = 0.1, 0.1
#: The pause between the last attempt of another pod and one of a namespace in debt, in seconds, for the same reason.
_PAUSE_BEFORE_DEBTORS = 0.1
#: Between two looks at a lease that has expired during a long attempt, in seconds.
_PAUSE_WITHOUT_LEASE = 0.1
#: How long binding cycles and other work may continue at shutdown, in seconds.
_DRAIN_TIMEOUT = 10.0
#: How long cancelled tasks may take to end, in seconds.
_CANCEL_TIMEOUT = 1.0


class Scheduler:
    """Schedules the pods of a cluster until cancelled.

    ``registry`` has the plugin classes by name, ``pod_group_apis`` are those of other projects whose pod groups count.
    With ``listed``, it begins with what another scheduler has listed, whose objects are its own from then on.
    """

    #: The binding and scheduling cycles of single pods, and the event handlers.
    _binding_cycles: type[BindingCycles[BindingContext]] = BindingCycles
    _scheduling_cycles: type[SchedulingCycle] = SchedulingCycle
    _event_handlers: type[EventHandlers] = EventHandlers

    def __init__(
        self,
        configuration: config.KubeSchedulerConfiguration,
        *,
        registry: Registry,
        environment: Environment,
        pod_group_apis: Iterable[PodGroupAPI] = (),
        gates: config.FeatureGates | None = None,
        extenders: Sequence[Extender] = (),
        pod_max_in_unschedulable_pods: float = 300.0,
        leadership: Leadership | None = None,
        listed: ListedState | None = None,
    ) -> None:
        gates = gates or config.FeatureGates()
        configuration = config.apply_ignored_resources(configuration)
        self.environment = environment
        self._clock = environment.clock
        #: Set when a pod may be ready to be scheduled.
        self._wake = environment.concurrency.wake()
        self._alarm = _Alarm(environment, self._wake.set)
        #: The pod whose attempt is in progress.
        self._attempted: QueuedPod | None = None
        #: Whether the loop has paused since the last pod of a namespace that is not in debt.
        self._has_paused = False
        self._acquires_lead_first = configuration.delay_cache_until_active
        self.leadership = leadership or NoLeaderElection()
        #: Set when every watched resource has been listed, and when this scheduler leads.
        self.synced, self.leading = asyncio.Event(), asyncio.Event()

        # State: what the API server says, what was decided since, and what is in progress.
        self.pods = PodStore() if listed is None else listed.pods
        self.cluster = Cluster(pod_group_apis, gates=gates) if listed is None else listed.cluster
        self.waiting_pods = WaitingPods(gates.minor)
        self._barriers = GangBarriers()
        self._preemptions = PreemptionsInProgress(self.pods)
        self._bindings = BackgroundTasks(environment.concurrency)

        # Plugins. What they ask of the queue reaches it from the moment it exists.
        self._unreadable_reports = UnreadableReports(
            environment, self.leadership, configuration.profiles[0].scheduler_name
        )
        self.dispatcher = Dispatcher(
            environment,
            known_pod=self.pods.get,
            leadership=self.leadership,
            may_be_bound=self._barriers.may_be_bound,
            minor=gates.minor,
        )
        notifier, requests = ChangeNotifier(), QueueRequests()
        self.profiles: dict[str, Profile] = {}
        self._handle = SchedulerHandle(
            self.cluster,
            gates,
            environment,
            profiles=self.profiles,
            requests=requests,
            dispatcher=self.dispatcher,
            waiting_pods=self.waiting_pods,
            is_preempting=self._preemptions.is_preempting,
            notifier=notifier,
            extenders=configuration.extenders,
        )
        for profile in configuration.profiles:
            self.profiles[profile.scheduler_name] = build_profile(
                profile,
                registry,
                self._handle,
                percentage_of_nodes_to_score=configuration.percentage_of_nodes_to_score,
                monotonic=environment.duration_clock,
                observer=environment.observer.plugin_observer(profile.scheduler_name),
            )
        plugins = [plugin for built in self.profiles.values() for plugin in built.plugins]
        self._watched = watched({kind for plugin in plugins for kind in plugin.watched_kinds()}, gates)

        # The queue, and what happens to pods that are not bound.
        has_hints = gates.enabled("SchedulerQueueingHints")
        with_hints = EntityQueue if gates.minor.has(Behaviour.POD_GROUPS_ARE_QUEUED) else SchedulingQueue
        self.queue = (with_hints if has_hints else partial(SchedulingQueueWithoutHints, self.cluster))(
            self.profiles,
            (QueueingHints if has_hints else EventsWithoutHints)(
                self.profiles, unregistered=(EXTENDER,) if extenders else ()
            ),
            environment,
            gates=gates,
            backoff_seconds=(configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds),
            max_unschedulable_seconds=pod_max_in_unschedulable_pods,
            on_change=self._wake.set,
        )
        state = SchedulerState(self.cluster, self.pods, self.queue)
        self._evictions = Evictions(state, self._preemptions, self.dispatcher, self.waiting_pods, environment, gates)
        self._reports = PodReports(environment, self.dispatcher, gates)
        self._failure_handler = FailureHandler(
            state,
            evictions=self._evictions,
            reports=self._reports,
            leadership=self.leadership,
            environment=environment,
            gates=gates,
        )
        self._confirmations = BindingConfirmations(
            state, dispatcher=self.dispatcher, failure_handler=self._failure_handler, environment=environment
        )
        self._incomplete_gangs = IncompleteGangs(self.profiles, self.queue, self._failure_handler, environment.clock)

        # The cycles.
        self._extenders = Extenders(self.cluster, extenders)

        def binding_cycles(kind: type[B]) -> B:
            return kind(
                self.queue,
                self.waiting_pods,
                extenders=self._extenders,
                dispatcher=self.dispatcher,
                reports=self._reports,
                failure_handler=self._failure_handler,
                confirmations=self._confirmations,
                environment=environment,
                tasks=self._bindings,
                gates=gates,
            )

        self._ordinary_binding_cycles = ordinary = binding_cycles(self._binding_cycles)
        self._scheduling_cycle = self._scheduling_cycles(
            state,
            pipeline=DecisionPipeline(
                self.cluster,
                self.profiles,
                environment.ties or RandomTie(environment.random),
                self._extenders if extenders else None,
            ),
            binding_cycles=ordinary,
            failure_handler=self._failure_handler,
            environment=environment,
        )
        of_gangs = binding_cycles(GangBindingCycles)

        def gang_cycle(
            kind: type[GangSchedulingCycle], placer_kind: type[GangPlacer], preemption_kind: type[GangPreemption]
        ) -> GangSchedulingCycle:
            placer = placer_kind(state, self._scheduling_cycle, self._extenders, environment.random)
            return kind(
                state,
                placer=placer,
                preemption=preemption_kind(
                    state,
                    placer,
                    extenders=self._extenders,
                    failure_handler=self._failure_handler,
                    evictions=self._evictions,
                ),
                cycle=self._scheduling_cycle,
                binding_cycles=ordinary,
                gang_binding_cycles=of_gangs,
                barriers=self._barriers,
                failure_handler=self._failure_handler,
            )

        self._gang_cycle = gang_cycle(GangSchedulingCycle, GangPlacer, GangPreemption)
        #: The cycle of gangs with terms.
        in_one_attempt = gates.minor.has(Behaviour.POD_GROUPS_PREEMPT_IN_ONE_ATTEMPT)
        preemption = PodGroupPreemption if in_one_attempt else GangPreemption
        self._pod_group_cycle = gang_cycle(PodGroupSchedulingCycle, PodGroupPlacer, preemption)

        forgets_deleted_pods = gates.minor.has(Behaviour.DELETED_ASSUMED_PODS_ARE_FORGOTTEN)
        # What calls back: plugins, PreEnqueue and the watch.
        requests.add_listener(self.queue)
        self.queue.gating.add_listener(self._failure_handler)
        self.queue.gating.add_listener(self._incomplete_gangs)
        self.handlers = self._event_handlers(
            self.cluster,
            self.pods,
            self.queue,
            scheduler_names=self.profiles.keys(),
            watched=self._watched,
            minor=gates.minor,
            listener=(_SchedulerWatchListener if forgets_deleted_pods else _ListenerThatKeepsDeletedPods)(
                state,
                waiting_pods=self.waiting_pods,
                barriers=self._barriers,
                dispatcher=self.dispatcher,
                confirmations=self._confirmations,
                evictions=self._evictions,
                unreadable_reports=self._unreadable_reports,
                notifier=notifier,
                observer=environment.observer,
                synced=self.synced,
            ),
            duration_clock=environment.duration_clock,
        )

    @property
    def custom_kinds(self) -> list[type[CustomObject]]:
        """The custom kinds that plugins read."""
        return [resource.type for resource in self._watched if issubclass(resource.type, CustomObject)]

    @property
    def attempted(self) -> str:
        """Namespace and name of the pod whose attempt is in progress, "" for none; may be read in any thread."""
        attempted = self._attempted
        return "" if attempted is None else attempted.info.key

    @property
    def binding_cycle_count(self) -> int:
        """How many binding cycles are running."""
        return len(self._bindings)

    @property
    def work_in_progress(self) -> bool:
        """Whether tasks are running that outlive a scheduling cycle: bindings, evictions, writes."""
        return bool(self._work_in_progress())

    @property
    def longest_pause(self) -> float:
        """The longest pause between two runs of periodic work of a plugin, in seconds; 0 if there is none."""
        return self._handle.periodic_work.longest_pause

    @property
    def extenders_prioritizing(self) -> int:
        """How many prioritize calls of extenders are in progress."""
        return self._extenders.prioritizing

    # -- running -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch, and schedule while leading, until cancelled; work in progress is then given time to end.

        Raises what ends the watch or the leadership. When the leadership is lost, no work is waited for.
        """
        watching = asyncio.create_task(self._watch(), name="watch")
        leading = asyncio.create_task(self._lead(), name="lead")
        scheduling = asyncio.create_task(self._schedule_pods(), name="schedule")
        self._handle.periodic_work.start()
        try:
            await asyncio.wait((watching, leading, scheduling), return_when=asyncio.FIRST_COMPLETED)
            for task in (leading, watching, scheduling):
                if task.done():
                    task.result()
        finally:
            scheduling.cancel()
            tasks = [scheduling, leading, watching, *self._handle.periodic_work.stop()]
            self._incomplete_gangs.close()
            try:
                if not leading.done():  # else a successor may already be doing the same work
                    draining = asyncio.create_task(self._drain(), name="drain")
                    tasks.append(draining)
                    await asyncio.wait((draining, leading), return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.dispatcher.close()
                await _cancel([*tasks, *self._work_in_progress(), *self._confirmations.tasks])
            await self.leadership.release()

    async def started(self) -> None:
        """Return when scheduling begins: everything has been listed, and this scheduler leads."""
        await self.synced.wait()
        await self.leading.wait()

    async def _watch(self) -> None:
        if self._acquires_lead_first:
            await self.leading.wait()
        await self.environment.api.subscribe(self._watched, self.handlers)

    async def _lead(self) -> None:
        if not self._acquires_lead_first:
            await self.synced.wait()
        for pod, seconds in (await self.leadership.acquire()).items():
            self._hold_back(pod, seconds)
        for unreadable in self.handlers.unreadable_objects:  # a standby reports nothing
            self._unreadable_reports.report(unreadable)
        self.leading.set()
        await self.leadership.hold()

    async def _schedule_pods(self) -> None:
        """The scheduling loop: stretches of scheduling cycles, between which other tasks run.

        Pods that an event has helped move in steps between stretches, and no pod is popped meanwhile. Pods of
        namespaces in debt (:mod:`kubestow.scheduling.queue.budget`) come last, after a pause.
        """
        await self.started()
        self._incomplete_gangs.start()
        try:
            while True:
                # If the lease has expired in a long attempt, another scheduler may decide, until it is renewed or lost.
                while not self.leadership.holds_lease:  # noqa: ASYNC110  # it expires by the clock, without an event
                    await asyncio.sleep(_PAUSE_WITHOUT_LEASE)
                pause = await self._run_stretch()
                if pause is not None:
                    await asyncio.sleep(pause)
                else:
                    await self._wake.wait()
        finally:
            self._alarm.cancel()

    async def _run_stretch(self) -> float | None:
        """One stretch of scheduling cycles; the pause after it in seconds, None to wait until a pod may be ready."""
        self._wake.clear()
        self.queue.moves.flush()
        self.queue.moves.continue_moving()
        began = now = self._clock.monotonic()
        may_be_left_to_debtors = False
        while not self.queue.moves.is_moving:
            if (queued := self.queue.pop()) is not None:
                self._has_paused = False
            elif not self._has_paused or (queued := self.queue.pop_in_debt()) is None:
                may_be_left_to_debtors = not self._has_paused
                break
            self._attempted = queued
            await self._schedule_one(queued)
            self._attempted = None
            now = self._clock.monotonic()
            if now - queued.attempt_began > ATTEMPT_BUDGET:
                self._charge(queued, now)
            if now - began > _MAX_STRETCH:
                break
        if not self.queue.has_work:
            self._alarm.set(self.queue.moves.next_flush())
            return None
        stretch = now - began
        pause = stretch * _SHARE_OF_OTHERS if stretch > _LONG_STRETCH else 0.0
        if may_be_left_to_debtors:
            pause, self._has_paused = max(pause, _PAUSE_BEFORE_DEBTORS), True
        return pause

    async def _schedule_one(self, queued: QueuedPod) -> None:
        """One scheduling cycle, of a single pod or of its gang (semantics 5.1, 4.10)."""
        info = queued.info
        if info.terminating:
            self._reports.record_failure(info, f"skip schedule deleting pod: {info.key}")
            self.queue.drop_popped(queued)
            return
        if self.cluster.placed_pod(info.uid) is not None:  # an update queued it again before it was assumed
            self.queue.drop_popped(queued)
            return
        profile = self.profiles[info.spec.scheduler_name]
        if profile.runtime.slow_calls:  # of an earlier cycle
            profile.runtime.slow_calls.clear()
        if profile.runtime.plugins.gang_source is None:
            await self._scheduling_cycle.schedule(queued)
        else:
            await self._schedule_with_gang(queued, profile)

    def _hold_back(self, pod: str, seconds: float) -> None:
        """A former leader was lost in an attempt of a pod, so keep all pods of its namespace from being tried."""
        namespace = pod.partition("/")[0]
        problem = f"an attempt did not end and cost the leader its Lease: the next one is in {seconds:.0f} s"
        values = fields(pod=pod, namespace=namespace, pause=round(seconds))
        _log.warning("pod %s: %s, as for all pods of namespace %s", pod, problem, namespace, extra=values)
        for queued in self.queue.hold_back(pod, self._clock.monotonic() + seconds):
            self._reports.record_failure(queued.info, problem)

    def _charge(self, queued: QueuedPod, now: float) -> None:
        """A scheduling cycle took too long: have other pods go first, and report it on the pod if it has no node."""
        info, seconds = queued.info, now - queued.attempt_began
        until = self.queue.charge(seconds, now)
        slowest = max(
            self.profiles[info.spec.scheduler_name].runtime.slow_calls.items(), key=lambda call: call[1], default=None
        )
        plugin, extension_point = ("", "") if slowest is None else slowest[0]
        self.environment.observer.attempt_over_budget(queued, plugin, extension_point, seconds)
        took = f"the attempt took {seconds:.1f} s"
        if slowest is not None:
            took += f", {slowest[1]:.1f} s of them in the {extension_point} of plugin {plugin}"
        is_put_aside = info.uid in self.queue.pods
        pause = until - now
        effect = f"the next attempt is in {pause:.0f} s at the earliest" if is_put_aside else "the pod has a node"
        _log.warning(
            "pod %s: %s, and no other pod was scheduled meanwhile; for %.0f s pods of other namespaces go first; %s",
            info.key,
            took,
            pause,
            effect,
            extra=fields(
                pod=info.key,
                plugin=plugin,
                extensionPoint=extension_point,
                seconds=round(seconds, 1),
                pause=round(pause),
            ),
        )
        if is_put_aside:
            self._reports.record_failure(info, f"{took}, while no other pod could be scheduled: {effect}")

    async def _schedule_with_gang(self, queued: QueuedPod, profile: Profile) -> None:
        """One scheduling cycle in a profile with gangs: of the pod's gang, or of the pod if it has none."""
        outcome = None
        try:
            outcome = await self._schedule_gang_or_pod(queued, profile)
        finally:
            self.queue.end_group_attempt(outcome)

    async def _schedule_gang_or_pod(self, queued: QueuedPod, profile: Profile) -> GangOutcome | None:
        """The same; returns the outcome for the gang, None if none was tried."""
        info = queued.info
        try:
            gang = profile.gangs.gang_of(info)
        except PluginError as error:
            gang, admission = None, Status.error(str(error))
        else:
            # A pod without a gang may name a group that was deleted after the pod had passed PreEnqueue.
            admission = profile.gangs.run_gang_pre_enqueue(info) if gang is None else SUCCESS
        if gang is not None:
            cycle = self._gang_cycle if gang.terms is None else self._pod_group_cycle
            return await cycle.schedule(gang, queued, profile)
        if admission.ok:
            await self._scheduling_cycle.schedule(queued)
        else:
            self._failure_handler.attempt_failed(queued, SchedulingFailure.of_status(admission, nomination=""))
        return None

    # -- shutdown ------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait for work in progress, but no longer than the drain timeout."""
        self._barriers.close_all("the scheduler is shutting down")
        for waiting in self.waiting_pods.all():
            waiting.reject("", "the scheduler is shutting down")
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT):
                while work := self._work_in_progress():
                    await asyncio.wait(work)
        except TimeoutError:
            tasks = len(self._work_in_progress())
            _log.warning("shutting down with %d tasks in progress", tasks, extra=fields(tasks=tasks))

    def _work_in_progress(self) -> list[asyncio.Task[Any]]:
        """The tasks that outlive a scheduling cycle."""
        background = (self._bindings, self._handle.background, self._evictions.tasks)
        return [*(task for tasks in background for task in tasks), *self.dispatcher.tasks]


class _Alarm:
    """Calls a function at the earliest of the times that it was set to, in seconds of the clock."""

    def __init__(self, environment: Environment, ring: Callable[[], None]) -> None:
        self._clock, self._concurrency, self._ring = environment.clock, environment.concurrency, ring
        self._time = math.inf
        self._timer: Timer | None = None

    def set(self, time: float) -> None:
        """Ring at a time, at once if it has passed."""
        if time < self._time:
            self.cancel()
            self._time = time
            seconds = max(0.0, time - self._clock.monotonic())
            self._timer = self._concurrency.call_later(seconds, self._time_reached)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
        self._time, self._timer = math.inf, None

    def _time_reached(self) -> None:
        self._time, self._timer = math.inf, None
        self._ring()


class _SchedulerWatchListener(WatchListener):
    """What the watch means beside cache and queue: bindings that are pointless, and conditions that may hold now."""

    def __init__(
        self,
        state: SchedulerState,
        *,
        waiting_pods: WaitingPods,
        barriers: GangBarriers,
        dispatcher: Dispatcher,
        confirmations: BindingConfirmations,
        evictions: Evictions,
        unreadable_reports: UnreadableReports,
        notifier: ChangeNotifier,
        observer: Observer,
        synced: asyncio.Event,
    ) -> None:
        self._cluster, self._pods, self._queue = state.cluster, state.pods, state.queue
        self._waiting_pods = waiting_pods
        self._barriers, self._dispatcher, self._evictions = barriers, dispatcher, evictions
        self._confirmations, self._unreadable_reports = confirmations, unreadable_reports
        self._notifier, self._observer, self._synced = notifier, observer, synced

    def pod_terminating(self, uid: str) -> None:
        self._evictions.victim_changed(uid)

    def pod_settled(self, uid: str) -> None:
        self._dispatcher.pod_settled(uid)
        self._confirmations.pod_settled(uid)
        self._evictions.victim_changed(uid)

    def synced(self) -> None:
        self._synced.set()

    def changed(self) -> None:
        self._notifier.changed()

    def event_handled(self, event: str, seconds: float) -> None:
        self._observer.event_handled(event, seconds)

    def handler_failed(self, kind: str) -> None:
        self._observer.event_handler_failed(kind)

    def object_unreadable(self, unreadable: UnreadableObject) -> None:
        self._unreadable_reports.report(unreadable)

    def assumed_pod_deleted(self, uid: str) -> None:
        """Reject a pod that waits on Permit; drop the assumption of any other, whose binding will fail."""
        waiting = self._waiting_pods.get(uid)
        if waiting is not None and waiting.reject("", "removed"):
            return
        self._barriers.leave(uid, "removed")
        placed = self._cluster.placed_pod(uid)
        if placed is not None:
            self._cluster.forget(uid)
            self._queue.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, placed.info.on(placed.node_name), None)


class _ListenerThatKeepsDeletedPods(_SchedulerWatchListener):
    """The same before :attr:`Behaviour.DELETED_ASSUMED_PODS_ARE_FORGOTTEN`."""

    def assumed_pod_deleted(self, uid: str) -> None:
        """Reject a pod that is gone and waits on Permit; the binding of any other will fail."""
        waiting = self._waiting_pods.get(uid)
        if waiting is not None and self._pods.get(uid) is None:
            waiting.reject("", "removed")


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and ignore their results; those that do not end in time are left behind."""
    for task in tasks:
        task.cancel()
    ended, _ = await asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT)
    for task in ended:
        if not task.cancelled():
            task.exception()
