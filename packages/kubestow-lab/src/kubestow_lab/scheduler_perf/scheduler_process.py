"""The scheduler under test as a process: ``kubestow run`` with a workload's configuration and feature gates."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.config import API_VERSION, KIND, FeatureGates
from kubestow.errors import InputError
from kubestow.process import WallClock, stop_process
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow_lab.scheduler_perf.scheduler_metrics import MetricsSource
from kubestow_lab.scheduler_perf.session import WorkloadFailed
from kubestow_lab.scheduler_perf.test_cases import read_document

#: The client limits of scheduler_perf.
_QPS, _BURST = 5000, 5000
_READY = b'"Scheduling"'
_START_TIMEOUT, _STOP_TIMEOUT = 60.0, 15.0
_ALLOWED_PATHS = "/healthz,/readyz,/livez,/metrics"
_KEPT_LINES = 20


@dataclass(frozen=True)
class MeasuredScheduler:
    """A running scheduler; ``metrics_url`` is its secure port."""

    process: asyncio.subprocess.Process
    metrics_url: str
    _last_lines: deque[str]
    _reading: asyncio.Task[None]

    async def failed(self) -> None:
        """Wait until the process ends although it was not stopped, then raise WorkloadFailed; never returns."""
        status = await self.process.wait()
        await self._reading
        last = self._last_lines[-1] if self._last_lines else "no output"
        raise WorkloadFailed(f"the scheduler ended with status {status}: {last}")


def supported_gates(gates: Mapping[str, bool], minor: Minor = DEFAULT_MINOR) -> tuple[dict[str, bool], list[str]]:
    """The feature gates that kubestow can be started with as a minor version, and why the others are left out.

    Workload files turn gates off that are locked to true by now; that is no reason not to run them.
    """
    accepted: dict[str, bool] = {}
    remaining = dict(gates)
    while remaining:
        problems: dict[str, str] = {}
        for name, enabled in remaining.items():
            try:
                FeatureGates(accepted | {name: enabled}, minor=minor)
            except InputError as error:
                problems[name] = error.problem
            else:
                accepted[name] = enabled
        if len(problems) == len(remaining):
            return accepted, list(problems.values())
        remaining = {name: remaining[name] for name in problems}  # a gate may depend on one that follows it
    return accepted, []


def scheduler_configuration(file: Path | None, kubeconfig: str = "") -> dict[str, Any]:
    """A KubeSchedulerConfiguration: that of a workload (``file``), without leader election, with scheduler_perf's
    client limits. Raises InputError if the file cannot be read or is no configuration.
    """
    data: Any = {"apiVersion": API_VERSION, "kind": KIND}
    if file is not None:
        data = read_document(file).data
        if not isinstance(data, dict):
            raise InputError(str(file), f"expected a {KIND}")
    connection = {**(data.get("clientConnection") or {}), "kubeconfig": kubeconfig, "qps": _QPS, "burst": _BURST}
    return {**data, "leaderElection": {"leaderElect": False}, "clientConnection": connection}


@asynccontextmanager
async def scheduler_process(
    configuration: Mapping[str, Any], gates: Mapping[str, bool], *, master: str = "", minor: Minor | None = None
) -> AsyncIterator[MeasuredScheduler]:
    """Start a scheduler, wait until it schedules, and stop it on exit.

    ``master`` is the URL of an API server without a kubeconfig. The scheduler emulates the ``minor`` version if one is
    given. Raises WorkloadFailed if the scheduler does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with TemporaryDirectory(prefix="kubestow-bench-") as directory:
        config = Path(directory) / "scheduler-configuration.json"
        config.write_text(json.dumps(configuration))
        arguments = [
            f"--config={config}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--authorization-always-allow-paths={_ALLOWED_PATHS}",
            "--feature-gates=" + ",".join(f"{name}={str(enabled).lower()}" for name, enabled in gates.items()),
        ]
        if minor is not None:
            arguments.append(f"--emulated-version={minor}")
        if master:
            arguments.append(f"--master={master}")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kubestow", "run", *arguments), stderr=asyncio.subprocess.PIPE
        )
        ready, lines, log = asyncio.Event(), deque[str](maxlen=_KEPT_LINES), process.stderr
        assert log is not None

        async def read_log() -> None:
            """To its end, so that the process never blocks on writing."""
            async for line in log:
                if _READY in line:
                    ready.set()
                lines.append(line.decode(errors="replace").strip())

        reading = asyncio.create_task(read_log())
        scheduler = MeasuredScheduler(process, f"https://127.0.0.1:{port}", lines, reading)
        try:
            await _wait_until(ready, scheduler)
            yield scheduler
        finally:
            await stop_process(process, _STOP_TIMEOUT)
            await reading


async def _wait_until(ready: asyncio.Event, scheduler: MeasuredScheduler) -> None:
    waiting, failing = asyncio.create_task(ready.wait()), asyncio.create_task(scheduler.failed())
    try:
        await asyncio.wait((waiting, failing), timeout=_START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        if not waiting.done():
            raise WorkloadFailed(f"the scheduler is not ready after {_START_TIMEOUT:g} s")
    finally:
        for task in (waiting, failing):
            task.cancel()
        await asyncio.gather(waiting, failing, return_exceptions=True)


@asynccontextmanager
async def metrics_of(url: str, credentials: Credentials | None = None) -> AsyncIterator[MetricsSource]:
    """Scrape the metrics at ``<url>/metrics``, with the headers of ``credentials``, if any.

    The certificate is not verified: schedulers usually have a self-signed one.
    """
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    headers = None if credentials is None else credentials.headers
    async with Transport(Credentials(url, tls=tls, headers=headers), clock=WallClock()) as transport:

        async def scrape() -> str:
            return (await transport.request("GET", "/metrics")).decode()

        yield scrape
