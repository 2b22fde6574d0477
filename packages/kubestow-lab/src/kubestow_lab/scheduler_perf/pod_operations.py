"""The operations createPods and deletePods, and the volumes of created pods."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubestow_lab.scheduler_perf.clusters import Creation, ObjectIdentity
from kubestow_lab.scheduler_perf.object_templates import Object
from kubestow_lab.scheduler_perf.operations import CreatePods, DeletePods, seconds
from kubestow_lab.scheduler_perf.pod_tracker import PodRecord
from kubestow_lab.scheduler_perf.session import Session, WorkloadFailed


class PodCreation:
    """A createPods operation: :meth:`prepare` does what needs not be measured, :meth:`run` the rest."""

    def __init__(self, session: Session, operation: CreatePods, index: int) -> None:
        self._session, self._operation = session, operation
        self.namespace = operation.namespace or f"namespace-{index}"
        path = operation.pod_template_path or session.plan.case.default_pod_template_path
        self._template = session.template(path) if path else None
        self._prepared: list[tuple[str, Creation]] = []

    async def prepare(self) -> None:
        """Create the namespace and the volumes, and encode the pods."""
        session, operation = self._session, self._operation
        await session.ensure_namespace(self.namespace)
        if operation.persistent_volume_claim_template_path:
            await create_volumes(session, operation, self.namespace)
        self._prepared = [await self._prepare_pod(number) for number in range(operation.count)]

    async def _prepare_pod(self, number: int) -> tuple[str, Creation]:
        """The name and the creation of a pod."""
        session, operation = self._session, self._operation
        if self._template is None:  # a pod of scheduler_perf's size
            resources = {"cpu": "100m", "memory": "500Mi"}
            container = {
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10.1",
                "ports": [{"containerPort": 80}],
                "resources": {"requests": resources, "limits": resources},
            }
            pod: Object = {"metadata": {"generateName": "pod-"}, "spec": {"containers": [container]}}
        else:
            pod = self._template.object(number, operation.count, operation.template_params)
        pod |= {"apiVersion": "v1", "kind": "Pod"}
        session.named(pod)["metadata"].pop("namespace", None)
        if operation.persistent_volume_claim_template_path:
            claim = {"claimName": f"pvc-{number}"}
            pod["spec"]["volumes"] = [{"name": "vol", "persistentVolumeClaim": claim}]
        await session.ensure_priority_class(pod)
        return pod["metadata"]["name"], await session.prepare(pod, self.namespace)

    async def run(self) -> None:
        """Create the pods, and wait for them as the operation says. Raises WorkloadFailed."""
        session, operation = self._session, self._operation
        if operation.steady_state:
            await self._steadily()
            return
        await self._create(self._prepared)
        if operation.skip_wait_to_completion:
            session.awaited[self.namespace] += operation.count
        else:
            await session.wait_for_pods(self.namespace, operation.count)

    async def _create(self, pods: Sequence[tuple[str, Creation]]) -> None:
        async def create(number: int) -> None:
            name, creation = pods[number]
            self._session.tracker.creating(self.namespace, name)
            await creation()

        waits = not self._operation.skip_wait_to_completion
        await self._session.in_parallel(len(pods), create, visible=not waits)

    async def _steadily(self) -> None:
        """Delete each pod once it is scheduled and create another, until the time is over."""
        session, tracker = self._session, self._session.tracker
        scheduled: asyncio.Queue[PodRecord] = asyncio.Queue()

        def on_bound(record: PodRecord) -> None:
            if record.namespace == self.namespace:
                scheduled.put_nowait(record)

        previous, tracker.on_bound = tracker.on_bound, on_bound
        replacing = [asyncio.create_task(self._replace(scheduled)) for _ in range(session.options.concurrency)]
        duration = seconds(self._operation.duration)
        start, before = session.clock.monotonic(), tracker.bound
        try:
            await self._create(self._prepared)
            while (elapsed := session.clock.monotonic() - start) < duration:
                session.progress.advanced(int(elapsed), int(duration))
                finished, _ = await asyncio.wait(replacing, timeout=min(0.1, duration - elapsed))
                for task in finished:
                    task.result()
        finally:
            tracker.on_bound = previous
            for task in replacing:
                task.cancel()
            await asyncio.gather(*replacing, return_exceptions=True)
        if tracker.bound == before:
            raise WorkloadFailed(f"no pod was scheduled within {duration:g} s")

    async def _replace(self, scheduled: asyncio.Queue[PodRecord]) -> None:
        number = 0
        while True:
            record = await scheduled.get()
            reference = ObjectIdentity("v1", "Pod", record.namespace, record.name)
            await self._session.cluster.delete(reference, immediately=True)
            number += 1
            await self._create([await self._prepare_pod(number % max(1, self._operation.count))])


async def delete_pods(session: Session, operation: DeletePods) -> None:
    """Delete the existing pods of a namespace: one request for all of them, or so many per second."""
    if not operation.delete_pods_per_second:
        await session.cluster.delete_pods(operation.namespace, operation.label_selector)
        return
    pods = [pod for pod in session.tracker.pods(operation.namespace, operation.label_selector) if pod.exists]
    async for number in session.paced(len(pods), operation.delete_pods_per_second):
        await session.cluster.delete(ObjectIdentity("v1", "Pod", operation.namespace, pods[number].name))


async def create_volumes(session: Session, operation: CreatePods, namespace: str) -> None:
    """Create bound claims ``pvc-0``, ``pvc-1``, … and their volumes.

    They refer to each other and have the phase Bound, as a volume controller would leave them.
    """
    volume_template = session.template(operation.persistent_volume_template_path)
    claim_template = session.template(operation.persistent_volume_claim_template_path)

    async def create(number: int) -> None:
        claim = claim_template.object(number, operation.count, operation.template_params)
        volume = volume_template.object(number, operation.count, operation.template_params)
        name, volume_name = f"pvc-{number}", f"{namespace}-volume-{number}"
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        claim["metadata"] = claim.get("metadata", {}) | {"name": name}
        claim["spec"] |= {"volumeName": volume_name}
        volume |= {"apiVersion": "v1", "kind": "PersistentVolume"}
        volume["metadata"] = volume.get("metadata", {}) | {"name": volume_name}
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
        volume["spec"]["claimRef"] = reference
        if "csi" in volume["spec"]:
            volume["spec"]["csi"]["volumeHandle"] = volume_name
        elif "awsElasticBlockStore" in volume["spec"]:
            volume["spec"]["awsElasticBlockStore"]["volumeID"] = volume_name
        status = {"phase": "Bound"}
        for obj in (claim, volume):
            created = await session.create({**obj, "status": status}, namespace)
            await session.cluster.replace(
                {**created, "status": {**created.get("status", {}), **status}}, namespace, "status"
            )

    await session.in_parallel(operation.count, create)
