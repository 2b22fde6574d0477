"""Turns: a scheduler in virtual time without an event loop, for simulations in which nothing has to be awaited.

:class:`Turns` orders calls as asyncio does: a turn makes the calls that were due when it began, and where none is due,
time jumps to the next timer. So a :class:`SchedulerInTurns` makes the same decisions in the same order as a
:class:`~kubestow.scheduling.scheduler.Scheduler` on a :class:`~kubestow.engine.virtual_time.VirtualTimeLoop`, with the
same queue, cycles, failure handler, evictions and event handlers. Two ways are shorter: most nodes are found by totals
that were kept (:mod:`.kept_decisions`), and a pod that arrives alone is bound without the queue
(:meth:`SchedulerInTurns.end_arrivals`). What it does without is tasks: a coroutine that never has to wait is run to its
end in one turn. One that does wait, such as for Permit or for a write of a PreBind
plugin, is more than turns can do. Then they are refused (:attr:`Turns.refusal`), and the caller starts again on an
event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from kubestow import config
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.kept_decisions import KeepingSchedulingCycle
from kubestow.engine.virtual_time import resolution
from kubestow.errors import APIError
from kubestow.framework.cycle_state import PodsToActivate
from kubestow.framework.interface import PreBindPlugin
from kubestow.framework.profile import Profile, Registry
from kubestow.framework.status import Code
from kubestow.plugins.default_binder import DefaultBinder
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.binding_cycle import BindingCycles
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.environment import Concurrency, Environment
from kubestow.scheduling.events.handlers import EventHandlers
from kubestow.scheduling.interfaces import Subscriber, reference
from kubestow.scheduling.observer import Result
from kubestow.scheduling.queue.budget import ATTEMPT_BUDGET
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow.scheduling.scheduler_state import ListedState

T = TypeVar("T")

#: asyncio's loop waits no longer than a day at a time, in seconds; where times are sums, rounding depends on it.
_LONGEST_WAIT = 86400.0


class TurnTimer(float):
    """A call at a time, in seconds. It is that number, since a heap compares numbers without calls in Python."""

    __slots__ = ("call", "is_cancelled")

    call: Callable[[], object]
    is_cancelled: bool

    def when(self) -> float:
        """The time of the call, in seconds."""
        return self

    def cancel(self) -> None:
        """Do not make the call."""
        self.is_cancelled = True

    def run(self) -> None:
        """Make the call, unless another call of the same turn has cancelled it."""
        if not self.is_cancelled:
            self.call()


class Turns(Concurrency):
    """Calls in virtual time, which starts at 0, and coroutines that need no event loop."""

    def __init__(self) -> None:
        self._now = 0.0
        self._due: deque[Callable[[], object]] = deque()
        self._timers: list[TurnTimer] = []
        #: What turns cannot do, once something has asked for it; no further turn is made.
        self.refusal = ""
        #: The coroutines that have not ended.
        self.running: set[TurnTask] = set()

    def close(self) -> None:
        """End the coroutines that have not ended, and make no call any more."""
        for task in self.running:
            task.work.close()
        self.running.clear()
        self._due.clear()
        self._timers.clear()

    def refuse(self, reason: str) -> None:
        """Make no further turn."""
        self.refusal = self.refusal or reason

    # -- time and calls ------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the virtual time."""
        self._now += seconds

    def call_soon(self, call: Callable[[], object]) -> None:
        """Make a call in the next turn."""
        self._due.append(call)

    def call_at(self, when: float, call: Callable[[], object]) -> TurnTimer:
        """Make a call at a time, in seconds."""
        timer = TurnTimer(when)
        timer.call, timer.is_cancelled = call, False
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TurnTimer:
        """Make a call after so many seconds."""
        return self.call_at(self._now + seconds, callback)

    def continue_after(self, seconds: float, call: Callable[[], object]) -> TurnTimer | None:
        """Make a call when a task that sleeps so many seconds would continue: its timer ends one turn before that.

        None without a timer, for no seconds.
        """
        if seconds > 0:
            return self.call_later(seconds, lambda: self._due.append(call))
        self._due.append(call)
        return None

    def next_call(self) -> float:
        """When the next call is due, in seconds: now, or at the next timer; infinity without one."""
        while self._timers and self._timers[0].is_cancelled:
            heapq.heappop(self._timers)
        return self._now if self._due else self._timers[0] if self._timers else math.inf

    def skip_turn(self) -> bool:
        """Make a turn in which no call is due; False if there is one.

        As any turn, it drops the timers that are cancelled: the order of equal times depends on when that is done.
        """
        return self.next_call() >= self._now + resolution(self._now)

    def turn(self) -> None:
        """Make the calls that are due; if there are none, let time pass to the next timer first.

        Raises RuntimeError if there is no timer either.
        """
        due, timers = self._due, self._timers
        while timers and timers[0].is_cancelled:
            heapq.heappop(timers)
        if not due:
            if not timers:
                raise RuntimeError("no call is due and there is no timer")
            self._now += min(max(0.0, timers[0] - self._now), _LONGEST_WAIT)
        if timers:
            end = self._now + resolution(self._now)
            while timers and timers[0] < end:
                due.append(heapq.heappop(timers).run)
        for _ in range(len(due)):
            due.popleft()()

    # -- concurrency ---------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine from the next turn on; of a task's methods the result has what a scheduler uses."""
        return cast("asyncio.Task[T]", TurnTask(self, work))

    async def run_all(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run coroutines at the same time; their results or exceptions, once all of them have ended."""
        tasks = [TurnTask(self, work) for work in works]
        if tasks:
            await _Ends(tasks)
        return [task.outcome for task in tasks]

    def wake(self) -> TurnWake:
        """Something to wait for that is not set."""
        return TurnWake(self)


class TurnTask:
    """A coroutine that runs in turns: to its end in the next one, unless it awaits :meth:`Turns.run_all`."""

    def __init__(self, turns: Turns, work: Coroutine[Any, Any, Any]) -> None:
        self._turns, self.work = turns, work
        turns.running.add(self)
        self._callbacks: list[Callable[[Any], object]] = []
        #: What it returned or raised.
        self.outcome: Any = None
        turns.call_soon(self.step)

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Make a call, with this task, in the turn after its end."""
        self._callbacks.append(callback)

    def step(self) -> None:
        """Run on to where the coroutine waits, or to its end."""
        try:
            awaited = self.work.send(None)
        except StopIteration as end:
            self.outcome = end.value
        except Exception as error:
            self.outcome = error
        else:
            if isinstance(awaited, _Ends):
                awaited.continue_with(self._turns, self.step)
            else:
                self._turns.refuse("a coroutine waits for an event loop")
            return
        self._turns.running.discard(self)
        for callback in self._callbacks:
            self._turns.call_soon(lambda callback=callback: callback(self))  # type: ignore[misc]


class _Ends:
    """Waits for the ends of tasks."""

    def __init__(self, tasks: Sequence[TurnTask]) -> None:
        self._tasks, self._left = tasks, len(tasks)

    def __await__(self) -> Generator[_Ends, None, None]:
        yield self

    def continue_with(self, turns: Turns, step: Callable[[], object]) -> None:
        """Have a waiting task continue in the turn after that in which it hears of the last end."""

        def ended(task: Any) -> None:
            self._left -= 1
            if not self._left:
                turns.call_soon(step)

        for task in self._tasks:
            task.add_done_callback(ended)


class TurnWake:
    """What the scheduling loop waits for."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.is_set = False
        self._waiting: Callable[[], object] | None = None

    def set(self) -> None:
        """Have the waiting call made in the next turn."""
        self.is_set = True
        if self._waiting is not None:
            self._turns.call_soon(self._waiting)
            self._waiting = None

    def clear(self) -> None:
        """Have the next call wait."""
        self.is_set = False

    @property
    def is_awaited(self) -> bool:
        """Whether a call is made once it is set."""
        return self._waiting is not None

    def call_when_set(self, call: Callable[[], object]) -> None:
        """Make a call in the turn after it has been set."""
        self._waiting = call

    async def wait(self) -> None:
        """Not in turns."""
        self._turns.refuse("a coroutine waits for an event loop")


class BindingsInTurns(BindingCycles[BindingContext]):
    """Binding cycles in turns, most of them without a coroutine for each plugin and request."""

    turns: Turns
    #: How many are not over.
    count = 0

    def start(self, context: BindingContext) -> None:
        """Have the pod bound in the next turn."""
        if context.permit_timeouts:
            self.turns.refuse("a Permit plugin delays pods")
            return
        self.count += 1
        self.turns.call_soon(lambda: self._bind_in_turn(context))
        if (named := context.state.own(PodsToActivate)) is not None:
            self._activate(named)

    def start_binding_only(self, queued: QueuedPod, node_name: str) -> None:
        """Have a pod bound in the next turn for which nothing else is left to do."""
        self.count += 1
        self.turns.call_soon(lambda: self._bind_only(queued, node_name))

    def _bind_only(self, queued: QueuedPod, node_name: str) -> None:
        self._queue.in_flight.done(queued.info.uid)
        if self.bind(queued, node_name):
            self.turns.call_soon(self._ended)

    def _bind_in_turn(self, context: BindingContext) -> None:
        """The binding cycle of one pod; see :meth:`BindingCycles._run_steps` for the steps."""
        info, node_name, runtime = context.info, context.node_name, context.runtime
        self._observer.binding_started(info)
        pre_flight = runtime.run_pre_bind_pre_flights(context.state, info, node_name)
        if pre_flight.status.code is not Code.SKIP:
            self.turns.refuse("a PreBind plugin has work to do")
            return
        self._queue.in_flight.done(info.uid)
        if not self.bind(context.queued, node_name):
            return
        if runtime.plugins.post_bind:
            run_synchronously(runtime.run_post_bind_plugins(context.state, info, node_name))
        if (named := context.state.own(PodsToActivate)) is not None:
            self._activate(named)
        self.turns.call_soon(self._ended)

    def bind(self, queued: QueuedPod, node_name: str) -> bool:
        """Bind a pod and report it; False after a refusal."""
        try:
            run_synchronously(self._api.bind(reference(queued.info), node_name))
        except APIError as error:
            self.turns.refuse(f"a binding failed: {error}")
            return False
        now = self._clock.monotonic()
        self._observer.attempt_ended(queued, Result.SCHEDULED, "", now - queued.attempt_began)
        first = queued.timestamp if queued.initial_attempt is None else queued.initial_attempt
        self._observer.pod_bound(queued, node_name, now - first)
        return True

    def _ended(self) -> None:
        """A task leaves the running ones in the turn after its end."""
        self.count -= 1


def unsupported(profiles: Mapping[str, Profile], gates: config.FeatureGates) -> Iterator[str]:
    """What turns cannot do of what these profiles do, whatever the pods are.

    Some plugins ask for more than turns can do for some pods only, which then shows in the turn in which they do.
    """
    if not gates.enabled("SchedulerAsyncPreemption"):
        yield "without SchedulerAsyncPreemption an attempt waits for evictions"
    for name, profile in profiles.items():
        plugins = profile.runtime.plugins
        if plugins.gang_source is not None:
            yield f"profile {name} schedules gangs"
        if [type(plugin) for plugin in plugins.bind] != [DefaultBinder]:
            yield "pods are bound by other plugins than DefaultBinder"
        for reporter in plugins.post_bind:
            if inspect.iscoroutinefunction(type(reporter).post_bind):
                yield f"a PostBind plugin is a coroutine: {reporter.name}"
        for plugin in plugins.pre_bind:
            if type(plugin).pre_bind_pre_flight is PreBindPlugin.pre_bind_pre_flight:
                yield f"a PreBind plugin has work to do for every pod: {plugin.name}"


class EventHandlersInTurns(EventHandlers):
    """Event handlers that can set a pod aside, before it is queued."""

    #: Whether the next pod that needs a node is set aside.
    sets_aside = False
    #: The pod that has been set aside.
    aside: PodInfo | None = None

    def _enqueue(self, info: PodInfo) -> None:
        if self.sets_aside and self.aside is None:
            self.aside = info
            return
        self.queue_aside()
        super()._enqueue(info)

    def queue_aside(self) -> None:
        """Queue the pod that has been set aside, if there is one, and set none aside any more."""
        self.sets_aside, info, self.aside = False, self.aside, None
        if info is not None:
            super()._enqueue(info)


class SchedulerInTurns(Scheduler):
    """A scheduler without an event loop, in a simulation. The environment's concurrency are the ``turns``."""

    _binding_cycles = BindingsInTurns
    _scheduling_cycles = KeepingSchedulingCycle
    _event_handlers = EventHandlersInTurns
    handlers: EventHandlersInTurns
    _scheduling_cycle: KeepingSchedulingCycle

    def __init__(
        self,
        configuration: config.KubeSchedulerConfiguration,
        *,
        turns: Turns,
        registry: Registry,
        environment: Environment,
        pod_group_apis: Iterable[PodGroupAPI] = (),
        gates: config.FeatureGates,
        pod_max_in_unschedulable_pods: float,
        listed: ListedState | None = None,
    ) -> None:
        super().__init__(
            configuration,
            registry=registry,
            environment=environment,
            pod_group_apis=pod_group_apis,
            gates=gates,
            pod_max_in_unschedulable_pods=pod_max_in_unschedulable_pods,
            listed=listed,
        )
        self._turns = turns
        self._is_stopped = False
        #: Whether there are times at which pods that were rejected are tried again.
        self._flushes = math.isfinite(pod_max_in_unschedulable_pods)
        wake, bindings = self._wake, self._ordinary_binding_cycles
        assert isinstance(wake, TurnWake) and isinstance(bindings, BindingsInTurns)
        self._turn_wake, self._bindings_in_turns = wake, bindings
        bindings.turns = turns
        self._scheduling_cycle.start_binding_only = bindings.start_binding_only
        if self.longest_pause:
            turns.refuse("a plugin repeats work periodically")
        for reason in unsupported(self.profiles, gates):
            turns.refuse(reason)

    @property
    def work_in_progress(self) -> bool:
        return bool(self._bindings_in_turns.count) or super().work_in_progress

    def begin(self, subscribe: Callable[[Sequence[Any], Subscriber], None]) -> None:
        """List what is watched, and begin to schedule; ``subscribe`` lists resources and delivers later changes."""
        subscribe(self._watched, self.handlers)
        self.begin_listed()

    def begin_listed(self) -> None:
        """Begin to schedule on what has been listed, by this scheduler or before it was made."""
        self.leading.set()
        self._schedule_in_turn()

    @property
    def listed(self) -> ListedState:
        """What has been listed, for another scheduler. Nothing may have been decided, and nothing else may go on."""
        return ListedState(self.cluster, self.pods, self._watched)

    def stop(self) -> None:
        """Begin no further attempt; bindings and evictions in progress go on."""
        self._is_stopped = True
        self._alarm.cancel()

    # -- pods that arrive alone --------------------------------------------------------------------------------------

    def begin_arrivals(self) -> None:
        """Pods arrive from now on in this call; the first of them may have its attempt in :meth:`end_arrivals`."""
        is_idle = self.queue.is_empty and self._turn_wake.is_awaited and not self._is_stopped
        self.handlers.sets_aside = is_idle and not self._flushes

    def end_arrivals(self) -> None:
        """Make the attempt of a pod that has arrived alone, or queue it.

        An attempt and a binding are made in the next two turns. Where nothing else would happen in these, both are made
        now, without the queue: so is it for most pods of a trace, whose times differ.
        """
        info = self.handlers.aside
        if info is not None and self._turns.skip_turn() and self._bind_at_once(info):
            self.handlers.aside = None
        self.handlers.queue_aside()

    def _bind_at_once(self, info: PodInfo) -> bool:
        """Bind a new pod to the node that totals which were kept have for it; False if it has to be queued."""
        cycle, queue, began = self._scheduling_cycle, self.queue, self._turns.time()
        if info.terminating or queue.moves.is_moving:
            return False
        known = cycle.known_totals(info)
        if known is None or not known[1].binds_at_once:
            return False
        if queue.gating.may_gate(info) or self.cluster.placed_pod(info.uid) is not None:
            return False
        node_name = cycle.find_node(info, *known)
        if node_name is None:
            return False
        queued = QueuedPod(info, began, attempts=1, attempt_began=began, initial_attempt=began)
        if self._turns.skip_turn():
            self._bindings_in_turns.bind(queued, node_name)
        else:  # the attempt took until other calls are due, which come after the binding
            self._turns.call_soon(lambda: self._bindings_in_turns.bind(queued, node_name))
        return True

    def _schedule_in_turn(self) -> None:
        while not self._is_stopped:
            pause = run_synchronously(self._run_stretch())
            if pause is not None:
                self._turns.continue_after(pause, self._schedule_in_turn)
                return
            if not self._turn_wake.is_set:
                self._turn_wake.call_when_set(self._schedule_in_turn)
                return


#: An attempt may take no more virtual time than this, in seconds: longer ones delay other pods of the namespace.
LONGEST_ATTEMPT = ATTEMPT_BUDGET
