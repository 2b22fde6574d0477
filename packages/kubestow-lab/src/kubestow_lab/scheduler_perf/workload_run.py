"""One run of a workload: the cluster, the scheduler under test, the operations and the measurements, put together."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from kubestow import config
from kubestow.client.rest.credentials import Credentials, load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.errors import InputError
from kubestow.framework.profile import implements
from kubestow.observability.observability import Observability
from kubestow.plugins import in_tree_registry
from kubestow.plugins.registry import find_pod_group_apis
from kubestow.process import WallClock
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.resources import with_custom
from kubestow.scheduling.scheduler import Scheduler
from kubestow.version import VERSION
from kubestow_lab.apiserver_process import apiserver_process
from kubestow_lab.scheduler_perf.benchmark_result import WorkloadResult
from kubestow_lab.scheduler_perf.clusters import APIServerCluster, ClusterUnderTest
from kubestow_lab.scheduler_perf.executor import WorkloadExecutor, clean_up
from kubestow_lab.scheduler_perf.in_memory_cluster import InMemoryCluster
from kubestow_lab.scheduler_perf.phase import PhaseCollector, ProcessUsage, SchedulerProbe
from kubestow_lab.scheduler_perf.pod_tracker import PodTracker
from kubestow_lab.scheduler_perf.scheduler_process import (
    metrics_of,
    scheduler_configuration,
    scheduler_process,
    supported_gates,
)
from kubestow_lab.scheduler_perf.session import ExecutionOptions, RunProgress, Session, WorkloadFailed
from kubestow_lab.scheduler_perf.test_cases import WorkloadPlan

_EMBEDDED_SERVER = ("kubestow_devcluster.bare_apiserver",)
_USER_AGENT = f"kubestow-bench/{VERSION}"


@dataclass(frozen=True, slots=True)
class ExternalScheduler:
    """A scheduler that runs already: its process on this machine (0: unknown) and its secure port (empty: unknown)."""

    pid: int = 0
    metrics_url: str = ""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Which cluster and which scheduler a workload is run with.

    Without ``kubeconfig`` an embedded API server is started; ``core`` runs the engine alone. ``external`` is the
    scheduler to measure instead of kubestow. ``keep`` leaves the created objects. kubestow decides as the ``minor``
    version of Kubernetes; None stands for that of the API server, or the default one.
    """

    kubeconfig: str = ""
    core: bool = False
    external: ExternalScheduler | None = None
    keep: bool = False
    seed: int = 1
    minor: Minor | None = None
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)


@dataclass(frozen=True, slots=True)
class _Target:
    """What a workload is run on: the cluster, how to measure its scheduler, and how it is named in the result.

    ``failed`` waits for the end of the scheduler and raises.
    """

    cluster: ClusterUnderTest
    probe: SchedulerProbe
    cluster_name: str
    scheduler_name: str
    failed: Coroutine[Any, Any, None] | None = None
    left_out_gates: tuple[str, ...] = ()
    cleans_up: bool = False


async def run_workload(plan: WorkloadPlan, options: RunOptions, progress: RunProgress) -> WorkloadResult:
    """Run one workload. Raises KubestowError if it does not get to its end."""
    try:
        return await _run(plan, options, progress)
    except ExceptionGroup as group:  # of requests that are in flight together
        cause: Exception = group
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        raise cause from group


async def _run(plan: WorkloadPlan, options: RunOptions, progress: RunProgress) -> WorkloadResult:
    started = datetime.now(UTC)
    begin = time.monotonic()
    async with _target(plan, options) as target:
        tracker = PodTracker(time.monotonic)
        session = Session(plan, target.cluster, tracker, progress, WallClock(), Random(options.seed), options.execution)
        executor = WorkloadExecutor(session, PhaseCollector(tracker, target.probe))
        async with _watching(target, tracker):
            try:
                phases = await executor.run()
            finally:
                if target.cleans_up:
                    await clean_up(session)
    return WorkloadResult(
        name=plan.name,
        parameters=dict(plan.parameters),
        cluster=target.cluster_name,
        scheduler=target.scheduler_name,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - begin,
        left_out_feature_gates=list(target.left_out_gates),
        phases=phases,
    )


def check(plan: WorkloadPlan) -> None:
    """Raise InputError for what can be found before anything is started."""
    for path in sorted(plan.template_paths()):
        if not path.is_file():
            raise InputError(str(plan.file), f"the template {path} does not exist", place=plan.name)
    if not plan.is_measured:
        problem = "measures nothing: expected collectMetrics, or a startCollectingMetrics operation"
        raise InputError(str(plan.file), problem, place=plan.name)


@asynccontextmanager
async def _watching(target: _Target, tracker: PodTracker) -> AsyncIterator[None]:
    """Deliver the pods to the tracker. If the watch or the scheduler ends, the body is cancelled and it raises."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(target.cluster.watch_pods(tracker))]
        if target.failed is not None:
            running.append(tasks.create_task(target.failed))
        await tracker.synced.wait()
        yield
        for task in running:
            task.cancel()


@asynccontextmanager
async def _target(plan: WorkloadPlan, options: RunOptions) -> AsyncIterator[_Target]:
    if options.core:
        async with _engine(plan, options) as target:
            yield target
        return
    async with AsyncExitStack() as stack:
        if options.kubeconfig:
            url, name = "", options.kubeconfig
        else:
            url = await stack.enter_async_context(apiserver_process(_EMBEDDED_SERVER))
            name = "embedded API server"
        credentials = await load_credentials(options.kubeconfig, master=url)
        transport = await stack.enter_async_context(Transport(credentials, clock=WallClock(), user_agent=_USER_AGENT))
        cluster = APIServerCluster(transport, clock=WallClock(), random=Random(options.seed))
        if options.external is not None:
            probe = await _external_probe(options.external, credentials, stack)
            yield _Target(cluster, probe, name, "external scheduler", cleans_up=not options.keep)
            return
        gates, left_out = supported_gates(plan.feature_gates, options.minor or DEFAULT_MINOR)
        configuration = scheduler_configuration(plan.scheduler_configuration, options.kubeconfig)
        scheduler = await stack.enter_async_context(
            scheduler_process(configuration, gates, master=url, minor=options.minor)
        )
        metrics = await stack.enter_async_context(metrics_of(scheduler.metrics_url))
        process = ProcessUsage(scheduler.process.pid)
        yield _Target(
            cluster,
            SchedulerProbe(process, process.cpu_seconds, metrics),
            name,
            _name(options),
            failed=scheduler.failed(),
            left_out_gates=tuple(left_out),
            cleans_up=bool(options.kubeconfig) and not options.keep,
        )


def _name(options: RunOptions) -> str:
    """kubestow in the result."""
    return f"kubestow {VERSION}" if options.minor is None else f"kubestow {VERSION} as Kubernetes {options.minor}"


async def _external_probe(
    scheduler: ExternalScheduler, credentials: Credentials, stack: AsyncExitStack
) -> SchedulerProbe:
    process = ProcessUsage(scheduler.pid)
    if scheduler.pid and process.cpu_seconds() is None:
        raise InputError("--scheduler-pid", f"there is no process {scheduler.pid} on this machine")
    metrics = None
    if scheduler.metrics_url:
        metrics = await stack.enter_async_context(metrics_of(scheduler.metrics_url, credentials))
    return SchedulerProbe(process, process.cpu_seconds, metrics)


@asynccontextmanager
async def _engine(plan: WorkloadPlan, options: RunOptions) -> AsyncIterator[_Target]:
    """The scheduler in this process, on objects in memory. CPU time and memory are those of the whole process."""
    minor = options.minor or DEFAULT_MINOR
    gates, left_out = supported_gates(plan.feature_gates, minor)
    feature_gates = config.FeatureGates(gates, minor=minor)
    registry, pod_group_apis = in_tree_registry(minor), find_pod_group_apis()
    cluster, clock = InMemoryCluster(with_custom(api.kind for api in pod_group_apis)), WallClock()
    observability = Observability(clock, feature_gates)
    file = plan.scheduler_configuration
    scheduler = Scheduler(
        config.load(
            scheduler_configuration(file),
            subject=str(file or "configuration"),
            gates=feature_gates,
            implements=implements(registry),
        ),
        registry=registry,
        environment=Environment(cluster.memory, clock, Random(options.seed), observability.observer),
        pod_group_apis=pod_group_apis,
        gates=feature_gates,
    )
    observability.attach(scheduler)

    async def scrape() -> str:
        return observability.scrape()[0].decode()

    async def failed() -> None:
        await asyncio.shield(running)
        raise WorkloadFailed("the scheduler ended")

    running = asyncio.create_task(scheduler.run())
    try:
        await asyncio.wait(
            (running, synced := asyncio.create_task(scheduler.synced.wait())), return_when="FIRST_COMPLETED"
        )
        synced.cancel()
        yield _Target(
            cluster,
            SchedulerProbe(ProcessUsage(os.getpid()), time.process_time, scrape),
            "in memory",
            f"{_name(options)}, engine alone",
            failed=failed(),
            left_out_gates=tuple(left_out),
        )
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
