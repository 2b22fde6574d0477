"""``kubestow shadow``: the decisions of the scheduler that runs beside those that would be made here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click
import msgspec

from kubestow.cli.commands.live import parse_seconds
from kubestow.cli.ending import run_until, wait_for_signal
from kubestow.cli.input.cluster import ClusterConnection, connection_options
from kubestow.cli.input.scheduler import SchedulerInput, newest_valid, scheduler_options, warn_of_gates_without_effect
from kubestow.cli.output import OutputForms, emit, print_result, report_written
from kubestow.errors import InputError, KubestowError
from kubestow.reports.model import counted

if TYPE_CHECKING:
    from kubestow.config import FeatureGates
    from kubestow.engine.pipeline.offline_scheduler import Configuration
    from kubestow.flight_record.segment import Segment
    from kubestow.rules.minors import Minor
    from kubestow.serving.options import ServingOptions
    from kubestow.shadow.report import ShadowMetrics, ShadowReport
    from kubestow.shadow.shadow import ComparedDecision, Shadow

#: How often decisions are looked at again, in seconds, and how often a terminal shows the counts.
_PERIOD, _REFRESHES_PER_SECOND = 0.2, 4
_TEXTS = ("table", "json")


@click.command()
@connection_options
@scheduler_options
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    help="A file of `kubestow record` or of a flight record, or the folder of one, in place of a cluster.",
)
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Compare the decisions about the pods of this scheduler. Can be repeated. Default: all profiles.",
)
@click.option("--duration", metavar="DURATION", help="How long to watch, such as 10m. Default: until Ctrl-C.")
@click.option(
    "--fail-below",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with status 1 if fewer of 100 decisions agree, or if there were none.",
)
@click.option(
    "--secure-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /metrics by HTTPS; 0 selects a free port. Default: no port.",
)
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address of the secure port.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputForms(*_TEXTS, files=("html",)),
    help="table or json (a line per decision), to a file with FORM=FILE; or html=FILE. Can be repeated. "
    "Default, also beside files: table.",
)
def shadow(
    connection: ClusterConnection,
    scheduler: SchedulerInput,
    record: Path | None,
    names: tuple[str, ...],
    duration: str | None,
    fail_below: float | None,
    secure_port: int | None,
    bind_address: str,
    outputs: tuple[tuple[str, str], ...],
) -> int:
    """Decide again what the scheduler of a live cluster decides, and compare.

    It only reads. Each decision about a pod (its node, the words of a rejection, preemption and its victims) is made
    here from the states that the scheduler may have seen. With its own configuration in --config there should be no
    differences; with another one, they are what that one would have decided otherwise.
    """
    from kubestow.process import run
    from kubestow.shadow.report import ShadowMetrics, ShadowReport

    if record is not None and (connection.is_given or duration is not None or secure_port is not None):
        raise click.UsageError("--record excludes --duration, --secure-port, --kubeconfig, --context and --master")
    if sum(not target for _, target in outputs) > 1:
        raise click.UsageError("table and json cannot both be printed; write one of them to a file, as json=FILE")
    seconds = None if duration is None else parse_seconds(duration)
    report, metrics, failure = ShadowReport(), ShadowMetrics(), None
    with _shown(report, outputs) as show:

        def found(decision: ComparedDecision) -> None:
            report.add(decision)
            metrics.count(decision)
            show(decision)

        build = _Composition(scheduler, names, report, found)
        try:
            if record is not None:
                _read(record, scheduler.emulated_version, build)
            else:
                serving = None if secure_port is None else _serving_options(bind_address, secure_port)
                run(_watch(connection, scheduler.emulated_version, seconds, build, metrics, serving))
        except KubestowError as error:
            if not report.counts.by_label:
                raise
            failure = error  # after what has been found so far
    if failure is not None:
        raise failure
    counts = report.counts
    if fail_below is not None and (not counts.compared or counts.agreement < fail_below):
        click.echo(f"kubestow: {report.headline()}; --fail-below {fail_below:g} is not reached", err=True)
        return 1
    return 0


class _Composition:
    """Builds shadows whose results go to one report."""

    def __init__(
        self,
        scheduler: SchedulerInput,
        names: tuple[str, ...],
        report: ShadowReport,
        on_result: Callable[[ComparedDecision], None],
    ) -> None:
        self._scheduler, self._names, self.report, self._on_result = scheduler, names, report, on_result

    def __call__(self, minor: Minor, monotonic: Callable[[], float]) -> Shadow:
        """The shadow of a scheduler in a minor version. Raises InputError, ConfigurationError and PluginError."""
        from kubestow.config import FeatureGates

        gates = FeatureGates.parse(self._scheduler.feature_gates, minor=minor)
        warn_of_gates_without_effect(gates)
        return self._build(self._scheduler.config, gates, str(self._scheduler.config or ""), monotonic)

    def of_record(self, segment: Segment, minor: Minor, monotonic: Callable[[], float]) -> Shadow:
        """The same for a record: the configuration and the gates are the recorded ones, unless others are given."""
        from kubestow.cli.commands.replay import check_plugins
        from kubestow.config import FeatureGates
        from kubestow.flight_record.exact_replay import recorded_gates

        header, given = segment.header, self._scheduler
        check_plugins(segment, given.plugins)
        if given.feature_gates or not header.has_scheduler:
            gates = FeatureGates.parse(given.feature_gates, minor=minor)
            warn_of_gates_without_effect(gates)
        else:
            gates = recorded_gates(header).emulating(minor)
        if given.config is None and header.configuration:
            return self._build(header.configuration, gates, "the record", monotonic)
        return self._build(given.config, gates, str(given.config or ""), monotonic)

    def _build(
        self, configuration: Configuration, gates: FeatureGates, source: str, monotonic: Callable[[], float]
    ) -> Shadow:
        from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
        from kubestow.plugins.registry import find_pod_group_apis, referenced_plugins
        from kubestow.shadow.shadow import Shadow

        options = SchedulerOptions(configuration, referenced_plugins(self._scheduler.plugins), gates)
        decoded = options.read_configuration()
        shadow = Shadow(
            decoded,
            options.registry(),
            gates,
            monotonic=monotonic,
            on_result=self._on_result,
            scheduler_names=self._names,
            pod_group_apis=find_pod_group_apis(),
        )
        profiles = ", ".join(self._names or [profile.scheduler_name for profile in decoded.profiles])
        source = f"the configuration of {source}" if source else "the default configuration"
        self.report.title = f"decisions of {profiles}, and those of {source} as Kubernetes {gates.minor}"
        self.report.remarks = []
        if decoded.extenders:
            called = counted(len(decoded.extenders), "extender is", "extenders are")
            self.report.remarks.append(f"{called} not called, so the pods that they manage are not compared")
        return shadow


# -- a live cluster --------------------------------------------------------------------------------------------------


async def _watch(
    connection: ClusterConnection,
    emulated_version: str,
    seconds: float | None,
    build: _Composition,
    metrics: ShadowMetrics,
    serving: ServingOptions | None,
) -> None:
    """Watch a cluster until a signal, or for some seconds. Raises InputError, APIError, Unreachable."""
    from random import Random

    from kubestow.cli.input.scheduler import parse_minor
    from kubestow.client.cluster_client import ClusterClient
    from kubestow.process import WallClock
    from kubestow.rules.minors import Minor

    clock = WallClock()
    newest_valid(lambda minor: build(minor, clock.monotonic))  # before the API server is asked for its version
    async with AsyncExitStack() as stack:
        if serving is not None:
            await _serve(stack, metrics, serving)
        client = ClusterClient(await connection.credentials(), clock=clock, random=Random())
        await stack.enter_async_context(client)
        version = await client.wait_for_api_server()
        minor = parse_minor(emulated_version) if emulated_version or not version else Minor.of_server(version)
        await client.versions.discover()
        shadow = build(minor, clock.monotonic)

        async def judge() -> None:
            while True:
                await clock.sleep(0 if shadow.judge() else _PERIOD)

        began = clock.monotonic()
        try:
            await run_until(client.subscribe(shadow.resources, shadow), judge(), wait_for_signal(), seconds=seconds)
        finally:
            build.report.seconds = clock.monotonic() - began
            shadow.judge(everything=True)


def _serving_options(address: str, port: int) -> ServingOptions:
    """A port that serves metrics to everyone who reaches it; nothing is asked of the API server for it."""
    from kubestow.serving.options import (
        DelegatingAuthenticationOptions,
        DelegatingAuthorizationOptions,
        ServingOptions,
    )

    authentication = DelegatingAuthenticationOptions(skip_lookup=True)
    authorization = DelegatingAuthorizationOptions(always_allow_paths=("/healthz", "/livez", "/readyz", "/metrics"))
    return ServingOptions(address=address, port=port, authentication=authentication, authorization=authorization)


async def _serve(stack: AsyncExitStack, metrics: ShadowMetrics, serving: ServingOptions) -> None:
    from kubestow.process import WallClock
    from kubestow.serving.secure_server import SecureServer
    from kubestow.shadow.report import shadow_mux

    server = await stack.enter_async_context(SecureServer(serving, shadow_mux(metrics), metrics, clock=WallClock()))
    click.echo(f"metrics: https://{serving.address}:{server.port}/metrics", err=True)


# -- a record --------------------------------------------------------------------------------------------------------


def _read(path: Path, emulated_version: str, build: _Composition) -> None:
    """Look at what the file of a record contains, or each file of a folder.

    Raises InputError, also for a damaged file, after what could be read of it.
    """
    from kubestow.flight_record.segment import Segment
    from kubestow.flight_record.writer import segment_paths

    paths = segment_paths(path) if path.is_dir() else [path]
    if not paths:
        raise InputError(str(path), "contains no flight record")
    for file in paths:
        _read_segment(Segment(file), emulated_version, build)


def _read_segment(segment: Segment, emulated_version: str, build: _Composition) -> None:
    from kubestow.api.custom import CustomObject
    from kubestow.cli.input.scheduler import parse_minor
    from kubestow.flight_record.exact_replay import recorded_minor
    from kubestow.flight_record.redecision import deliver, watched_resources

    now = began = segment.header.monotonic
    minor = parse_minor(emulated_version) if emulated_version else recorded_minor(segment.header)
    shadow = build.of_record(segment, minor, lambda: now)
    kinds = [resource.type for resource in shadow.resources if issubclass(resource.type, CustomObject)]
    recorded = watched_resources(segment, kinds)
    for resource in shadow.resources:
        if resource not in recorded:
            shadow.replace(resource, [])
    try:
        for now in deliver(segment, shadow, kinds):  # noqa: B007
            shadow.judge()
    finally:
        build.report.seconds += now - began
        shadow.judge(everything=True)


# -- output ----------------------------------------------------------------------------------------------------------

_Show = Callable[["ComparedDecision"], None]


@contextmanager
def _shown(report: ShadowReport, outputs: Sequence[tuple[str, str]]) -> Iterator[_Show]:
    """Yields what shows a decision in all forms; the report follows at the end. Raises InputError for a file."""
    forms = list(outputs)
    if all(target and form != "table" for form, target in forms):
        forms.append(("table", ""))
    forms.sort(key=("table", "").__eq__)  # the table on a terminal ends first, before files are named there
    with ExitStack() as stack:
        shows = [stack.enter_context(_FORMS[form](report, target)) for form, target in forms]

        def show(found: ComparedDecision) -> None:
            for each in shows:
                each(found)

        yield show


@contextmanager
def _shown_as_table(report: ShadowReport, target: str) -> Iterator[_Show]:
    """As a line, or in the table that grows on a terminal."""
    from rich.console import Console
    from rich.live import Live

    from kubestow.reports.text import printable
    from kubestow.shadow.report import line_of

    console = Console(highlight=False, markup=False)
    if target:
        _check_writable(target)
        yield lambda found: None
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=_REFRESHES_PER_SECOND, get_renderable=report.__rich__):
            yield lambda found: None
        return
    else:
        yield lambda found: click.echo(printable(line_of(found)))
    print_result(report.document, report, "table", target)


@contextmanager
def _shown_as_json(report: ShadowReport, target: str) -> Iterator[_Show]:
    """One line per decision, as soon as it is made."""
    from kubestow.shadow.report import document_of_decision

    try:
        file: IO[bytes] | None = Path(target).open("wb") if target else None  # noqa: SIM115
    except OSError as error:
        raise InputError(target, f"cannot be written: {error.strerror}") from None
    with file or nullcontext():
        write = partial(click.echo, file=file)
        yield lambda found: write(msgspec.json.encode(document_of_decision(found)))
        write(msgspec.json.encode(report.document()))
    if target:
        report_written([Path(target)])


@contextmanager
def _shown_as_page(report: ShadowReport, target: str) -> Iterator[_Show]:
    _check_writable(target)
    yield lambda found: None
    emit(report.page(), target)


_FORMS = {"table": _shown_as_table, "json": _shown_as_json, "html": _shown_as_page}


def _check_writable(target: str) -> None:
    """Raises InputError for a file that could not be written at the end of the watch, which may be hours later."""
    path = Path(target)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(target, "cannot be written")
