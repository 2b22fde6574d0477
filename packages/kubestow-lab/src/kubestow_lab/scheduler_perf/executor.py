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
from kubestow_lab.scheduler_perf.clusters import ObjectIdentity
from kubestow_lab.scheduler_perf.object_operations import (
    allocate_claims,
    churn,
    create_any,
    create_claims,
    create_driver,
    create_namespaces,
    create_nodes,
    update_any,
)
from kubestow_lab.scheduler_perf.operations import (
    AllocateResourceClaims,
    Barrier,
    Churn,
    CreateAny,
    CreateNamespaces,
    CreateNodes,
    CreatePods,
    CreatePodSets,
    CreateResourceClaims,
    CreateResourceDriver,
    DeletePods,
    Operation,
    Sleep,
    StartCollectingMetrics,
    StopCollectingMetrics,
    UpdateAny,
    opcode,
    seconds,
)
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
        operations = self._session.plan.operations()
        try:
            for number, (index, operation) in enumerate(operations):
                self._session.progress.operation(number, len(operations), opcode(operation))
                await self._execute(operation, index)
                self._raise_background_failures()
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
        return self._phases

    async def _execute(self, operation: Operation, index: int) -> None:
        session = self._session
        match operation:
            case CreateNodes():
                await create_nodes(session, operation, index)
            case CreateNamespaces():
                await create_namespaces(session, operation)
            case CreatePods():
                await self._create_pods(PodCreation(session, operation, index), collects=operation.collect_metrics)
            case DeletePods(skip_wait_to_completion=True):
                self._in_background(delete_pods(session, operation))
            case DeletePods():
                await delete_pods(session, operation)
            case Churn():
                namespace = operation.namespace or f"namespace-{index}"
                await session.ensure_namespace(namespace)
                self._in_background(churn(session, operation, index))
            case Barrier():
                await self._wait_at_barrier(operation)
            case Sleep():
                await session.clock.sleep(seconds(operation.duration))
            case StartCollectingMetrics():
                await self._start_phase(operation)
            case StopCollectingMetrics():
                await self._stop_phase()
            case CreateAny():
                await create_any(session, operation)
            case UpdateAny():
                await update_any(session, operation)
            case CreateResourceDriver():
                await create_driver(session, operation)
            case CreateResourceClaims():
                await create_claims(session, operation)
            case AllocateResourceClaims():
                await allocate_claims(session, operation)
            case CreatePodSets():
                raise AssertionError("the plan expands createPodSets")

    async def _create_pods(self, creation: PodCreation, *, collects: bool) -> None:
        await creation.prepare()
        if collects:
            await self._start_phase(StartCollectingMetrics(namespaces=[creation.namespace]))
        await creation.run()
        if collects:
            await self._stop_phase()

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

    def _raise_background_failures(self) -> None:
        for task in self._background:
            if task.done():
                task.result()


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
    await _wait_for_namespaces(session)


async def _wait_for_namespaces(session: Session) -> None:
    deadline = session.clock.monotonic() + _LIMIT
    created = set(session.namespaces)
    while created:
        existing = {obj["metadata"]["name"] for obj in await session.cluster.list_objects("v1", "Namespace")}
        created &= existing
        if created and session.clock.monotonic() > deadline:
            _log.warning(
                "the namespaces %s are still being deleted",
                ", ".join(sorted(created)),
                extra=fields(namespaces=sorted(created)),
            )
            return
        if created:
            await session.clock.sleep(_INTERVAL)


async def _ignoring_failures(deletion: Awaitable[None], what: str) -> None:
    try:
        await deletion
    except (APIError, Unreachable) as error:
        _log.warning("cannot delete %s: %s", what, error, extra=fields(err=error))
