"""Runs of workloads in this process: on an embedded API server over HTTP, or in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

from kubestow import config
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.plugins import in_tree_registry
from kubestow.process import WallClock
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.scheduler import Scheduler
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import DevCluster
from kubestow_devcluster.controller_manager import ControllerManager
from kubestow_devcluster.controllers.resource_claims import ResourceClaimController, ResourceClaimTemplateController
from kubestow_lab.scheduler_perf.clusters import APIServerCluster, ClusterUnderTest
from kubestow_lab.scheduler_perf.executor import WorkloadExecutor, clean_up
from kubestow_lab.scheduler_perf.phase import PhaseCollector, PhaseResult, ProcessUsage, SchedulerProbe
from kubestow_lab.scheduler_perf.pod_tracker import PodTracker
from kubestow_lab.scheduler_perf.session import ExecutionOptions, Session
from kubestow_lab.scheduler_perf.test_cases import Selection, WorkloadPlan, plans
from kubestow_lab.scheduler_perf.workload_run import RunOptions, run_workload


class NoProgress:
    """Implements the progress of a workload by ignoring it."""

    def operation(self, number: int, total: int, name: str) -> None:
        """Nothing is shown."""

    def advanced(self, done: int, total: int) -> None:
        """Nothing is shown."""


def plan_in(folder: Path, text: str, **templates: str) -> WorkloadPlan:
    """The first workload of a file with this text; ``templates`` are written beside it as ``<name>.yaml``."""
    file = folder / "workloads.yaml"
    file.write_text(text)
    for name, template in templates.items():
        (folder / f"{name}.yaml").write_text(template)
    return plans(Selection((str(file),)))[0]


def run_in_memory(plan: WorkloadPlan) -> list[PhaseResult]:
    """Run a workload with the engine alone."""
    return asyncio.run(run_workload(plan, RunOptions(core=True), NoProgress())).phases


def run_on_server(plan: WorkloadPlan) -> tuple[list[PhaseResult], dict[str, list[str]]]:
    """Run a workload on an embedded API server.

    Returns the phases, and by kind the names of the objects that the clean-up has not deleted.
    """
    return asyncio.run(_run_on_server(plan))


async def _run_on_server(plan: WorkloadPlan) -> tuple[list[PhaseResult], dict[str, list[str]]]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(DevCluster(kubelets=False, apiserver=APIServerOptions(port=0)))
        controllers = (ResourceClaimTemplateController, ResourceClaimController)
        await _background(stack, ControllerManager(server.registry, controllers=controllers).run())
        credentials, clock = Credentials(server.url), WallClock()
        client = await stack.enter_async_context(ClusterClient(credentials, clock=clock, random=Random(1)))
        gates = config.FeatureGates(plan.feature_gates)
        scheduler = Scheduler(
            config.default_configuration(gates),
            registry=in_tree_registry(),
            environment=Environment(client, clock, Random(1), Observer()),
            gates=gates,
        )
        await _background(stack, scheduler.run())
        await scheduler.synced.wait()
        transport = await stack.enter_async_context(Transport(credentials, clock=clock))
        cluster = APIServerCluster(transport, clock=clock, random=Random(1))
        tracker = PodTracker(time.monotonic)
        await _background(stack, cluster.watch_pods(tracker))
        await tracker.synced.wait()
        session = Session(plan, cluster, tracker, NoProgress(), clock, Random(1), ExecutionOptions())
        probe = SchedulerProbe(ProcessUsage(0), lambda: None)
        phases = await WorkloadExecutor(session, PhaseCollector(tracker, probe)).run()
        # No namespace controller runs here, so namespaces remain; they are deleted by the real one.
        session.namespaces.clear()
        await clean_up(session)
        return phases, await _left(cluster)


async def _left(cluster: ClusterUnderTest) -> dict[str, list[str]]:
    kinds = [("v1", "Node"), ("v1", "PersistentVolume"), ("resource.k8s.io/v1", "ResourceSlice")]
    listed = {kind: await cluster.list_objects(version, kind) for version, kind in kinds}
    # A volume that is being deleted waits for the controller that removes its finalizer.
    return {
        kind: [obj["metadata"]["name"] for obj in objects if "deletionTimestamp" not in obj["metadata"]]
        for kind, objects in listed.items()
    }


async def _background(stack: AsyncExitStack, coroutine: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(coroutine)

    async def stop() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(stop)
