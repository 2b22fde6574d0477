"""The process that exports spans by OTLP: reads batches from its input, exports each, and reports on its output.

    python -m kubestow.observability.tracing.otlp_process [ENDPOINT]

The protocol is gRPC, or HTTP with protobuf if OTEL_EXPORTER_OTLP_TRACES_PROTOCOL or OTEL_EXPORTER_OTLP_PROTOCOL says
so, or else if the endpoint has the port 4318 or a path. OpenTelemetry's exporters read the other OTEL_EXPORTER_OTLP_*
variables themselves, its resource OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES. One batch is exported at a time, with
the retries of the exporter; meanwhile nothing is read, so what does not fit into the pipe waits in the scheduler's
bounded queue. The process gives way to others for the CPU, first of all to the scheduler. It ends with its input.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial
from random import SystemRandom
from typing import BinaryIO
from urllib.parse import urlsplit

import msgspec

from kubestow.errors import InputError
from kubestow.observability.tracing.attempt_record import LENGTH_BYTES, AttemptRecord, BatchReport, Span, spans_of
from kubestow.version import VERSION

try:
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ModuleNotFoundError:
    raise InputError(__name__, "needs OpenTelemetry, install kubestow[tracing]") from None

_HTTP_PORT = 4318
_TRACES_PATH = "/v1/traces"
_NICENESS = 10
_SCOPE = InstrumentationScope("kubestow", VERSION)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class _LastProblem(logging.Handler):
    """Keeps what the exporter logs about a batch that it does not deliver, in place of a log of its own."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def new_exporter(endpoint: str) -> SpanExporter:
    """The exporter for an endpoint, "" for that of the environment or the SDK's default."""
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/")
    if protocol == "http/protobuf" or (not protocol and (parts.port == _HTTP_PORT or path)):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HTTPExporter

        return HTTPExporter(endpoint=endpoint if path or not endpoint else endpoint.rstrip("/") + _TRACES_PATH)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GRPCExporter

    return GRPCExporter(endpoint=endpoint or None)


def readable_span(span: Span, resource: Resource) -> ReadableSpan:
    """A span as OpenTelemetry's exporters take it."""
    trace_id = span.trace_id
    parent = None
    if span.parent_id:
        parent = SpanContext(trace_id, span.parent_id, is_remote=False, trace_flags=_SAMPLED)
    return ReadableSpan(
        name=span.name,
        context=SpanContext(trace_id, span.span_id, is_remote=False, trace_flags=_SAMPLED),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        kind=SpanKind(span.kind),
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=_SCOPE,
    )


def export_batches(exporter: SpanExporter, batches: BinaryIO, reports: BinaryIO) -> None:
    """Export the batches of a stream until it ends, and report on each, one line of JSON."""
    problem = _LastProblem()
    logging.basicConfig(handlers=[problem], force=True)
    # The environment takes precedence over these attributes.
    resource = Resource.create({SERVICE_VERSION: VERSION})
    if not os.environ.get("OTEL_SERVICE_NAME") and SERVICE_NAME not in _resource_variables():
        resource = resource.merge(Resource({SERVICE_NAME: "kubestow"}))
    decoder = msgspec.msgpack.Decoder(list[AttemptRecord])
    new_id = partial(SystemRandom().randrange, 1, 2**64)
    while len(length := batches.read(LENGTH_BYTES)) == LENGTH_BYTES:
        records = decoder.decode(batches.read(int.from_bytes(length)))
        spans = [readable_span(span, resource) for record in records for span in spans_of(record, new_id)]
        problem.text = ""
        try:
            result = exporter.export(spans)
        except Exception as error:
            result, problem.text = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"
        is_exported = result is SpanExportResult.SUCCESS
        text = "" if is_exported else problem.text or "the exporter gives no reason"
        reports.write(msgspec.json.encode(BatchReport(len(records), is_exported, text)) + b"\n")
        reports.flush()
    exporter.shutdown()


def _resource_variables() -> set[str]:
    pairs = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    return {pair.partition("=")[0].strip() for pair in pairs}


if __name__ == "__main__":
    # A Ctrl-C in the terminal is for the scheduler, whose last spans are exported then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    export_batches(new_exporter(sys.argv[1] if len(sys.argv) > 1 else ""), sys.stdin.buffer, sys.stdout.buffer)
