"""``kubestow shadow``: the decisions of the scheduler that runs beside those that would be made here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kubestow.cli.ending import run_until, wait_for_signal
from kubestow.cli.inputs import ClusterConnection, SchedulerInput, connection_options, newest_valid, scheduler_options
from kubestow.cli.live import parse_seconds
from kubestow.cli.output import emit, print_result
from kubestow.reports.model import counted

if TYPE_CHECKING:
    from kubestow.rules.minors import Minor
    from kubestow.serving.options import ServingOptions
    from kubestow.shadow.report import ShadowMetrics, ShadowReport
    from kubestow.shadow.shadow import ComparedDecision, Shadow

#: How often decisions are looked at again, in seconds, and how often a terminal shows the counts.
_PERIOD, _REFRESHES_PER_SECOND = 0.2, 4


@click.command()
@click.argument("record", required=False, type=click.Path(path_type=Path, dir_okay=False))
@connection_options
@scheduler_options
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
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a report as a page to this file.")
@click.option(
    "--secure-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /metrics by HTTPS; 0 selects a free port. Default: no port.",
)
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address of the secure port.")
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True, help="Output format."
)
def shadow(
    record: Path | None,
    connection: ClusterConnection,
    scheduler: SchedulerInput,
    names: tuple[str, ...],
    duration: str | None,
    fail_below: float | None,
    html: Path | None,
    secure_port: int | None,
    bind_address: str,
    output: str,
) -> int:
    """Decide again what the scheduler of a live cluster decides, and compare.

    It only reads. Each decision about a pod (its node, the words of a rejection, preemption and its victims) is made
    here from the states that the scheduler may have seen. With its own configuration in --config there should be no
    differences; with another one, they are what that one would have decided otherwise. RECORD is a file of `kubestow
    record`, or of a flight record, instead of a live cluster.
    """
    from kubestow.shadow.report import ShadowMetrics, ShadowReport

    if record is not None and (connection.is_given or duration is not None or secure_port is not None):
        raise click.UsageError("RECORD excludes --duration, --secure-port, --kubeconfig, --context and --master")
    seconds = None if duration is None else parse_seconds(duration)
    report, metrics = ShadowReport(), ShadowMetrics()
    with _shown(report, output) as show:

        def found(decision: ComparedDecision) -> None:
            report.add(decision)
            metrics.count(decision)
            show(decision)

        def build(minor: Minor, monotonic: Callable[[], float]) -> Shadow:
            return _build(scheduler, minor, names, report, monotonic, found)

        if record is not None:
            watched = _read(record, scheduler.emulated_version, build)
        else:
            serving = None if secure_port is None else _serving_options(bind_address, secure_port)
            watched = asyncio.run(_watch(connection, scheduler.emulated_version, seconds, build, metrics, serving))
    if output == "json":
        click.echo(msgspec.json.encode(report.document()))
    if html is not None:
        emit(report.page(watched), str(html))
    counts = report.counts
    return int(fail_below is not None and (not counts.compared or counts.agreement < fail_below))


def _build(
    scheduler: SchedulerInput,
    minor: Minor,
    names: tuple[str, ...],
    report: ShadowReport,
    monotonic: Callable[[], float],
    on_result: Callable[[ComparedDecision], None],
) -> Shadow:
    """The shadow of a scheduler in a minor version. Raises InputError, ConfigurationError and PluginError."""
    from kubestow.config import FeatureGates
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
    from kubestow.plugins.registry import find_pod_group_apis, referenced_plugins
    from kubestow.shadow.shadow import Shadow

    gates = FeatureGates.parse(scheduler.feature_gates, minor=minor)
    options = SchedulerOptions(scheduler.config, referenced_plugins(scheduler.plugins), gates)
    configuration = options.read_configuration()
    shadow = Shadow(
        configuration,
        options.registry(),
        gates,
        monotonic=monotonic,
        on_result=on_result,
        scheduler_names=names,
        pod_group_apis=find_pod_group_apis(),
    )
    profiles = ", ".join(names or [profile.scheduler_name for profile in configuration.profiles])
    source = scheduler.config or "the default configuration"
    report.title = f"decisions of {profiles}, and those of {source} as Kubernetes {minor}"
    report.remarks = []
    if configuration.extenders:
        count = len(configuration.extenders)
        called = counted(count, "extender of the configuration is", "extenders of the configuration are")
        report.remarks.append(f"{called} not called")
    return shadow


_Build = Callable[["Minor", Callable[[], float]], "Shadow"]


# -- a live cluster --------------------------------------------------------------------------------------------------


async def _watch(
    connection: ClusterConnection,
    emulated_version: str,
    seconds: float | None,
    build: _Build,
    metrics: ShadowMetrics,
    serving: ServingOptions | None,
) -> float:
    """Watch a cluster until a signal, or for some seconds; for how long. Raises InputError, APIError, Unreachable."""
    from random import Random

    from kubestow.cli.inputs import parse_minor
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
        await run_until(client.subscribe(shadow.resources, shadow), judge(), wait_for_signal(), seconds=seconds)
        shadow.judge(everything=True)
        return clock.monotonic() - began


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


def _read(path: Path, emulated_version: str, build: _Build) -> float:
    """Look at what a record contains; its length in seconds. Raises InputError, also for a damaged record."""
    from kubestow.api.custom import CustomObject
    from kubestow.cli.inputs import parse_minor
    from kubestow.flight_record.exact_replay import recorded_minor
    from kubestow.flight_record.redecision import deliver, watched_resources
    from kubestow.flight_record.segment import Segment

    segment = Segment(path)
    now = began = segment.header.monotonic
    minor = parse_minor(emulated_version) if emulated_version else recorded_minor(segment.header)
    shadow = build(minor, lambda: now)
    kinds = [resource.type for resource in shadow.resources if issubclass(resource.type, CustomObject)]
    recorded = watched_resources(segment, kinds)
    for resource in shadow.resources:
        if resource not in recorded:
            shadow.replace(resource, [])
    for now in deliver(segment, shadow, kinds):  # noqa: B007
        shadow.judge()
    shadow.judge(everything=True)
    return now - began


# -- output ----------------------------------------------------------------------------------------------------------


@contextmanager
def _shown(report: ShadowReport, output: str) -> Iterator[Callable[[ComparedDecision], None]]:
    """Yields what shows a decision: as a line, or in the table that grows on a terminal; the report at the end."""
    from kubestow.reports.text import printable
    from kubestow.shadow.report import document_of_decision, line_of

    if output == "json":
        yield lambda found: click.echo(msgspec.json.encode(document_of_decision(found)))
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        with Live(console=console, refresh_per_second=_REFRESHES_PER_SECOND, get_renderable=report.__rich__):
            yield lambda found: None
        return
    yield lambda found: click.echo(printable(line_of(found)))
    print_result(report.document, report, output)
