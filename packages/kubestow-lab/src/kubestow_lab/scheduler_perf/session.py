"""The state that the operations of one workload share: what was created, names, templates and limits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from kubestow.errors import APIError, InputError, KubestowError
from kubestow.scheduling.interfaces import Clock
from kubestow_lab.scheduler_perf.clusters import ClusterUnderTest, Creation, ObjectIdentity, reference_to
from kubestow_lab.scheduler_perf.object_templates import Object, ObjectTemplate
from kubestow_lab.scheduler_perf.pod_tracker import PodTracker
from kubestow_lab.scheduler_perf.test_cases import WorkloadPlan

_ALREADY_EXISTS = 409
#: Between two looks at the state of pods, in seconds.
_POLL_INTERVAL = 0.05


class WorkloadFailed(KubestowError):
    """A workload did not get to its end: pods were not scheduled in time, or the scheduler ended."""


class RunProgress(Protocol):
    """Where the progress of a workload is shown."""

    def operation(self, number: int, total: int, name: str) -> None:
        """The operation ``number`` of ``total`` begins."""

    def advanced(self, done: int, total: int) -> None:
        """So much of the operation is done: objects created, or pods scheduled."""


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """``concurrency`` is the number of requests in flight (scheduler_perf's: 30), ``timeout`` how long to wait for
    pods at one operation, in seconds."""

    concurrency: int = 30
    timeout: float = 600.0


@dataclass
class Session:
    """One run of a workload on a cluster."""

    plan: WorkloadPlan
    cluster: ClusterUnderTest
    tracker: PodTracker
    progress: RunProgress
    clock: Clock
    random: Random
    options: ExecutionOptions = field(default_factory=ExecutionOptions)
    #: The pods that a barrier waits for, by namespace: those created without waiting for them.
    awaited: dict[str, int] = field(default_factory=dict, init=False)
    #: The created namespaces, and the created objects that are in none of them: what has to be deleted afterwards.
    namespaces: dict[str, None] = field(default_factory=dict, init=False)
    other_objects: list[ObjectIdentity] = field(default_factory=list, init=False)
    _known_namespaces: set[str] = field(default_factory=set, init=False)
    _priority_classes: set[int] = field(default_factory=set, init=False)
    _templates: dict[Path, ObjectTemplate] = field(default_factory=dict, init=False)
    _numbers: itertools.count[int] = field(default_factory=itertools.count, init=False)

    def template(self, relative: str) -> ObjectTemplate:
        """A template, by its path relative to the workload file. Raises InputError."""
        path = self.plan.path(relative)
        if path not in self._templates:
            self._templates[path] = ObjectTemplate.read(path)
        return self._templates[path]

    def named(self, obj: Object) -> Object:
        """The object with a name; one with a ``generateName`` gets the next number of the session.

        Names that the driver gives are known before the request is sent, so an event that overtakes the response can
        be assigned.
        """
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("name"):
            prefix = metadata.pop("generateName", obj.get("kind", "object").lower() + "-")
            metadata["name"] = f"{prefix}{next(self._numbers)}"
        return obj

    async def prepare(self, obj: Object, namespace: str = "") -> Creation:
        """The creation of an object, which is also remembered for the clean-up unless its namespace is."""
        self.named(obj)
        if "kind" not in obj:
            raise InputError(str(self.plan.file), f"{self.plan.name}: an object has no kind: {obj['metadata']['name']}")
        create = await self.cluster.prepare(obj, namespace)
        if not await self.cluster.is_namespaced(obj.get("apiVersion", "v1"), obj["kind"]):
            self.other_objects.append(reference_to(obj))
        elif namespace not in self.namespaces:
            self.other_objects.append(reference_to(obj, namespace))
        return create

    async def create(self, obj: Object, namespace: str = "") -> Object:
        """Create an object now."""
        return await (await self.prepare(obj, namespace))()

    async def ensure_namespace(self, name: str, obj: Object | None = None) -> None:
        """Create a namespace unless this workload has created it already.

        Raises InputError if the namespace is left from before, with pods that would be counted.
        """
        self.awaited.setdefault(name, 0)
        if name in self._known_namespaces:
            return
        self._known_namespaces.add(name)
        namespace: Object = {"apiVersion": "v1", "kind": "Namespace", **(obj or {})}
        namespace["metadata"] = {**namespace.get("metadata", {}), "name": name}
        try:
            await (await self.cluster.prepare(namespace))()
        except APIError as error:
            if error.code != _ALREADY_EXISTS:
                raise
            if self.tracker.pods(name):
                raise InputError(f"namespace {name}", "already has pods; run on a cluster without them") from None
            return
        self.namespaces[name] = None

    async def ensure_priority_class(self, obj: Object) -> None:
        """Give a pod with a plain ``priority`` a class of that value, which API servers require."""
        spec = obj["spec"]
        priority = spec.get("priority")
        if not priority or spec.get("priorityClassName"):
            return
        name = spec["priorityClassName"] = f"benchmark-priority-{priority}".replace("--", "-minus-")
        if priority not in self._priority_classes:
            self._priority_classes.add(priority)
            priority_class = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": priority}
            await self.create(priority_class | {"metadata": {"name": name}})

    async def in_parallel(self, count: int, work: Callable[[int], Awaitable[Any]], *, visible: bool = True) -> None:
        """Call ``work`` with 0 to ``count - 1``, with limited concurrency. The first failure ends all."""
        indexes = iter(range(count))
        done = 0

        async def worker() -> None:
            nonlocal done
            for index in indexes:
                await work(index)
                done += 1
                if visible:
                    self.progress.advanced(done, count)

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self.options.concurrency, count)):
                workers.create_task(worker())

    async def paced(self, count: int, per_second: float) -> AsyncIterator[int]:
        """0 to ``count - 1``, so many per second; all at once if ``per_second`` is 0."""
        start = self.clock.monotonic()
        for index in range(count):
            if per_second:
                await self.clock.sleep(max(0.0, start + (index + 1) / per_second - self.clock.monotonic()))
            yield index

    async def wait_for_pods(
        self, namespace: str, count: int, labels: Mapping[str, str] | None = None, *, attempted: bool = False
    ) -> None:
        """Wait until ``count`` pods of a namespace are scheduled, or attempted. Raises WorkloadFailed."""
        deadline = self.clock.monotonic() + self.options.timeout
        state = self.tracker.attempted if attempted else self.tracker.scheduled
        while (done := state(namespace, labels)) < count:
            self.progress.advanced(done, count)
            if self.clock.monotonic() > deadline:
                what = "attempted" if attempted else "scheduled"
                problem = f"{done} of {count} pods in namespace {namespace} were {what}"
                pods = self.tracker.pods(namespace, labels)
                pending = next((pod for pod in pods if pod.exists and not pod.is_bound), None)
                example = pending and f"; pod {pending.name} is pending: {pending.message or 'no attempt was reported'}"
                raise WorkloadFailed(f"{problem} within {self.options.timeout:g} s{example or ''}")
            await self.clock.sleep(_POLL_INTERVAL)
        self.progress.advanced(count, count)
