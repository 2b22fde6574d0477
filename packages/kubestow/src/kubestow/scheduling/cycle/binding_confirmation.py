"""Confirmation of bindings: every pod that has been bound is shown on its node by the watch, or read from the server.

A pod stays assumed until the watch shows it on its node. A server or proxy that answers a binding with success and does
nothing would leave it assumed for good: its resources are taken, and no event ever requeues it. So a binding that the
watch has not confirmed after half a minute is looked up, and what the server says decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, Unreachable
from kubestow.framework.status import Status
from kubestow.log_fields import fields
from kubestow.rules.pods import is_terminal
from kubestow.scheduling.api_calls.dispatcher import Dispatcher, PodBinder
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


@dataclass(frozen=True, slots=True)
class _Expected(Generic[_T]):
    """A binding that the watch has to show before ``due``, a time of the clock in seconds."""

    due: float
    info: PodInfo
    node_name: str
    binding: _T


class UnconfirmedBindings(Generic[_T]):
    """The bindings of assumed pods that the watch has yet to confirm; a pod whose binding is late is read.

    ``on_misplaced`` is called for a pod that is not on its node, with where it is: "" if it is not bound, None if it is
    gone. Any other stays assumed and is read again after the same time. One pod is read at a time. A task exists only
    while there are bindings.
    """

    def __init__(
        self, cluster: Cluster, binder: PodBinder, clock: Clock, *, on_misplaced: Callable[[_T, str | None], None]
    ) -> None:
        self._cluster, self._binder, self._clock = cluster, binder, clock
        self._on_misplaced = on_misplaced
        #: By uid, in the order of their times.
        self._expected: dict[str, _Expected[_T]] = {}
        #: The task that reads the pods; it does not delay the shutdown.
        self.tasks = BackgroundTasks()

    def add(self, info: PodInfo, node_name: str, binding: _T) -> None:
        """The binding of a pod has been answered with success."""
        if not self._cluster.is_assumed(info.uid):  # the watch was faster
            return
        self._expected.pop(info.uid, None)
        due = self._clock.monotonic() + _CONFIRMATION_SECONDS
        self._expected[info.uid] = _Expected(due, info, node_name, binding)
        if not len(self.tasks):
            self.tasks.spawn(self._read_overdue())

    def pod_settled(self, uid: str) -> None:
        """The watch shows a pod as bound or deleted. One that stays assumed although it was deleted is read."""
        if uid in self._expected and not self._cluster.is_assumed(uid):
            del self._expected[uid]

    async def _read_overdue(self) -> None:
        while self._expected:
            uid, expected = next(iter(self._expected.items()))
            remaining = expected.due - self._clock.monotonic()
            if remaining > 0:
                await self._clock.sleep(remaining)
                continue
            del self._expected[uid]
            if not await self._settle(expected.info, expected.node_name, expected.binding):
                self.add(expected.info, expected.node_name, expected.binding)

    async def _settle(self, info: PodInfo, node_name: str, binding: _T) -> bool:
        """Read a pod, and report it if it is not on its node; False if that must be repeated."""
        extra = fields(pod=info.key, node=node_name)
        try:
            current = await self._binder.read(reference(info))
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
        self._on_misplaced(binding, actual)
        return True


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
        self._failure_handler = failure_handler
        self._unconfirmed = UnconfirmedBindings[BindingContext](
            state.cluster, dispatcher.binder, environment.clock, on_misplaced=self._give_up
        )
        #: The task that reads the pods; it does not delay the shutdown.
        self.tasks = self._unconfirmed.tasks

    def expect(self, context: BindingContext) -> None:
        """The binding of a pod has been answered with success."""
        self._unconfirmed.add(context.info, context.node_name, context)

    def pod_settled(self, uid: str) -> None:
        """The watch shows a pod as bound or deleted."""
        self._unconfirmed.pod_settled(uid)

    def _give_up(self, context: BindingContext, actual: str | None) -> None:
        """Give up the place of a pod that is not on its node."""
        info, node_name = context.info, context.node_name
        extra = fields(pod=info.key, node=node_name)
        if actual == "":
            problem = "the API server answered the binding with success, and the pod is not bound"
            _log.warning("Pod %s: %s; it is scheduled again", info.key, problem, extra=extra)
            nomination = self._failure_handler.nomination_after_failure
            self._failure_handler.binding_failed(context, Status.error(problem), nomination=nomination)
            return
        where = "gone" if actual is None else f"on node {actual}"
        _log.warning("Pod %s was bound to node %s, and is %s", info.key, node_name, where, extra=extra)
        context.unreserve_and_forget(self._cluster)
        if actual is not None:
            self._cluster.assume(info, actual)
        self._queue.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, info.on(node_name), None)
