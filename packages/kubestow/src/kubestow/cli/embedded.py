"""The scheduler of ``kubestow up``: in the process of the API server, or in one of its own beside it.

A process of its own uses a second CPU. It starts while the server does, reads the paths of its files from standard
input once the server is listening, and writes one line to a pipe when scheduling begins. It ends with its parent:
standard input is a pipe that closes then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import structs

from kubestow import gc_tuning
from kubestow.cli.ending import run_until, wait_for_signal
from kubestow.errors import ConfigurationError, InputError, KubestowError
from kubestow.log_fields import fields
from kubestow.process import stop_process

if TYPE_CHECKING:
    from kubestow.cli.scheduler_app import SchedulerApp
    from kubestow.scheduling.scheduler import Scheduler

_log = logging.getLogger(__name__)


_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Seconds that the child has to end after SIGTERM.
_STOP_TIMEOUT = 10.0


OnReady = Callable[["ReadyScheduler"], None]


class SchedulerEnded(KubestowError):
    """The scheduler's process ended although it was not stopped."""


class SchedulerArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``kubestow up`` that concern its scheduler."""

    config_file: str | None = None
    plugins: tuple[str, ...] = ()
    feature_gates: str = ""
    emulated_version: str = ""
    seed: int | None = None
    flight_record: str | None = None

    def create_app(self) -> SchedulerApp:
        """Raises InputError for invalid options."""
        from kubestow.cli.input.scheduler import parse_minor
        from kubestow.cli.scheduler_app import SchedulerApp

        app = SchedulerApp.create(
            plugin_references=self.plugins,
            source=self.config_file,
            feature_gates=self.feature_gates,
            minor=parse_minor(self.emulated_version),
            seed=self.seed,
        )
        if self.flight_record is not None:
            # The API server of a development cluster has the version that its scheduler emulates.
            record, server_version = Path(self.flight_record), app.gates.minor.release
            app = replace(app, options=replace(app.options, flight_record=record, server_version=server_version))
        # The server names its own kubeconfig; its one scheduler needs neither a rate limit nor leader election.
        configuration = app.configuration
        connection = structs.replace(configuration.client_connection, kubeconfig="", qps=-1.0)
        election = structs.replace(configuration.leader_election, leader_elect=False)
        configuration = structs.replace(configuration, client_connection=connection, leader_election=election)
        return replace(app, configuration=configuration)

    def suits_own_process(self) -> bool:
        """Whether a process of its own is better: with a second CPU, unless a debugger may stop in a plugin."""
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cpus > 1 and not self.plugins and sys.gettrace() is None


class SchedulerFiles(msgspec.Struct, frozen=True):
    """The kubeconfig of a scheduler, and the Unix socket on which it serves its dashboard; "" for no dashboard."""

    kubeconfig: str
    dashboard_socket: str = ""


class StartRefusal(msgspec.Struct, frozen=True):
    """An InputError, as one process reports it to another; ``problems`` are those of a ConfigurationError."""

    subject: str
    problem: str
    place: str
    problems: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, error: InputError) -> StartRefusal:
        problems = tuple(error.problems) if isinstance(error, ConfigurationError) else ()
        return cls(error.subject, error.problem, error.place, problems)

    def error(self) -> InputError:
        if self.problems:
            return ConfigurationError(self.subject, list(self.problems))
        return InputError(self.subject, self.problem, place=self.place)


class ReadyScheduler(msgspec.Struct, frozen=True):
    """A scheduler that has started: the number of nodes, and the scheduler names it schedules for."""

    nodes: int
    scheduler_names: tuple[str, ...]

    @classmethod
    def of(cls, scheduler: Scheduler) -> ReadyScheduler:
        return cls(len(scheduler.cluster.nodes), tuple(scheduler.profiles))


def configure_logging() -> None:
    logging.basicConfig(level=logging.WARNING, format=_LOG_FORMAT)


async def run_in_process(app: SchedulerApp, files: SchedulerFiles, on_ready: OnReady) -> None:
    """Schedule in this process until a signal."""
    if files.dashboard_socket:
        app = replace(app, options=replace(app.options, dashboard_socket=Path(files.dashboard_socket)))
    await app.run(
        kubeconfig=files.kubeconfig, master="", on_ready=lambda scheduler: on_ready(ReadyScheduler.of(scheduler))
    )


# The parent

_CHILD = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from kubestow.cli.embedded import main
main(sys.argv[2], int(sys.argv[3]))
"""


class SchedulerProcess:
    """A scheduler in a child process, which waits for its files.

    The child reports twice: that it accepts its arguments (null) or why not (a :class:`StartRefusal`), and later that
    it is ready (a :class:`ReadyScheduler`).
    """

    def __init__(self, process: Process, reports: asyncio.StreamReader, pipe: asyncio.ReadTransport) -> None:
        self._process, self._reports, self._pipe = process, reports, pipe

    @classmethod
    async def start(cls, arguments: SchedulerArguments) -> SchedulerProcess:
        reading, writing = os.pipe()
        reports = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reports), os.fdopen(reading, "rb")
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _CHILD, json.dumps(sys.path)),
            *(msgspec.json.encode(arguments).decode(), str(writing)),
            stdin=PIPE,
            pass_fds=(writing,),
            # Ctrl-C in a terminal signals all processes of a session; this one is stopped by its parent.
            start_new_session=True,
        )
        os.close(writing)
        return cls(process, reports, pipe)

    async def wait_until_configured(self) -> None:
        """Wait until the child has accepted its arguments. Raises InputError for invalid ones, and SchedulerEnded."""
        line = await self._reports.readline()
        if not line:
            raise await self._end()
        refusal = msgspec.json.decode(line, type=StartRefusal | None)
        if refusal is not None:
            raise refusal.error()

    async def run(self, files: SchedulerFiles, on_ready: OnReady) -> None:
        """Schedule until SIGINT or SIGTERM, then stop the process. Raises SchedulerEnded if it ends before."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR2, self._process.send_signal, signal.SIGUSR2)
        stopped = asyncio.create_task(wait_for_signal())
        running = asyncio.create_task(self._until_ended(files, on_ready))
        try:
            await asyncio.wait((stopped, running), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, os._exit, 1)  # the second one exits at once
        finally:
            loop.remove_signal_handler(signal.SIGUSR2)
            stopped.cancel()
            running.cancel()
            await self.stop()  # before the server, so that it does not log lost connections

    async def _until_ended(self, files: SchedulerFiles, on_ready: OnReady) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended, which its status reports
            stdin.write(msgspec.json.encode(files) + b"\n")
            await stdin.drain()
        if line := await self._reports.readline():
            on_ready(msgspec.json.decode(line, type=ReadyScheduler))
        raise await self._end()

    async def _end(self) -> SchedulerEnded:
        status = await self._process.wait()
        _log.critical("the scheduler's process ended unexpectedly with status %d", status, extra=fields(status=status))
        return SchedulerEnded(f"the scheduler's process ended with status {status}")

    async def stop(self) -> None:
        """Stop the process gracefully, or after ten seconds at once."""
        if not await stop_process(self._process, _STOP_TIMEOUT):
            _log.warning("the scheduler's process did not stop and was killed", extra=fields(pid=self._process.pid))
        self._pipe.close()  # not before: the child may be about to report


@asynccontextmanager
async def scheduler_process(arguments: SchedulerArguments) -> AsyncIterator[SchedulerProcess]:
    """Start the scheduler's process, and stop it on exit."""
    process = await SchedulerProcess.start(arguments)
    try:
        yield process
    finally:
        await process.stop()


# The child


def main(arguments: str, reports: int) -> None:
    """The scheduler's process, with :class:`SchedulerArguments` in JSON; ``reports`` is a file descriptor."""
    gc_tuning.raise_thresholds()
    configure_logging()
    try:
        app = msgspec.json.decode(arguments, type=SchedulerArguments).create_app()
    except InputError as error:
        _report(StartRefusal.of(error), reports)
        sys.exit(1)
    _report(None, reports)
    try:
        app.run_on_new_loop(_schedule(app, reports))
    except KubestowError as error:
        click.echo(f"kubestow: scheduler: {error}", err=True)
        sys.exit(1)


async def _schedule(app: SchedulerApp, reports: int) -> None:
    """Schedule until a signal, or until the parent has ended."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    line = await reader.readline()
    if not line:
        return
    files = msgspec.json.decode(line, type=SchedulerFiles)
    await run_until(run_in_process(app, files, lambda scheduler: _report(scheduler, reports)), reader.read())


def _report(report: StartRefusal | ReadyScheduler | None, reports: int) -> None:
    os.write(reports, msgspec.json.encode(report) + b"\n")
