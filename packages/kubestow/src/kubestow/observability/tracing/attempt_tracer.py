"""The observer that records sampled scheduling attempts for their traces.

Whether an attempt is sampled depends on its trace ID, as for OpenTelemetry's TraceIdRatioBased sampler; everything
within an attempt follows it, and so does the API server, by the header ``traceparent`` of requests. Requests of
attempts that are not sampled have no such header, so the API server decides about them by itself.

The attempt that the running task works for is a context variable: a binding cycle, an eviction or the patch of a status
is a task that inherits it from where it is started.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from random import Random
from typing import Any

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.framework.status import Code, Status
from kubestow.observability.tracing.attempt_record import (
    EXTENSION_POINT,
    PERMIT_WAIT,
    PLUGIN_CALLS,
    REQUEST,
    AttemptRecord,
    cut,
    traceparent,
)
from kubestow.scheduling.decision.result import Decision, Scheduled
from kubestow.scheduling.observer import Disruption, Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod

#: Attempts without an end are forgotten when there are so many: of pods that were deleted during their attempt.
_MAX_ATTEMPTS = 10_000
#: The events of an attempt that are kept at most, until they are exported.
_MAX_EVENTS = 1_000
#: The extension points whose plugins may return awaitables.
_MAY_AWAIT = frozenset({"PreBind", "Bind", "PostBind"})
_SAMPLED_BITS = 64
_ALL_IDS = 2**64 - 1
_SECOND = 1_000_000_000


class _Attempt:
    """A sampled attempt: its record, the stage that it is in, and whether its record waits to be exported."""

    __slots__ = ("events", "has_ended", "is_waiting", "last_end", "record", "stage_id")

    def __init__(self, record: AttemptRecord) -> None:
        self.record, self.stage_id = record, record.cycle_id
        #: The events of the record so far, as arrays (:data:`~.attempt_record.Event`): half the cost of objects.
        self.events: list[Any] = []
        self.has_ended = self.is_waiting = False
        #: When the latest extension point ended.
        self.last_end = record.popped


class AttemptTracer(Observer):
    """Traces a fraction ``ratio`` of all attempts, between 0 and 1.

    ``random`` makes the identifiers; ``wall_clock`` is in nanoseconds since 1970. ``export`` is called with a function
    that takes the next part of an attempt's record. Implements :class:`kubestow.client.rest.transport.RequestTracer`.
    """

    def __init__(
        self,
        ratio: float,
        export: Callable[[Callable[[], AttemptRecord]], None],
        *,
        random: Random,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._bound = round(ratio * 2**_SAMPLED_BITS)
        self._export, self.random_bits = export, random.getrandbits
        #: The time in nanoseconds since 1970.
        self.wall_clock = wall_clock
        #: The sampled attempts that have not ended, by the pod's uid.
        self._attempts: OrderedDict[str, _Attempt] = OrderedDict()
        self._current: ContextVar[_Attempt | None] = ContextVar("sampled_attempt", default=None)

    def wrap_plugin_observer(self, observer: PluginObserver) -> PluginObserver:
        return _ProfileTracer(self, self._attempts, observer)

    # -- the stages of an attempt ----------------------------------------------------------------------------------

    def attempt_started(self, queued: QueuedPod) -> None:
        trace_id = self.random_bits(128)
        if trace_id & _ALL_IDS >= self._bound or not trace_id:
            return
        info, popped, ids = queued.info, self.wall_clock(), self.random_bits(192) | 1 | 1 << 64 | 1 << 128
        record = AttemptRecord(
            trace_id.to_bytes(16),
            ids & _ALL_IDS,
            ids >> 64 & _ALL_IDS,
            ids >> 128,
            popped - round((queued.attempt_began - queued.timestamp) * _SECOND),
            popped,
            info.key,
            info.uid,
            info.spec.scheduler_name,
            queued.attempts,
        )
        self._attempts[info.uid] = _Attempt(record)
        if len(self._attempts) > _MAX_ATTEMPTS:
            self._attempts.popitem(last=False)

    def decision_started(self, info: PodInfo) -> None:
        self._enter(self._attempts.get(info.uid))

    def decision_made(self, decision: Decision, seconds: float) -> None:
        attempt = self._current.get()
        if attempt is not None and isinstance(decision, Scheduled):
            attempt.record.node, attempt.record.feasible_nodes = decision.node_name, decision.candidate_count

    def binding_started(self, info: PodInfo) -> None:
        attempt = self._attempts.get(info.uid)
        self._enter(attempt)
        if attempt is not None:
            attempt.stage_id = attempt.record.binding_id
            attempt.record.bound = attempt.last_end  # the binding cycle has waited for its turn since then

    def _enter(self, attempt: _Attempt | None) -> None:
        """Have the running task work for an attempt, None for one that is not sampled."""
        if self._current.get() is not attempt:
            self._current.set(attempt)

    def permit_wait_ended(self, info: PodInfo, code: Code, seconds: float) -> None:
        attempt = self._current.get()
        if attempt is not None:
            end = self.wall_clock()
            start = end - round(seconds * _SECOND)
            attempt.events.append((PERMIT_WAIT, attempt.stage_id, start, end, code.value))

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        for preemptor in preemptors:
            attempt = self._attempts.get(preemptor.uid)
            if attempt is not None:
                attempt.record.preemption_node, attempt.record.victims = node_name, len(victims)

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        attempt = self._attempts.pop(queued.info.uid, None)
        if attempt is None:
            return
        record = attempt.record
        attempt.has_ended = record.has_ended = True
        record.ended = self.wall_clock()
        record.result, record.message = result.value, cut(message)
        if result is not Result.SCHEDULED:
            record.node = ""
        self._wait_for_export(attempt)

    # -- requests ----------------------------------------------------------------------------------------------------

    def request_started(self, method: str, server: str, path: str) -> _TracedRequest | None:
        """A request to the API server begins, for the attempt of the running task; None if that is not sampled."""
        attempt = self._current.get()
        if attempt is None:
            return None
        return _TracedRequest(self, attempt, (method, server, cut(path)))

    # -- records -----------------------------------------------------------------------------------------------------

    def export_late(self, attempt: _Attempt) -> None:
        """Have what happened after the end of an attempt follow in a part of its own, unless it waits already."""
        if not attempt.is_waiting:
            self._wait_for_export(attempt)

    def _wait_for_export(self, attempt: _Attempt) -> None:
        attempt.is_waiting = True
        self._export(lambda: _take_part(attempt))


def _take_part(attempt: _Attempt) -> AttemptRecord:
    """The record as it is; later events go into another part."""
    part = attempt.record
    part.events, attempt.events, attempt.is_waiting = attempt.events, [], False
    attempt.record = AttemptRecord(
        part.trace_id,
        part.root_id,
        part.cycle_id,
        part.binding_id,
        part.queued,
        part.popped,
        part.pod,
        part.uid,
        part.scheduler_name,
        part.attempt,
    )
    return part


class _TracedRequest:
    """A request in progress; the stage of the attempt may change before it ends."""

    __slots__ = ("_attempt", "_span_id", "_stage_id", "_start", "_target", "_tracer")

    def __init__(self, tracer: AttemptTracer, attempt: _Attempt, target: tuple[str, str, str]) -> None:
        self._tracer, self._attempt, self._target = tracer, attempt, target
        self._stage_id, self._span_id = attempt.stage_id, tracer.random_bits(64) | 1
        self._start = tracer.wall_clock()

    @property
    def traceparent(self) -> str:
        return traceparent(self._attempt.record, self._span_id)

    def ended(self, code: str) -> None:
        attempt = self._attempt
        if len(attempt.events) < _MAX_EVENTS:
            end = self._tracer.wall_clock()
            event = (REQUEST, self._stage_id, self._start, end, self._span_id, *self._target, code)
            attempt.events.append(event)
            if attempt.has_ended:
                self._tracer.export_late(attempt)


class _ProfileTracer(PluginObserver):
    """The observer of a profile's plugins: another one, and for sampled attempts one that also records the calls.

    Plugins are called dozens of times for every pod, and most pods are not sampled. So whether to record is decided
    once per attempt, and the calls of other attempts are reported to the other observer directly.
    """

    def __init__(
        self, tracer: AttemptTracer, sampled_attempts: Mapping[str, _Attempt], observer: PluginObserver
    ) -> None:
        self._tracer, self._sampled_attempts, self._observer = tracer, sampled_attempts, observer
        self.plugin_called = observer.plugin_called  # type: ignore[method-assign]
        self.extension_point_ended = observer.extension_point_ended  # type: ignore[method-assign]
        self.gang_attempt_ended = observer.gang_attempt_ended  # type: ignore[method-assign]
        self.gang_preemption_ended = observer.gang_preemption_ended  # type: ignore[method-assign]
        self.queueing_hint_called = observer.queueing_hint_called  # type: ignore[method-assign]

    def for_attempt(self, pod: PodInfo) -> PluginObserver:
        attempt = self._sampled_attempts.get(pod.uid)
        return self if attempt is None else _AttemptObserver(self._tracer, attempt, self._observer)

    @property
    def is_sampling(self) -> bool:  # type: ignore[override]  # changes from cycle to cycle
        """Whether the other observer needs the durations of calls on single rows."""
        return self._observer.is_sampling


class _AttemptObserver(PluginObserver):
    """Records the calls of plugins for a sampled attempt, beside another observer."""

    def __init__(self, tracer: AttemptTracer, attempt: _Attempt, observer: PluginObserver) -> None:
        self._tracer, self._attempt, self._observer = tracer, attempt, observer

    def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        self._observer.plugin_called(plugin, extension_point, result, seconds)
        attempt = self._attempt
        if len(attempt.events) >= _MAX_EVENTS:
            return
        end = self._tracer.wall_clock()
        code, error, kind = "", "", type(result)
        if kind is Status:
            code = result.code._value_
            if result.code is Code.ERROR:
                error = cut(result.message)
        elif kind is PluginError:
            code, error = Code.ERROR.value, cut(result.problem)
        # A call that returns an awaitable is reported again with its status.
        calls = 0 if extension_point in _MAY_AWAIT and hasattr(result, "__await__") else 1
        start = end - int(seconds * _SECOND)
        attempt.events.append((PLUGIN_CALLS, attempt.stage_id, start, end, plugin, extension_point, code, error, calls))

    def extension_point_ended(self, extension_point: str, code: Code, seconds: float) -> None:
        self._observer.extension_point_ended(extension_point, code, seconds)
        attempt = self._attempt
        attempt.last_end = end = self._tracer.wall_clock()
        if len(attempt.events) < _MAX_EVENTS:
            start = end - int(seconds * _SECOND)
            attempt.events.append((EXTENSION_POINT, attempt.stage_id, start, end, extension_point, code._value_))
        if attempt.has_ended:
            self._tracer.export_late(attempt)
