"""Volumes of pods: a claim for each pod, bound to a volume of its own."""

from __future__ import annotations

from kubestow_lab.scheduler_perf.execution.session import Session
from kubestow_lab.scheduler_perf.workload_files.operations import CreatePods

__all__ = ["create_volumes"]


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
