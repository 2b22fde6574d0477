"""The binding cycle: from an assumed pod to its binding (semantics 4.7).

    wait on Permit ─► PreBind ─► extender bind or Bind plugins ─► PostBind

One task per pod, many at once. A failure before PostBind goes to the failure handler, which undoes the placement and
requeues the pod. How many bindings are sent at once, and which writes go first, is up to the dispatcher. The binding
cycles of gangs (:mod:`kubestow.scheduling.gangs.barrier`) derive from these.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Generic, TypeVar

from kubestow.config import FeatureGates
from kubestow.framework.cycle_state import PodsToActivate
from kubestow.framework.runtime.binding_runtime import PreFlight
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.log_fields import fields
from kubestow.rules.minors import Behaviour
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.api_calls.pod_reports import PodReports
from kubestow.scheduling.background_work import BackgroundTasks
from kubestow.scheduling.cycle.binding_confirmation import BindingConfirmations
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.failure_handler import FailureHandler
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.extenders.stages import Extenders
from kubestow.scheduling.interfaces import reference
from kubestow.scheduling.observer import Result
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.waiting_pods import WaitingPod, WaitingPods

_log = logging.getLogger(__name__)

C = TypeVar("C", bound=BindingContext)


class BindingCycles(Generic[C]):
    """Runs the binding cycles of a scheduler."""

    def __init__(
        self,
        queue: SchedulingQueue,
        waiting_pods: WaitingPods,
        *,
        extenders: Extenders,
        dispatcher: Dispatcher,
        reports: PodReports,
        failure_handler: FailureHandler,
        confirmations: BindingConfirmations,
        environment: Environment,
        tasks: BackgroundTasks,
        gates: FeatureGates,
    ) -> None:
        self._runs_in_parallel = gates.minor.has(Behaviour.PRE_BIND_RUNS_IN_PARALLEL)
        self._pre_bind_failures_back_off = gates.minor.has(Behaviour.PRE_BIND_FAILURES_BACK_OFF)
        self._queue, self._waiting_pods, self._extenders = queue, waiting_pods, extenders
        self._dispatcher, self._reports, self._failure_handler = dispatcher, reports, failure_handler
        self._api, self._clock, self._observer = environment.api, environment.clock, environment.observer
        self._confirmations, self._tasks = confirmations, tasks

    def start(self, context: C) -> None:
        """Start the binding cycle of a pod that has passed Reserve and Permit."""
        if context.permit_timeouts:
            self._waiting_pods.add(context.info, context.permit_timeouts)
        self._tasks.start(self._run(context))
        if (named := context.state.own(PodsToActivate)) is not None:
            self._activate(named)

    async def _run(self, context: C) -> Status:
        """One binding cycle, and its status; no failure is lost."""
        self._observer.binding_started(context.info)
        try:
            status = await self._run_steps(context)
        except Exception as error:
            _log.exception("binding cycle of pod %s failed", context.info.key, extra=fields(pod=context.info.key))
            status = Status.error(f"{type(error).__name__}: {error}")
        if not status.ok:
            self._waiting_pods.remove(context.info.uid)
            self._failure_handler.binding_failed(context, status, nomination=self._nomination_after_failure(context))
        return status

    def _nomination_after_failure(self, context: C) -> str | None:
        """The nomination that a pod has after its binding cycle failed, "" for none; None leaves it alone."""
        return self._failure_handler.nomination_after_failure

    async def _run_steps(self, context: C) -> Status:
        info, node_name, runtime = context.info, context.node_name, context.runtime
        pre_flight = runtime.run_pre_bind_pre_flights(context.state, info, node_name)
        if not pre_flight.status.ok and pre_flight.status.code is not Code.SKIP:
            return pre_flight.status
        if pre_flight.status.ok or context.permit_timeouts:
            self._reports.nominate_expected(info, node_name)
        status = await self._wait_on_permit_and_pre_bind(context, pre_flight)
        if not status.ok:
            return status
        status = await self._dispatcher.run_in_binding_turn(info.uid, partial(self._bind, context))
        if status.ok:
            self._confirmations.expect(context)
            self._reports.record_binding(info, node_name)
            queued, now = context.queued, self._clock.monotonic()
            self._observer.attempt_ended(queued, Result.SCHEDULED, "", now - queued.attempt_began)
            first = queued.timestamp if queued.initial_attempt is None else queued.initial_attempt
            self._observer.pod_bound(queued, node_name, now - first)
            await runtime.run_post_bind_plugins(context.state, info, node_name)
            if (named := context.state.own(PodsToActivate)) is not None:
                self._activate(named)
        return status.without_plugin()

    async def _wait_on_permit_and_pre_bind(self, context: C, pre_flight: PreFlight) -> Status:
        """Wait on Permit, then run the PreBind plugins that have work to do.

        Where a failure from here on is retried after a backoff (semantics 4.7), the pod ceases to be in flight in
        between: it has a node, and no event of a plugin requeues it any more.
        """
        uid = context.info.uid
        waiting = self._waiting_pods.get(uid)
        if waiting is not None:
            status = await self._wait_on_permit(waiting)
            if not status.ok:
                return status
        if self._pre_bind_failures_back_off:
            self._queue.in_flight.done(uid)
            status = await self._pre_bind(context, pre_flight)
            return status.without_plugin()
        status = await self._pre_bind(context, pre_flight)
        if status.ok:
            self._queue.in_flight.done(uid)
        return status

    async def _pre_bind(self, context: C, pre_flight: PreFlight) -> Status:
        """Run the PreBind plugins that have work to do."""
        if not pre_flight.status.ok:
            return SUCCESS
        uid = context.info.uid
        cancellation = self._waiting_pods.enter_pre_bind(uid)
        try:
            return await context.runtime.run_pre_bind_plugins(
                pre_flight.plugins,
                context.state,
                context.info,
                context.node_name,
                cancellation,
                in_parallel=self._runs_in_parallel,
            )
        finally:
            self._waiting_pods.leave_pre_bind(uid)

    async def _wait_on_permit(self, waiting: WaitingPod) -> Status:
        began = self._clock.monotonic()
        try:
            status = await waiting.result()
        finally:
            self._waiting_pods.remove(waiting.info.uid)
        self._observer.permit_wait_ended(waiting.info, status.code, self._clock.monotonic() - began)
        if status.code is Code.ERROR:
            return Status.error(f"waiting on permit for pod: {status.message}").by(status.plugin)
        return status

    async def _bind(self, context: C) -> Status:
        """Bind the pod: by the extender that binds it, else by the Bind plugins."""
        status = await self._bind_by_extender(context) if self._extenders else None
        return status or await context.runtime.run_bind_plugins(context.state, context.info, context.node_name)

    async def _bind_by_extender(self, context: C) -> Status | None:
        """The result of the extender that binds the pod; None when that is up to the Bind plugins.

        After a failure the API server is read, because the pod may be bound all the same.
        """
        status = await self._extenders.bind(context.info, context.node_name)
        if status is None or status.ok:
            return status
        if await self._dispatcher.binder.node_of(reference(context.info)) == context.node_name:
            return SUCCESS
        return None if status.code is Code.SKIP else status

    def _activate(self, named: PodsToActivate) -> None:
        """Activate the pods that plugins named in this cycle (semantics 4.8)."""
        self._queue.activate([pod.uid for pod in named.take()])
