"""The record of a sampled attempt, which the scheduler writes, and the spans that it stands for.

    schedule pod                          from the entry into the queue to the binding or the failure
    ├── queue                             until the pod is popped
    ├── scheduling cycle
    │   ├── PreFilter, Filter, Score, …   extension points
    │   │   └── Filter NodeResourcesFit   a plugin; its calls for several nodes are one span
    │   └── GET, POST, …                  requests of plugins, and the evictions of a preemption
    └── binding cycle
        ├── wait on permit
        ├── PreBind, Bind, PostBind
        └── POST                          the binding

A record is exported in parts: what happens after the attempt has ended, such as PostBind, is in a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

import msgspec

Attributes = dict[str, str | int]
"""Attributes of a span, by OpenTelemetry's semantic conventions or with the prefix ``kubestow.``."""

#: Texts from the cluster and from plugins are cut to this many characters.
_MAX_TEXT = 1024


class SpanKind(IntEnum):
    """The kinds of spans that occur here; the values are those of OpenTelemetry's SDK."""

    INTERNAL = 0
    CLIENT = 2


class Span(msgspec.Struct, frozen=True, gc=False):
    """A finished span. Times are nanoseconds since 1970; identifiers are integers, 0 for the parent of a root.

    ``error`` describes a failure; None if there was none.
    """

    trace_id: int
    span_id: int
    parent_id: int
    name: str
    start: int
    end: int
    attributes: Attributes
    error: str | None = None
    kind: SpanKind = SpanKind.INTERNAL


#: The kinds of events, their tags in records.
PLUGIN_CALLS, EXTENSION_POINT, PERMIT_WAIT, REQUEST = range(4)


class _Event(msgspec.Struct, array_like=True, gc=False):
    """Something with a beginning and an end, in nanoseconds since 1970, that belongs to a stage of an attempt.

    ``stage_id`` is the span of the scheduling cycle or of the binding cycle.
    """

    stage_id: int
    start: int
    end: int


class PluginCalls(_Event, array_like=True, gc=False, tag=PLUGIN_CALLS):
    """Successive calls of one plugin at one extension point; ``code`` is the status of the last one, "" for none."""

    plugin: str
    extension_point: str
    code: str = ""
    error: str = ""
    calls: int = 1


class ExtensionPoint(_Event, array_like=True, gc=False, tag=EXTENSION_POINT):
    """An extension point, behind the calls of its plugins."""

    name: str
    code: str


class PermitWait(_Event, array_like=True, gc=False, tag=PERMIT_WAIT):
    """A wait on Permit."""

    code: str


class Request(_Event, array_like=True, gc=False, tag=REQUEST):
    """A request to an API server; ``code`` is the status, or another word if there was no response."""

    span_id: int
    method: str
    server: str
    path: str
    code: str


Event = PluginCalls | ExtensionPoint | PermitWait | Request
"""An event. The scheduler writes it as the array that it is encoded as: the kind, then the fields in their order."""


class AttemptRecord(msgspec.Struct, array_like=True, gc=False):
    """An attempt, or what happened after the parts of it that are exported already.

    Only the part with the end of the attempt ``has_ended``; ``popped`` is when it began, ``queued`` when the pod
    entered the queue, ``bound`` when the binding cycle began, 0 if there was none, and ``ended`` when it ended.
    ``result`` and ``message`` are those of :meth:`kubestow.scheduling.observer.Observer.attempt_ended`.
    """

    trace_id: bytes
    root_id: int
    cycle_id: int
    binding_id: int
    queued: int
    popped: int
    pod: str
    uid: str
    scheduler_name: str
    attempt: int
    bound: int = 0
    ended: int = 0
    has_ended: bool = False
    result: str = ""
    message: str = ""
    node: str = ""
    feasible_nodes: int = 0
    preemption_node: str = ""
    victims: int = 0
    events: list[Event] = []


class BatchReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of a batch of records; ``problem`` is why their spans were not exported."""

    records: int
    is_exported: bool
    problem: str = ""


LENGTH_BYTES = 4
"""A batch is sent as its length in bytes, big-endian, and a msgpack array of records."""


def traceparent(record: AttemptRecord, span_id: int) -> str:
    """The value of the header ``traceparent`` (W3C Trace Context) that makes a sampled span the parent of a request."""
    return f"00-{record.trace_id.hex()}-{span_id:016x}-01"


def cut(text: str) -> str:
    """A text of limited length."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def spans_of(record: AttemptRecord, new_id: Callable[[], int]) -> Iterator[Span]:
    """The spans of a part of an attempt; ``new_id`` gives identifiers of spans."""
    trace_id = int.from_bytes(record.trace_id)
    if record.has_ended:
        yield from _stages(record, trace_id, new_id)
    waiting: list[PluginCalls] = []
    for event in record.events:
        parent, start, end = event.stage_id, event.start, event.end
        match event:
            case PluginCalls():
                waiting.append(event)
            case ExtensionPoint():
                span_id = new_id()
                status: Attributes = {"kubestow.status": event.code}
                yield Span(trace_id, span_id, parent, event.name, start, end, status)
                # The runtime calls PreScore and Score of each plugin in turn.
                points = ("PreScore", "Score", "NormalizeScore") if event.name == "Score" else (event.name,)
                for calls in _merged(waiting, points):
                    yield _plugin_span(calls, trace_id, new_id(), span_id)
                waiting = [calls for calls in waiting if calls.extension_point not in points]
            case PermitWait():
                yield Span(trace_id, new_id(), parent, "wait on permit", start, end, {"kubestow.status": event.code})
            case Request():
                yield _request_span(event, trace_id)


def _stages(record: AttemptRecord, trace_id: int, new_id: Callable[[], int]) -> Iterator[Span]:
    """The span of the whole attempt and those of its stages."""
    namespace, _, name = record.pod.partition("/")
    attributes: Attributes = {
        "k8s.namespace.name": namespace,
        "k8s.pod.name": name,
        "k8s.pod.uid": record.uid,
        "kubestow.scheduler_name": record.scheduler_name,
        "kubestow.attempt": record.attempt,
        "kubestow.result": record.result,
    }
    if record.node:
        attributes |= {"kubestow.feasible_nodes": record.feasible_nodes, "k8s.node.name": record.node}
    if record.message:
        attributes["kubestow.message"] = cut(record.message)
    if record.preemption_node:
        attributes["kubestow.preemption.node"] = record.preemption_node
        attributes["kubestow.preemption.victims"] = record.victims
    error = cut(record.message) if record.result == "error" else None
    root, popped, ended = record.root_id, record.popped, record.ended
    yield Span(trace_id, root, 0, "schedule pod", record.queued, ended, attributes, error)
    yield Span(trace_id, new_id(), root, "queue", record.queued, popped, {})
    yield Span(trace_id, record.cycle_id, root, "scheduling cycle", popped, record.bound or ended, {})
    if record.bound:
        yield Span(trace_id, record.binding_id, root, "binding cycle", record.bound, ended, {})


def _merged(calls: list[PluginCalls], points: tuple[str, ...]) -> list[PluginCalls]:
    """The calls at some extension points, one entry for each plugin and extension point, in order."""
    merged: dict[tuple[str, str], PluginCalls] = {}
    for each in calls:
        if each.extension_point in points:
            key = each.plugin, each.extension_point
            earlier = merged.get(key)
            if earlier is not None:
                start, count = min(earlier.start, each.start), earlier.calls + each.calls
                each = msgspec.structs.replace(each, start=start, calls=count)
            merged[key] = each
    return list(merged.values())


def _plugin_span(calls: PluginCalls, trace_id: int, span_id: int, parent_id: int) -> Span:
    attributes: Attributes = {
        "kubestow.plugin": calls.plugin,
        "kubestow.extension_point": calls.extension_point,
    }
    if calls.code:
        attributes["kubestow.status"] = calls.code
    if calls.calls > 1:
        attributes["kubestow.calls"] = calls.calls
    name = f"{calls.extension_point} {calls.plugin}"
    return Span(trace_id, span_id, parent_id, name, calls.start, calls.end, attributes, calls.error or None)


def _request_span(request: Request, trace_id: int) -> Span:
    """The span of a request, by the conventions for HTTP clients."""
    attributes: Attributes = {
        "http.request.method": request.method,
        "server.address": request.server,
        "url.path": cut(request.path.partition("?")[0]),
    }
    error = None
    if not request.code.isdigit():
        error = attributes["error.type"] = "no response"
    else:
        attributes["http.response.status_code"] = int(request.code)
        if int(request.code) >= 400:
            error = attributes["error.type"] = request.code
    return Span(
        trace_id,
        request.span_id,
        request.stage_id,
        request.method,
        request.start,
        request.end,
        attributes,
        error,
        SpanKind.CLIENT,
    )
