"""The binding cycles under way: placed pods, each in a task of its own, on the way to their nodes (semantics 4.7).

What plugins are asked on this way is in :mod:`kubestow.scheduling.binding_cycle`; here is the order of things around
it: who is waited for, and how others can take a pod back. What follows from a failure is the scheduler's; how many are
bound at once, and which writes have to be out before, is the dispatcher's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.binding_cycle import BindingContext, BindingCycle
from kubestow.scheduling.extenders.port import Extenders
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.ports import Clock, PodStatusPatch, reference
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.waiting_pods import WaitingPods
from kubestow.scheduling.writes.dispatcher import Dispatcher
from kubestow.scheduling.writes.pod_reports import Reports

__all__ = ["Bindings"]

_log = logging.getLogger(__name__)

#: Who speaks when a pod on its way has to make room.
_PREEMPTION = "DefaultPreemption"


class Bindings:
    """Binds placed pods. ``on_failed`` is called with whom it did not work out for, ``on_bound`` after PostBind.

    With ``nominates`` the node that a pod is about to get is written down as its nomination before it is waited for.
    """

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        waiting: WaitingPods,
        extenders: Extenders,
        dispatcher: Dispatcher,
        reports: Reports,
        clock: Clock,
        observer: Observer,
        nominates: bool,
        on_failed: Callable[[BindingContext, Status], None],
        on_bound: Callable[[BindingContext], None],
    ) -> None:
        self._queue, self._waiting, self._extenders, self._dispatcher = queue, waiting, extenders, dispatcher
        self._reports, self._clock, self._observer = reports, clock, observer
        self._nominates = nominates
        self._on_failed, self._on_bound = on_failed, on_bound
        self.tasks: set[asyncio.Task[None]] = set()
        #: The binding cycles that are at PreBind, by the uid of the pod.
        self._in_pre_bind: dict[str, BindingCycle] = {}

    def start(self, reserved: BindingContext) -> None:
        """Begin a binding cycle; the placement has been reserved and permitted."""
        task = asyncio.create_task(self._bind(reserved))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _bind(self, reserved: BindingContext) -> None:
        """One binding cycle (semantics 4.7). Whatever goes wrong, the placement is undone and the pod given back."""
        try:
            status = await self._bound(reserved)
        except Exception as error:
            _log.exception("binding cycle of pod %s failed", reserved.info.key)
            status = Status.error(f"{type(error).__name__}: {error}")
        if not status.ok:
            self._on_failed(reserved, status)
        if reserved.barrier is not None:
            why = f"{reserved.info.key}: {status.message}"
            reserved.barrier.leave(reserved.info.uid, why, is_bound=status.ok)

    async def _bound(self, reserved: BindingContext) -> Status:
        info, cycle = reserved.info, BindingCycle(reserved)
        flight = cycle.pre_flight()
        if not flight.ok and flight.code is not Code.SKIP:
            return flight
        if self._nominates and (flight.ok or reserved.waits):
            self._dispatcher.patch_status(reference(info), PodStatusPatch(nominated_node_name=reserved.node_name))
        getting_ready = self._ready(reserved, cycle if flight.ok else None)
        barrier = reserved.barrier
        status = await (getting_ready if barrier is None else barrier.meet(info.uid, getting_ready))
        if not status.ok:
            return status
        status = await self._dispatcher.binding(info.uid, lambda: self._bound_for_good(reserved, cycle))
        if status.ok:
            self._reports.bound(info, reserved.node_name)
            self._tell_bound(reserved)
            await cycle.post_bind()
            self._on_bound(reserved)
        # From here on a refusal is no plugin's to take back: the pod is retried after a backoff.
        return status.by("")

    async def _bound_for_good(self, reserved: BindingContext, cycle: BindingCycle) -> Status:
        """What cannot be taken back. An extender may have taken its time, so the gang is looked at before each try."""
        return (
            _objection(reserved)
            or await self._bound_by_extender(reserved)
            or _objection(reserved)
            or await cycle.bind()
        )

    async def _bound_by_extender(self, reserved: BindingContext) -> Status | None:
        """How an extender's bind ended, None when that is the plugins' to do. In doubt the server knows."""
        info, node_name = reserved.info, reserved.node_name
        status = await self._extenders.bind(info, node_name) if self._extenders else None
        if status is None or status.ok:
            return status
        if await self._dispatcher.node_of(reference(info)) == node_name:
            return SUCCESS
        return None if status.code is Code.SKIP else status

    async def _ready(self, reserved: BindingContext, cycle: BindingCycle | None) -> Status:
        """Wait for permission, then do what has to be done before the pod can be bound."""
        status = await self._permitted(reserved)
        if not status.ok:
            return status
        self._queue.done(reserved.info.uid)
        if cycle is None:
            return SUCCESS
        self._in_pre_bind[reserved.info.uid] = cycle
        try:
            return (await cycle.pre_bind()).by("")
        finally:
            del self._in_pre_bind[reserved.info.uid]

    def cancel_binding(self, uid: str) -> bool:
        """A pod on its way to be bound has to make room for another: try it again (semantics 9.6)."""
        waiting = self._waiting.get(uid)
        if waiting is not None and waiting.preempt(_PREEMPTION, "preempted"):
            return True
        cycle = self._in_pre_bind.get(uid)
        return cycle is not None and cycle.cancel_binding(f"preempted by {_PREEMPTION}")

    def _tell_bound(self, reserved: BindingContext) -> None:
        queued, now = reserved.queued, self._clock.monotonic()
        self._observer.ended(queued, Result.SCHEDULED, "", now - queued.attempt_began)
        first = queued.timestamp if queued.initial_attempt is None else queued.initial_attempt
        self._observer.bound(queued, reserved.node_name, now - first)

    async def _permitted(self, reserved: BindingContext) -> Status:
        waiting = self._waiting.get(reserved.info.uid)
        if waiting is None:
            return SUCCESS
        began = self._clock.monotonic()
        try:
            status = await waiting.decided()
        finally:
            self._waiting.remove(reserved.info.uid)
        self._observer.waited(reserved.info, status.code, self._clock.monotonic() - began)
        return status


def _objection(reserved: BindingContext) -> Status | None:
    """Why a pod must not be bound without the rest of its gang."""
    return None if reserved.barrier is None else reserved.barrier.objection()
