"""A collector: a gRPC server with the trace service of OTLP, which keeps the spans that it receives."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

grpc = pytest.importorskip("grpc")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc  # noqa: E402


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]  # without annotations
    """What it received: the attributes of resources, and the spans. ``port`` is where it listens."""

    port: int = 0
    resources: list[dict[str, Any]] = field(default_factory=list)
    spans: list[Any] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # the name in the protocol
        for by_resource in request.resource_spans:
            self.resources.append(attributes_of(by_resource.resource))
            for by_scope in by_resource.scope_spans:
                self.spans.extend(by_scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


def attributes_of(described: Any) -> dict[str, Any]:
    """The attributes of a span or of a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in described.attributes}


@contextmanager
def running_collector() -> Iterator[Collector]:
    """A collector on a free port."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
