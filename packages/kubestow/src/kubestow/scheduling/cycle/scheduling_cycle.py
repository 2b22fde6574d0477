"""The scheduling cycle: decide where a pod goes, assume it there, reserve, and ask for permission (semantics 5.1).

One pod at a time. The cycle is synchronous except where extenders are awaited, and even then no other cycle runs. It
ends by starting the binding cycle, with the failure handler, or in silence if the pod was deleted or bound meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.log_fields import fields
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.binding_cycle import BindingCycles
from kubestow.scheduling.cycle.failure_handler import FailureHandler, SchedulingFailure
from kubestow.scheduling.decision.copies import Copies
from kubestow.scheduling.decision.node_selection import WHOLE_CLUSTER, Scope
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Decision, Failed, Scheduled
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler_state import SchedulerState

_log = logging.getLogger(__name__)


class SchedulingCycle:
    """Schedules single pods."""

    def __init__(
        self,
        state: SchedulerState,
        *,
        pipeline: DecisionPipeline,
        binding_cycles: BindingCycles[BindingContext],
        failure_handler: FailureHandler,
        environment: Environment,
    ) -> None:
        self._cluster, self._pods, self._queue = state.cluster, state.pods, state.queue
        self._pipeline = pipeline
        self._binding_cycles, self._failure_handler = binding_cycles, failure_handler
        self._duration_clock, self._observer = environment.duration_clock, environment.observer

    async def schedule(self, queued: QueuedPod, start_binding: Callable[[BindingContext], None] | None = None) -> None:
        """Schedule one pod. ``start_binding`` starts its binding cycle if that is not an ordinary one."""
        info = queued.info
        decision = await self.decide(info)
        if not self._pods.wants_node(info.uid):  # deleted or bound while extenders were awaited
            self._queue.in_flight.done(info.uid)
            return
        if not isinstance(decision, Scheduled):
            self._failure_handler.no_node_found(queued, decision)
            return
        self._assume(queued, decision.state, decision.node_name, start_binding)

    def _assume(
        self,
        queued: QueuedPod,
        state: CycleState,
        node_name: str,
        start_binding: Callable[[BindingContext], None] | None,
    ) -> None:
        """Assume a pod on its node, reserve, ask for permission, and start its binding cycle."""
        info = queued.info
        nominated = self._cluster.nomination(info.uid)  # which assume() ends
        self._cluster.assume(info, node_name)
        if nominated and nominated != node_name:
            self._queue.requeue_for_freed_nomination(info, nominated)
        runtime = self._pipeline.profiles[info.spec.scheduler_name].binding.for_attempt(info)
        timeouts: dict[str, float] = {}
        status = runtime.run_reserve_plugins(state, info, node_name)
        if status.ok:
            status, timeouts = runtime.run_permit_plugins(state, info, node_name)
        context = BindingContext(queued, info, node_name, state, runtime, timeouts)
        if status.ok:
            (start_binding or self._binding_cycles.start)(context)
        else:
            context.unreserve_and_forget(self._cluster)
            nomination = self._failure_handler.nomination_after_failure
            self._failure_handler.attempt_failed(queued, SchedulingFailure.of_status(status, nomination=nomination))

    async def decide(self, info: PodInfo, scope: Scope = WHOLE_CLUSTER) -> Decision:
        """Decide about a pod, and report the decision to the observer. An unexpected failure costs one attempt."""
        self._observer.decision_started(info)
        runtime = self._pipeline.profiles[info.spec.scheduler_name].runtime
        observer = runtime.observer
        if observer is not None:
            runtime.observer = observer.for_attempt(info)
        began = self._duration_clock()
        try:
            decision = await self._pipeline.decide(info, scope)
        except Exception as error:
            decision = _unexpected_failure(info, error)
        finally:
            runtime.observer = observer
        if isinstance(decision, Failed) and decision.error is not None:
            _log_plugin_error(decision.pod, decision.error)
        self._observer.decision_made(decision, self._duration_clock() - began)
        return decision

    def copies(self, infos: Sequence[PodInfo]) -> Copies:
        """Some pods of one profile, to be decided about together and without a report, where they are copies."""
        return self._pipeline.copies(infos)

    def simulate(self, info: PodInfo, scope: Scope) -> Decision:
        """Decide about a pod in a simulated cluster: without extenders, and without a report."""
        try:
            decision = self._pipeline.decide_by_plugins(info, scope)
        except Exception as error:
            decision = _unexpected_failure(info, error)
        if isinstance(decision, Failed) and decision.error is not None:
            _log_plugin_error(decision.pod, decision.error)
        return decision


def _unexpected_failure(info: PodInfo, error: Exception) -> Failed:
    _log.error("scheduling cycle of pod %s failed", info.key, exc_info=error, extra=fields(pod=info.key))
    return Failed(pod=info, state=CycleState(), message=f"{type(error).__name__}: {error}")


def _log_plugin_error(pod: PodInfo, error: PluginError) -> None:
    extra = fields(pod=pod.key, plugin=getattr(error, "plugin", ""), err=str(error))
    _log.error("pod %s: %s", pod.key, error, exc_info=error.__cause__, extra=extra)
