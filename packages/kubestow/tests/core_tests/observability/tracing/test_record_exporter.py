"""The export of traced attempts to an OpenTelemetry collector."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from core_tests.observability.tracing.collector import attributes_of, running_collector
from kubestow.errors import InputError
from kubestow.observability.tracing.attempt_record import AttemptRecord, ExtensionPoint, PluginCalls
from kubestow.observability.tracing.record_exporter import RecordExporter, require_tracing
from kubestow.process import WallClock

TRACE = bytes.fromhex("0af7651916cd43dd8448eb211c80319c")
#: When the pod entered the queue, in nanoseconds.
BEGAN = 1_700_000_000_000_000_000


def record() -> AttemptRecord:
    """An attempt that failed in a plugin."""
    calls = PluginCalls(3, BEGAN + 20, BEGAN + 30, "Mine", "Reserve", "Error", "no disk")
    return AttemptRecord(
        TRACE,
        2,
        3,
        4,
        BEGAN,
        BEGAN + 10,
        "shop/a",
        "uid-a",
        "default-scheduler",
        1,
        ended=BEGAN + 50,
        has_ended=True,
        result="error",
        message="no disk",
        events=[calls, ExtensionPoint(3, BEGAN + 20, BEGAN + 40, "Reserve", "Error")],
    )


@asynccontextmanager
async def exporting(endpoint: str) -> AsyncIterator[tuple[RecordExporter, Results]]:
    """An exporter, and what became of its records."""
    results = Results()
    exporter = RecordExporter(endpoint, clock=WallClock())
    exporter.count = results.count
    async with exporter:
        yield exporter, results


class Results(Counter[str]):
    """How many records had which result."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def count(self, result: str, records: int) -> None:
        self[result] += records
        self._changed.set()

    async def wait_for(self, result: str) -> None:
        """Wait until there is a record with this result."""
        while not self[result]:
            self._changed.clear()
            await self._changed.wait()


async def test_a_collector_receives_the_spans_of_an_attempt_by_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=lab")
    with running_collector() as collector:
        async with exporting(collector.endpoint) as (exporter, results):
            exporter.export(record)
            await results.wait_for("exported")
    assert results == {"exported": 1}
    assert collector.resources[0].items() >= {("service.name", "kubestow"), ("k8s.cluster.name", "lab")}
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"schedule pod", "queue", "scheduling cycle", "Reserve", "Reserve Mine"}
    assert {span.trace_id for span in spans.values()} == {TRACE}
    root, cycle, point = spans["schedule pod"], spans["scheduling cycle"], spans["Reserve"]
    plugin = spans["Reserve Mine"]
    assert (root.span_id, root.parent_span_id, root.kind) == (bytes(7) + b"\2", b"", 1)
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (BEGAN, BEGAN + 50)
    assert (root.status.code, root.status.message) == (2, "no disk")
    assert (cycle.span_id, cycle.parent_span_id, cycle.status.code) == (bytes(7) + b"\3", root.span_id, 0)
    assert (point.parent_span_id, plugin.parent_span_id) == (cycle.span_id, point.span_id)
    assert (plugin.status.code, plugin.status.message) == (2, "no disk")
    assert attributes_of(root) == {
        "k8s.namespace.name": "shop",
        "k8s.pod.name": "a",
        "k8s.pod.uid": "uid-a",
        "kubestow.scheduler_name": "default-scheduler",
        "kubestow.attempt": 1,
        "kubestow.result": "error",
        "kubestow.message": "no disk",
    }


async def test_an_endpoint_with_a_path_is_sent_protobuf_by_http_and_a_refusal_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    received: list[str] = []

    async def export(request: web.Request) -> web.Response:
        received.append(request.content_type)
        return web.Response(status=400 if len(received) > 1 else 200)

    application = web.Application()
    application.router.add_post("/v1/traces", export)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with exporting(f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces") as (exporter, results):
            exporter.export(record)
            await results.wait_for("exported")
            exporter.export(record)
            await results.wait_for("failed")
    finally:
        await runner.cleanup()
    assert received == ["application/x-protobuf"] * 2
    assert results == {"exported": 1, "failed": 1}
    assert "1 attempts were not exported" in caplog.text


async def test_records_that_wait_are_bounded_and_losses_counted() -> None:
    exporter = RecordExporter("http://127.0.0.1:1", clock=WallClock())
    results = Results()
    exporter.count = results.count
    for _ in range(2_010):
        exporter.export(record)
    assert results == {"dropped": 10}


@pytest.mark.parametrize("endpoint", ["collector:4317", "ftp://collector", "http://", "http://collector:99999"])
def test_an_endpoint_has_to_be_a_url(endpoint: str) -> None:
    with pytest.raises(InputError, match=r"--otlp-endpoint: invalid argument .*: expected a URL such as"):
        require_tracing(endpoint, "--otlp-endpoint")
