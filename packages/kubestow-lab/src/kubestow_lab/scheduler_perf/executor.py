"""Runs the operations of a workload one after another, with those in the background beside them.

Afterwards the objects of the workload are removed from clusters that are used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any

from kubestow.errors import APIError, InputError, Unreachable
from kubestow.log_fields import fields
from kubestow_lab.scheduler_perf import object_operations, operations
from kubestow_lab.scheduler_perf.clusters import ObjectIdentity
from kubestow_lab.scheduler_perf.operations import Barrier, Operation, StartCollectingMetrics
from kubestow_lab.scheduler_perf.phase import PhaseCollector, PhaseResult
from kubestow_lab.scheduler_perf.pod_operations import PodCreation, delete_pods
from kubestow_lab.scheduler_perf.session import Session

_log = logging.getLogger(__name__)


class WorkloadExecutor:
    """Executes the operations of a session's workload; ``collector`` measures the phases."""

    def __init__(self, session: Session, collector: PhaseCollector) -> None:
        self._session, self._collector = session, collector
        self._background: list[asyncio.Task[None]] = []
        self._phases: list[PhaseResult] = []

    async def run(self) -> list[PhaseResult]:
        """Execute all operations; the results of the measured phases.

        Background operations are cancelled at the end. Raises WorkloadFailed, APIError, Unreachable and InputError,
        also for a failure in the background.
        """
        planned = self._session.plan.operations()
        try:
            for number, (index, operation) in enumerate(planned):
                self._session.progress.operation(number, len(planned), operations.opcode(operation))
                await self._execute(operation, index)
                for task in self._background:
                    if task.done():
                        task.result()
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
        return self._phases

    async def _execute(self, operation: Operation, index: int) -> None:
        session = self._session
        match operation:
            case operations.CreateNodes():
                await object_operations.create_nodes(session, operation, index)
            case operations.CreateNamespaces():
                await object_operations.create_namespaces(session, operation)
            case operations.CreatePods():
                creation = PodCreation(session, operation, index)
                await creation.prepare()
                if operation.collect_metrics:
                    await self._start_phase(StartCollectingMetrics(namespaces=[creation.namespace]))
                await creation.run()
                if operation.collect_metrics:
                    await self._stop_phase()
            case operations.DeletePods(skip_wait_to_completion=True):
                self._in_background(delete_pods(session, operation))
            case operations.DeletePods():
                await delete_pods(session, operation)
            case operations.Churn():
                await session.ensure_namespace(operation.namespace or f"namespace-{index}")
                self._in_background(object_operations.churn(session, operation, index))
            case Barrier():
                await self._wait_at_barrier(operation)
            case operations.Sleep():
                await session.clock.sleep(operations.seconds(operation.duration))
            case StartCollectingMetrics():
                await self._start_phase(operation)
            case operations.StopCollectingMetrics():
                await self._stop_phase()
            case operations.CreateAny():
                await object_operations.create_any(session, operation)
            case operations.UpdateAny():
                await object_operations.update_any(session, operation)
            case operations.CreateResourceDriver():
                await object_operations.create_driver(session, operation)
            case operations.CreateResourceClaims():
                await object_operations.create_claims(session, operation)
            case operations.AllocateResourceClaims():
                await object_operations.allocate_claims(session, operation)
            case operations.CreatePodSets():
                raise AssertionError("the plan expands createPodSets")

    async def _start_phase(self, operation: StartCollectingMetrics) -> None:
        if self._collector.is_collecting:
            raise InputError(str(self._session.plan.file), f"{self._session.plan.name}: two measured phases overlap")
        await self._collector.start(operation.name, operation.namespaces, operation.label_selector)

    async def _stop_phase(self) -> None:
        if not self._collector.is_collecting:
            raise InputError(
                str(self._session.plan.file), f"{self._session.plan.name}: stopCollectingMetrics without a start"
            )
        self._phases.append(await self._collector.stop())

    async def _wait_at_barrier(self, operation: Barrier) -> None:
        """Wait for the pods that were created without waiting for them; afterwards they are forgotten."""
        session = self._session
        namespaces = operation.namespaces or list(session.awaited)
        for namespace in namespaces:
            if namespace not in session.awaited:
                raise InputError(str(session.plan.file), f"{session.plan.name}: barrier: unknown namespace {namespace}")
        attempted = operation.stage_requirement == "Attempted"
        for namespace in namespaces:
            count = session.awaited[namespace]
            await session.wait_for_pods(namespace, count, operation.label_selector, attempted=attempted)
        if not attempted:
            for namespace in namespaces:
                session.awaited.pop(namespace, None)

    def _in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._background.append(asyncio.create_task(coroutine))


#: How long to wait for the namespaces to disappear, in seconds, and between two looks.
_LIMIT, _INTERVAL = 120.0, 0.5


async def clean_up(session: Session) -> None:
    """Delete the pods, the other objects and the namespaces of a workload, and wait for the latter.

    What cannot be deleted is logged; the next workload that needs its name fails with a clear error.
    """
    cluster = session.cluster
    for namespace in session.namespaces:
        await _ignoring_failures(cluster.delete_pods(namespace, {}, immediately=True), f"pods of {namespace}")

    async def delete(number: int) -> None:
        reference = session.other_objects[number]
        await _ignoring_failures(
            cluster.delete(reference, immediately=reference.kind == "Pod"), f"{reference.kind} {reference.name}"
        )

    await session.in_parallel(len(session.other_objects), delete, visible=False)
    for namespace in session.namespaces:
        reference = ObjectIdentity("v1", "Namespace", "", namespace)
        await _ignoring_failures(cluster.delete(reference), f"namespace {namespace}")
    deadline = session.clock.monotonic() + _LIMIT
    left = set(session.namespaces)
    while left:
        left &= {obj["metadata"]["name"] for obj in await cluster.list_objects("v1", "Namespace")}
        if left and session.clock.monotonic() > deadline:
            names = sorted(left)
            _log.warning("the namespaces %s are still being deleted", ", ".join(names), extra=fields(namespaces=names))
            return
        if left:
            await session.clock.sleep(_INTERVAL)


async def _ignoring_failures(deletion: Awaitable[None], what: str) -> None:
    try:
        await deletion
    except (APIError, Unreachable) as error:
        _log.warning("cannot delete %s: %s", what, error, extra=fields(err=error))
