"""Confirmation of bindings: every pod that has been bound is shown on its node by the watch, or read from the server.

A pod stays assumed until the watch shows it on its node. A server or proxy that answers a binding with success and does
nothing would leave it assumed for good: its resources are taken, and no event ever requeues it. So a binding that the
watch has not confirmed after half a minute is looked up, and what the server says decides.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kubestow.errors import APIError, Unreachable
from kubestow.framework.status import Status
from kubestow.log_fields import fields
from kubestow.rules.pods import is_terminal
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.background_work import BackgroundTasks
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.failure_handler import FailureHandler
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.cluster_events import ASSIGNED_POD_DELETE
from kubestow.scheduling.interfaces import Clock, reference
from kubestow.scheduling.scheduler_state import SchedulerState

_log = logging.getLogger(__name__)

#: How long the watch may take to show a binding, in seconds; usually it is faster than the response to the binding.
_CONFIRMATION_SECONDS = 30.0


_T = TypeVar("_T")


class UnconfirmedBindings(Generic[_T]):
    """The bindings that the watch has yet to confirm; ``read`` is called with each that it does not confirm in time.

    ``read`` returns whether the place of the pod is settled; otherwise it is called again after the same time. One pod
    is read at a time. A task exists only while there are any.
    """

    def __init__(self, read: Callable[[_T], Awaitable[bool]], clock: Clock) -> None:
        self._read, self._clock = read, clock
        #: Each with the time at which the pod is read, by uid, in the order of these times.
        self._expected: dict[str, tuple[float, _T]] = {}
        #: The task that reads the pods; it does not delay the shutdown.
        self.tasks = BackgroundTasks()

    def add(self, uid: str, binding: _T) -> None:
        """The binding of a pod has been answered with success."""
        self._expected.pop(uid, None)
        self._expected[uid] = self._clock.monotonic() + _CONFIRMATION_SECONDS, binding
        if not len(self.tasks):
            self.tasks.spawn(self._read_overdue())

    def pod_settled(self, uid: str) -> None:
        """The watch shows a pod as bound or deleted."""
        self._expected.pop(uid, None)

    async def _read_overdue(self) -> None:
        while self._expected:
            uid, (due, binding) = next(iter(self._expected.items()))
            remaining = due - self._clock.monotonic()
            if remaining > 0:
                await self._clock.sleep(remaining)
                continue
            del self._expected[uid]
            if not await self._read(binding):
                self.add(uid, binding)


class BindingConfirmations:
    """The bindings of a scheduler that the watch has yet to confirm."""

    def __init__(
        self,
        state: SchedulerState,
        *,
        dispatcher: Dispatcher,
        failure_handler: FailureHandler,
        environment: Environment,
    ) -> None:
        self._cluster, self._queue = state.cluster, state.queue
        self._dispatcher, self._failure_handler = dispatcher, failure_handler
        self._unconfirmed = UnconfirmedBindings(self._read, environment.clock)
        #: The task that reads the pods; it does not delay the shutdown.
        self.tasks = self._unconfirmed.tasks

    def expect(self, context: BindingContext) -> None:
        """The binding of a pod has been answered with success."""
        if self._cluster.is_assumed(context.info.uid):  # else the watch was faster
            self._unconfirmed.add(context.info.uid, context)

    def pod_settled(self, uid: str) -> None:
        """The watch shows a pod as bound or deleted. One that stays assumed although it was deleted is read."""
        if not self._cluster.is_assumed(uid):
            self._unconfirmed.pod_settled(uid)

    async def _read(self, context: BindingContext) -> bool:
        """Read a pod, and give up its place if it is not on its node; False if that must be repeated."""
        info, node_name = context.info, context.node_name
        if not self._cluster.is_assumed(info.uid):
            return True
        extra = fields(pod=info.key, node=node_name)
        try:
            current = await self._dispatcher.binder.read(reference(info))
        except (APIError, Unreachable) as error:
            _log.warning("The binding of pod %s is unconfirmed: %s", info.key, error, extra=extra)
            return False
        placed = self._cluster.placed_pod(info.uid)
        if placed is None or not placed.assumed or placed.node_name != node_name:
            return True  # settled while it was read
        # A pod that has ended takes up no room, and the watch shows it as deleted.
        actual = None if current is None or is_terminal(current.status.phase) else current.spec.node_name
        if actual == node_name:
            _log.info("The watch has not shown the binding of pod %s for half a minute", info.key, extra=extra)
            return False  # it may be deleted before the watch goes on, which then shows no pod with a node
        if actual == "":
            problem = "the API server answered the binding with success, and the pod is not bound"
            _log.warning("Pod %s: %s; it is scheduled again", info.key, problem, extra=extra)
            nomination = self._failure_handler.nomination_after_failure
            self._failure_handler.binding_failed(context, Status.error(problem), nomination=nomination)
        else:
            where = "gone" if actual is None else f"on node {actual}"
            _log.warning("Pod %s was bound to node %s, and is %s", info.key, node_name, where, extra=extra)
            context.unreserve_and_forget(self._cluster)
            if actual is not None:
                self._cluster.assume(info, actual)
            self._queue.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, info.on(node_name), None)
        return True
