"""The export of records as spans: a bounded queue, and the child process that sends them to a collector.

A record costs the scheduler an append to a list. Batches go to the process through a pipe, without the event loop ever
waiting for it: while the collector does not answer, the queue fills up, and further records are dropped and counted. A
process that ends is started again after a pause; what it had not reported counts as failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import math
import sys
from collections import deque
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

import msgspec

from kubestow.errors import InputError
from kubestow.log_fields import fields
from kubestow.observability.tracing.attempt_record import LENGTH_BYTES, AttemptRecord, BatchReport
from kubestow.process import stop_process
from kubestow.scheduling.interfaces import Clock

_log = logging.getLogger(__name__)

#: The records that wait at most, and are sent at once: of an attempt each, with some twenty spans.
_MAX_WAITING = 2_000
_MAX_BATCH = 64
#: Seconds between two batches unless one is full before, and before a process is started again.
_PERIOD = 1.0
_PAUSE_BEFORE_RESTART = 10.0
#: How long the export of what is left may take at the end, and the process to end after that, in seconds.
_FLUSH_SECONDS = 5.0
_STOP_SECONDS = 1.0
#: A problem that repeats is logged once in so many seconds.
_LOG_PERIOD = 60.0

_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc", "opentelemetry.exporter.otlp.proto.http")


def require_tracing(endpoint: str, subject: str) -> None:
    """Raise InputError for an endpoint that is no URL, or without the packages; imports none of them."""
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InputError(subject, f'invalid argument "{endpoint}": expected a URL such as http://127.0.0.1:4317')
    try:
        missing = any(importlib.util.find_spec(module) is None for module in _MODULES)
    except ModuleNotFoundError:  # a parent package is missing
        missing = True
    if missing:
        raise InputError(subject, "needs OpenTelemetry: pip install 'kubestow[tracing]'")


class RecordExporter:
    """Exports spans to the collector at ``endpoint``. Use as ``async with``; :meth:`export` may be called before.

    Assign :attr:`count` to be called with a result (``exported``, ``failed`` or ``dropped``) and a number of records.
    """

    def __init__(self, endpoint: str, *, clock: Clock) -> None:
        self._endpoint, self._clock = endpoint, clock
        self.count: Callable[[str, int], None] = lambda result, spans: None
        self._waiting: deque[Callable[[], AttemptRecord]] = deque()
        #: Set when a whole batch waits, and when the exporter is closed.
        self._wake = asyncio.Event()
        self._closed = asyncio.Event()
        #: The records that the process has not reported on.
        self._sent = 0
        self._next_log = -math.inf
        self._encode = msgspec.msgpack.Encoder().encode
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run(), name="trace exporter")
        return self

    async def __aexit__(self, *error: object) -> None:
        """Export what waits, within some seconds."""
        self._closed.set()
        self._wake.set()
        assert self._running is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._running
        if self._waiting:
            self.count("dropped", len(self._waiting))

    def export(self, take: Callable[[], AttemptRecord]) -> None:
        """Queue a record, which is taken when it is sent, or drop it."""
        waiting = self._waiting
        if len(waiting) >= _MAX_WAITING:
            self.count("dropped", 1)
            return
        waiting.append(take)
        if len(waiting) == _MAX_BATCH:
            self._wake.set()

    async def _run(self) -> None:
        while True:
            problem = await self._run_process()
            if self._closed.is_set():
                return
            self._log_problem(problem)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_BEFORE_RESTART):
                    await self._closed.wait()
                    return

    async def _run_process(self) -> str:
        """Send batches to a new process, and read its reports, until it ends. Why it ended."""
        command = (sys.executable, "-m", f"{__package__}.otlp_process", self._endpoint)
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            return f"cannot start the process that exports traces: {error.strerror}"
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        sending = asyncio.create_task(self._send_batches(process.stdin))
        complaints = asyncio.create_task(_last_line(process.stderr))
        try:
            async for line in process.stdout:
                with contextlib.suppress(msgspec.DecodeError):  # what a library prints is no report
                    self._take_report(msgspec.json.decode(line, type=BatchReport))
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await stop_process(process, _STOP_SECONDS)
            if self._sent:
                self.count("failed", self._sent)
                self._sent = 0
        return f"the process that exports traces ended with status {process.returncode}: {await complaints}"

    async def _send_batches(self, pipe: asyncio.StreamWriter) -> None:
        """Write batches to the process; close the pipe when the exporter is closed and nothing waits."""
        waiting, closed = self._waiting, self._closed
        while waiting or not closed.is_set():
            if len(waiting) < _MAX_BATCH and not closed.is_set():
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PERIOD):
                        await self._wake.wait()
            batch = [waiting.popleft()() for _ in range(min(len(waiting), _MAX_BATCH))]
            if batch:
                self._sent += len(batch)
                encoded = self._encode(batch)
                pipe.write(len(encoded).to_bytes(LENGTH_BYTES) + encoded)
                await pipe.drain()
        pipe.close()

    def _take_report(self, report: BatchReport) -> None:
        self._sent -= report.records
        self.count("exported" if report.is_exported else "failed", report.records)
        if not report.is_exported:
            self._log_problem(f"{report.records} attempts were not exported: {report.problem}")

    def _log_problem(self, problem: str) -> None:
        now = self._clock.monotonic()
        if now >= self._next_log:
            self._next_log = now + _LOG_PERIOD
            values = fields(endpoint=self._endpoint, err=problem)
            _log.warning("traces: %s; further problems are logged in %g s", problem, _LOG_PERIOD, extra=values)


async def _last_line(stream: asyncio.StreamReader) -> str:
    """The last line of a stream, when it ends."""
    last = b""
    with contextlib.suppress(ValueError):  # a line without an end
        async for line in stream:
            last = line.strip() or last
    return last.decode(errors="replace")
